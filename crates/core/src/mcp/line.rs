//! Splits bytes into messages: one JSON text per line.

use std::io;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError};
use std::task::Poll;

use crate::RawJson;
use bytes::{Buf, BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Mutex;

/// The maximum length of a line from a client, without its newline. A longer one could not be passed on anyway; it
/// is skipped and answered with an error.
pub const MAX_LINE_BYTES: usize = 32 * 1024 * 1024;

/// How much is reserved before a read.
const READ_BYTES: usize = 64 * 1024;

/// A buffer that grew beyond this is not reused after the line.
const KEPT_BUFFER_BYTES: usize = 1024 * 1024;

/// Lines up to this size are copied, to be written together with others.
const SMALL_LINE_BYTES: usize = 16 * 1024;

/// A line over the reader's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineTooLong;

/// A source of messages.
pub trait Incoming: Send {
    /// The next message; `None` at the end. Must be cancel-safe.
    ///
    /// # Errors
    ///
    /// When reading fails permanently.
    fn next(&mut self) -> impl Future<Output = io::Result<Option<Result<Bytes, LineTooLong>>>> + Send;
}

/// A destination of messages. Clones share it.
pub trait Outgoing: Clone + Send + Sync + 'static {
    /// Sends one message made of these parts; if it is a response, `answers` is the request's id as it was written.
    /// Messages of different senders never mix, and dropping a send before it is done damages no other message.
    ///
    /// # Errors
    ///
    /// When the reader is gone.
    fn send(
        &self,
        answers: Option<&RawJson>,
        parts: [&[u8]; 3],
    ) -> impl Future<Output = io::Result<()>> + Send;

    /// Writes what a dropped send has left unfinished, after the last message.
    ///
    /// # Errors
    ///
    /// When the reader is gone.
    fn finish(&self) -> impl Future<Output = io::Result<()>> + Send;
}

/// Reads lines.
#[derive(Debug)]
pub struct LineReader<R> {
    io: R,
    buf: BytesMut,
    /// There is no newline before this position.
    searched: usize,
    /// The current line is too long; the rest of it is discarded.
    skipping: bool,
    /// The input has ended; nothing is read after that.
    has_ended: bool,
    limit: usize,
}

impl<R: AsyncRead + Unpin + Send> LineReader<R> {
    /// Reads from `io`.
    pub fn new(io: R) -> Self {
        Self::with_limit(io, MAX_LINE_BYTES)
    }

    /// Reads from `io` lines of up to `limit` bytes; the newline does not count.
    pub fn with_limit(io: R, limit: usize) -> Self {
        Self { io, buf: BytesMut::new(), searched: 0, skipping: false, has_ended: false, limit }
    }

    /// The part of an unfinished line that has arrived, for when it is known that no more will come.
    pub fn take_rest(&mut self) -> Option<Bytes> {
        self.searched = 0;
        let rest = self.buf.split().freeze();
        (!std::mem::take(&mut self.skipping) && !rest.trim_ascii().is_empty()).then_some(rest)
    }

    fn take_line(&mut self) -> Option<Result<Bytes, LineTooLong>> {
        if let Some(place) = memchr::memchr(b'\n', &self.buf[self.searched..]) {
            let mut line = self.buf.split_to(self.searched + place + 1);
            line.truncate(line.len() - 1);
            self.searched = 0;
            if line.len() > KEPT_BUFFER_BYTES {
                // The line keeps the large buffer and frees it when it is dropped.
                self.buf = BytesMut::from(&self.buf[..]);
            }
            if std::mem::take(&mut self.skipping) || line.len() > self.limit {
                return Some(Err(LineTooLong));
            }
            return Some(Ok(line.freeze()));
        }
        self.searched = self.buf.len();
        if self.skipping || self.buf.len() > self.limit {
            self.skipping = true;
            self.searched = 0;
            self.buf = BytesMut::new();
        }
        None
    }
}

impl<R: AsyncRead + Unpin + Send> Incoming for LineReader<R> {
    async fn next(&mut self) -> io::Result<Option<Result<Bytes, LineTooLong>>> {
        loop {
            while let Some(line) = self.take_line() {
                // Blank lines are ignored.
                if line.as_ref().map_or(true, |line| !line.trim_ascii().is_empty()) {
                    return Ok(Some(line));
                }
            }
            if self.buf.capacity() == self.buf.len() {
                // Reserves as much again as has arrived.
                self.buf.reserve(self.buf.len().max(READ_BYTES));
            }
            if self.has_ended {
                return Ok(None);
            }
            let count = match self.io.read_buf(&mut self.buf).await {
                // A client that is gone without having read everything is an ordinary end.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                count => count?,
            };
            if count == 0 {
                self.has_ended = true;
                // The last line may lack its newline.
                let last = self.buf.split().freeze();
                let line = if std::mem::take(&mut self.skipping) { Err(LineTooLong) } else { Ok(last) };
                self.searched = 0;
                return Ok(Some(line)
                    .filter(|line| line.as_ref().map_or(true, |line| !line.trim_ascii().is_empty())));
            }
        }
    }
}

