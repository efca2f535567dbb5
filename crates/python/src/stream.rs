//! The events of a request, for Python.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures_core::Stream as _;
use pyo3::prelude::*;
use toolbridge::Event;
use toolbridge::call::CancellationToken;
use toolbridge::model::{ClaudeCodeError, ResponseStream};

use crate::error::{Result, invalid};
use crate::event_loop::EventLoop;
use crate::json;
use crate::process::{Own, lock};
use crate::task::Task;

/// The maximum number of events delivered at once.
const MAX_BATCH: usize = 256;

/// The events of a running request. Closing it ends the request.
#[pyclass(frozen, module = "toolbridge._native")]
pub(crate) struct Stream {
    open: Arc<Mutex<Own<Open>>>,
    event_loop: EventLoop,
    closed: CancellationToken,
}

/// The stream; `None` once it is closed.
struct Open {
    stream: ResponseStream,
    /// An error that followed the last events; delivered after them.
    error: Option<ClaudeCodeError>,
}

impl Stream {
    pub(crate) fn new(stream: ResponseStream, event_loop: EventLoop) -> Self {
        let open = Arc::new(Mutex::new(Own::new(Open { stream, error: None })));
        Self { open, event_loop, closed: CancellationToken::new() }
    }
}

#[pymethods]
impl Stream {
    /// Waits for events. `done` is called with a list of JSON texts, which is empty at the end, or with an
    /// exception.
    fn next(&self, py: Python<'_>, done: Py<PyAny>) -> Result<Task> {
        if !lock(&self.open).is_own() {
            return Err(invalid("the request belongs to the process that this one was forked from"));
        }
        let (open, closed) = (Arc::clone(&self.open), self.closed.clone());
        Task::start(py, self.event_loop.clone_ref(py), done, async move {
            let batch = tokio::select! {
                batch = std::future::poll_fn(|cx| poll_batch(&open, cx)) => batch,
                () = closed.cancelled() => Ok(Vec::new()),
            };
            Ok(batch?.iter().map(json).collect::<Vec<_>>())
        })
    }

    /// Interrupts the request, like a user would.
    fn interrupt(&self) {
        if let Some(open) = lock(&self.open).get() {
            open.stream.interrupt();
        }
    }

    /// Ends the request immediately, if it is still running.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            // Dropped after the lock is released: ending a request can take long, and `next` must not wait
            // for it.
            let open = lock(&self.open).take();
            drop(open);
        });
        self.closed.cancel();
    }
}

/// Waits for the first event, and returns all that are available.
fn poll_batch(
    open: &Mutex<Own<Open>>,
    cx: &mut Context<'_>,
) -> Poll<std::result::Result<Vec<Event>, ClaudeCodeError>> {
    let mut open = lock(open);
    let Some(open) = open.get_mut() else { return Poll::Ready(Ok(Vec::new())) };
    if let Some(error) = open.error.take() {
        return Poll::Ready(Err(error));
    }
    let mut events = Vec::new();
    while events.len() < MAX_BATCH {
        match Pin::new(&mut open.stream).poll_next(cx) {
            Poll::Ready(Some(Ok(event))) => events.push(event),
            Poll::Ready(Some(Err(error))) if events.is_empty() => return Poll::Ready(Err(error)),
            Poll::Ready(Some(Err(error))) => {
                open.error = Some(error);
                break;
            }
            Poll::Pending if events.is_empty() => return Poll::Pending,
            Poll::Ready(None) | Poll::Pending => break,
        }
    }
    Poll::Ready(Ok(events))
}
