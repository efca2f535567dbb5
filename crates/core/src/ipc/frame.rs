//! Bytes to frames: a 4-byte big-endian length, then that many bytes.

use std::time::Duration;

use crate::{Budget, Share};
use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::Instant;

use crate::ipc::IpcError;
use crate::ipc::constant::{LENGTH_PREFIX_SIZE, MAX_MESSAGE_SIZE};

/// The time limit for a frame, from its first byte.
const FRAME_DEADLINE: Duration = Duration::from_secs(30);

/// How much is reserved before a read.
const READ_BYTES: usize = 16 * 1024;

/// Space for the rest of a frame is reserved up to this multiple of what has arrived. Reserved space costs no
/// memory until it is filled, but each reallocation copies, and in threads other than the main one glibc returns
/// the pages of each copy immediately.
const EARNED_TIMES: usize = 8;

/// A buffer that grew beyond this is not reused after the frame.
const KEPT_BUFFER_BYTES: usize = 1024 * 1024;

/// How much a peer may send ahead while its request is being answered.
const READ_AHEAD_BYTES: usize = 64 * 1024;

/// The size of the first frame in `buf`.
fn announced(buf: &[u8]) -> Option<usize> {
    buf.first_chunk::<LENGTH_PREFIX_SIZE>().map(|prefix| u32::from_be_bytes(*prefix) as usize)
}

/// Splits the first frame off `buf`; `None` if it has not arrived completely.
fn take_frame(buf: &mut BytesMut) -> Result<Option<Bytes>, IpcError> {
    let Some(size) = announced(buf) else { return Ok(None) };
    // Refuse before reserving: the peer must not choose our allocation.
    check_size(size)?;
    if size == 0 {
        return Err(IpcError::Invalid { reason: "a message has at least 1 byte, this one has 0".into() });
    }
    if buf.len() < LENGTH_PREFIX_SIZE + size {
        // The reservation is a multiple of what has arrived, so a large frame is only copied a few times, while it
        // is small.
        let missing = LENGTH_PREFIX_SIZE + size - buf.len();
        buf.reserve(missing.min((EARNED_TIMES * buf.len()).max(READ_BYTES)));
        return Ok(None);
    }
    buf.advance(LENGTH_PREFIX_SIZE);
    let frame = buf.split_to(size).freeze();
    if buf.is_empty() && size > KEPT_BUFFER_BYTES {
        // The frame keeps the large buffer and frees it when it is dropped.
        *buf = BytesMut::new();
    }
    Ok(Some(frame))
}

/// Refuses a message that is larger than the protocol allows.
pub(crate) fn check_size(size: usize) -> Result<(), IpcError> {
    if size > MAX_MESSAGE_SIZE {
        return Err(IpcError::MessageSize { size, limit: MAX_MESSAGE_SIZE });
    }
    Ok(())
}

/// Reads frames from one end of a connection.
#[derive(Debug)]
pub struct FrameReader<R> {
    io: R,
    buf: BytesMut,
    budget: Budget,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads from `io`; `budget` limits the memory of large frames.
    pub fn new(io: R, budget: Budget) -> Self {
        Self { io, buf: BytesMut::new(), budget }
    }

