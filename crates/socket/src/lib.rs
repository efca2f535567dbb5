//! A connected socket that wakes its process only for what is waited for.
//!
//! A socket of tokio's own is watched in both directions all the time, so that whenever the other side has read
//! something the kernel wakes this process to say that there is room again, which nobody has asked. At one
//! small call after the other that was every seventh wake-up of a bridge, mostly while somebody else had work to do.
//!
//! Here reading is watched all the time, and writing only while the socket is full.

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

/// A write to a socket that nobody reads any more is an error, and not the end of the process. And it never blocks,
/// whoever else has the socket and changes its flags.
#[cfg(not(target_vendor = "apple"))]
const SEND: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);
#[cfg(target_vendor = "apple")]
const SEND: SendFlags = SendFlags::DONTWAIT;

/// How long a full socket is left alone where it cannot be watched.
const FULL_PAUSE: Duration = Duration::from_millis(5);

/// Splits a connected socket, which is closed when both halves are gone. Must be called inside a runtime.
///
/// # Errors
///
/// When it cannot be watched.
pub fn split(socket: UnixStream) -> io::Result<(SocketReader, SocketWriter)> {
    socket.set_nonblocking(true)?;
    let socket = Arc::new(OwnedFd::from(socket));
    let reader = SocketReader(watched(Arc::clone(&socket), Interest::READABLE)?);
    Ok((reader, SocketWriter { socket, full: None }))
}

/// What comes in.
#[derive(Debug)]
pub struct SocketReader(AsyncFd<Arc<OwnedFd>>);

impl SocketReader {
    /// Reads from a connected socket, which does not block from now on. Must be called inside a runtime.
    ///
    /// # Errors
    ///
    /// When it cannot be watched.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self(watched(Arc::new(socket), Interest::READABLE)?))
    }

    /// The socket itself, which is open as long as somebody has it.
    #[must_use]
    pub fn socket(&self) -> Arc<OwnedFd> {
        Arc::clone(self.0.get_ref())
    }

    /// Reads what is there already, as of the runtime's last look.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] when nothing is.
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
                    // There is no more for now; asking would only say so.
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

/// What goes out.
#[derive(Debug)]
pub struct SocketWriter {
    socket: Arc<OwnedFd>,
    full: Option<Full>,
}

/// What a socket that is full is waited for with.
#[derive(Debug)]
enum Full {
    /// Where it says that there is room again. A copy of the descriptor, because the other direction of the socket is
    /// watched too.
    Watched(AsyncFd<Arc<OwnedFd>>),
    /// Time, where there is no descriptor for a copy, or no room to watch it.
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

/// Whether there is no descriptor left, or no memory of the system's.
fn is_short(error: Errno) -> bool {
    matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOSPC)
}

impl SocketWriter {
    /// Writes to a connected socket, which does not block from now on.
    ///
    /// # Errors
    ///
    /// When the descriptor is not one.
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
                // There is more to come, and it will be full again.
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

/// A descriptor that says when there is something to read, or room to write. Must be called inside a runtime.
///
/// # Errors
///
/// When it cannot be watched, as a regular file cannot.
pub fn watched(fd: Arc<OwnedFd>, interest: Interest) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    #[expect(unsafe_code, reason = "tokio wants a promise about the descriptor that it watches")]
    // SAFETY: an owned descriptor is open for as long as it lives, and it is always the same one.
    let watched = unsafe { AsyncFd::register_with_interest(fd, interest) };
    Ok(watched?)
}

/// Reads into the room that there is, without clearing it first.
fn read(socket: &OwnedFd, buf: &mut ReadBuf<'_>) -> Result<usize, Errno> {
    #[expect(unsafe_code, reason = "the buffer's room is memory that nobody has written to yet")]
    // SAFETY: what is written there is only ever more of it, and only what was written counts as filled.
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
            // The other side was quicker.
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
            assert!(far.full.is_none(), "room is only waited for while there is none");
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
        assert!(tokio::time::timeout(patience, far.write_all(&chunk)).await.is_err(), "nobody reads");
        assert!(far.full.is_some());
        drop(near);
        let written = tokio::time::timeout(Duration::from_secs(120), far.write_all(&chunk)).await.unwrap();
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn nothing_is_read_where_nothing_is() {
        let ((mut near, _), (_, mut far)) = pair();
        let mut byte = [0];
        assert_eq!(near.try_read(&mut byte).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        far.write_all(b"x").await.unwrap();
        assert_eq!(near.read(&mut byte).await.unwrap(), 1);
        drop(far);
    }
}
