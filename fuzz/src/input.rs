//! The same bytes in different pieces.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher as _};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::runtime::{Builder, Runtime};

/// Inputs up to this length are cut at every position.
const EVERY_CUT_BYTES: usize = 40;

/// A hash of a value, the same in every run.
fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Selects about one input in `count`, for checks that are slow.
pub(crate) fn is_one_of(count: u64, input: &[u8]) -> bool {
    hash(&input).is_multiple_of(count)
}

/// Ways to cut an input: not at all, everywhere, and in two at every position (or at some, if there are
/// many).
pub(crate) fn cuts(input: &[u8]) -> impl Iterator<Item = Vec<usize>> {
    let length = input.len();
    let places: Vec<usize> = if length <= EVERY_CUT_BYTES {
        (1..length).collect()
    } else {
        (0..8).map(|number| usize::try_from(hash(&(input, number)) >> 32).unwrap_or(0) % length).collect()
    };
    [vec![], (1..length).collect()].into_iter().chain(places.into_iter().map(|place| vec![place]))
}

/// Runs a future to completion.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    thread_local! {
        // Frames that arrive in pieces have a timeout.
        static RUNTIME: Runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    }
    RUNTIME.with(|runtime| runtime.block_on(future))
}

/// Bytes that arrive in pieces.
pub(crate) struct Pieces<'a> {
    bytes: &'a [u8],
    cuts: &'a [usize],
    at: usize,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(bytes: &'a [u8], cuts: &'a [usize]) -> Self {
        Self { bytes, cuts, at: 0 }
    }
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let at = self.at;
        let cut = self.cuts.iter().find(|cut| **cut > at).copied().unwrap_or(self.bytes.len());
        let end = cut.min(at + buf.remaining());
        buf.put_slice(&self.bytes[at..end]);
        self.at = end;
        Poll::Ready(Ok(()))
    }
}