    /// Reads one frame; `None` is a clean close between frames.
    ///
    /// Cancel-safe: partial bytes stay in the reader.
    ///
    /// # Errors
    ///
    /// A length of zero or over the limit, a close in the middle of a frame, or a frame that takes longer than 30
    /// s.
    pub async fn read_frame(&mut self) -> Result<Option<Bytes>, IpcError> {
        // Waiting for a frame to begin has no time limit.
        if self.buf.is_empty() && self.fill().await? == 0 {
            return Ok(None);
        }
        let (mut share, mut deadline) = (None, None);
        loop {
            if let Some(frame) = take_frame(&mut self.buf)? {
                let share: Share = share.unwrap_or_default();
                return Ok(Some(share.hold(frame)));
            }
            // Most frames arrive in one piece and need no timer.
            let until = deadline.get_or_insert_with(|| Instant::now() + FRAME_DEADLINE);
            // A message that has only been announced takes no room from others.
            if share.is_none() && self.buf.len() > Budget::SMALL_BYTES {
                let began = Instant::now();
                let waiting = self.budget.wait(announced(&self.buf).unwrap_or_default());
                let busy = |_| IpcError::Invalid {
                    reason: format!("other large messages were under way for {FRAME_DEADLINE:?}"),
                };
                share = Some(tokio::time::timeout(FRAME_DEADLINE, waiting).await.map_err(busy)?);
                // Waiting for room is our delay, and does not count against the peer.
                *until += began.elapsed();
            }
            let late =
                |_| IpcError::Invalid { reason: format!("it was not complete within {FRAME_DEADLINE:?}") };
            if tokio::time::timeout_at(*until, self.fill()).await.map_err(late)?? == 0 {
                return Err(IpcError::Torn { bytes: self.buf.len() });
            }
        }
    }

    async fn fill(&mut self) -> Result<usize, IpcError> {
        if self.buf.capacity() == self.buf.len() {
            self.buf.reserve(READ_BYTES);
        }
        Ok(self.io.read_buf(&mut self.buf).await?)
    }

