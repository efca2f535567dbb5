//! Which version of the CLI it is.

use std::path::Path;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use crate::ClaudeCodeError;
use crate::error::ExecutionKind;
use crate::process::{self, Process};

/// How long the CLI may take to say its version.
const PATIENCE: Duration = Duration::from_secs(20);

/// How much of what it says is read.
const READ_BYTES: usize = 1024;

/// Asks the CLI at `path` for its version.
///
/// # Errors
///
/// When it does not start, does not answer in time, or fails.
pub async fn cli_version(path: &Path) -> Result<String, ClaudeCodeError> {
    let failed = |what: String| {
        let message = format!("`{}` does not say its version: {what}", path.display());
        ClaudeCodeError::execution(ExecutionKind::Exit, message)
    };
    let mut command = process::command(path, None);
    command.arg("--version").env_remove("CLAUDECODE");
    let (mut process, mut pipes) = Process::start(command)?;
    drop(pipes.stdin);
    let mut text = vec![0; READ_BYTES];
    let reading = async {
        let mut count = 0;
        while let Ok(more @ 1..) = pipes.stdout.read(&mut text[count..]).await {
            count += more;
        }
        count
    };
    let ended = timeout(PATIENCE, async { (reading.await, process.exited().await) });
    let Ok((count, status)) = ended.await else {
        return Err(failed(format!("no answer within {} s", PATIENCE.as_secs())));
    };
    if let Some(status) = status.filter(|status| !status.success()) {
        return Err(failed(format!("it ends with {status}")));
    }
    let text = String::from_utf8_lossy(&text[..count]).into_owned();
    text.split_whitespace().next().map(Into::into).ok_or_else(|| failed("it says nothing".into()))
}
