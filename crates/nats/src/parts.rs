//! Sends what is larger than one message in parts that are acknowledged.
//!
//! A few parts are in flight at a time. If one is lost with a connection, it and all parts after it are sent
//! again.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

/// The limit for arguments and results.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;

/// The limit for one part, even if the server allows more: large parts delay other messages.
const MAX_PART_BYTES: usize = 256 * 1024;

/// The number of parts in flight.
const WINDOW: u32 = 4;

/// The limit of parallel senders per process: the server buffers what a slow reader has not read, but only up
/// to a limit.
const MAX_SENDERS: usize = 8;

/// How long to wait for an acknowledgement before parts are sent again.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often parts are sent again before giving up.
const MAX_AGAIN: u32 = 10;

/// The room for headers in a message.
const HEADER_BYTES: usize = 8 * 1024;

/// Sends large payloads in parts.
#[derive(Debug)]
pub(crate) struct Cutter {
    senders: Semaphore,
    patience: Duration,
}

impl Default for Cutter {
    fn default() -> Self {
        Self { senders: Semaphore::new(MAX_SENDERS), patience: PATIENCE }
    }
}

/// How many bytes of payload fit into one message, given the server's `max_payload`.
pub(crate) fn room(max_payload: usize) -> usize {
    // At least half, if the limit is very small.
    max_payload.saturating_sub(HEADER_BYTES).max(max_payload / 2).max(1)
}

/// The size of the parts.
pub(crate) fn part_bytes(max_payload: usize) -> usize {
    room(max_payload).min(MAX_PART_BYTES)
}

/// The part with that index.
pub(crate) fn part(whole: &Bytes, size: usize, place: u32) -> Bytes {
    let begin = (place as usize * size).min(whole.len());
    whole.slice(begin..(begin + size).min(whole.len()))
}

/// The receiver does not acknowledge.
#[derive(Debug)]
pub(crate) struct NotTaken;

impl Cutter {
    /// Sends the parts from `first` on with `send`, as fast as `acks` confirms them.
    pub(crate) async fn send<F: Future<Output = ()>>(
        &self,
        whole: &Bytes,
        size: usize,
        first: u32,
        acks: &mut mpsc::Receiver<u32>,
        send: impl Fn(u32, Bytes) -> F,
    ) -> Result<(), NotTaken> {
        let Ok(_turn) = self.senders.acquire().await else { return Err(NotTaken) };
        let count = u32::try_from(whole.len().div_ceil(size)).map_err(|_| NotTaken)?;
        let (mut taken, mut next, mut again) = (first, first, 0);
        while taken < count {
            while next < count.min(taken + WINDOW) {
                send(next, part(whole, size, next)).await;
                next += 1;
            }
            match timeout(self.patience, acks.recv()).await {
                Ok(Some(ack)) if ack > taken => (taken, again) = (ack.min(count), 0),
                Ok(Some(_)) => {}
                Ok(None) => return Err(NotTaken),
                Err(_) if again == MAX_AGAIN => return Err(NotTaken),
                Err(_) => (next, again) = (taken, again + 1),
            }
            next = next.max(taken);
        }
        Ok(())
    }
}

/// A message received in parts.
#[derive(Debug)]
pub(crate) struct Assembly {
    bytes: usize,
    text: BytesMut,
    parts: u32,
}

impl Assembly {
    /// A message of `bytes` bytes; no memory is reserved for it.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { bytes, text: BytesMut::new(), parts: 0 }
    }

    /// Adds a part, if it is the next one; returns the number of parts so far.
    pub(crate) fn take(&mut self, place: u32, part: &[u8]) -> u32 {
        if place == self.parts && self.text.len() + part.len() <= self.bytes {
            self.text.extend_from_slice(part);
            self.parts += 1;
        }
        self.parts
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.text.len() == self.bytes
    }

    pub(crate) fn whole(self) -> Bytes {
        self.text.freeze()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn hurried() -> Cutter {
        Cutter { patience: Duration::from_millis(1), ..Cutter::default() }
    }

    #[tokio::test]
    async fn parts_are_joined_though_some_are_lost() {
        let whole: Bytes = (0..100_000_u32).flat_map(u32::to_be_bytes).collect::<Vec<_>>().into();
        let (acks, mut acked) = mpsc::channel(16);
        let assembly = Mutex::new(Assembly::new(whole.len()));
        let sent = Mutex::new(0);
        let lossy = |place, part: Bytes| {
            let mut sent = sent.lock().unwrap();
            *sent += 1;
            // Every seventh part is lost, and every fifth acknowledgement.
            if *sent % 7 != 3 {
                let parts = assembly.lock().unwrap().take(place, &part);
                if *sent % 5 != 4 {
                    acks.try_send(parts).unwrap();
                }
            }
            std::future::ready(())
        };
        hurried().send(&whole, 1000, 0, &mut acked, lossy).await.unwrap();
        let assembly = assembly.into_inner().unwrap();
        assert!(assembly.is_whole());
        assert_eq!(assembly.whole(), whole);
    }

    #[tokio::test]
    async fn sending_is_given_up_without_acknowledgements() {
        let whole = Bytes::from_static(b"0123456789");
        let (_acks, mut acked) = mpsc::channel(16);
        let send = |_, _| std::future::ready(());
        assert!(hurried().send(&whole, 3, 0, &mut acked, send).await.is_err());
    }

    #[test]
    fn a_message_never_has_more_than_it_announced() {
        let mut assembly = Assembly::new(4);
        assert_eq!(assembly.take(0, b"ab"), 1);
        assert_eq!(assembly.take(0, b"ab"), 1, "a repeated part");
        assert_eq!(assembly.take(2, b"zz"), 1, "a part after a lost one");
        assert_eq!(assembly.take(1, b"cde"), 1, "too long");
        assert_eq!(assembly.take(1, b"cd"), 2);
        assert_eq!(&assembly.whole()[..], b"abcd");
    }

    #[test]
    fn a_message_and_its_headers_fit() {
        for max_payload in [64, 1024, 8 * 1024, 64 * 1024, 1 << 20, 8 << 20] {
            assert!(room(max_payload) < max_payload && part_bytes(max_payload) <= room(max_payload));
        }
    }
}
