//! The control channel: what this process and the CLI ask each other over the CLI's stdin and stdout.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use serde_json::{Value, json};
use tokio::io::AsyncWrite;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use toolbridge_core::RawJson;
use toolbridge_mcp::{LineWriter, Outgoing as _};

/// Our end of the channel.
#[derive(Debug)]
pub(crate) struct Control {
    stdin: Stdin,
    lines: LineWriter<Stdin>,
    last_id: AtomicU64,
    /// What we have asked and not been answered.
    asked: Mutex<HashMap<String, oneshot::Sender<Result<RawJson, String>>>>,
}

/// A question that has no answer: the CLI refused it, or is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// It said why.
    Refused(String),
    /// It is no longer there.
    Gone,
}

impl Control {
    pub(crate) fn new(stdin: pipe::Sender) -> Self {
        let stdin = Stdin(Arc::new(Mutex::new(Some(stdin))));
        Self {
            lines: LineWriter::new(stdin.clone()),
            stdin,
            last_id: AtomicU64::default(),
            asked: Mutex::default(),
        }
    }

    /// Closes the CLI's stdin, whoever still writes to it. The CLI ends then.
    pub(crate) fn close(&self) {
        self.stdin.lock().take();
    }

    /// Asks the CLI something and waits for its answer.
    pub(crate) async fn ask(&self, request: Value) -> Result<RawJson, Unanswered> {
        let id = self.new_id();
        let (tell, answer) = oneshot::channel();
        self.lock_asked().insert(id.clone(), tell);
        let _forget = Forget { control: self, id: &id };
        let line = json!({ "type": "control_request", "request_id": id, "request": request }).to_string();
        self.write(line.as_bytes(), b"", b"").await.map_err(|_| Unanswered::Gone)?;
        answer.await.map_err(|_| Unanswered::Gone)?.map_err(Unanswered::Refused)
    }

    pub(crate) fn new_id(&self) -> String {
        format!("toolbridge_{}", self.last_id.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Passes the CLI's answer to whoever asked.
    pub(crate) fn answered(&self, id: &str, answer: Result<RawJson, String>) {
        if let Some(asker) = self.lock_asked().remove(id) {
            _ = asker.send(answer);
        }
    }

    /// Answers something that the CLI asked.
    pub(crate) async fn answer(&self, id: &str, answer: Result<Value, String>) {
        let response = match answer {
            Ok(response) => json!({ "subtype": "success", "request_id": id, "response": response }),
            Err(error) => json!({ "subtype": "error", "request_id": id, "error": error }),
        };
        let line = json!({ "type": "control_response", "response": response }).to_string();
        if let Err(error) = self.write(line.as_bytes(), b"", b"").await {
            tracing::debug!(%error, "the CLI does not read any more");
        }
    }

    /// Writes one line, made of its parts. If that fails the channel is closed: the CLI would wait for what was lost, and
    /// ends instead.
    pub(crate) async fn write(&self, head: &[u8], payload: &[u8], tail: &[u8]) -> io::Result<()> {
        let sent = self.lines.send(head, payload, tail).await;
        if sent.is_err() {
            self.close();
        }
        sent
    }

    pub(crate) async fn finish(&self) -> io::Result<()> {
        self.lines.finish().await
    }

    fn lock_asked(&self) -> MutexGuard<'_, HashMap<String, oneshot::Sender<Result<RawJson, String>>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets a question when whoever asked it has gone.
struct Forget<'a> {
    control: &'a Control,
    id: &'a str,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.control.lock_asked().remove(self.id);
    }
}

/// The CLI's stdin. Its clones share it, and any of them can close it for all.
#[derive(Debug, Clone)]
struct Stdin(Arc<Mutex<Option<pipe::Sender>>>);

impl Stdin {
    fn lock(&self) -> MutexGuard<'_, Option<pipe::Sender>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(
        &self,
        write: impl FnOnce(Pin<&mut pipe::Sender>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match &mut *self.lock() {
            Some(pipe) => write(Pin::new(pipe)),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

impl AsyncWrite for Stdin {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.with(|pipe| pipe.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.with(|pipe| pipe.poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|pipe| pipe.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|pipe| pipe.poll_shutdown(cx))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt as _, BufReader};

    use super::*;

    #[tokio::test]
    async fn a_question_gets_its_own_answer() {
        let (ours, theirs) = pipe::pipe().unwrap();
        let control = Control::new(ours);
        let mut lines = BufReader::new(theirs).lines();
        let asking = async {
            tokio::join!(control.ask(json!({ "subtype": "a" })), control.ask(json!({ "subtype": "b" })))
        };
        let answering = async {
            let mut ids = HashMap::new();
            for _ in 0..2 {
                let line: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
                assert_eq!(line["type"], "control_request");
                let subtype = line["request"]["subtype"].as_str().unwrap().to_owned();
                ids.insert(subtype, line["request_id"].as_str().unwrap().to_owned());
            }
            control.answered("nobody asked this", Ok(RawJson::empty_object()));
            control.answered(&ids["b"], Err("no".into()));
            control.answered(&ids["a"], Ok(RawJson::from(&json!(1))));
        };
        let ((a, b), ()) = tokio::join!(asking, answering);
        assert_eq!(a.unwrap().as_str(), "1");
        assert_eq!(b.unwrap_err(), Unanswered::Refused("no".into()));
        assert!(control.lock_asked().is_empty());
    }

    #[tokio::test]
    async fn closing_ends_everybodys_writing() {
        let (ours, theirs) = pipe::pipe().unwrap();
        let control = Control::new(ours);
        control.close();
        assert_eq!(control.ask(json!({})).await.unwrap_err(), Unanswered::Gone);
        assert_eq!(BufReader::new(theirs).lines().next_line().await.unwrap(), None);
    }
}
