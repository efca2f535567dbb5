//! Waits for events of descriptors, and for files that appear in a directory or disappear from it.

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

/// Watches a directory from now on. The future resolves when a file has appeared or disappeared there; the caller has
/// to look at the directory for what it was, and the directory itself may be gone. Must be called inside a runtime.
#[cfg(target_os = "linux")]
pub(crate) fn dir_changed(dir: &Path) -> io::Result<impl Future<Output = ()> + Send + 'static> {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};

    let fd = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    let files = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE;
    let itself = WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF | WatchFlags::ONLYDIR;
    add_watch(&fd, dir, files | itself)?;
    let watch = watched(Arc::new(fd), Interest::READABLE)?;
    Ok(async move { drop(watch.readable().await) })
}

/// The same for a directory that may have changed every second.
#[cfg(not(target_os = "linux"))]
pub(crate) fn dir_changed(dir: &Path) -> io::Result<impl Future<Output = ()> + Send + 'static> {
    std::fs::read_dir(dir)?;
    Ok(tokio::time::sleep(std::time::Duration::from_secs(1)))
}
