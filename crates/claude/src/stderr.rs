//! Reads a process's stderr: keeps the end of it, and passes each line to a listener.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::opaque::Opaque;

/// How many bytes are kept.
const KEPT_BYTES: usize = 8 * 1024;

/// How long to read on after the process has exited: another process may hold the pipe open.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// A user's function that is called with every line.
pub(crate) type OnStderr = Opaque<dyn Fn(&str) + Send + Sync>;

/// Reads until the end and keeps the last bytes.
#[derive(Debug)]
pub(crate) struct Tail {
    heard: Arc<Mutex<Heard>>,
    reading: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Heard {
    kept: Vec<u8>,
    /// Bytes that have not been passed to a listener yet.
    untold: Vec<u8>,
    listener: Option<OnStderr>,
}

impl fmt::Debug for Heard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heard").field("kept", &self.kept.len()).finish_non_exhaustive()
    }
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Heard {
    fn hear(&mut self, bytes: &[u8]) {
        for (buffer, most) in [(&mut self.kept, KEPT_BYTES), (&mut self.untold, 8 * KEPT_BYTES)] {
            buffer.extend(bytes);
            let surplus = buffer.len().saturating_sub(most);
            buffer.drain(..surplus);
        }
        self.tell();
    }

    /// Passes complete lines to the listener.
    fn tell(&mut self) {
        let Some(Opaque(listener)) = self.listener.clone() else { return };
        let end = self.untold.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let lines: Vec<u8> = self.untold.drain(..end).collect();
        for line in String::from_utf8_lossy(&lines).lines() {
            // A panic in the listener must not stop reading.
            if catch_unwind(AssertUnwindSafe(|| listener(line))).is_err() {
                tracing::error!("the function for the CLI's stderr panicked");
            }
        }
    }
}

impl Tail {
    pub(crate) fn of(mut stderr: pipe::Receiver) -> Self {
        let heard = Arc::<Mutex<Heard>>::default();
        let hearing = Arc::clone(&heard);
        let reading = tokio::spawn(async move {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
                lock(&hearing).hear(&buffer[..count]);
            }
            let mut heard = lock(&hearing);
            if !heard.untold.is_empty() {
                heard.untold.push(b'\n');
                heard.tell();
            }
        });
        Self { heard, reading: AbortOnDropHandle::new(reading) }
    }

    /// Passes every line from now on, and those not passed yet, to the listener.
    pub(crate) fn tell(&self, listener: Option<OnStderr>) {
        let mut heard = lock(&self.heard);
        heard.listener = listener;
        heard.tell();
    }

    /// The kept text, once the process has exited.
    pub(crate) async fn text(&mut self) -> String {
        _ = timeout(LAST_WORDS, &mut self.reading).await;
        String::from_utf8_lossy(&lock(&self.heard).kept).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn lines_are_told_whole_and_a_panic_is_not_the_end() {
        let (mut theirs, ours) = pipe::pipe().unwrap();
        let mut tail = Tail::of(ours);
        theirs.write_all(b"one\ntw").await.unwrap();
        let told = Arc::<Mutex<Vec<String>>>::default();
        let list = Arc::clone(&told);
        tail.tell(Some(Opaque(Arc::new(move |line: &str| {
            list.lock().unwrap().push(line.to_owned());
            assert_ne!(line, "two");
        }))));
        theirs.write_all(b"o\nthree\nfour").await.unwrap();
        drop(theirs);
        assert_eq!(tail.text().await, "one\ntwo\nthree\nfour");
        let told = told.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(*told, ["one", "two", "three", "four"]);
    }
}
