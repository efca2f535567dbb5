//! The time in which a CLI waits for functions of this process: how long it is, and what they may start.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

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
pub(crate) struct Waits(Arc<Mutex<Waited>>);

#[derive(Debug, Default)]
struct Waited {
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
    fn lock(&self) -> MutexGuard<'_, Waited> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self) -> Wait {
        let mut waited = self.lock();
        waited.count += 1;
        waited.since.get_or_insert_with(Instant::now);
        Wait(self.clone())
    }

    /// Whether a function is running now.
    pub(crate) fn is_waiting(&self) -> bool {
        self.lock().count > 0
    }

    /// Since when at least one function has been running without a break.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.lock().since
    }

    /// The total time so far in which at least one function was running.
    pub(crate) fn total(&self) -> Duration {
        let waited = self.lock();
        waited.before + waited.since.map(|since| since.elapsed()).unwrap_or_default()
    }
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
        assert!(waits.is_waiting());
        assert_eq!(waits.total(), 3 * second);
        drop(other);
        advance(second).await;
        assert!(!waits.is_waiting());
        assert_eq!(waits.total(), 3 * second);
    }
}
