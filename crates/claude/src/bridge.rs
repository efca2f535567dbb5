//! Why a bridge does not start.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use toolbridge_ipc::McpServer;

use crate::ClaudeCodeError;
use crate::run::Offer;

/// How long a bridge may take to fail.
const PATIENCE: Duration = Duration::from_secs(2);

/// Adds to the CLI's words, which are few, what the bridge itself says when it is started by hand.
pub(crate) async fn explain(error: ClaudeCodeError, offer: Option<&Offer>) -> ClaudeCodeError {
    let (ClaudeCodeError::BridgeStartup { server, reason }, Some(Offer::Stdio { session, .. })) =
        (error, offer)
    else {
        unreachable!("only a bridge that was offered can fail to start")
    };
    let by_hand = match session.mcp_server() {
        Ok(bridge) => tokio::task::spawn_blocking(move || start(&bridge)).await.ok(),
        Err(error) => Some(error.to_string()),
    };
    let reason = by_hand.map_or(reason.clone(), |said| format!("{reason}; {said}"));
    ClaudeCodeError::BridgeStartup { server, reason }
}

/// Starts a bridge without a client, and says how that went.
fn start(bridge: &McpServer) -> String {
    let name = bridge.command.display();
    let mut command = Command::new(&bridge.command);
    command.args(&bridge.args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return format!("`{name}` cannot be started: {error}"),
    };
    let started = Instant::now();
    while matches!(child.try_wait(), Ok(None)) && started.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    _ = child.kill();
    match child.wait_with_output() {
        Ok(output) if output.status.success() => format!("`{name}` starts when it is started by hand"),
        Ok(output) => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let last = stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
            format!("`{name}` ends with {}: {last}", output.status)
        }
        Err(error) => format!("`{name}` cannot be watched: {error}"),
    }
}
