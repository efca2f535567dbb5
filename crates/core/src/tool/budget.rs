//! A bound on the memory of large messages.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::RawJson;

/// Limits how many bytes of large messages are held at a time. Small messages are not counted; their number is
/// limited elsewhere.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Semaphore>);

/// One message's part of a [`Budget`], given back when it is dropped; empty for a small message.
#[derive(Debug, Default)]
pub(crate) struct Share(Option<OwnedSemaphorePermit>);

impl Budget {
    /// Messages up to this size are not counted.
    pub(crate) const SMALL_BYTES: usize = 64 * 1024;

    /// A budget of that many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes)))
    }

    /// The share of a message of `size` bytes, if there is room for it right now.
    #[must_use]
    pub(crate) fn now(&self, size: usize) -> Option<Share> {
        if size <= Self::SMALL_BYTES {
            return Some(Share::default());
        }
        let room = Arc::clone(&self.0).try_acquire_many_owned(u32::try_from(size).ok()?);
        room.ok().map(|room| Share(Some(room)))
    }

    /// The same; waits until there is room. The size may not be larger than the budget.
    pub(crate) async fn wait(&self, size: usize) -> Share {
        if size <= Self::SMALL_BYTES {
            return Share::default();
        }
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        Share(Arc::clone(&self.0).acquire_many_owned(size).await.ok())
    }

    /// Counts a text as `size` bytes (those of the message that contains it) if there is room right now.
    #[must_use]
    pub(crate) fn hold(&self, text: RawJson, size: usize) -> Option<RawJson> {
        self.now(size).map(|share| text.held_by(share))
    }
}

impl Share {
    /// Gives back what a message did not need that turned out to have `size` bytes.
    #[must_use]
    #[cfg(feature = "http")]
    pub(crate) fn shrunk_to(mut self, size: usize) -> Self {
        if let Some(permit) = &mut self.0 {
            drop(permit.split(permit.num_permits().saturating_sub(size)));
        }
        self
    }

    /// Ties the share to its message: it is given back when the last slice of the message is dropped.
    #[must_use]
    pub(crate) fn hold(self, message: Bytes) -> Bytes {
        struct Held(
            Bytes,
            #[expect(dead_code, reason = "given back when it is dropped")] OwnedSemaphorePermit,
        );
        impl AsRef<[u8]> for Held {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        match self.0 {
            Some(room) => Bytes::from_owner(Held(message, room)),
            None => message,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_given_back_with_the_last_slice_of_a_message() {
        const LARGE: usize = 100_000;
        let budget = Budget::new(LARGE);
        let message = budget.now(LARGE).unwrap().hold(Bytes::from_static(b"message"));
        let slice = message.slice(2..3);
        drop(message);
        assert!(budget.now(LARGE).is_none());
        assert!(budget.now(Budget::SMALL_BYTES).is_some(), "small messages need no room");
        drop(slice);
        assert!(budget.now(LARGE).is_some());
    }
}
