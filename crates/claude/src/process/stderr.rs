//! Reads a process's stderr: keeps the end of it, and passes each line to a listener.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::callbacks::OnStderr;
use crate::opaque::Opaque;

/// How many bytes are kept.
const KEPT_BYTES: usize = 8 * 1024;

/// How many bytes wait for a listener at most.
const MAX_PENDING_BYTES: usize = 8 * KEPT_BYTES;

/// How long to read on after the process has exited: another process may hold the pipe open.
const LAST_OUTPUT: Duration = Duration::from_millis(500);

/// Reads until the end and keeps the last bytes.
#[derive(Debug)]
pub(crate) struct Tail {
    output: Arc<Mutex<Output>>,
    reading: AbortOnDropHandle<()>,
}

#[derive(Debug, Default)]
struct Output {
    kept: VecDeque<u8>,
    /// Bytes that have not been passed to a listener yet.
    pending: VecDeque<u8>,
    listener: Option<OnStderr>,
}

fn lock(output: &Mutex<Output>) -> MutexGuard<'_, Output> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Output {
    fn push(&mut self, bytes: &[u8]) {
        for (buffer, most) in [(&mut self.kept, KEPT_BYTES), (&mut self.pending, MAX_PENDING_BYTES)] {
            buffer.extend(bytes);
            let surplus = buffer.len().saturating_sub(most);
            buffer.drain(..surplus);
        }
        self.pass_lines();
    }

    /// Passes complete lines to the listener.
    fn pass_lines(&mut self) {
        let Some(Opaque(listener)) = self.listener.clone() else { return };
        let end = self.pending.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let lines: Vec<u8> = self.pending.drain(..end).collect();
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
        let output = Arc::<Mutex<Output>>::default();
        let shared = Arc::clone(&output);
        let reading = tokio::spawn(async move {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
                lock(&shared).push(&buffer[..count]);
            }
            let mut output = lock(&shared);
            if output.pending.back().is_some_and(|last| *last != b'\n') {
                output.pending.push_back(b'\n');
                output.pass_lines();
            }
        });
        Self { output, reading: AbortOnDropHandle::new(reading) }
    }

    /// Passes every line from now on, and those not passed yet, to the listener.
    pub(crate) fn set_listener(&self, listener: Option<OnStderr>) {
        let mut output = lock(&self.output);
        output.listener = listener;
        output.pass_lines();
    }

    /// The kept text, once the process has exited.
    pub(crate) async fn text(&mut self) -> String {
        _ = timeout(LAST_OUTPUT, &mut self.reading).await;
        String::from_utf8_lossy(lock(&self.output).kept.make_contiguous()).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn listeners_get_complete_lines_and_may_panic() {
        let (mut theirs, ours) = pipe::pipe().unwrap();
        let mut tail = Tail::of(ours);
        theirs.write_all(b"one\ntw").await.unwrap();
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let list = Arc::clone(&lines);
        tail.set_listener(Some(Opaque(Arc::new(move |line: &str| {
            list.lock().unwrap().push(line.to_owned());
            assert_ne!(line, "two");
        }))));
        theirs.write_all(b"o\nthree\nfour").await.unwrap();
        drop(theirs);
        assert_eq!(tail.text().await, "one\ntwo\nthree\nfour");
        let lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(*lines, ["one", "two", "three", "four"]);
    }

    #[tokio::test]
    async fn a_listener_that_is_set_after_the_end_gets_the_lines_and_no_other() {
        for (written, want) in [("one\ntwo\n", vec!["one", "two"]), ("one\n\ntwo", vec!["one", "", "two"])] {
            let (mut theirs, ours) = pipe::pipe().unwrap();
            let mut tail = Tail::of(ours);
            theirs.write_all(written.as_bytes()).await.unwrap();
            drop(theirs);
            tail.text().await;
            let (send, lines) = std::sync::mpsc::channel();
            tail.set_listener(Some(Opaque(Arc::new(move |line: &str| send.send(line.to_owned()).unwrap()))));
            assert_eq!(lines.try_iter().collect::<Vec<_>>(), want);
        }
    }
}
