//! Limits the memory of large answers that have not been read yet.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Budget;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The limit while no answer is being read.
const MAX_UNREAD_BYTES: usize = 256 * 1024 * 1024;

/// The limit while answers are being read. Calls that run at the same time can exceed the other limit together.
const MAX_WAITING_BYTES: usize = 1024 * 1024 * 1024;

/// From here on no call begins while answers are being read.
const ENOUGH_BYTES: usize = MAX_UNREAD_BYTES / 2;

/// If nothing has been read for this long, readers are considered stalled.
const STALL: Duration = Duration::from_secs(2);

/// The large answers of one session, over all connections.
///
/// The size of an answer is only known once it exists in memory. So calls begin only as fast as answers are read.
/// If nothing is read at all, calls begin anyway, because others may need small answers; a large answer for which
/// there is no room is then replaced by an error.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outbox(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    waiting: Mutex<Waiting>,
    /// Notified when there is more room.
    freed: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: usize,
    /// When a part of it was last read.
    read: Option<Instant>,
}

impl Waiting {
    /// The time until readers are considered stalled; `None` if they are.
    fn until_stall(&self) -> Option<Duration> {
        STALL.checked_sub(self.read?.elapsed()).filter(|left| !left.is_zero())
    }
}

/// The room that an answer occupies; released when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    outbox: Outbox,
    bytes: usize,
}

impl Outbox {
    /// Waits until a call may begin.
    pub(crate) async fn room(&self) {
        loop {
            let freed = self.0.freed.notified();
            let left = {
                let waiting = self.lock();
                if waiting.bytes < ENOUGH_BYTES {
                    return;
                }
                waiting.until_stall()
            };
            let Some(left) = left else { return };
            _ = tokio::time::timeout(left, freed).await;
        }
    }

    /// Reserves room for an answer of that size; the error is the limit.
    pub(crate) fn put(&self, bytes: usize) -> Result<Place, usize> {
        // Small ones are not counted; their number is limited elsewhere.
        let bytes = if bytes > Budget::SMALL_BYTES { bytes } else { 0 };
        if bytes > 0 {
            let mut waiting = self.lock();
            if waiting.bytes == 0 {
                // There was nothing to read before.
                waiting.read = Some(Instant::now());
            }
            let limit = if waiting.until_stall().is_some() { MAX_WAITING_BYTES } else { MAX_UNREAD_BYTES };
            if waiting.bytes + bytes > limit {
                return Err(limit);
            }
            waiting.bytes += bytes;
        }
        Ok(Place { outbox: self.clone(), bytes })
    }

    /// Room for a small answer.
    pub(crate) fn put_small(&self) -> Place {
        Place { outbox: self.clone(), bytes: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Records that a part of the answer was read.
    pub(crate) fn was_read(&self) {
        if self.bytes > 0 {
            self.outbox.lock().read = Some(Instant::now());
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mut waiting = self.outbox.lock();
            waiting.bytes -= self.bytes;
            waiting.read = Some(Instant::now());
            drop(waiting);
            self.outbox.0.freed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const LARGE: usize = 16 * 1024 * 1024;

    fn may_begin(outbox: &Outbox) -> bool {
        outbox.room().now_or_never().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn calls_begin_as_fast_as_answers_are_read() {
        let outbox = Outbox::default();
        let mut places: Vec<_> = (0..7).map(|_| outbox.put(LARGE).unwrap()).collect();
        assert!(may_begin(&outbox));
        places.push(outbox.put(LARGE).unwrap());
        assert!(!may_begin(&outbox), "enough is waiting");
        // Running calls produce more answers, which are kept as long as some are being read.
        places.extend((0..20).map(|_| outbox.put(LARGE).unwrap()));
        for _ in 0..10 {
            tokio::time::sleep(STALL / 2).await;
            assert!(!may_begin(&outbox));
            places[0].was_read();
        }
        places.truncate(8);
        let begins = outbox.room();
        tokio::pin!(begins);
        assert!(begins.as_mut().now_or_never().is_none());
        places.pop();
        tokio::time::timeout(STALL / 2, begins).await.expect("there is room");
    }

    #[tokio::test(start_paused = true)]
    async fn where_nobody_reads_small_answers_pass_and_large_ones_have_a_limit() {
        let outbox = Outbox::default();
        let mut places: Vec<_> = (0..8).map(|_| outbox.put(LARGE).unwrap()).collect();
        assert!(!may_begin(&outbox));
        tokio::time::timeout(2 * STALL, outbox.room()).await.expect("nothing is read, so calls do not wait");
        assert!(may_begin(&outbox));
        places.extend((0..8).map(|_| outbox.put(LARGE).unwrap()));
        assert_eq!(outbox.put(LARGE).err(), Some(MAX_UNREAD_BYTES));
        places.push(outbox.put(Budget::SMALL_BYTES).unwrap());
        // A partial read counts as progress.
        places[3].was_read();
        places.push(outbox.put(LARGE).unwrap());
        assert!(!may_begin(&outbox));
        drop(places);
        assert!(may_begin(&outbox));
        assert_eq!(outbox.lock().bytes, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn even_for_readers_there_is_a_limit() {
        let outbox = Outbox::default();
        let places: Vec<_> = (0..64).map(|_| outbox.put(LARGE).unwrap()).collect();
        assert_eq!(outbox.put(LARGE).err(), Some(MAX_WAITING_BYTES));
        drop(places);
        assert!(outbox.put(LARGE).is_ok());
    }
}
