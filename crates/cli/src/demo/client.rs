//! An MCP client that starts a bridge as the CLI does.
//!
//! Not rmcp's client: the bridge is built with rmcp, and the demo shows that it works with other clients.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;
use toolbridge::ipc::BridgeCommand;

/// Longer than anything in the demo takes; a bridge that hangs must not hang the demo.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Client {
    child: Child,
    stdin: tokio::sync::Mutex<Option<ChildStdin>>,
    last_id: AtomicU64,
    inbox: Arc<Mutex<Inbox>>,
}

#[derive(Default)]
struct Inbox {
    waiting: HashMap<u64, oneshot::Sender<Value>>,
    /// The number of progress notifications per call.
    progress: HashMap<u64, usize>,
}

/// How a call ended.
pub(crate) struct Answer {
    /// A result, or a protocol error.
    pub(crate) result: Result<Value, Value>,
    /// The number of progress notifications before it.
    pub(crate) progress: usize,
    pub(crate) time: Duration,
}

impl Answer {
    /// Whether it is a result and not an error.
    pub(crate) fn is_good(&self) -> bool {
        self.result.as_ref().is_ok_and(|result| result["isError"] == false)
    }
}

impl Client {
    /// Starts the bridge, does the handshake, and returns the client with the tools that the bridge lists.
    pub(crate) async fn start(server: &BridgeCommand) -> Result<(Self, Vec<Value>)> {
        let mut child = Command::new(&server.command)
            .args(&server.args)
            .envs(&server.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start the bridge `{}`", server.command.display()))?;
        let stdin = child.stdin.take().context("the bridge has no stdin")?;
        let stdout = child.stdout.take().context("the bridge has no stdout")?;
        let inbox = Arc::default();
        tokio::spawn(read(stdout, Arc::clone(&inbox)));
        let client =
            Self { child, stdin: tokio::sync::Mutex::new(Some(stdin)), last_id: AtomicU64::new(0), inbox };
        let hello = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "toolbridge-demo", "version": env!("CARGO_PKG_VERSION") },
        });
        client.request("initialize", hello).await?;
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await?;
        let Ok(mut result) = client.request("tools/list", json!({})).await?.result else {
            bail!("the bridge does not list its tools")
        };
        let Value::Array(tools) = result["tools"].take() else {
            bail!("the bridge's list of tools is not an array")
        };
        Ok((client, tools))
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    pub(crate) async fn call(&self, tool: &str, arguments: &Value) -> Result<Answer> {
        let id = self.next_id();
        let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": id } });
        self.request_as(id, "tools/call", params).await
    }

    /// Starts a call, cancels it once `begun` completes, and returns the time of the cancellation.
    pub(crate) async fn call_and_cancel(
        &self,
        tool: &str,
        arguments: &Value,
        begun: impl Future<Output = ()>,
    ) -> Result<Instant> {
        let id = self.next_id();
        let params = json!({ "name": tool, "arguments": arguments });
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })).await?;
        tokio::time::timeout(PATIENCE, begun).await.context("the call did not begin")?;
        let params = json!({ "requestId": id, "reason": "the demo cancels this call" });
        let cancelled = Instant::now();
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }))
            .await?;
        Ok(cancelled)
    }

    /// Closes the bridge's stdin, as a client does at its end, and waits for the bridge to exit.
    pub(crate) async fn stop(mut self) -> Result<std::process::ExitStatus> {
        drop(self.stdin.lock().await.take());
        Ok(tokio::time::timeout(PATIENCE, self.child.wait()).await.context("the bridge did not end")??)
    }

    fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    async fn request(&self, method: &str, params: Value) -> Result<Answer> {
        self.request_as(self.next_id(), method, params).await
    }

    async fn request_as(&self, id: u64, method: &str, params: Value) -> Result<Answer> {
        let (sender, receiver) = oneshot::channel();
        lock(&self.inbox).waiting.insert(id, sender);
        let started = Instant::now();
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await?;
        let mut answer = tokio::time::timeout(PATIENCE, receiver)
            .await
            .with_context(|| format!("no answer to `{method}` within {} s", PATIENCE.as_secs()))?
            .context("the bridge ended")?;
        let time = started.elapsed();
        let progress = lock(&self.inbox).progress.remove(&id).unwrap_or_default();
        let result = match answer.get_mut("error") {
            Some(error) => Err(error.take()),
            None => Ok(answer["result"].take()),
        };
        Ok(Answer { result, progress, time })
    }

    async fn send(&self, message: &Value) -> Result<()> {
        let line = format!("{message}\n");
        let mut stdin = self.stdin.lock().await;
        let stdin = stdin.as_mut().context("the bridge is being stopped")?;
        Ok(stdin.write_all(line.as_bytes()).await?)
    }
}

fn lock(inbox: &Mutex<Inbox>) -> std::sync::MutexGuard<'_, Inbox> {
    inbox.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn read(stdout: ChildStdout, inbox: Arc<Mutex<Inbox>>) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
        let mut inbox = lock(&inbox);
        if let Some(id) = message["id"].as_u64() {
            if let Some(waiting) = inbox.waiting.remove(&id) {
                _ = waiting.send(message);
            }
        } else if let Some(token) = message["params"]["progressToken"].as_u64() {
            *inbox.progress.entry(token).or_default() += 1;
        }
    }
    // Dropping the senders tells waiting requests that the bridge has ended.
    lock(&inbox).waiting.clear();
}
