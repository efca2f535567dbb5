//! Notifies of files that appear in a directory or disappear from it, without polling.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor that is polled for the given events. Must be called inside a runtime.
///
/// # Errors
///
/// When it cannot be polled, like a regular file.
pub(crate) fn watched(fd: Arc<OwnedFd>, interest: Interest) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    #[expect(unsafe_code, reason = "tokio requires that the descriptor stays open and the same")]
    // SAFETY: an owned descriptor is open for as long as it lives, and it is always the same one.
    let watched = unsafe { AsyncFd::register_with_interest(fd, interest) };
    Ok(watched?)
}

/// A watched directory.
pub(crate) struct DirWatch {
    events: AsyncFd<Arc<OwnedFd>>,
    /// Kept open, because the queue refers to it by its number only.
    #[cfg(not(target_os = "linux"))]
    _dir: OwnedFd,
}

#[cfg(target_os = "linux")]
impl DirWatch {
    pub(crate) fn new(dir: &Path) -> io::Result<Self> {
        use rustix::fs::inotify;

        let fd = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        let events = inotify::WatchFlags::CREATE
            | inotify::WatchFlags::DELETE
            | inotify::WatchFlags::MOVE
            | inotify::WatchFlags::DELETE_SELF
            | inotify::WatchFlags::MOVE_SELF
            | inotify::WatchFlags::ONLYDIR;
        inotify::add_watch(&fd, dir, events)?;
        Ok(Self { events: watched(Arc::new(fd), Interest::READABLE)? })
    }

    /// Waits until something has changed since the last call. The caller has to look at the directory for what it
    /// was; the directory itself may be gone.
    pub(crate) async fn changed(&self) -> io::Result<()> {
        let mut events = [0; 4096];
        let read = |fd: &Arc<OwnedFd>| Ok(rustix::io::read(fd, &mut events)?);
        self.events.async_io(Interest::READABLE, read).await.map(drop)
    }
}

#[cfg(not(target_os = "linux"))]
impl DirWatch {
    pub(crate) fn new(dir: &Path) -> io::Result<Self> {
        use rustix::event::kqueue::{Event, EventFilter, EventFlags, VnodeEvents, kqueue};
        use rustix::fs::{Mode, OFlags};
        use std::os::fd::AsRawFd as _;

        let queue = kqueue()?;
        rustix::io::fcntl_setfd(&queue, rustix::io::FdFlags::CLOEXEC)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(dir, flags, Mode::empty())?;
        let filter = EventFilter::Vnode {
            vnode: dir.as_raw_fd(),
            flags: VnodeEvents::WRITE | VnodeEvents::DELETE | VnodeEvents::RENAME,
        };
        let change = Event::new(filter, EventFlags::ADD | EventFlags::CLEAR, std::ptr::null_mut());
        // Without room for events: otherwise a failure would be reported as an event and not as an error.
        kevents(&queue, &[change], 0)?;
        Ok(Self { events: watched(Arc::new(queue), Interest::READABLE)?, _dir: dir })
    }

    pub(crate) async fn changed(&self) -> io::Result<()> {
        let read = |queue: &Arc<OwnedFd>| match kevents(queue, &[], 8)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        };
        self.events.async_io(Interest::READABLE, read).await
    }
}

/// Registers `changes` and returns the number of pending events, at most `room`.
#[cfg(not(target_os = "linux"))]
fn kevents(queue: &OwnedFd, changes: &[rustix::event::kqueue::Event], room: usize) -> io::Result<usize> {
    let mut events = Vec::with_capacity(room);
    #[expect(unsafe_code, reason = "the system is given a descriptor by its number")]
    // SAFETY: the descriptor that the change names is open.
    let count = unsafe {
        rustix::event::kqueue::kevent(
            queue,
            changes,
            rustix::buffer::spare_capacity(&mut events),
            Some(std::time::Duration::ZERO),
        )
    }?;
    Ok(count)
}
