//! The end of what a process says on its stderr.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How much is kept.
const KEPT_BYTES: usize = 8 * 1024;

/// How long the last words may take once the process has ended: somebody else may hold the pipe.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Reads to the end, and keeps the end.
#[derive(Debug)]
pub(crate) struct Tail {
    kept: Arc<Mutex<VecDeque<u8>>>,
    reading: JoinHandle<()>,
}

impl Tail {
    pub(crate) fn of(mut stderr: pipe::Receiver) -> Self {
        let kept = Arc::<Mutex<VecDeque<u8>>>::default();
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
        Self { kept, reading }
    }

    /// What was kept, once the process has ended.
    pub(crate) async fn text(mut self) -> String {
        _ = timeout(LAST_WORDS, &mut self.reading).await;
        let bytes: Vec<u8> =
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.reading.abort();
    }
}
