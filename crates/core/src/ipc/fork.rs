//! Keeps the sockets and locks of sessions from being inherited by forks of this process.
//!
//! A fork gets a copy of every descriptor. With those of a session, the session would never look dead: its socket
//! would still accept connections, and its lock would still be held. `exec` closes them anyway; in a fork without
//! `exec` (Python's `multiprocessing`, a daemon) they are closed here.

use std::os::fd::{AsFd, AsRawFd as _};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, Ordering};

const FREE: i32 = -1;

/// The descriptors that forks do not keep. A fork may read this at any instant, and must neither wait for a lock nor
/// allocate. Enough for four sessions with all of their connections; further descriptors are inherited.
static PRIVATE: [AtomicI32; 4096] = [const { AtomicI32::new(FREE) }; 4096];

/// Keeps a descriptor from forks of this process; must be dropped before the descriptor is closed, since its number
/// may then be reused. In a fork the number refers to an unconnected socket, so that the fork's copy of the owner can
/// still close it.
#[derive(Debug)]
pub(crate) struct ForkGuard(Option<&'static AtomicI32>);

impl ForkGuard {
    pub(crate) fn new(of: &impl AsFd) -> Self {
        static WATCH: Once = Once::new();
        WATCH.call_once(watch_forks);
        let fd = of.as_fd().as_raw_fd();
        let take =
            |slot: &&AtomicI32| slot.compare_exchange(FREE, fd, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        Self(PRIVATE.iter().find(take))
    }
}

impl Drop for ForkGuard {
    fn drop(&mut self) {
        if let Some(slot) = self.0 {
            slot.store(FREE, Ordering::Release);
        }
    }
}

fn watch_forks() {
    #[expect(unsafe_code, reason = "the C library calls back in every fork")]
    // SAFETY: the function is there for as long as the program, and does only what a fork may do.
    let watched = unsafe { libc::pthread_atfork(None, None, Some(release_descriptors)) };
    if watched != 0 {
        tracing::warn!(error = watched, "forks of this process will keep its sessions alive");
    }
}

/// Called first in every fork: only does what is allowed in a signal handler, so it neither locks nor allocates.
extern "C" fn release_descriptors() {
    #[expect(unsafe_code, reason = "system calls on descriptors that others own")]
    // SAFETY: the descriptors are open, and their owners in this fork still find them open afterwards, unless no
    // descriptor was left for the replacement.
    unsafe {
        let nowhere = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
        for slot in &PRIVATE {
            let fd = slot.swap(FREE, Ordering::Relaxed);
            if fd != FREE && (nowhere < 0 || libc::dup2(nowhere, fd) < 0) {
                libc::close(fd);
            } else if fd != FREE {
                libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
        if nowhere >= 0 {
            libc::close(nowhere);
        }
    }
}