/// Writes lines in the order in which they are sent. Small ones that are sent at the same time are written
/// together.
#[derive(Debug)]
pub struct LineWriter<W>(Arc<Shared<W>>);

#[derive(Debug)]
struct Shared<W> {
    waiting: StdMutex<Waiting>,
    to: Mutex<Unfinished<W>>,
}

/// Small lines that wait to be written.
#[derive(Debug, Default)]
struct Waiting {
    lines: BytesMut,
    /// The total number of bytes that have been queued.
    end: u64,
    /// The positions of large lines among them, whose senders wait for their turn.
    large: Vec<u64>,
}

impl Waiting {
    /// Takes what comes before the first large line, but at least what comes before `own`; also returns where that
    /// ends.
    fn take(&mut self, own: u64) -> (BytesMut, u64) {
        let end = self.large.iter().min().map_or(self.end, |first| own.clamp(*first, self.end));
        if end == self.end {
            return (std::mem::take(&mut self.lines), end);
        }
        let begin = self.end - self.lines.len() as u64;
        let count = usize::try_from(end.saturating_sub(begin)).unwrap_or(usize::MAX);
        (self.lines.split_to(count.min(self.lines.len())), end)
    }
}

/// The position of a large line; lines sent after it are not written before it.
struct Place<'a> {
    waiting: &'a StdMutex<Waiting>,
    at: u64,
}

impl<'a> Place<'a> {
    fn take(waiting: &'a StdMutex<Waiting>) -> Self {
        let mut locked = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let at = locked.end;
        locked.large.push(at);
        Self { waiting, at }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = waiting.large.iter().position(|at| *at == self.at) {
            waiting.large.swap_remove(place);
        }
    }
}

#[derive(Debug)]
struct Unfinished<W> {
    io: W,
    /// Queued lines, and the rest of a line whose sender was dropped after it had begun.
    rest: BytesMut,
    /// The position up to which queued lines are written, once `rest` is empty.
    end: u64,
}

impl<W> Clone for LineWriter<W> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<W> LineWriter<W> {
    /// Writes to `io`.
    pub fn new(io: W) -> Self {
        let to = Mutex::new(Unfinished { io, rest: BytesMut::new(), end: 0 });
        Self(Arc::new(Shared { waiting: StdMutex::default(), to }))
    }
}

/// A line being written; if it is dropped, the rest of it is kept for the next writer.
struct Line<'a, B: Buf, W> {
    parts: B,
    has_begun: bool,
    to: &'a mut Unfinished<W>,
}

impl<B: Buf, W> Drop for Line<'_, B, W> {
    fn drop(&mut self) {
        if self.has_begun {
            self.to.rest.put(&mut self.parts);
        }
    }
}

impl<W: AsyncWrite + Unpin> LineWriter<W> {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what a dropped sender has left, and what is queued, up to the first large line or at least to `own`.
    async fn write_waiting(&self, to: &mut Unfinished<W>, own: u64) -> io::Result<()> {
        // Everything is moved to `rest` before any of it is written, so that the next sender continues if this one
        // is dropped.
        let (lines, end) = self.waiting().take(own);
        to.rest.unsplit(lines);
        to.end = to.end.max(end);
        while to.rest.has_remaining() {
            write_some(&mut to.io, &mut to.rest).await?;
        }
        to.rest = BytesMut::new();
        to.io.flush().await
    }
}

impl<W: AsyncWrite + Unpin + Send + 'static> Outgoing for LineWriter<W> {
    async fn send(&self, _: Option<&RawJson>, parts: [&[u8]; 3]) -> io::Result<()> {
        let size = parts.iter().map(|part| part.len()).sum::<usize>() + 1;
        let [head, payload, tail] = parts;
        let mut parts = Buf::chain(head, payload).chain(tail).chain(&b"\n"[..]);
        if size <= SMALL_LINE_BYTES {
            let end = {
                let mut waiting = self.waiting();
                waiting.lines.reserve(size);
                waiting.lines.put(&mut parts);
                waiting.end += size as u64;
                waiting.end
            };
            // Tasks that were woken together with this one add their lines, which saves system calls.
            yield_once().await;
            let mut to = self.0.to.lock().await;
            return if to.end >= end && to.rest.is_empty() {
                Ok(())
            } else {
                self.write_waiting(&mut to, end).await
            };
        }
        let place = Place::take(&self.0.waiting);
        let mut to = self.0.to.lock().await;
        self.write_waiting(&mut to, place.at).await?;
        let mut line = Line { parts, has_begun: false, to: &mut to };
        while line.parts.has_remaining() {
            write_some(&mut line.to.io, &mut line.parts).await?;
            line.has_begun = true;
        }
        line.to.io.flush().await
    }

    async fn finish(&self) -> io::Result<()> {
        self.write_waiting(&mut *self.0.to.lock().await, u64::MAX).await
    }
}

