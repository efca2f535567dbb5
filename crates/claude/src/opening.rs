//! How a request begins: hello, tools, prompt.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use toolbridge_core::RawJson;

use crate::control::{Control, Unanswered};
use crate::error::ExecutionKind;
use crate::event::McpServerStatus;
use crate::{ClaudeCodeError, Transport};

/// How often the CLI is asked whether it has connected to our server.
const CONNECTING: Duration = Duration::from_millis(20);

/// How long the CLI may not even name our server before it is asked all the same.
pub(crate) const UNKNOWN_PATIENCE: Duration = Duration::from_secs(5);

/// How far the beginning has come.
#[derive(Debug, Default)]
pub(crate) struct Stage(AtomicU8);

impl Stage {
    const CONNECTING: u8 = 1;
    const ASKED: u8 = 2;

    /// The CLI has started, and is not connected to our server yet.
    pub(crate) fn is_connecting(&self) -> bool {
        self.0.load(Ordering::SeqCst) == Self::CONNECTING
    }

    /// The prompt has been sent, or is being sent.
    pub(crate) fn has_asked(&self) -> bool {
        self.0.load(Ordering::SeqCst) == Self::ASKED
    }

    fn set(&self, stage: u8) {
        self.0.store(stage, Ordering::SeqCst);
    }
}

/// What it takes to begin.
pub(crate) struct Opening {
    pub(crate) control: Arc<Control>,
    /// Our server, if there are tools.
    pub(crate) server: Option<String>,
    /// What it is told first, as an `initialize` request.
    pub(crate) hello: Value,
    /// How long it may not even name our server.
    pub(crate) patience: Duration,
    pub(crate) stage: Arc<Stage>,
}

impl Opening {
    /// Says hello, waits until the CLI has the tools, and asks.
    pub(crate) async fn open(self, prompt: String) -> Result<(), ClaudeCodeError> {
        let says_something = self.hello.as_object().is_some_and(|said| said.len() > 2)
            || self.hello.get("hooks").is_some_and(|hooks| !hooks.is_null());
        match self.control.ask(self.hello.clone()).await {
            Ok(_) => {}
            // Nobody would keep the restrictions, and the model would not have its prompt.
            Err(Unanswered::Refused(reason)) if says_something => {
                let message = format!("the CLI does not take its prompts and restrictions: {reason}");
                return Err(ClaudeCodeError::execution(ExecutionKind::Start, message));
            }
            Err(Unanswered::Refused(reason)) => tracing::debug!(%reason, "the CLI does not initialize"),
            // Its end is seen elsewhere, with its reason.
            Err(Unanswered::Gone) => return Ok(()),
        }
        if let Some(server) = &self.server {
            self.stage.set(Stage::CONNECTING);
            self.connected(server).await?;
        }
        self.stage.set(Stage::ASKED);
        if let Err(error) = self.control.write(prompt.as_bytes(), b"", b"").await {
            tracing::debug!(%error, "the CLI does not read the prompt");
        }
        Ok(())
    }

    /// Waits until the CLI is connected to our server. The model is not asked before, because it would not
    /// know of the tools.
    async fn connected(&self, server: &str) -> Result<(), ClaudeCodeError> {
        let started = Instant::now();
        loop {
            let status = match self.control.ask(json!({ "subtype": "mcp_status" })).await {
                Ok(status) => status,
                // An older CLI. It reports the servers when it begins with the prompt.
                Err(Unanswered::Refused(_) | Unanswered::Gone) => return Ok(()),
            };
            match server_status(&status, server) {
                Some(status) if status.status == "connected" => return Ok(()),
                Some(status) if status.status == "pending" => {}
                Some(status) => return Err(not_connected(&status)),
                // Some versions name servers only once they have the prompt; what they say then decides.
                None if started.elapsed() >= self.patience => return Ok(()),
                None => {}
            }
            sleep(CONNECTING).await;
        }
    }
}

fn server_status(status: &RawJson, server: &str) -> Option<McpServerStatus> {
    #[derive(Deserialize)]
    struct Status {
        #[serde(rename = "mcpServers")]
        servers: Vec<Value>,
    }
    let status: Status = status.decode().ok()?;
    let ours = status.servers.into_iter().find(|status| status["name"] == server)?;
    serde_json::from_value(ours).ok()
}

/// A server that is not connected, as an error.
pub(crate) fn not_connected(status: &McpServerStatus) -> ClaudeCodeError {
    let reason = match &status.error {
        Some(error) => format!("the CLI says `{}`: {error}", status.status),
        None => format!("the CLI says `{}`", status.status),
    };
    ClaudeCodeError::BridgeStartup { server: status.name.clone(), reason, transport: Transport::Stdio }
}

/// A server that the CLI does not even name, as an error.
pub(crate) fn unknown(server: &str) -> ClaudeCodeError {
    let reason = "the CLI does not know of it; a policy may forbid MCP servers".into();
    ClaudeCodeError::BridgeStartup { server: server.into(), reason, transport: Transport::Stdio }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_server_is_found_whatever_is_said_of_others() {
        let status = RawJson::from(&json!({ "mcpServers": [
            { "name": "other", "status": "failed", "error": { "code": 1 } },
            { "name": "tools", "status": "failed", "error": "Connection closed" },
        ] }));
        let ours = server_status(&status, "tools").unwrap();
        assert_eq!(
            not_connected(&ours).to_string(),
            "the tools of server `tools` are not available: the CLI says `failed`: Connection closed"
        );
        assert!(server_status(&status, "nobody").is_none());
    }
}
