//! Notifies of files that appear in a directory or disappear from it.

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
#[cfg(target_os = "linux")]
pub(crate) struct DirWatch(AsyncFd<Arc<OwnedFd>>);

#[cfg(target_os = "linux")]
impl DirWatch {
    pub(crate) fn new(dir: &Path) -> io::Result<Self> {
        use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};

        let fd = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let files = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE;
        let itself = WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF | WatchFlags::ONLYDIR;
        add_watch(&fd, dir, files | itself)?;
        watched(Arc::new(fd), Interest::READABLE).map(Self)
    }

    /// Waits until something has changed since the last call. The caller has to look at the directory for what it
    /// was; the directory itself may be gone.
    pub(crate) async fn changed(&self) -> io::Result<()> {
        let mut events = [0; 4096];
        let read = |fd: &Arc<OwnedFd>| Ok(rustix::io::read(fd, &mut events)?);
        self.0.async_io(Interest::READABLE, read).await.map(drop)
    }
}

/// A directory that may have changed every second.
#[cfg(not(target_os = "linux"))]
pub(crate) struct DirWatch;

#[cfg(not(target_os = "linux"))]
impl DirWatch {
    pub(crate) fn new(dir: &Path) -> io::Result<Self> {
        std::fs::read_dir(dir).map(|_| Self)
    }

    pub(crate) async fn changed(&self) -> io::Result<()> {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        Ok(())
    }
}
