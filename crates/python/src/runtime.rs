//! The one tokio runtime of the process, started when it is first needed.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::log;

/// Handlers wait for the interpreter on these threads; with one or two, a busy interpreter would hold up the
/// reading of everything else.
const WORKERS: usize = 4;

/// How long the end of the process waits for what is under way to be given back.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(2);

enum State {
    Unstarted,
    /// Threads do not survive a fork, so a runtime is only good in the process that started it.
    Running {
        pid: u32,
        runtime: Runtime,
        log: log::Sender,
    },
    /// The interpreter ends.
    Ended {
        pid: u32,
    },
}

/// Only locked by threads that are attached to the interpreter, so no fork can happen meanwhile.
static STATE: Mutex<State> = Mutex::new(State::Unstarted);

/// The runtime of this process.
///
/// # Errors
///
/// When the interpreter is about to end, or no thread can be started.
pub(crate) fn handle(_py: Python<'_>) -> PyResult<Handle> {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    let own = std::process::id();
    match &*state {
        State::Running { pid, runtime, log } if *pid == own => {
            log.install();
            return Ok(runtime.handle().clone());
        }
        State::Ended { pid } if *pid == own => {
            return Err(PyRuntimeError::new_err("the interpreter is shutting down"));
        }
        _ => {}
    }
    let (log, logging) = log::queue();
    let for_threads = log.clone();
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(WORKERS).thread_name("toolbridge");
    builder.on_thread_start(move || for_threads.install());
    let runtime = toolbridge::runtime(builder)
        .map_err(|error| PyRuntimeError::new_err(format!("cannot start threads: {error}")))?;
    let handle = runtime.handle().clone();
    handle.spawn(logging);
    log.install();
    let former = std::mem::replace(&mut *state, State::Running { pid: own, runtime, log });
    // The parent's: its threads are not here, so it can be neither used nor ended.
    std::mem::forget(former);
    Ok(handle)
}

/// Ends everything that is under way, before the interpreter does; called at exit.
#[pyfunction]
pub(crate) fn shutdown(py: Python<'_>) {
    let own = std::process::id();
    let former = {
        let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *state, State::Ended { pid: own })
    };
    match former {
        State::Running { pid, runtime, .. } if pid == own => {
            // What is dropped now may want to tell the interpreter.
            py.detach(|| runtime.shutdown_timeout(SHUTDOWN_PATIENCE));
        }
        other => std::mem::forget(other),
    }
}
