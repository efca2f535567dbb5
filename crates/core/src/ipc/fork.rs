//! Keeps the sockets and locks of sessions from being inherited by forks of this process.
//!
//! A fork gets a copy of every descriptor. With those of a session, the session would never look dead: its socket
//! would still accept connections, and its lock would still be held. `exec` closes them anyway; in a fork without
//! `exec` (Python's `multiprocessing`, a daemon) they are closed here.

use std::os::fd::{AsFd, AsRawFd as _};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// A place for a descriptor; -1 if it is free.
type Slot = AtomicI32;

const FREE: i32 = -1;

/// A block of slots and a link to the next block. Blocks are never freed: a fork may walk the list at any instant,
/// and must neither wait for a lock nor allocate.
struct Places {
    slots: [Slot; 64],
    more: AtomicPtr<Places>,
}

static PLACES: Places = Places::new();

impl Places {
    const fn new() -> Self {
        Self { slots: [const { AtomicI32::new(FREE) }; 64], more: AtomicPtr::new(std::ptr::null_mut()) }
    }

    fn next(&self) -> Option<&'static Self> {
        let more = self.more.load(Ordering::Acquire);
        #[expect(unsafe_code, reason = "a list that only grows, so that a fork can walk it")]
        // SAFETY: it is null, or what `or_more` has leaked.
        unsafe {
            more.as_ref()
        }
    }

    /// The next block; allocated if there is none.
    fn or_more(&self) -> &'static Self {
        if let Some(next) = self.next() {
            return next;
        }
        let new = Box::into_raw(Box::new(Self::new()));
        let empty = std::ptr::null_mut();
        if self.more.compare_exchange(empty, new, Ordering::AcqRel, Ordering::Acquire).is_err() {
            #[expect(unsafe_code, reason = "another thread was faster, so this block is not shared")]
            // SAFETY: it came from a box a few lines above.
            drop(unsafe { Box::from_raw(new) });
        }
        self.next().expect("there are more now")
    }
}

/// A descriptor that forks of this process do not keep. In a fork its number refers to an unconnected socket, so
/// that the fork's copy of the owner can still close it.
#[derive(Debug)]
pub(crate) struct Private<T> {
    // Freed before the descriptor is closed, since its number may then be reused.
    place: Place,
    inner: T,
}

/// An occupied slot.
#[derive(Debug)]
struct Place(&'static Slot);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.store(FREE, Ordering::Release);
    }
}

impl<T: AsFd> Private<T> {
    /// Keeps the descriptor from forks as long as it is open.
    pub(crate) fn new(inner: T) -> Self {
        static WATCH: Once = Once::new();
        WATCH.call_once(watch_forks);
        let fd = inner.as_fd().as_raw_fd();
        let mut places = &PLACES;
        loop {
            let is_taken =
                |slot: &&Slot| slot.compare_exchange(FREE, fd, Ordering::AcqRel, Ordering::Relaxed).is_ok();
            if let Some(slot) = places.slots.iter().find(is_taken) {
                return Self { place: Place(slot), inner };
            }
            places = places.or_more();
        }
    }

    pub(crate) fn get(&self) -> &T {
        &self.inner
    }

    /// Converts the descriptor into another type.
    pub(crate) fn try_map<U, E>(self, with: impl FnOnce(T) -> Result<U, E>) -> Result<Private<U>, E> {
        let Self { place, inner } = self;
        Ok(Private { inner: with(inner)?, place })
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
        let mut places = Some(&PLACES);
        while let Some(some) = places {
            for slot in &some.slots {
                let fd = slot.swap(FREE, Ordering::Relaxed);
                if fd != FREE && (nowhere < 0 || libc::dup2(nowhere, fd) < 0) {
                    libc::close(fd);
                } else if fd != FREE {
                    libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
                }
            }
            places = some.next();
        }
        if nowhere >= 0 {
            libc::close(nowhere);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn places_are_used_again_and_there_are_always_more() {
        let file = || Private::new(File::open("/dev/null").unwrap());
        let is_registered = |file: &Private<File>| {
            let fd = file.get().as_raw_fd();
            let mut places = Some(&PLACES);
            while let Some(some) = places {
                if some.slots.iter().any(|slot| slot.load(Ordering::Acquire) == fd) {
                    return true;
                }
                places = some.next();
            }
            false
        };
        let many: Vec<_> = (0..300).map(|_| file()).collect();
        assert!(many.iter().all(is_registered));
        let places =
            |many: &[Private<File>]| many.iter().map(|file| file.place.0.as_ptr()).collect::<Vec<_>>();
        let before = places(&many);
        drop(many);
        // Other tests use slots at the same time, but not all of them.
        let again: Vec<_> = (0..300).map(|_| file()).collect();
        assert!(places(&again).iter().any(|place| before.contains(place)));
        let mapped = file().try_map(Ok::<_, ()>).unwrap();
        assert!(is_registered(&mapped));
    }
}
