//! Rust work that runs in the background of Python.
//!
//! `pyo3-async-runtimes` (0.30) makes futures awaitable, too, but it makes its runtime once, so a forked child has one
//! without threads; and a cancelled future is dropped there some time later, which nobody can wait for. Here the end of
//! a cancelled request is waited for: then its CLI has ended and its files are gone.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt as _;
use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::task::AbortHandle;

use crate::error::Result;
use crate::event_loop::{EventLoop, undelivered};
use crate::runtime;

/// Work that runs in the background of Python; its outcome is delivered on the event loop.
#[pyclass(frozen, module = "toolbridge._native")]
pub(crate) struct Task {
    running: AbortHandle,
    pid: u32,
}

impl Task {
    /// Runs `work`, then calls `done(value, None)` or `done(None, exception)` on the loop, once the work has
    /// been dropped with everything it owns. That is also how a cancelled task ends.
    ///
    /// # Errors
    ///
    /// Fails if there is no runtime.
    pub(crate) fn start<T>(
        py: Python<'_>,
        event_loop: EventLoop,
        done: Py<PyAny>,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<Self>
    where
        T: for<'py> IntoPyObject<'py> + Send + 'static,
    {
        let work = AssertUnwindSafe(work).catch_unwind().map(|outcome| match outcome {
            Ok(outcome) => outcome.map_err(PyErr::from),
            Err(_) => Err(PyRuntimeError::new_err("toolbridge panicked, see stderr")),
        });
        let cancelled = Err(PyRuntimeError::new_err("the work was cancelled"));
        let end = End { event_loop, done, outcome: Some(cancelled) };
        let running = runtime::handle(py)?.spawn(Running { work: Box::pin(work), end }).abort_handle();
        Ok(Self { running, pid: std::process::id() })
    }
}

#[pymethods]
impl Task {
    /// Has the work and everything it owns dropped, without waiting for that. Returns whether `done` is called
    /// then, or has been called.
    fn cancel(&self) -> bool {
        // A forked child must not stop its parent's work, and has no thread that could call `done`.
        let is_own = self.pid == std::process::id();
        if is_own {
            self.running.abort();
        }
        is_own
    }
}

/// The work as a tokio task. The members are dropped in this order, on a thread of the runtime.
struct Running<T: for<'py> IntoPyObject<'py>> {
    work: Pin<Box<dyn Future<Output = PyResult<T>> + Send>>,
    end: End<T>,
}

// Only `work` is pinned, in its box.
impl<T: for<'py> IntoPyObject<'py>> Unpin for Running<T> {}

impl<T: for<'py> IntoPyObject<'py>> Future for Running<T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let outcome = ready!(self.work.as_mut().poll(cx));
        self.end.outcome = Some(outcome);
        Poll::Ready(())
    }
}

/// Delivers the outcome when it is dropped.
struct End<T: for<'py> IntoPyObject<'py>> {
    event_loop: EventLoop,
    done: Py<PyAny>,
    outcome: Option<PyResult<T>>,
}

impl<T: for<'py> IntoPyObject<'py>> End<T> {
    fn deliver(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(outcome) = self.outcome.take() else { return Ok(()) };
        let none = || py.None().into_bound(py);
        let arguments = match outcome.and_then(|value| value.into_bound_py_any(py)) {
            Ok(value) => [value, none()],
            Err(error) => [none(), error.into_value(py).into_bound(py).into_any()],
        };
        self.event_loop.post(py, self.done.bind(py), arguments)
    }
}

impl<T: for<'py> IntoPyObject<'py>> Drop for End<T> {
    fn drop(&mut self) {
        // Fails if the interpreter is shutting down.
        Python::try_attach(|py| {
            if let Err(error) = self.deliver(py) {
                undelivered(py, &error);
            }
        });
    }
}