    /// Waits until the peer closes. What it sends before that is kept, up to a limit.
    pub(crate) async fn closed(&mut self) {
        while self.buf.len() < READ_AHEAD_BYTES {
            if !matches!(self.fill().await, Ok(1..)) {
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    /// Reads and discards what the peer still sends, so that it can finish writing and read our last message.
    pub(crate) async fn drain(&mut self) {
        const PATIENCE: Duration = Duration::from_secs(2);
        let all = async {
            self.buf.clear();
            while matches!(self.fill().await, Ok(1..)) {
                self.buf.clear();
            }
        };
        _ = tokio::time::timeout(PATIENCE, all).await;
    }

    /// Whether bytes have arrived that do not belong to a request or answer.
    pub(crate) fn has_leftover(&self) -> bool {
        !self.buf.is_empty()
    }

    pub(crate) fn io(&self) -> &R {
        &self.io
    }
}

/// Writes one frame with the message `head`, `payload`, `tail`, in one system call if the socket accepts it.
///
/// # Errors
///
/// When the message is over the limit, in which case nothing has been written; or when the peer is gone, which is
/// [`IpcError::Unsent`] if nothing had been written.
pub async fn write_frame(
    io: &mut (impl AsyncWrite + Unpin),
    head: &[u8],
    payload: &[u8],
    tail: &[u8],
) -> Result<(), IpcError> {
    let size = head.len() + payload.len() + tail.len();
    check_size(size)?;
    let prefix = u32::try_from(size).expect("checked against the limit").to_be_bytes();
    let mut frame = Buf::chain(&prefix[..], head).chain(payload).chain(tail);
    let whole = frame.remaining();
    while frame.has_remaining() {
        let is_first = frame.remaining() == whole;
        match io.write_buf(&mut frame).await {
            Err(error) if is_first => return Err(IpcError::Unsent { error }),
            Err(error) => return Err(error.into()),
            Ok(0) => return Err(std::io::Error::from(std::io::ErrorKind::WriteZero).into()),
            Ok(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reader<R: AsyncRead + Unpin>(io: R) -> FrameReader<R> {
        FrameReader::new(io, Budget::new(MAX_MESSAGE_SIZE))
    }

    fn show(got: Result<Option<Bytes>, IpcError>) -> String {
        match got {
            Ok(frame) => format!("{frame:?}"),
            Err(error) => error.to_string(),
        }
    }

    /// Splitting the input at any position must give the same result.
    #[track_caller]
    fn check(input: &[u8], want: &str) {
        for cut in 0..=input.len() {
            let mut buf = BytesMut::from(&input[..cut]);
            let mut got = take_frame(&mut buf);
            if matches!(got, Ok(None)) {
                buf.extend_from_slice(&input[cut..]);
                got = take_frame(&mut buf);
            }
            assert_eq!(show(got), want, "cut at {cut}");
        }
    }

    #[test]
    fn frames_are_cut_at_their_length() {
        check(b"\0\0\0\x02{}", r#"Some(b"{}")"#);
        check(b"\0\0\0\x02{}\0\0\0\x01", r#"Some(b"{}")"#);
        check(b"\0\0\0\x03{}", "None");
        check(b"\0\0\0\0", "invalid message: a message has at least 1 byte, this one has 0");
        check(b"\0\xa0\0\x01", "message of 10485761 bytes is over the limit of 10485760 bytes");
        check(b"\xff\xff\xff\xff", "message of 4294967295 bytes is over the limit of 10485760 bytes");
    }

    #[test]
    fn a_peer_cannot_choose_our_allocation() {
        let mut buf = BytesMut::from(&b"\0\xa0\0\0{"[..]);
        assert!(take_frame(&mut buf).unwrap().is_none());
        assert!(buf.capacity() <= 2 * READ_BYTES, "{} bytes reserved for 1 that arrived", buf.capacity());
    }

    #[tokio::test]
    async fn a_torn_frame_is_an_error_and_a_close_between_frames_is_not() {
        for (input, want) in [
            (&b""[..], "None"),
            (b"\0\0", "the connection closed after 2 bytes of an unfinished message"),
            (b"\0\0\0\x05{}", "the connection closed after 6 bytes of an unfinished message"),
        ] {
            assert_eq!(show(reader(input).read_frame().await), want);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_frame_that_began_must_end_in_time() {
        let (near, mut far) = tokio::io::duplex(64);
        far.write_all(b"\0\0\0\x05{").await.unwrap();
        let error = reader(near).read_frame().await.unwrap_err();
        assert_eq!(error.to_string(), "invalid message: it was not complete within 30s");
    }

    #[tokio::test]
    async fn an_oversize_message_is_refused_before_a_byte_is_written() {
        let mut out = Vec::new();
        let big = vec![b'x'; MAX_MESSAGE_SIZE];
        let error = write_frame(&mut out, b"{", &big, b"").await.unwrap_err();
        assert_eq!(error.to_string(), "message of 10485761 bytes is over the limit of 10485760 bytes");
        assert!(out.is_empty());
        write_frame(&mut out, b"", &big, b"").await.unwrap();
        assert_eq!(out.len(), MAX_MESSAGE_SIZE + LENGTH_PREFIX_SIZE);
    }

    #[tokio::test]
    async fn a_big_frame_does_not_keep_its_memory() {
        let mut bytes = Vec::new();
        write_frame(&mut bytes, b"", &vec![b'x'; 5_000_000], b"").await.unwrap();
        let mut buf = BytesMut::from(&bytes[..]);
        let frame = take_frame(&mut buf).unwrap().unwrap();
        assert_eq!(frame.len(), 5_000_000);
        assert!(buf.capacity() <= KEPT_BUFFER_BYTES);
        assert!(frame.is_unique(), "the reader holds on to the frame's buffer");
    }

    proptest! {
        #[test]
        fn any_messages_in_any_pieces_come_out_as_they_went_in(
            messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..300), 0..8),
            piece in 1_usize..64,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
            runtime.block_on(async {
                let (near, mut far) = tokio::io::duplex(piece);
                let sent = messages.clone();
                let writing = tokio::spawn(async move {
                    for message in &sent {
                        let (head, rest) = message.split_at(message.len() / 3);
                        write_frame(&mut far, head, rest, b"").await.unwrap();
                    }
                });
                let mut frames = reader(near);
                for message in &messages {
                    assert_eq!(&frames.read_frame().await.unwrap().unwrap()[..], &message[..]);
                }
                assert!(frames.read_frame().await.unwrap().is_none());
                writing.await.unwrap();
            });
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut buf = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = take_frame(&mut buf) {}
        }
    }
}
