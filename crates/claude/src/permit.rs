//! How many CLIs may run, and the time in which they wait for functions of this process.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::ClaudeCodeError;
use crate::driver::UNLIMITED;
use crate::error::ExecutionKind;

tokio::task_local! {
    /// Set in a function that a CLI waits for.
    static AWAITED: ();
}

/// Runs a function that a CLI waits for. Requests that it makes do not wait for other requests to end: one of
/// those waits for the function.
pub fn awaited<F: Future>(function: F) -> impl Future<Output = F::Output> {
    AWAITED.scope((), function)
}

/// Whether a CLI waits for the function that runs now.
#[must_use]
pub fn is_awaited() -> bool {
    AWAITED.try_with(|()| ()).is_ok()
}

/// How long a CLI has waited for functions of this process: tools, hooks, permission decisions.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waits(Arc<Mutex<Functions>>);

#[derive(Debug, Default)]
struct Functions {
    /// The number of running functions.
    count: usize,
    since: Option<Instant>,
    /// The total before `since`.
    before: Duration,
}

/// A running function, until this is dropped.
#[derive(Debug)]
pub(crate) struct Wait(Waits);

impl Waits {
    fn lock(&self) -> MutexGuard<'_, Functions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self) -> Wait {
        let mut waited = self.lock();
        waited.count += 1;
        waited.since.get_or_insert_with(Instant::now);
        Wait(self.clone())
    }

    /// Since when at least one function has been running without a break.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.lock().since
    }

    /// What has been waited so far.
    pub(crate) fn now(&self) -> Waited {
        let waited = self.lock();
        let total = waited.before + waited.since.map(|since| since.elapsed()).unwrap_or_default();
        Waited { now: Instant::now(), total, is_waiting: waited.count > 0 }
    }
}

/// The time, and how much of it a CLI has waited for functions of this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waited {
    pub(crate) now: Instant,
    /// The total time so far in which at least one function was running.
    pub(crate) total: Duration,
    /// Whether a function is running now.
    pub(crate) is_waiting: bool,
}

impl Drop for Wait {
    fn drop(&mut self) {
        let mut waited = self.0.lock();
        waited.count -= 1;
        if waited.count == 0
            && let Some(since) = waited.since.take()
        {
            waited.before += since.elapsed();
        }
    }
}

/// One for each CLI that may run, except those of conversations, which may stay open for any time.
#[derive(Debug, Clone)]
pub(crate) struct Permits {
    free: Arc<Semaphore>,
    most: usize,
    taken: Arc<Mutex<Vec<Weak<Permit>>>>,
}

/// The permission to run a CLI, until this is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    /// The time in which the CLI waits for functions of this process.
    pub(crate) waits: Waits,
    _permit: OwnedSemaphorePermit,
}

impl Default for Permits {
    fn default() -> Self {
        Self::new(2 * std::thread::available_parallelism().map_or(1, usize::from))
    }
}

impl Permits {
    pub(crate) fn new(most: usize) -> Self {
        let most = most.min(Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(most)), most, taken: Arc::default() }
    }

    fn taken(&self) -> MutexGuard<'_, Vec<Weak<Permit>>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, permit: OwnedSemaphorePermit) -> Arc<Permit> {
        let permit = Arc::new(Permit { waits: Waits::default(), _permit: permit });
        let mut taken = self.taken();
        taken.retain(|permit| permit.strong_count() > 0);
        taken.push(Arc::downgrade(&permit));
        permit
    }

    /// Takes one that is free.
    pub(crate) fn try_take(&self) -> Option<Arc<Permit>> {
        let permit = Arc::clone(&self.free).try_acquire_owned().ok()?;
        Some(self.record(permit))
    }

    /// Waits for one.
    ///
    /// # Errors
    ///
    /// When all CLIs that have one have waited for functions of this process for `limit`: one of these may wait for
    /// this, and then none would ever be free.
    pub(crate) async fn take(&self, limit: Duration) -> Result<Arc<Permit>, ClaudeCodeError> {
        let began = Instant::now();
        let mut permit = pin!(Arc::clone(&self.free).acquire_owned());
        loop {
            let now = Instant::now();
            let since = self.all_wait_since().map_or(now, |since| since.max(began));
            let due = since + limit.min(UNLIMITED);
            if due <= now {
                let (seconds, most) = (limit.as_secs_f64(), self.most);
                let message = format!(
                    "the request has not begun within {seconds} s: all requests that may run at a time ({most}) wait \
                     for functions of this process, and one of these may wait for this request"
                );
                return Err(ClaudeCodeError::execution(ExecutionKind::Blocked, message));
            }
            // The semaphore is never closed.
            if let Ok(Ok(permit)) = timeout_at(due, permit.as_mut()).await {
                return Ok(self.record(permit));
            }
        }
    }

    /// Since when all CLIs that have one wait for functions of this process, if they do.
    fn all_wait_since(&self) -> Option<Instant> {
        let taken: Vec<_> = self.taken().iter().filter_map(Weak::upgrade).collect();
        let since: Vec<_> = taken.iter().map(|permit| permit.waits.since()).collect::<Option<_>>()?;
        // One that has just been taken may not be among them yet.
        since.into_iter().max().filter(|_| taken.len() == self.most)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn overlapping_waits_count_once() {
        let second = Duration::from_secs(1);
        let waits = Waits::default();
        let first = waits.begin();
        advance(second).await;
        let other = waits.begin();
        advance(second).await;
        drop(first);
        advance(second).await;
        assert!(waits.now().is_waiting);
        assert_eq!(waits.now().total, 3 * second);
        drop(other);
        advance(second).await;
        assert!(!waits.now().is_waiting);
        assert_eq!(waits.now().total, 3 * second);
    }
}
