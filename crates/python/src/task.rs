//! Rust work that runs in the background of Python.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use pyo3::IntoPyObjectExt as _;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::error::Result;
use crate::event_loop::{EventLoop, undelivered};
use crate::process::lock;
use crate::runtime;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How long a cancellation waits for a thread that is polling the work. The thread sees the flag in any case.
const CANCEL_PATIENCE: Duration = Duration::from_millis(500);

/// Work that runs in the background of Python; its outcome is delivered on the event loop.
///
/// Unlike with a tokio task, cancelling it drops its future immediately.
#[pyclass(frozen, module = "toolbridge._native")]
pub(crate) struct Task {
    slot: Arc<Slot>,
    /// The tokio task, which has to be aborted too.
    running: AbortHandle,
    runtime: Handle,
    pid: u32,
}

struct Slot {
    cancelled: AtomicBool,
    /// The work has been dropped, with everything it owns.
    ended: AtomicBool,
    work: Mutex<Option<Work>>,
}

impl Task {
    /// Runs `work`, then calls `done(value, None)` or `done(None, exception)` on the loop.
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
        let runtime = runtime::handle(py)?;
        let work = async move {
            let outcome = AssertUnwindSafe(work).catch_unwind().await;
            let outcome = outcome.map_or_else(
                |_| Err(PyRuntimeError::new_err("toolbridge panicked, see stderr")),
                |outcome| outcome.map_err(PyErr::from),
            );
            // Fails if the interpreter is shutting down.
            Python::try_attach(|py| {
                if let Err(error) = deliver(py, &event_loop, &done, outcome) {
                    undelivered(py, &error);
                }
            });
        };
        let slot = Arc::new(Slot {
            cancelled: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            work: Mutex::new(Some(Box::pin(work))),
        });
        let running = runtime.spawn(Running(Arc::clone(&slot))).abort_handle();
        Ok(Self { slot, running, runtime, pid: std::process::id() })
    }
}

fn deliver<T: for<'py> IntoPyObject<'py>>(
    py: Python<'_>,
    event_loop: &EventLoop,
    done: &Py<PyAny>,
    outcome: PyResult<T>,
) -> PyResult<()> {
    let none = || py.None().into_bound(py);
    let arguments = match outcome.and_then(|value| value.into_bound_py_any(py)) {
        Ok(value) => [value, none()],
        Err(error) => [none(), error.into_value(py).into_bound(py).into_any()],
    };
    event_loop.post(py, done.bind(py), arguments)
}

#[pymethods]
impl Task {
    /// Drops the work and everything it owns. Does nothing if it is done.
    fn cancel(&self, py: Python<'_>) {
        if self.pid != std::process::id() {
            return; // a forked child must not stop its parent's work
        }
        py.detach(|| {
            let _runtime = self.runtime.enter();
            self.slot.cancel();
            self.running.abort();
        });
    }
}

impl Slot {
    fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        let started = Instant::now();
        loop {
            if let Some(work) = self.try_lock() {
                self.end(work);
            }
            // Another thread may be dropping the work; it must be gone when this returns.
            if self.ended.load(Ordering::SeqCst) {
                return;
            }
            // The thread that polls it sees the flag. It may be this thread: garbage collection runs
            // anywhere.
            if started.elapsed() > CANCEL_PATIENCE {
                return;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Drops the work after releasing the lock: dropping may run Python code, which may cancel it again.
    fn end(&self, mut slot: MutexGuard<'_, Option<Work>>) {
        let Some(work) = slot.take() else { return };
        drop(slot);
        drop(work);
        self.ended.store(true, Ordering::SeqCst);
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Option<Work>>> {
        match self.work.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// The work as a tokio task.
struct Running(Arc<Slot>);

impl Future for Running {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let cancelled = || self.0.cancelled.load(Ordering::SeqCst);
        let mut slot = lock(&self.0.work);
        let Some(work) = slot.as_mut().filter(|_| !cancelled()) else {
            self.0.end(slot);
            return Poll::Ready(());
        };
        let polled = work.as_mut().poll(cx);
        if polled.is_ready() || cancelled() {
            self.0.end(slot);
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl Drop for Running {
    /// The runtime is shutting down.
    fn drop(&mut self) {
        if let Some(work) = self.0.try_lock() {
            self.0.end(work);
        }
    }
}
