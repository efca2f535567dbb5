//! This process's stdin and stdout, without a thread for each.
//!
//! Sockets and pipes, which MCP clients use, are polled by the runtime. Anything else (a file, a terminal) goes
//! through tokio's threads.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::ipc::watched;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::io::Errno;
use rustix::net::sockopt::socket_type;
use rustix::net::{SendFlags, SocketType, send};
use rustix::process::{Pid, getppid};
#[cfg(target_os = "linux")]
use rustix::process::{PidfdFlags, pidfd_open};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::Notify;

/// How often the client's presence is checked while there is traffic.
const LOOK: Duration = Duration::from_millis(500);

/// Takes this process's stdin and stdout. Must be called inside a runtime.
///
/// # Errors
///
/// When a descriptor cannot be polled.
pub fn stdio() -> io::Result<(Stdin, Stdout, StdioClient)> {
    let (stdin, stdout) = (rustix::stdio::stdin(), rustix::stdio::stdout());
    // Both are saved before either is changed: they may be the same descriptor.
    let (flags_in, flags_out) = (Flags::of(stdin)?, Flags::of(stdout)?);
    let input: Pin<Box<dyn AsyncRead + Send>> = match kind(stdin)? {
        FileType::Socket => Box::pin(socket(stdin)?),
        FileType::Fifo => Box::pin(pipe::Receiver::from_owned_fd(stdin.try_clone_to_owned()?)?),
        _ => Box::pin(tokio::io::stdin()),
    };
    let output: Pin<Box<dyn AsyncWrite + Send>> = match kind(stdout)? {
        FileType::Socket => Box::pin(socket(stdout)?),
        FileType::Fifo => Box::pin(pipe::Sender::from_owned_fd(stdout.try_clone_to_owned()?)?),
        _ => Box::pin(tokio::io::stdout()),
    };
    let client = StdioClient {
        stdout: Arc::new(stdout.try_clone_to_owned()?),
        // An error for anything that is not a socket.
        is_stream: socket_type(stdout) == Ok(SocketType::STREAM),
        traffic: Arc::default(),
    };
    let traffic = || Arc::clone(&client.traffic);
    let input = Stdio { io: input, traffic: traffic(), _flags: flags_in };
    let output = Stdio { io: output, traffic: traffic(), _flags: flags_out };
    Ok((input, output, client))
}

/// This process's stdin or stdout.
pub struct Stdio<T: ?Sized> {
    io: Pin<Box<T>>,
    traffic: Arc<Notify>,
    _flags: Flags,
}

/// This process's stdin.
pub type Stdin = Stdio<dyn AsyncRead + Send>;

/// This process's stdout.
pub type Stdout = Stdio<dyn AsyncWrite + Send>;

/// The processes that need this one: the one that started it, and the reader of its stdout.
#[derive(Debug)]
pub struct StdioClient {
    stdout: Arc<OwnedFd>,
    is_stream: bool,
    traffic: Arc<Notify>,
}

impl StdioClient {
    /// Waits until this process is no longer needed: the process that started it is gone, or its stdout has no
    /// reader. Usually stdin ends then too, but not if another process still holds its other end open.
    ///
    /// When idle, it waits for an event. While there is traffic it checks every half second instead, which costs
    /// less than being woken by every read; `at_look` is called at each check, and always before it goes idle.
    pub async fn gone(&self, mut at_look: impl FnMut()) {
        let parent = getppid();
        // Orphans are adopted by another process.
        let is_orphan = || getppid() != parent;
        let end = end_of(parent);
        let orphaned = async || {
            if let Some(end) = &end
                && end.readable().await.is_ok()
            {
                return;
            }
            while !is_orphan() {
                tokio::time::sleep(LOOK).await;
            }
        };
        loop {
            tokio::time::sleep(LOOK).await;
            at_look();
            if is_orphan() || self.cannot_read() {
                return;
            }
            tokio::select! {
                () = self.traffic.notified() => {}
                () = orphaned() => return,
                () = self.reads_no_more() => return,
            }
        }
    }

    async fn reads_no_more(&self) {
        // A regular file has no such events.
        let Ok(stdout) = watched(Arc::clone(&self.stdout), Interest::WRITABLE) else {
            return std::future::pending().await;
        };
        while let Ok(mut ready) = stdout.writable().await {
            if self.cannot_read() {
                return;
            }
            ready.clear_ready();
        }
    }

    /// Whether stdout has no reader: the other end of the pipe or socket is closed, at least for reading. A client
    /// that has only closed its writing end can still read.
    fn cannot_read(&self) -> bool {
        let mut ends = [PollFd::new(&self.stdout, PollFlags::empty())];
        let is_closed = poll(&mut ends, Some(&Timespec::default())).is_ok()
            && ends[0].revents().intersects(PollFlags::ERR | PollFlags::HUP);
        is_closed || (self.is_stream && refuses(&self.stdout))
    }
}

/// Becomes readable when the process has ended, where the system supports this.
fn end_of(process: Option<Pid>) -> Option<AsyncFd<Arc<OwnedFd>>> {
    #[cfg(target_os = "linux")]
    return watched(Arc::new(pidfd_open(process?, PidfdFlags::empty()).ok()?), Interest::READABLE).ok();
    #[cfg(not(target_os = "linux"))]
    return process.and(None);
}

/// Whether a stream socket refuses further data. If the other end is closed for reading only, this shows on the
/// next send, so an empty one is tried.
fn refuses(socket: &OwnedFd) -> bool {
    #[cfg(not(target_vendor = "apple"))]
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    #[cfg(target_vendor = "apple")]
    let flags = SendFlags::DONTWAIT;
    matches!(send(socket, &[], flags), Err(Errno::PIPE | Errno::CONNRESET))
}

fn socket(fd: BorrowedFd<'_>) -> io::Result<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(fd.try_clone_to_owned()?);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

fn kind(fd: BorrowedFd<'_>) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode))
}

/// A descriptor's flags, restored when dropped: they are shared with all processes that have the descriptor.
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
        let read = self.io.as_mut().poll_read(cx, buf);
        // Only if something was read; otherwise the notification would wake the check for nothing.
        if read.is_ready() {
            self.traffic.notify_one();
        }
        read
    }
}

impl AsyncWrite for Stdout {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.io.as_mut().poll_write(cx, bytes);
        if written.is_ready() {
            self.traffic.notify_one();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}
