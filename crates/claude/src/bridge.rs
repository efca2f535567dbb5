//! Why a bridge does not start.

use std::time::Duration;

use tokio::time::timeout;
use toolbridge_ipc::McpServer;

use crate::process::{self, Process};
use crate::run::Offer;
use crate::tail::Tail;
use crate::{ClaudeCodeError, Transport};

/// How long a bridge may take to fail.
const PATIENCE: Duration = Duration::from_secs(2);

/// Adds to the CLI's words, which are few, what the bridge itself says when it is started by hand.
pub(crate) async fn explain(error: ClaudeCodeError, offer: Option<&Offer>) -> ClaudeCodeError {
    match (error, offer) {
        (ClaudeCodeError::BridgeStartup { server, reason, .. }, Some(Offer::Sdk { .. })) => {
            ClaudeCodeError::BridgeStartup { server, reason, transport: Transport::Sdk }
        }
        (
            ClaudeCodeError::BridgeStartup { server, reason, transport },
            Some(Offer::Stdio { session, .. }),
        ) => {
            let said = match session.mcp_server() {
                Ok(bridge) => start(&bridge).await,
                Err(error) => error.to_string(),
            };
            ClaudeCodeError::BridgeStartup { server, reason: format!("{reason}; {said}"), transport }
        }
        (error, _) => error,
    }
}

/// Starts a bridge without a client, and says how that went.
async fn start(bridge: &McpServer) -> String {
    let name = bridge.command.display();
    let mut command = process::command(&bridge.command, None);
    command.args(&bridge.args).envs(&bridge.env);
    let (mut process, pipes) = match Process::start(command, None).await {
        Ok(started) => started,
        Err(error) => return error.to_string(),
    };
    drop(pipes.stdin);
    let stderr = Tail::of(pipes.stderr);
    let Ok(status) = timeout(PATIENCE, process.exited()).await else {
        process.end_now().await;
        return format!("`{name}` does not end when it is started by hand without a client");
    };
    match status {
        Some(status) if status.success() => format!("`{name}` starts when it is started by hand"),
        Some(status) => {
            let said = stderr.text().await;
            let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
            format!("`{name}` ends with {status}: {last}")
        }
        None => format!("`{name}` cannot be watched"),
    }
}
