//! Threads for functions of Python that may block.
//!
//! They are Python's own, and wait here for calls in between. Nothing of Rust's lies below a function that they
//! run: when the interpreter ends, it ends threads that still run Python wherever they are. And they stay with the
//! interpreter: a thread that is new to it needs a stack there, which takes a sixth of a small call.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;

use crate::call::Call;
use crate::process::lock;

/// As many functions can run at a time; more wait.
const MAX_THREADS: usize = 256;

/// How long a thread waits for something to do.
const IDLE: Duration = Duration::from_secs(10);

/// Calls for threads of Python, as many as are needed.
pub(crate) struct Threads {
    calls: Arc<Waiting>,
    /// Starts a thread of Python's that serves the [`Calls`] it is given.
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

/// What a thread has to do. Each has its own.
#[pyclass(frozen, module = "toolbridge._native")]
pub(crate) struct Calls {
    waiting: Arc<Waiting>,
    next: Mutex<Next>,
}

/// What comes next in a thread. It is kept here until it is taken, so that an exception raised in the thread from
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

    /// Has a thread take the call. It is dropped without an answer when there is no thread to be had.
    pub(crate) fn run(&self, call: Call) {
        let mut state = lock(&self.calls.state);
        state.calls.push_back(call);
        let is_idle = state.calls.len() <= state.idle;
        let is_new = !is_idle && state.threads < MAX_THREADS;
        state.threads += usize::from(is_new);
        // Released first: the woken thread needs the lock.
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
        // Others will see to what waits, if there are others.
        let stranded = if state.threads == 0 { std::mem::take(&mut state.calls) } else { VecDeque::new() };
        drop(state);
        drop(stranded);
    }
}

#[pymethods]
impl Calls {
    /// Waits for the next call; returns whether there is one, or else the thread is to end.
    fn wait(&self, py: Python<'_>) -> bool {
        py.detach(|| {
            let mut next = lock(&self.next);
            if matches!(*next, Next::Unknown) {
                *next = self.waiting.next().map_or(Next::End, Next::Call);
            }
            matches!(*next, Next::Call(_))
        })
    }

    /// The call that was waited for.
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
