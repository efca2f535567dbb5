//! The events of a request, for Python.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_core::Stream as _;
use pyo3::prelude::*;
use toolbridge::claude::ResponseStream;
use toolbridge::{CancellationToken, ClaudeCodeError, Event};

use crate::answer::event_json;
use crate::error::{exception, invalid};
use crate::event_loop::EventLoop;
use crate::json::Json;
use crate::task::Task;

/// How many events are handed over at once, when that many are there.
const MAX_BATCH: usize = 256;

/// The events of a running request. Closing it ends the request.
#[pyclass(frozen, module = "toolbridge._native")]
pub(crate) struct Stream {
    open: Open,
    event_loop: EventLoop,
    closed: CancellationToken,
    pid: u32,
}

type Item = Result<Event, ClaudeCodeError>;

/// The stream, until it is closed.
#[derive(Clone)]
struct Open(Arc<Mutex<Option<Held>>>);

struct Held {
    /// There until this is dropped.
    stream: Option<ResponseStream>,
    /// An error that came behind events; it is the last.
    error: Option<ClaudeCodeError>,
    pid: u32,
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            // A child of a fork: the request is the parent's.
            std::mem::forget(self.stream.take());
        }
    }
}

impl Stream {
    pub(crate) fn new(stream: ResponseStream, event_loop: EventLoop) -> Self {
        let pid = std::process::id();
        let held = Held { stream: Some(stream), error: None, pid };
        let open = Open(Arc::new(Mutex::new(Some(held))));
        Self { open, event_loop, closed: CancellationToken::new(), pid }
    }
}

#[pymethods]
impl Stream {
    /// Waits for events. `done` gets a list of JSON texts, empty at the end, or an exception.
    fn next(&self, py: Python<'_>, done: Py<PyAny>) -> PyResult<Task> {
        if self.pid != std::process::id() {
            return Err(invalid("the request belongs to the process that this one was forked from"));
        }
        let (open, closed) = (self.open.clone(), self.closed.clone());
        Task::start(py, self.event_loop.clone_ref(py), done, async move {
            let batch = tokio::select! {
                batch = std::future::poll_fn(|cx| open.poll_batch(cx)) => batch,
                () = closed.cancelled() => Ok(Vec::new()),
            };
            let events = batch.map_err(|error| exception(&error))?;
            Ok(events.iter().map(|event| Json(event_json(event))).collect::<Vec<_>>())
        })
    }

    /// Interrupts the request, as a user would.
    fn interrupt(&self) {
        let open = self.open.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = open.as_ref().and_then(|held| held.stream.as_ref()) {
            stream.interrupt();
        }
    }

    /// Ends the request at once, if it still runs.
    fn close(&self, py: Python<'_>) {
        let open = &self.open;
        py.detach(|| {
            // Not while it is locked: the end of a request takes its time, and `next` must not wait for it.
            let held = open.0.lock().unwrap_or_else(PoisonError::into_inner).take();
            drop(held);
        });
        self.closed.cancel();
    }
}

impl Open {
    /// All events that are there, once there is one.
    fn poll_batch(&self, cx: &mut Context<'_>) -> Poll<Result<Vec<Event>, ClaudeCodeError>> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(held) = open.as_mut() else { return Poll::Ready(Ok(Vec::new())) };
        if let Some(error) = held.error.take() {
            return Poll::Ready(Err(error));
        }
        let Some(stream) = &mut held.stream else { return Poll::Ready(Ok(Vec::new())) };
        let mut events = Vec::new();
        while events.len() < MAX_BATCH {
            let polled: Poll<Option<Item>> = Pin::new(&mut *stream).poll_next(cx);
            match polled {
                Poll::Ready(Some(Ok(event))) => events.push(event),
                Poll::Ready(Some(Err(error))) if events.is_empty() => return Poll::Ready(Err(error)),
                Poll::Ready(Some(Err(error))) => {
                    held.error = Some(error);
                    break;
                }
                Poll::Pending if events.is_empty() => return Poll::Pending,
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        Poll::Ready(Ok(events))
    }
}
