//! Threads for functions of Python that may block.
//!
//! They stay attached to the interpreter between two calls. A thread that is new to it needs a state there,
//! with a stack of its own, which takes a sixth of a small call.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;

/// As many functions can run at a time; more wait.
const MAX_THREADS: usize = 256;

/// How long a thread waits for something to do.
const IDLE: Duration = Duration::from_secs(10);

/// As much as threads of Python have.
const STACK_BYTES: usize = 8 * 1024 * 1024;

type Job = Box<dyn FnOnce(Python<'_>) + Send>;

/// Runs functions of Python in threads, as many as are needed.
#[derive(Clone, Default)]
pub(crate) struct Threads(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl Threads {
    /// Has `job` run soon. It is dropped when there is no thread to be had, or the interpreter ends.
    pub(crate) fn run(&self, job: impl FnOnce(Python<'_>) + Send + 'static) {
        let mut state = self.0.lock();
        state.jobs.push_back(Box::new(job));
        let is_idle = state.jobs.len() <= state.idle;
        let is_new = !is_idle && state.threads < MAX_THREADS;
        state.threads += usize::from(is_new);
        // Whoever wakes up must not find it locked.
        drop(state);
        if is_idle {
            self.0.work.notify_one();
        } else if is_new {
            self.start();
        }
    }

    fn start(&self) {
        let shared = Arc::clone(&self.0);
        let thread = std::thread::Builder::new().name("toolbridge-tool".into()).stack_size(STACK_BYTES);
        let started = thread.spawn(move || {
            // None when the interpreter is about to end.
            _ = Python::try_attach(|py| {
                while let Some(job) = py.detach(|| shared.next()) {
                    job(py);
                }
            });
        });
        if let Err(error) = started {
            tracing::warn!("cannot start a thread for a tool: {error}");
            let mut state = self.0.lock();
            state.threads -= 1;
            // Others will see to what waits, if there are others.
            let stranded = if state.threads == 0 { std::mem::take(&mut state.jobs) } else { VecDeque::new() };
            drop(state);
            drop(stranded);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for something to do; `None` ends the thread.
    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        state.idle += 1;
        let (mut state, _) = self
            .work
            .wait_timeout_while(state, IDLE, |state| state.jobs.is_empty())
            .unwrap_or_else(PoisonError::into_inner);
        state.idle -= 1;
        let job = state.jobs.pop_front();
        if job.is_none() {
            state.threads -= 1;
        }
        job
    }
}
