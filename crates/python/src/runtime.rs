//! The process's single tokio runtime, started on first use.

use std::sync::Mutex;
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::log;
use crate::process::{Own, lock};

/// Handlers wait for the interpreter on these threads; with one or two, a busy interpreter would block all
/// other I/O.
const WORKERS: usize = 4;

/// How long the exit of the process waits for running work to clean up.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(2);

enum State {
    Running {
        runtime: Runtime,
        log: log::Sender,
    },
    /// The interpreter is shutting down.
    Ended,
}

/// Threads do not survive a fork, so each process has its own runtime. Only locked by threads that are
/// attached to the interpreter, so no fork can happen while it is locked.
static STATE: Mutex<Option<Own<State>>> = Mutex::new(None);

/// The runtime of this process.
///
/// # Errors
///
/// Fails if the interpreter is shutting down, or no thread can be started.
pub(crate) fn handle(_py: Python<'_>) -> PyResult<Handle> {
    let mut state = lock(&STATE);
    match state.as_ref().and_then(Own::get) {
        Some(State::Running { runtime, log }) => {
            log.install();
            return Ok(runtime.handle().clone());
        }
        Some(State::Ended) => return Err(PyRuntimeError::new_err("the interpreter is shutting down")),
        None => {}
    }
    let (log, logging) = log::queue();
    let for_threads = log.clone();
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(WORKERS).thread_name("toolbridge");
    builder.on_thread_start(move || for_threads.install());
    let runtime = builder
        .enable_all()
        .build()
        .map_err(|error| PyRuntimeError::new_err(format!("cannot start threads: {error}")))?;
    let handle = runtime.handle().clone();
    handle.spawn(logging);
    log.install();
    *state = Some(Own::new(State::Running { runtime, log }));
    Ok(handle)
}

/// Stops all running work before the interpreter exits; registered with `atexit`.
#[pyfunction]
pub(crate) fn shutdown(py: Python<'_>) {
    let former = lock(&STATE).replace(Own::new(State::Ended));
    if let Some(State::Running { runtime, .. }) = former.and_then(|mut former| former.take()) {
        // Detached, because dropping the work may need the interpreter.
        py.detach(|| runtime.shutdown_timeout(SHUTDOWN_PATIENCE));
    }
}
