//! A connected socket that wakes its process only for events it waits for.
//!
//! Tokio polls its sockets in both directions all the time. So whenever the peer has read something, the kernel
//! wakes this process to report free space in the send buffer, even if nothing waits for it. With one small call
//! after the other, that was every seventh wake-up of a bridge, usually while another process had work to do.
//!
//! Here a socket is always polled for reading, but for writing only while its send buffer is full.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown, sendmsg, shutdown};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Writing to a socket without a reader is an error and does not kill the process with a signal. It also never
/// blocks, even if another process that shares the socket changes its flags.
#[cfg(not(target_vendor = "apple"))]
const SEND: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);
#[cfg(target_vendor = "apple")]
const SEND: SendFlags = SendFlags::DONTWAIT;

/// The pause before a full socket is tried again, if it cannot be polled.
const FULL_PAUSE: Duration = Duration::from_millis(5);

/// Splits a connected socket, which is closed when both halves are dropped. Must be called inside a runtime.
///
/// # Errors
///
/// When it cannot be polled.
pub fn split(socket: UnixStream) -> io::Result<(SocketReader, SocketWriter)> {
    socket.set_nonblocking(true)?;
    let socket = Arc::new(OwnedFd::from(socket));
    let reader = SocketReader(watched(Arc::clone(&socket), Interest::READABLE)?);
    Ok((reader, SocketWriter { socket, full: None }))
}

/// The reading half.
#[derive(Debug)]
pub struct SocketReader(AsyncFd<Arc<OwnedFd>>);

impl SocketReader {
    /// Reads from a connected socket, and makes it non-blocking. Must be called inside a runtime.
    ///
    /// # Errors
    ///
    /// When it cannot be polled.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self(watched(Arc::new(socket), Interest::READABLE)?))
    }

    /// The socket itself, which stays open as long as a reference exists.
    #[must_use]
    pub fn socket(&self) -> Arc<OwnedFd> {
        Arc::clone(self.0.get_ref())
    }

    /// Reads what has already arrived, as far as the runtime knows.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] when there is nothing.
    pub fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.try_io(Interest::READABLE, |socket| Ok(rustix::io::read(socket, bytes)?))
    }
}

impl AsyncRead for SocketReader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            let room = buf.remaining();
            match read(self.0.get_ref(), buf) {
                Ok(count) => {
                    // The buffer is drained; another read would only return `EAGAIN`.
                    if 0 < count && count < room {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(()));
                }
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
}

/// The writing half.
#[derive(Debug)]
pub struct SocketWriter {
    socket: Arc<OwnedFd>,
    full: Option<Full>,
}

/// How to wait for a full socket.
#[derive(Debug)]
enum Full {
    /// Until it becomes writable. A copy of the descriptor, because the original is polled for reading.
    Watched(AsyncFd<Arc<OwnedFd>>),
    /// For some time, if there is no descriptor for a copy, or no memory to poll it.
    Later(Pin<Box<Sleep>>),
}

impl Full {
    fn new(socket: &OwnedFd) -> io::Result<Self> {
        match socket.try_clone().and_then(|copy| watched(Arc::new(copy), Interest::WRITABLE)) {
            Ok(copy) => Ok(Self::Watched(copy)),
            Err(error) if error.raw_os_error().map(Errno::from_raw_os_error).is_some_and(is_short) => {
                Ok(Self::Later(Box::pin(sleep(FULL_PAUSE))))
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether the system has run out of descriptors or memory.
fn is_short(error: Errno) -> bool {
    matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOSPC)
}

impl SocketWriter {
    /// Writes to a connected socket, and makes it non-blocking.
    ///
    /// # Errors
    ///
    /// When the descriptor is invalid.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self { socket: Arc::new(socket), full: None })
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let whole = parts.iter().map(|part| part.len()).sum::<usize>();
        loop {
            let sent = match &mut self.full {
                None => send(self.socket.as_fd(), parts),
                Some(Full::Watched(full)) => {
                    match ready!(full.poll_write_ready(cx))?.try_io(|fd| send(fd.as_fd(), parts)) {
                        Ok(sent) => sent,
                        Err(_full_again) => continue,
                    }
                }
                Some(Full::Later(pause)) => {
                    ready!(pause.as_mut().poll(cx));
                    send(self.socket.as_fd(), parts)
                }
            };
            match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.full = Some(Full::new(&self.socket)?);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The rest follows, and the socket is full again.
                Ok(part) if part < whole => {
                    if let Some(Full::Later(_)) = self.full {
                        self.full = None;
                    }
                    return Poll::Ready(Ok(part));
                }
                sent => {
                    self.full = None;
                    return Poll::Ready(sent);
                }
            }
        }
    }
}

/// A descriptor that is polled for the given events. Must be called inside a runtime.
///
/// # Errors
///
/// When it cannot be polled, like a regular file.
pub fn watched(fd: Arc<OwnedFd>, interest: Interest) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    #[expect(unsafe_code, reason = "tokio requires that the descriptor stays open and the same")]
    // SAFETY: an owned descriptor is open for as long as it lives, and it is always the same one.
    let watched = unsafe { AsyncFd::register_with_interest(fd, interest) };
    Ok(watched?)
}

