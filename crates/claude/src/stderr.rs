//! The end of what a process says on its stderr.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

/// How much is kept.
const KEPT_BYTES: usize = 8 * 1024;

/// How long the last words may take once the process has ended: somebody else may hold the pipe.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Reads to the end, and keeps the end.
#[derive(Debug)]
pub(crate) struct Tail {
    kept: Arc<Mutex<Vec<u8>>>,
    reading: AbortOnDropHandle<()>,
}

impl Tail {
    pub(crate) fn of(mut stderr: pipe::Receiver) -> Self {
        let kept = Arc::<Mutex<Vec<u8>>>::default();
        let tail = Arc::clone(&kept);
        let reading = tokio::spawn(async move {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
                let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
                tail.extend(&buffer[..count]);
                let surplus = tail.len().saturating_sub(KEPT_BYTES);
                tail.drain(..surplus);
            }
        });
        Self { kept, reading: AbortOnDropHandle::new(reading) }
    }

    /// What was kept, once the process has ended.
    pub(crate) async fn text(&mut self) -> String {
        _ = timeout(LAST_WORDS, &mut self.reading).await;
        String::from_utf8_lossy(&self.kept.lock().unwrap_or_else(PoisonError::into_inner)).trim().to_owned()
    }
}
