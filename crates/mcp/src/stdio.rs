//! This process's stdin and stdout, without a thread for each.
//!
//! Sockets and pipes, which is what MCP clients give their servers, are watched by the runtime. Anything
//! else (a file, a terminal) goes through tokio's threads.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::io::Errno;
use rustix::net::sockopt::socket_type;
use rustix::net::{SendFlags, SocketType, send};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;
use toolbridge_socket::{SocketReader, SocketWriter};

/// Takes this process's stdin and stdout. Must be called inside a runtime.
///
/// # Errors
///
/// When a descriptor cannot be watched.
pub fn stdio() -> io::Result<(Stdin, Stdout)> {
    let (stdin, stdout) = (rustix::stdio::stdin(), rustix::stdio::stdout());
    // Both before either is changed: they may be one and the same.
    let (flags_in, flags_out) = (Flags::of(stdin)?, Flags::of(stdout)?);
    let input = match kind(stdin)? {
        FileType::Socket => In::Socket(SocketReader::new(stdin.try_clone_to_owned()?)?),
        FileType::Fifo => In::Pipe(pipe::Receiver::from_owned_fd(stdin.try_clone_to_owned()?)?),
        _ => In::Thread(tokio::io::stdin()),
    };
    let output = match kind(stdout)? {
        FileType::Socket => Out::Socket(SocketWriter::new(stdout.try_clone_to_owned()?)?),
        FileType::Fifo => Out::Pipe(pipe::Sender::from_owned_fd(stdout.try_clone_to_owned()?)?),
        _ => Out::Thread(tokio::io::stdout()),
    };
    Ok((Stdin { input, _flags: flags_in }, Stdout { output, flags: flags_out }))
}

/// This process's stdin.
#[derive(Debug)]
pub struct Stdin {
    input: In,
    _flags: Flags,
}

/// This process's stdout.
#[derive(Debug)]
pub struct Stdout {
    output: Out,
    flags: Flags,
}

#[derive(Debug)]
enum In {
    Socket(SocketReader),
    Pipe(pipe::Receiver),
    Thread(tokio::io::Stdin),
}

#[derive(Debug)]
enum Out {
    Socket(SocketWriter),
    Pipe(pipe::Sender),
    Thread(tokio::io::Stdout),
}

/// Looks whether anybody can still read what goes to stdout, which a process that has nothing to write does not
/// learn by itself.
#[derive(Debug)]
pub struct Readership {
    stdout: OwnedFd,
    is_stream: bool,
}

impl Stdout {
    /// Something that looks whether it is still read.
    ///
    /// # Errors
    ///
    /// When there is no descriptor left for it.
    pub fn readership(&self) -> io::Result<Readership> {
        let stdout = self.flags.fd.try_clone()?;
        // Of a file or a pipe it is an error to ask.
        let is_stream = socket_type(&stdout) == Ok(SocketType::STREAM);
        Ok(Readership { stdout, is_stream })
    }
}

impl Readership {
    /// Whether nobody can read any more: the other end of the pipe or socket is closed, for reading at least. A
    /// client that has only said its last word can.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        let mut ends = [PollFd::new(&self.stdout, PollFlags::empty())];
        let is_closed = poll(&mut ends, Some(&Timespec::default())).is_ok()
            && ends[0].revents().intersects(PollFlags::ERR | PollFlags::HUP);
        is_closed || (self.is_stream && refuses(&self.stdout))
    }
}

/// Whether a stream socket takes nothing more. One whose other end is closed for reading alone does not say so
/// before something is sent: nothing is, in as many bytes.
fn refuses(socket: &OwnedFd) -> bool {
    #[cfg(not(target_vendor = "apple"))]
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    #[cfg(target_vendor = "apple")]
    let flags = SendFlags::DONTWAIT;
    matches!(send(socket, &[], flags), Err(Errno::PIPE | Errno::CONNRESET))
}

fn kind(fd: BorrowedFd<'_>) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode))
}

/// A descriptor's flags, put back when this is dropped: they are shared with whoever else has it.
#[derive(Debug)]
struct Flags {
    fd: OwnedFd,
    flags: OFlags,
}

impl Flags {
    fn of(fd: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self { flags: fcntl_getfl(fd)?, fd: fd.try_clone_to_owned()? })
    }
}

impl Drop for Flags {
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
        match &mut self.input {
            In::Socket(input) => Pin::new(input).poll_read(cx, buf),
            In::Pipe(input) => Pin::new(input).poll_read(cx, buf),
            In::Thread(input) => Pin::new(input).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stdout {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.output {
            Out::Socket(output) => Pin::new(output).poll_write(cx, bytes),
            Out::Pipe(output) => Pin::new(output).poll_write(cx, bytes),
            Out::Thread(output) => Pin::new(output).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.output {
            Out::Socket(output) => Pin::new(output).poll_write_vectored(cx, parts),
            Out::Pipe(output) => Pin::new(output).poll_write_vectored(cx, parts),
            Out::Thread(output) => Pin::new(output).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        !matches!(self.output, Out::Thread(_))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.output {
            Out::Thread(output) => Pin::new(output).poll_flush(cx),
            Out::Socket(_) | Out::Pipe(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}
