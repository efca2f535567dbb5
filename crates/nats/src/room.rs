//! Calls that wait until a host has room.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::wire::Lane;

/// How long to wait for news of room before trying again, at least: news may be lost.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// Calls that wait until a host has room, in order.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    parallel: Mutex<VecDeque<oneshot::Sender<String>>>,
    exclusive: Mutex<VecDeque<oneshot::Sender<String>>>,
}

impl Waiting {
    fn lane(&self, lane: Lane) -> &Mutex<VecDeque<oneshot::Sender<String>>> {
        match lane {
            Lane::Parallel => &self.parallel,
            Lane::Exclusive => &self.exclusive,
        }
    }

    /// Waits for room; returns the host that has it, if one has announced it.
    pub(crate) async fn wait(&self, lane: Lane) -> Option<String> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut waiting = self.lane(lane).lock().unwrap_or_else(PoisonError::into_inner);
            // Remove waiters that have given up.
            while waiting.front().is_some_and(oneshot::Sender::is_closed) {
                waiting.pop_front();
            }
            waiting.push_back(sender);
        }
        timeout(ASK_AGAIN.mul_f64(1.0 + fastrand::f64()), receiver).await.ok()?.ok()
    }

    /// Wakes as many waiters as a host has room for.
    pub(crate) fn tell(&self, lane: Lane, count: usize, host: &str) {
        let mut waiting = self.lane(lane).lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = count;
        while left > 0
            && let Some(first) = waiting.pop_front()
        {
            // A waiter that has given up uses no room.
            if first.send(host.to_owned()).is_ok() {
                left -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn as_many_waiters_are_woken_as_there_is_room_for_in_order() {
        let waiting = Waiting::default();
        let (one, two, three) =
            (waiting.wait(Lane::Parallel), waiting.wait(Lane::Parallel), waiting.wait(Lane::Exclusive));
        let told = async {
            tokio::task::yield_now().await;
            waiting.tell(Lane::Parallel, 1, "a");
        };
        let (one, two, three, ()) = tokio::join!(one, two, three, told);
        assert_eq!((one.as_deref(), two, three), (Some("a"), None, None));
        // Waiters that have given up are skipped.
        let (last, ()) =
            tokio::join!(waiting.wait(Lane::Parallel), async { waiting.tell(Lane::Parallel, 1, "b") });
        assert_eq!(last.as_deref(), Some("b"));
    }
}
