//! A server's stderr: logged line by line, and the last line is kept for errors.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

/// The limit for one line; a longer one is logged as several.
const MAX_LINE_BYTES: u64 = 1000;

/// How long to wait for the end of stderr after the server has ended: another process may still hold the pipe
/// open.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(300);

/// Reads to the end, and keeps the last line.
#[derive(Debug)]
pub(crate) struct Stderr {
    last: watch::Receiver<Option<String>>,
    _reading: AbortOnDropHandle<()>,
}

impl Stderr {
    pub(crate) fn follow(server: Arc<str>, stderr: pipe::Receiver) -> Self {
        let (tell, last) = watch::channel(None);
        let reading = tokio::spawn(async move {
            let (mut stderr, mut line) = (BufReader::new(stderr), Vec::new());
            while let Ok(1..) = (&mut stderr).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await {
                let text = String::from_utf8_lossy(&line).replace(char::is_control, " ");
                let text = text.trim_end();
                if !text.is_empty() {
                    tracing::info!(target: "toolbridge::server", server = &*server, "{text}");
                    tell.send_replace(Some(text.to_owned()));
                }
                line.clear();
            }
        });
        Self { last, _reading: AbortOnDropHandle::new(reading) }
    }

    /// The last line so far.
    pub(crate) fn last(&self) -> Option<String> {
        self.last.borrow().clone()
    }

    /// The last line of a server that has ended.
    pub(crate) async fn last_line_at_end(&mut self) -> Option<String> {
        _ = timeout(DRAIN_TIMEOUT, async { while self.last.changed().await.is_ok() {} }).await;
        self.last()
    }
}
