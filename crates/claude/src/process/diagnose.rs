//! Detailed explanations for a missing result or for missing tools.

use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use toolbridge_core::ipc::BridgeCommand;

use crate::error::ExecutionKind;
use crate::process;
use crate::response::McpServerStatus;
use crate::tools::Channel;
use crate::{ClaudeCodeError, Transport};

/// How long a bridge may take to fail.
const PATIENCE: Duration = Duration::from_secs(2);

/// The status, and why the server failed.
pub(crate) fn cli_says(status: &McpServerStatus) -> String {
    let error = status.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    format!("the CLI says `{}`{error}", status.status)
}

/// Error for a server that is not connected.
pub(crate) fn not_connected(status: &McpServerStatus) -> ClaudeCodeError {
    ClaudeCodeError::bridge(&status.name, cli_says(status))
}

/// Error for a server that the CLI does not list.
pub(crate) fn unknown(server: &str) -> ClaudeCodeError {
    ClaudeCodeError::bridge(server, "the CLI does not list it; a policy may forbid MCP servers")
}

/// Explains a missing result from the CLI's exit status and stderr.
pub(crate) fn no_result(
    status: Option<ExitStatus>,
    stderr: &str,
    unreadable: Option<String>,
) -> ClaudeCodeError {
    let stderr = if stderr.is_empty() { String::new() } else { format!(": {stderr}") };
    if let (Some(reason), true) = (unreadable, status.is_some_and(|status| status.success())) {
        return ClaudeCodeError::CliResponseParse {
            reason: format!("there is no result in it, and {reason}{stderr}"),
        };
    }
    let how = status.map_or("the CLI ended".into(), |status| format!("the CLI ended with {status}"));
    ClaudeCodeError::execution(ExecutionKind::Exit, format!("{how} and without a result{stderr}"))
}

/// The error of a guardian that cannot run programs: it ended, not the CLI.
pub(crate) async fn broken_guardian(guardian: &Path) -> Option<ClaudeCodeError> {
    /// No status that an executable returns by itself.
    const STATUS: i32 = 86;
    let mut command = process::command(Path::new("/bin/sh"), Some(guardian));
    command.arg("-c").arg(format!("exit {STATUS}"));
    // One that takes longer may only be slow.
    let status = match process::output_of(command, None, PATIENCE).await {
        Ok(output) => output?.0?,
        Err(error) => return Some(error),
    };
    (status.code() != Some(STATUS))
        .then(|| ClaudeCodeError::guardian(format!("`{}` ends with {status}", guardian.display())))
}

/// Adds the output of a manually started bridge to an error about our server.
pub(crate) async fn explain(mut error: ClaudeCodeError, channel: Option<&Channel>) -> ClaudeCodeError {
    if let (ClaudeCodeError::BridgeStartup { reason, transport, .. }, Some(channel)) = (&mut error, channel) {
        match channel.session().map(|session| session.mcp_server()) {
            None => *transport = Transport::Sdk,
            Some(Ok(bridge)) => reason.push_str(&format!("; {}", start(&bridge).await)),
            Some(Err(error)) => reason.push_str(&format!("; {error}")),
        }
    }
    error
}

/// Starts a bridge without a client and reports what happened.
async fn start(bridge: &BridgeCommand) -> String {
    let name = bridge.command.display();
    let mut command = process::command(&bridge.command, None);
    command.args(&bridge.args).envs(&bridge.env);
    let (status, stderr) = match process::output_of(command, None, PATIENCE).await {
        Ok(Some((status, _, stderr))) => (status, stderr),
        Ok(None) => return format!("`{name}` does not end when it is started by hand without a client"),
        Err(error) => return error.to_string(),
    };
    match status {
        Some(status) if status.success() => format!("`{name}` works when it is started by hand"),
        Some(status) => {
            let last = stderr.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it prints nothing");
            format!("`{name}` ends with {status}: {last}")
        }
        None => format!("the exit status of `{name}` is unknown"),
    }
}
