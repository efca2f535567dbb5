//! A bound on the memory of large messages.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::RawJson;

/// Limits how many bytes of large messages are held at a time; readers of further ones wait.
///
/// Bytes count when they arrive, not when they are announced, so a message that never ends takes no room from
/// others. When the budget is used up, one message at a time may exceed it; otherwise messages that are each half
/// read would wait for each other forever. Small messages are not counted; their number is limited elsewhere.
#[derive(Debug, Clone)]
pub struct Budget {
    room: Arc<Semaphore>,
    overdraft: Arc<Semaphore>,
}

/// One message's part of a [`Budget`], given back when it is dropped.
#[derive(Debug)]
pub struct Share {
    budget: Budget,
    room: Option<OwnedSemaphorePermit>,
    overdraft: Option<OwnedSemaphorePermit>,
}

impl Budget {
    /// Messages up to this size are not counted.
    pub const SMALL_BYTES: usize = 64 * 1024;

    /// A budget of that many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { room: Arc::new(Semaphore::new(bytes)), overdraft: Arc::new(Semaphore::new(1)) }
    }

    /// Counts a text as `size` bytes (those of the message that contains it) if there is room right now.
    #[must_use]
    pub fn hold(&self, text: RawJson, size: usize) -> Option<RawJson> {
        let share = self.now(size)?;
        Some(if share.room.is_some() { text.held_by(share) } else { text })
    }

    /// The share of a text of `size` bytes, if there is room right now.
    #[must_use]
    pub fn now(&self, size: usize) -> Option<Share> {
        let mut share = self.share();
        if size > Self::SMALL_BYTES {
            let room = Arc::clone(&self.room).try_acquire_many_owned(u32::try_from(size).ok()?);
            share.room = Some(room.ok()?);
        }
        Some(share)
    }

    /// The share of a text whose size is known; waits until there is room for it.
    pub async fn wait(&self, bytes: u32) -> Share {
        let room = Arc::clone(&self.room).acquire_many_owned(bytes).await.ok();
        Share { budget: self.clone(), room, overdraft: None }
    }

    /// A message's share, still empty.
    #[must_use]
    pub fn share(&self) -> Share {
        Share { budget: self.clone(), room: None, overdraft: None }
    }
}

impl Share {
    /// Counts `bytes` more; waits until there is room for them.
    pub async fn grow(&mut self, bytes: usize) {
        let Ok(bytes) = u32::try_from(bytes) else { return };
        if self.overdraft.is_some() {
            return;
        }
        let (room, overdraft) = (Arc::clone(&self.budget.room), Arc::clone(&self.budget.overdraft));
        tokio::select! {
            biased;
            Ok(more) = room.acquire_many_owned(bytes) => match &mut self.room {
                Some(room) => room.merge(more),
                None => self.room = Some(more),
            },
            Ok(beyond) = overdraft.acquire_owned() => self.overdraft = Some(beyond),
            else => {}
        }
    }

    /// Ties the share to its message: it is released when the last slice of the message is dropped.
    #[must_use]
    pub fn hold(self, message: Bytes) -> Bytes {
        struct Held {
            message: Bytes,
            _share: Share,
        }
        impl AsRef<[u8]> for Held {
            fn as_ref(&self) -> &[u8] {
                &self.message
            }
        }
        Bytes::from_owner(Held { message, _share: self })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    /// Whether `bytes` more fit right now.
    fn fits(share: &mut Share, bytes: usize) -> bool {
        share.grow(bytes).now_or_never().is_some()
    }

    #[test]
    fn room_is_given_back_with_the_last_span_of_a_message() {
        let budget = Budget::new(100);
        let (mut first, mut second, mut third) = (budget.share(), budget.share(), budget.share());
        assert!(fits(&mut first, 60) && fits(&mut first, 40));
        let message = first.hold(Bytes::from_static(b"message"));
        assert!(fits(&mut second, 60), "one message may exceed the budget");
        assert!(!fits(&mut third, 60), "but only one");
        let span = message.slice(2..3);
        drop(message);
        assert!(!fits(&mut third, 60));
        drop(span);
        assert!(fits(&mut third, 60));
    }

    #[test]
    fn messages_that_are_half_read_do_not_block_each_other_for_ever() {
        let budget = Budget::new(100);
        let (mut first, mut second) = (budget.share(), budget.share());
        assert!(fits(&mut first, 50) && fits(&mut second, 50));
        assert!(fits(&mut first, 50) && fits(&mut first, 50), "the first may exceed the budget");
        assert!(!fits(&mut second, 50));
        drop(first);
        assert!(fits(&mut second, 50));
    }
}
