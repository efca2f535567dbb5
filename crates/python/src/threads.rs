//! Python threads for functions that may block.
//!
//! The threads are started by Python, and wait here between calls. No Rust frame is on the stack below a
//! Python function: at exit the interpreter ends threads that still run Python code at any point. The threads
//! stay attached to Python, because attaching a new thread takes a sixth of the time of a small call.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;

use crate::call::Call;
use crate::process::lock;

/// The maximum number of functions that run at the same time; more calls wait.
const MAX_THREADS: usize = 256;

/// How long an idle thread waits for a call.
const IDLE: Duration = Duration::from_secs(10);

/// A pool of Python threads that grows on demand.
pub(crate) struct Threads {
    calls: Arc<Waiting>,
    /// Starts a Python thread that serves the given [`Calls`].
    start: Py<PyAny>,
}

#[derive(Default)]
struct Waiting {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    calls: VecDeque<Call>,
    threads: usize,
    idle: usize,
}

/// The calls for one thread.
#[pyclass(frozen, module = "toolbridge._native")]
pub(crate) struct Calls {
    waiting: Arc<Waiting>,
    next: Mutex<Next>,
}

/// The next call of a thread. It stays here until it is taken, so that an exception raised in the thread from
/// outside does not lose it.
enum Next {
    Unknown,
    Call(Call),
    End,
}

impl Threads {
    pub(crate) fn new(start: Py<PyAny>) -> Self {
        Self { calls: Arc::default(), start }
    }

    /// Runs the call in a thread. It is dropped without an answer if no thread can be started.
    pub(crate) fn run(&self, call: Call) {
        let mut state = lock(&self.calls.state);
        state.calls.push_back(call);
        let is_idle = state.calls.len() <= state.idle;
        let is_new = !is_idle && state.threads < MAX_THREADS;
        state.threads += usize::from(is_new);
        // Release the lock first: the woken thread needs it.
        drop(state);
        if is_idle {
            self.calls.work.notify_one();
        } else if is_new {
            self.start();
        }
    }

    fn start(&self) {
        let started = Python::try_attach(|py| {
            let calls = Calls { waiting: Arc::clone(&self.calls), next: Mutex::new(Next::Unknown) };
            self.start.bind(py).call1((calls,)).map(drop)
        });
        if let Some(Ok(())) = started {
            return;
        }
        if let Some(Err(error)) = started {
            tracing::warn!("cannot start a thread for a tool: {error}");
        }
        let mut state = lock(&self.calls.state);
        state.threads -= 1;
        // If other threads exist, they will serve the waiting calls.
        let stranded = if state.threads == 0 { std::mem::take(&mut state.calls) } else { VecDeque::new() };
        drop(state);
        drop(stranded);
    }
}

#[pymethods]
impl Calls {
    /// Waits for the next call; returns `false` if the thread should end.
    fn wait(&self, py: Python<'_>) -> bool {
        py.detach(|| {
            let mut next = lock(&self.next);
            if matches!(*next, Next::Unknown) {
                *next = self.waiting.next().map_or(Next::End, Next::Call);
            }
            matches!(*next, Next::Call(_))
        })
    }

    /// The call that `wait` has received.
    fn take(&self) -> Option<Call> {
        let mut next = lock(&self.next);
        match std::mem::replace(&mut *next, Next::Unknown) {
            Next::Call(call) => Some(call),
            other => {
                *next = other;
                None
            }
        }
    }
}

impl Waiting {
    fn next(&self) -> Option<Call> {
        let mut state = lock(&self.state);
        state.idle += 1;
        loop {
            let (now, _) = self
                .work
                .wait_timeout_while(state, IDLE, |state| state.calls.is_empty())
                .unwrap_or_else(PoisonError::into_inner);
            state = now;
            match state.calls.pop_front() {
                Some(call) if !call.is_wanted() => {}
                Some(call) => {
                    state.idle -= 1;
                    return Some(call);
                }
                None => {
                    state.idle -= 1;
                    state.threads -= 1;
                    return None;
                }
            }
        }
    }
}