/// Reads into the unfilled part of the buffer without initialising it first.
fn read(socket: &OwnedFd, buf: &mut ReadBuf<'_>) -> Result<usize, Errno> {
    #[expect(unsafe_code, reason = "the unfilled part of the buffer is not initialised")]
    // SAFETY: the unfilled part is only written to, and only what was written is marked as filled.
    unsafe {
        let count = rustix::io::read(socket, buf.unfilled_mut())?.0.len();
        buf.assume_init(count);
        buf.advance(count);
        Ok(count)
    }
}

fn send(socket: BorrowedFd<'_>, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    Ok(sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), SEND)?)
}

impl AsyncWrite for SocketWriter {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(match shutdown(&self.socket, Shutdown::Write) {
            // The peer has already closed.
            Err(Errno::NOTCONN) => Ok(()),
            ended => Ok(ended?),
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn pair() -> ((SocketReader, SocketWriter), (SocketReader, SocketWriter)) {
        let (near, far) = UnixStream::pair().unwrap();
        (split(near).unwrap(), split(far).unwrap())
    }

    #[tokio::test]
    async fn more_than_fits_arrives_whole() {
        let ((mut near, _), (_, mut far)) = pair();
        let text: Vec<u8> = (0..3_000_000_u32).map(|place| place.to_le_bytes()[0]).collect();
        let sent = text.clone();
        let sending = tokio::spawn(async move {
            far.write_all(&sent).await.unwrap();
            assert!(far.full.is_none(), "the socket is only polled while it is full");
            far.shutdown().await.unwrap();
            far
        });
        let mut got = Vec::new();
        near.read_to_end(&mut got).await.unwrap();
        assert!(got == text);
        drop(sending.await.unwrap());
    }

    #[tokio::test]
    async fn parts_go_out_together() {
        let ((mut near, _), (_, mut far)) = pair();
        let parts = [IoSlice::new(b"one "), IoSlice::new(b"two")];
        assert_eq!(far.write_vectored(&parts).await.unwrap(), 7);
        let mut got = [0; 16];
        assert_eq!(near.read(&mut got).await.unwrap(), 7);
        assert_eq!(&got[..7], b"one two");
    }

    #[tokio::test]
    async fn a_full_socket_is_waited_for_and_a_closed_one_is_an_error() {
        let ((near, _), (_, mut far)) = pair();
        let patience = Duration::from_millis(100);
        let chunk = vec![0; 1_000_000];
        assert!(tokio::time::timeout(patience, far.write_all(&chunk)).await.is_err(), "there is no reader");
        assert!(far.full.is_some());
        drop(near);
        let written = tokio::time::timeout(Duration::from_secs(120), far.write_all(&chunk)).await.unwrap();
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn try_read_without_data_would_block() {
        let ((mut near, _), (_, mut far)) = pair();
        let mut byte = [0];
        assert_eq!(near.try_read(&mut byte).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        far.write_all(b"x").await.unwrap();
        assert_eq!(near.read(&mut byte).await.unwrap(), 1);
        drop(far);
    }
}
