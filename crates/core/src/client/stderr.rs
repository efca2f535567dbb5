//! A server's stderr: logged line by line, and the last line is kept for errors.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::sync::Mutex as AsyncMutex;
use tokio_util::task::AbortOnDropHandle;

/// The limit for one line; the rest is cut off.
const MAX_LINE_BYTES: usize = 1000;

/// How long to wait for the end of stderr after the server has ended: another process may still hold the pipe
/// open.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(300);

/// Reads to the end, and keeps the last line.
#[derive(Debug)]
pub(crate) struct Stderr {
    last: Arc<Mutex<Option<String>>>,
    reading: AsyncMutex<AbortOnDropHandle<()>>,
}

impl Stderr {
    pub(crate) fn follow(server: Arc<str>, mut stderr: pipe::Receiver) -> Self {
        let last = Arc::<Mutex<Option<String>>>::default();
        let kept = Arc::clone(&last);
        let reading = tokio::spawn(async move {
            let mut lines = Lines::default();
            let mut buffer = [0; 4096];
            loop {
                let read = stderr.read(&mut buffer).await.unwrap_or(0);
                let told = if read == 0 { lines.rest() } else { lines.take(&buffer[..read]) };
                for line in told {
                    tracing::info!(target: "toolbridge::server", server = &*server, "{line}");
                    *kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
                }
                if read == 0 {
                    return;
                }
            }
        });
        Self { last, reading: AsyncMutex::new(AbortOnDropHandle::new(reading)) }
    }

    /// The last line so far.
    pub(crate) fn last(&self) -> Option<String> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The last line of a server that has ended.
    pub(crate) async fn last_line_at_end(&self) -> Option<String> {
        _ = tokio::time::timeout(DRAIN_TIMEOUT, &mut *self.reading.lock().await).await;
        self.last()
    }
}

/// Splits bytes into lines for display: without control characters, and not too long.
#[derive(Default)]
struct Lines {
    line: Vec<u8>,
}

impl Lines {
    fn take(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut told = Vec::new();
        let mut parts = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            let room = (MAX_LINE_BYTES + 1).saturating_sub(self.line.len());
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            if parts.peek().is_some() {
                told.extend(self.end());
            }
        }
        told
    }

    fn rest(&mut self) -> Vec<String> {
        self.end().into_iter().collect()
    }

    fn end(&mut self) -> Option<String> {
        let mut line = std::mem::take(&mut self.line);
        let is_cut = line.len() > MAX_LINE_BYTES;
        line.truncate(MAX_LINE_BYTES);
        let text = String::from_utf8_lossy(&line).replace(char::is_control, " ");
        let text = text.trim_end();
        (!text.trim_start().is_empty()).then(|| if is_cut { format!("{text}…") } else { text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_returned_one_by_one_and_long_ones_are_cut() {
        let mut lines = Lines::default();
        assert_eq!(lines.take(b"one\r\n\n  \ntw"), ["one"]);
        assert_eq!(lines.take(b"o\n\x1b[31mthree\xff"), ["two"]);
        assert_eq!(lines.rest(), [" [31mthree\u{fffd}"]);
        let long = lines.take(&[b"x".repeat(5000), b"\nshort\n".to_vec()].concat());
        assert_eq!(long, [format!("{}…", "x".repeat(MAX_LINE_BYTES)), "short".into()]);
        assert!(lines.rest().is_empty());
    }
}
