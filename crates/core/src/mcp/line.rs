//! Splits bytes into messages: one JSON text per line.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufWriter};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use crate::RawJson;

/// The maximum length of a line from a client, without its newline. A longer one could not be passed on anyway; it
/// is skipped and answered with an error.
pub const MAX_LINE_BYTES: usize = 32 * 1024 * 1024;

/// How much is reserved before a read.
const READ_BYTES: usize = 64 * 1024;

/// A buffer that grew beyond this is not reused after the line.
const KEPT_BUFFER_BYTES: usize = 1024 * 1024;

/// The number of lines that wait to be written; further senders wait too.
const MAX_QUEUED_LINES: usize = 64;

/// How much is copied, to be written together with other lines.
const BUFFER_BYTES: usize = 16 * 1024;

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
        parts: [Bytes; 3],
    ) -> impl Future<Output = io::Result<()>> + Send;

    /// Waits until everything that was sent is written, also by senders that were dropped.
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

/// Writes lines in the order in which they are sent, and each completely, also if its sender is dropped meanwhile.
/// Clones write to the same place, which is closed with the last of them.
#[derive(Debug, Clone)]
pub struct LineWriter {
    lines: mpsc::Sender<Line>,
    _writing: Arc<AbortOnDropHandle<()>>,
}

/// A line to be written, with its newline.
#[derive(Debug)]
struct Line {
    parts: Vec<Bytes>,
    written: oneshot::Sender<Result<(), io::ErrorKind>>,
}

impl LineWriter {
    /// Writes to `io`, in a task of its own.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    pub fn new(io: impl AsyncWrite + Unpin + Send + 'static) -> Self {
        let (lines, queue) = mpsc::channel(MAX_QUEUED_LINES);
        let writing = tokio::spawn(write_lines(BufWriter::with_capacity(BUFFER_BYTES, io), queue));
        Self { lines, _writing: Arc::new(AbortOnDropHandle::new(writing)) }
    }

    async fn write(&self, parts: Vec<Bytes>) -> io::Result<()> {
        let (written, result) = oneshot::channel();
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        self.lines.send(Line { parts, written }).await.map_err(|_| gone())?;
        Ok(result.await.map_err(|_| gone())??)
    }
}

/// Writes lines until there are no more; those that wait are written together. After a failure, the others fail too.
async fn write_lines(mut io: BufWriter<impl AsyncWrite + Unpin>, mut queue: mpsc::Receiver<Line>) {
    let (mut lines, mut written) = (Vec::new(), Ok(()));
    while queue.recv_many(&mut lines, MAX_QUEUED_LINES).await > 0 {
        if written.is_ok() {
            let writing = async {
                for part in lines.iter().flat_map(|line| &line.parts) {
                    io.write_all(part).await?;
                }
                io.flush().await
            };
            written = writing.await.map_err(|error| error.kind());
        }
        for line in lines.drain(..) {
            _ = line.written.send(written);
        }
    }
}

impl Outgoing for LineWriter {
    async fn send(&self, _: Option<&RawJson>, [head, payload, tail]: [Bytes; 3]) -> io::Result<()> {
        self.write(vec![head, payload, tail, Bytes::from_static(b"\n")]).await
    }

    async fn finish(&self) -> io::Result<()> {
        self.write(Vec::new()).await
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
            senders.spawn(async move { writer.send(None, [line.into(), Bytes::new(), Bytes::new()]).await });
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
    async fn a_send_dropped_half_way_spoils_no_other() {
        use futures_util::FutureExt as _;

        for payload in [Bytes::from_static(b"payload"), vec![b'x'; 2 * BUFFER_BYTES].into()] {
            let (near, far) = tokio::io::duplex(8);
            let (writer, mut reader) = (LineWriter::new(near), LineReader::new(far));
            let parts = [Bytes::from_static(b"head"), payload, Bytes::from_static(b"tail")];
            let mut send = Box::pin(writer.send(None, parts.clone()));
            assert!((&mut send).now_or_never().is_none());
            tokio::task::yield_now().await;
            drop(send);
            let next = writer.send(None, [Bytes::new(), Bytes::from_static(b"next"), Bytes::new()]);
            let reading = async { [reader.next().await, reader.next().await] };
            let (written, lines) = tokio::join!(next, reading);
            written.unwrap();
            let lines = lines.map(|line| line.unwrap().unwrap().unwrap());
            assert!(lines == [Bytes::from(parts.concat()), Bytes::from_static(b"next")]);
        }
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