/// Lets all ready tasks run. Unlike tokio's `yield_now`, it does not poll for events, which is a system call.
async fn yield_once() {
    let mut has_yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Writes a part of it; retries if interrupted.
async fn write_some(io: &mut (impl AsyncWrite + Unpin), bytes: &mut impl Buf) -> io::Result<()> {
    loop {
        match io.write_buf(bytes).await {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            written => return written.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use proptest::prelude::*;
    use tokio::io::ReadBuf;

    use super::*;

    async fn lines(input: impl AsyncRead + Unpin + Send) -> Vec<String> {
        let mut reader = LineReader::new(input);
        let mut lines = Vec::new();
        while let Some(line) = reader.next().await.unwrap() {
            lines.push(line.map_or("too long".into(), |line| {
                String::from_utf8_lossy(&line[..line.len().min(50)]).into_owned()
            }));
        }
        lines
    }

    #[tokio::test]
    async fn lines_end_at_newlines_and_blank_ones_are_skipped() {
        assert_eq!(lines(&b"a\n\n  \r\nb\r\nc"[..]).await, ["a", "b\r", "c"]);
        assert!(lines(&b""[..]).await.is_empty());
        assert!(lines(&b"\n"[..]).await.is_empty());
    }

    #[tokio::test]
    async fn lines_are_written_in_the_order_in_which_they_are_sent() {
        let (to, from) = tokio::io::duplex(1000);
        let writer = LineWriter::new(to);
        let sent = [("a", 1), ("b", 50_000), ("c", 50_000), ("d", 1), ("e", 50_000), ("f", 1), ("g", 1)];
        let mut senders = tokio::task::JoinSet::new();
        for (text, count) in sent {
            let (writer, line) = (writer.clone(), text.repeat(count));
            senders.spawn(async move { writer.send(None, [line.as_bytes(), b"", b""]).await });
            // The reader has not started, so all but the first ones wait.
            tokio::task::yield_now().await;
        }
        drop(writer);
        let first: Vec<_> = lines(from).await.iter().map(|line| line[..1].to_owned()).collect();
        assert_eq!(first, sent.map(|(text, _)| text));
        assert!(senders.join_all().await.iter().all(Result::is_ok));
    }

    #[tokio::test]
    async fn nothing_comes_after_an_end() {
        struct Reset(&'static [&'static str]);
        impl AsyncRead for Reset {
            fn poll_read(
                mut self: Pin<&mut Self>,
                _: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                let (first, rest) = self.0.split_first().expect("no read after the end");
                self.0 = rest;
                buf.put_slice(first.as_bytes());
                Poll::Ready(if first.is_empty() {
                    Err(io::ErrorKind::ConnectionReset.into())
                } else {
                    Ok(())
                })
            }
        }
        assert_eq!(lines(Reset(&["a\nb", "", "c\n"])).await, ["a", "b"]);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_skipped_and_the_next_one_is_read() {
        let long = vec![b'x'; MAX_LINE_BYTES + 5];
        let input = [&b"a\n"[..], &long, b"\nb\n", &long].concat();
        assert_eq!(lines(&input[..]).await, ["a", "too long", "b", "too long"]);
    }

    #[tokio::test]
    async fn a_line_of_exactly_the_limit_is_read_however_it_ends_and_arrives() {
        for (input, want) in [
            ("12345678\n", Ok("12345678")),
            ("12345678", Ok("12345678")),
            ("123456789\n", Err(LineTooLong)),
            ("123456789", Err(LineTooLong)),
        ] {
            for cut in 0..input.len() {
                let (first, rest) = input.as_bytes().split_at(cut);
                let mut reader = LineReader::with_limit(tokio::io::AsyncReadExt::chain(first, rest), 8);
                let line = reader.next().await.unwrap().unwrap();
                assert_eq!(line, want.map(Bytes::from), "{input:?} cut at {cut}");
                assert_eq!(reader.next().await.unwrap(), None);
            }
        }
    }

    #[tokio::test]
    async fn a_message_is_one_line() {
        let writer = LineWriter::new(Vec::new());
        writer.send(None, [b"{", b"1", b"}"]).await.unwrap();
        writer.send(None, [b"", b"2", b""]).await.unwrap();
        assert_eq!(&writer.0.to.lock().await.io[..], b"{1}\n2\n");
    }

    #[tokio::test]
    async fn a_send_dropped_half_way_spoils_no_other() {
        use futures_util::FutureExt as _;

        let long = [b'x'; SMALL_LINE_BYTES];
        for (polls, payload) in (1..8).flat_map(|polls| [(polls, &b"payload"[..]), (polls, &long)]) {
            let (near, far) = tokio::io::duplex(8);
            let writer = LineWriter::new(near);
            let mut send = Box::pin(writer.send(None, [b"head", payload, b"tail"]));
            let mut reader = LineReader::new(far);
            let mut early = Vec::new();
            // On the first poll a small line only waits for others.
            _ = (&mut send).now_or_never();
            for _ in 0..polls {
                _ = (&mut send).now_or_never();
                // Make a little room.
                let mut byte = [0; 1];
                early.push(reader.io.read(&mut byte).await.map(|_| byte[0]).unwrap());
            }
            drop(send);
            let next = tokio::spawn(async move { writer.send(None, [b"", b"next", b""]).await });
            let first = reader.next().await.unwrap().unwrap().unwrap();
            let want = [b"head", payload, b"tail"].concat();
            assert!([&early[..], &first].concat() == want, "after {polls} polls");
            assert_eq!(reader.next().await.unwrap().unwrap().unwrap(), "next");
            next.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn small_lines_that_are_sent_together_are_written_together() {
        /// Records the size of each write.
        struct Noting(Vec<usize>);
        impl AsyncWrite for Noting {
            fn poll_write(
                mut self: Pin<&mut Self>,
                _: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.0.push(bytes.len());
                Poll::Ready(Ok(bytes.len()))
            }
            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }
            fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }
        }
        let writer = LineWriter::new(Noting(Vec::new()));
        let send = || writer.send(None, [b"", b"line", b""]);
        let (first, second, third) = tokio::join!(send(), send(), send());
        assert!(first.is_ok() && second.is_ok() && third.is_ok());
        send().await.unwrap();
        assert_eq!(writer.0.to.lock().await.io.0, [15, 5]);
    }

    #[tokio::test]
    async fn a_large_line_takes_its_buffer_along_and_the_next_one_is_not_lost() {
        let input = [&vec![b'x'; 5 * KEPT_BUFFER_BYTES][..], b"\nnext\n"].concat();
        let mut reader = LineReader::new(&input[..]);
        let line = reader.next().await.unwrap().unwrap().unwrap();
        assert_eq!(line.len(), 5 * KEPT_BUFFER_BYTES);
        assert!(line.is_unique(), "the reader holds on to the line's buffer");
        assert_eq!(reader.next().await.unwrap().unwrap().unwrap(), "next");
        assert!(reader.buf.capacity() <= KEPT_BUFFER_BYTES, "{} bytes are kept", reader.buf.capacity());
    }

    #[tokio::test]
    async fn the_rest_of_a_line_that_will_not_end_can_be_taken() {
        use futures_util::FutureExt as _;

        let (near, mut far) = tokio::io::duplex(64);
        let mut reader = LineReader::with_limit(near, 16);
        assert_eq!(reader.take_rest(), None);
        far.write_all(b"whole\nhalf").await.unwrap();
        assert_eq!(reader.next().await.unwrap().unwrap().unwrap(), "whole");
        assert!(reader.next().now_or_never().is_none());
        assert_eq!(reader.take_rest().unwrap(), "half");
        assert_eq!(reader.take_rest(), None);
        // The beginning of a line that is too long is not returned.
        far.write_all(&[b'x'; 40]).await.unwrap();
        assert!(reader.next().now_or_never().is_none());
        assert_eq!(reader.take_rest(), None);
    }

    proptest! {
        #[test]
        fn lines_in_any_pieces_come_out_as_they_went_in(
            sent in proptest::collection::vec("[a-z]{1,40}", 0..12),
            piece in 1_usize..32,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let (near, mut far) = tokio::io::duplex(piece);
                let text = sent.iter().map(|line| format!("{line}\n")).collect::<String>();
                let writing = tokio::spawn(async move { far.write_all(text.as_bytes()).await.unwrap() });
                assert_eq!(lines(near).await, sent);
                writing.await.unwrap();
            });
        }
    }
}
