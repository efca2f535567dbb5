//! A tool's timeout, which is paused while the user is asked.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// The remaining time of a call.
#[derive(Debug)]
pub(crate) struct Clock {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Debug)]
struct State {
    left: Duration,
    since: Instant,
    /// Unanswered questions.
    asking: usize,
}

impl Clock {
    pub(crate) fn new(limit: Duration) -> Self {
        let state = State { left: limit, since: Instant::now(), asking: 0 };
        Self { state: Mutex::new(state), news: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Pauses the clock until the returned value is dropped.
    pub(crate) fn pause(self: &Arc<Self>) -> Paused {
        let mut state = self.lock();
        state.asking += 1;
        if state.asking == 1 {
            state.left = state.left.saturating_sub(state.since.elapsed());
            self.news.notify_waiters();
        }
        Paused(Arc::clone(self))
    }

    /// Waits until no time is left.
    pub(crate) async fn runs_out(&self) {
        loop {
            let news = self.news.notified();
            let left = {
                let state = self.lock();
                (state.asking == 0).then(|| state.left.saturating_sub(state.since.elapsed()))
            };
            match left {
                Some(Duration::ZERO) => return,
                Some(left) => _ = tokio::time::timeout(left, news).await,
                None => news.await,
            }
        }
    }
}

/// Keeps the clock paused until dropped.
#[derive(Debug)]
pub(crate) struct Paused(Arc<Clock>);

impl Drop for Paused {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.asking -= 1;
        if state.asking == 0 {
            state.since = Instant::now();
            self.0.news.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_stands_still_while_somebody_is_asked() {
        let clock = Arc::new(Clock::new(Duration::from_secs(10)));
        let begun = Instant::now();
        let asking = async {
            tokio::time::sleep(Duration::from_secs(4)).await;
            let both = [clock.pause(), clock.pause()];
            for paused in both {
                tokio::time::sleep(Duration::from_secs(100)).await;
                drop(paused);
            }
        };
        tokio::join!(asking, clock.runs_out());
        assert_eq!(begun.elapsed().as_secs(), 4 + 200 + 6);
    }
}
