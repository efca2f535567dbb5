//! A tool's timeout, which is paused while the user is asked.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// The time limit of a call.
#[derive(Debug)]
pub(crate) struct Clock {
    limit: Duration,
    /// The number of unanswered questions.
    asking: watch::Sender<usize>,
}

impl Clock {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, asking: watch::Sender::new(0) }
    }

    /// Pauses the clock until the returned value is dropped.
    pub(crate) fn pause(self: &Arc<Self>) -> Paused {
        self.asking.send_modify(|asking| *asking += 1);
        Paused(Arc::clone(self))
    }

    /// Starts the clock, and waits until no time is left.
    pub(crate) async fn runs_out(&self) {
        let (mut asking, mut left) = (self.asking.subscribe(), self.limit);
        loop {
            // The sender is alive as long as `self`.
            _ = asking.wait_for(|asking| *asking == 0).await;
            let started = Instant::now();
            if timeout(left, asking.wait_for(|asking| *asking > 0)).await.is_err() {
                return;
            }
            left = left.saturating_sub(started.elapsed());
        }
    }
}

/// Keeps the clock paused until dropped.
#[derive(Debug)]
pub(crate) struct Paused(Arc<Clock>);

impl Drop for Paused {
    fn drop(&mut self) {
        self.0.asking.send_modify(|asking| *asking -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_stands_still_while_somebody_is_asked() {
        let clock = Arc::new(Clock::new(Duration::from_secs(10)));
        let started = Instant::now();
        let asking = async {
            tokio::time::sleep(Duration::from_secs(4)).await;
            let both = [clock.pause(), clock.pause()];
            for paused in both {
                tokio::time::sleep(Duration::from_secs(100)).await;
                drop(paused);
            }
        };
        tokio::join!(asking, clock.runs_out());
        assert_eq!(started.elapsed().as_secs(), 4 + 200 + 6);
    }
}
