//! A bound on the memory of large messages.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// So many bytes of large messages may be held at a time; whoever wants to read another one waits.
///
/// Small messages are free: their number is bounded elsewhere.
#[derive(Debug, Clone)]
pub struct Budget {
    free: Arc<Semaphore>,
    total: u32,
}

/// A part of a [`Budget`], given back when it is dropped.
#[derive(Debug)]
pub struct Reserved(Option<OwnedSemaphorePermit>);

impl Budget {
    /// Messages up to this size are not counted.
    const SMALL_BYTES: usize = 64 * 1024;

    /// A budget of that many bytes.
    #[must_use]
    pub fn new(bytes: u32) -> Self {
        Self { free: Arc::new(Semaphore::new(bytes as usize)), total: bytes }
    }

    /// Waits until a message of `size` bytes fits. One that is larger than the whole budget has it alone.
    pub async fn reserve(&self, size: usize) -> Reserved {
        if size <= Self::SMALL_BYTES {
            return Reserved(None);
        }
        let size = u32::try_from(size).unwrap_or(u32::MAX).min(self.total);
        Reserved(Arc::clone(&self.free).acquire_many_owned(size).await.ok())
    }
}

impl Reserved {
    /// Ties the reservation to the message: it is given back with the last span of it.
    #[must_use]
    pub fn hold(self, message: Bytes) -> Bytes {
        struct Held {
            message: Bytes,
            _permit: OwnedSemaphorePermit,
        }
        impl AsRef<[u8]> for Held {
            fn as_ref(&self) -> &[u8] {
                &self.message
            }
        }
        match self.0 {
            None => message,
            Some(permit) => Bytes::from_owner(Held { message, _permit: permit }),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_message_waits_until_the_last_span_of_another_is_gone() {
        let budget = Budget::new(1_000_000);
        let message = budget.reserve(600_000).await.hold(vec![b'x'; 600_000].into());
        let span = message.slice(5..10);
        drop(message);
        assert!(budget.reserve(600_000).now_or_never().is_none());
        assert!(budget.reserve(400_000).now_or_never().is_some());
        assert!(budget.reserve(10).now_or_never().is_some(), "small ones are free");
        drop(span);
        assert!(budget.reserve(600_000).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_message_larger_than_the_budget_has_it_alone() {
        let budget = Budget::new(100_000);
        let reserved = budget.reserve(usize::MAX).await;
        assert!(budget.reserve(100_000).now_or_never().is_none());
        drop(reserved);
        assert!(budget.reserve(100_000).now_or_never().is_some());
    }
}
