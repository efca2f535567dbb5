//! The control channel: requests and responses written to the CLI's stdin.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::net::unix::pipe;
use toolbridge_core::call::CancellationToken;
use toolbridge_core::mcp::{LineWriter, Outgoing as _};

/// The write end of the CLI's stdin. Any holder can close it for all others.
#[derive(Debug)]
pub(crate) struct Control {
    lines: Mutex<Option<LineWriter>>,
    closed: CancellationToken,
    last_id: AtomicU64,
}

/// A request to the CLI, as a line.
pub(crate) fn request_line(id: &str, request: &Value) -> String {
    json!({ "type": "control_request", "request_id": id, "request": request }).to_string()
}

/// The response to a request of the CLI, as a line.
pub(crate) fn response_line(id: &str, result: Result<Value, String>) -> String {
    let response = match result {
        Ok(response) => json!({ "subtype": "success", "request_id": id, "response": response }),
        Err(error) => json!({ "subtype": "error", "request_id": id, "error": error }),
    };
    json!({ "type": "control_response", "response": response }).to_string()
}

impl Control {
    pub(crate) fn new(stdin: pipe::Sender) -> Self {
        let lines = Mutex::new(Some(LineWriter::new(stdin)));
        Self { lines, closed: CancellationToken::new(), last_id: AtomicU64::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<LineWriter>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the CLI's stdin, even if a write is in progress. The CLI ends then.
    pub(crate) fn close(&self) {
        self.lock().take();
        self.closed.cancel();
    }

    pub(crate) fn new_id(&self) -> String {
        format!("toolbridge_request_{}", self.last_id.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Writes one line. If that fails the channel is closed, so that the CLI ends
    /// instead of waiting for the lost line.
    pub(crate) async fn write_line(&self, line: String) -> io::Result<()> {
        self.write([line.into(), Bytes::new(), Bytes::new()]).await
    }

    /// The same for a line in parts.
    pub(crate) async fn write(&self, parts: [Bytes; 3]) -> io::Result<()> {
        let sent = self.unless_closed(async |lines| lines.send(None, parts).await).await;
        if let Err(error) = &sent {
            tracing::debug!(%error, "the CLI has stopped reading");
            self.close();
        }
        sent
    }

    pub(crate) async fn finish(&self) -> io::Result<()> {
        self.unless_closed(async |lines| lines.finish().await).await
    }

    async fn unless_closed(&self, write: impl AsyncFnOnce(LineWriter) -> io::Result<()>) -> io::Result<()> {
        let Some(lines) = self.lock().clone() else { return Err(io::ErrorKind::BrokenPipe.into()) };
        tokio::select! {
            written = write(lines) => written,
            () = self.closed.cancelled() => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn closing_ends_pending_writes() {
        let (ours, mut theirs) = pipe::pipe().unwrap();
        let control = Control::new(ours);
        // More than the pipe's buffer holds, so the write blocks until the channel is closed.
        let large = "x".repeat(1 << 20);
        let closing = async {
            theirs.read_u8().await.unwrap();
            control.close();
        };
        let (written, ()) = tokio::join!(control.write_line(large), closing);
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(control.write_line("{}".into()).await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let mut rest = Vec::new();
        assert!(theirs.read_to_end(&mut rest).await.unwrap() < 1 << 20);
    }
}
