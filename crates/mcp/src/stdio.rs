//! This process's stdin and stdout, without a thread for each.
//!
//! Sockets and pipes, which is what MCP clients give their servers, are watched by the runtime. Anything
//! else (a file, a terminal) goes through tokio's threads.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// Takes this process's stdin and stdout. Must be called inside a runtime.
///
/// # Errors
///
/// When a descriptor cannot be watched.
pub fn stdio() -> io::Result<(Stdin, Stdout)> {
    let stdin = match Watched::new(rustix::stdio::stdin(), Interest::READABLE)? {
        Some(fd) => Stdin(In::Watched(fd)),
        None => Stdin(In::Thread(tokio::io::stdin())),
    };
    let stdout = match Watched::new(rustix::stdio::stdout(), Interest::WRITABLE)? {
        Some(fd) => Stdout(Out::Watched(fd)),
        None => Stdout(Out::Thread(tokio::io::stdout())),
    };
    Ok((stdin, stdout))
}

/// This process's stdin.
#[derive(Debug)]
pub struct Stdin(In);

/// This process's stdout.
#[derive(Debug)]
pub struct Stdout(Out);

#[derive(Debug)]
enum In {
    Watched(Watched),
    Thread(tokio::io::Stdin),
}

#[derive(Debug)]
enum Out {
    Watched(Watched),
    Thread(tokio::io::Stdout),
}

/// A descriptor that does not block as long as this exists. Its flags are shared with whoever else has
/// it, so they are put back.
#[derive(Debug)]
struct Watched {
    fd: AsyncFd<OwnedFd>,
    flags: OFlags,
}

impl Watched {
    /// `None` when the runtime cannot watch such a descriptor.
    fn new(fd: BorrowedFd<'_>, interest: Interest) -> io::Result<Option<Self>> {
        let kind = FileType::from_raw_mode(fstat(fd)?.st_mode);
        if !matches!(kind, FileType::Socket | FileType::Fifo) {
            return Ok(None);
        }
        let flags = fcntl_getfl(fd)?;
        let watched = Self { fd: register(fd.try_clone_to_owned()?, interest)?, flags };
        fcntl_setfl(fd, flags | OFlags::NONBLOCK)?;
        Ok(Some(watched))
    }
}

#[expect(unsafe_code, reason = "tokio leaves it to the caller that the descriptor stays open")]
fn register(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is open and is given away here, so it stays open as long as it is watched.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}

impl Drop for Watched {
    fn drop(&mut self) {
        _ = fcntl_setfl(self.fd.as_fd(), self.flags);
    }
}

impl AsyncRead for Stdin {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let watched = match &mut self.0 {
            In::Thread(stdin) => return Pin::new(stdin).poll_read(cx, buf),
            In::Watched(watched) => watched,
        };
        loop {
            let mut ready = ready!(watched.fd.poll_read_ready(cx))?;
            let space = buf.initialize_unfilled();
            match ready.try_io(|fd| Ok(rustix::io::read(fd, &mut *space)?)) {
                Ok(Ok(count)) => {
                    buf.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                // Not ready after all.
                Err(_) => {}
            }
        }
    }
}

impl AsyncWrite for Stdout {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let watched = match &mut self.0 {
            Out::Thread(stdout) => return Pin::new(stdout).poll_write_vectored(cx, parts),
            Out::Watched(watched) => watched,
        };
        loop {
            let mut ready = ready!(watched.fd.poll_write_ready(cx))?;
            match ready.try_io(|fd| Ok(rustix::io::writev(fd, parts)?)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(done) => return Poll::Ready(done),
                Err(_) => {}
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        matches!(self.0, Out::Watched(_))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Out::Thread(stdout) => Pin::new(stdout).poll_flush(cx),
            Out::Watched(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}
