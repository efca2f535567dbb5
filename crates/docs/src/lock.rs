//! A file that is locked while it is replaced or appended to.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::attributes;
use crate::disk;
use crate::root::{Stamp, check_regular, identity, open_name, stat_name};
use crate::temporary::Temporary;
use crate::write::{ATTEMPTS, NotDurable};

/// How long a file may stay locked without changing before the call is given up.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// The same for a file that keeps changing: the holder may never release the lock.
const LOCK_PATIENCE_AT_MOST: Duration = Duration::from_secs(300);
const LOCK_PAUSE: Duration = Duration::from_millis(1);
const LOCK_PAUSE_AT_MOST: Duration = Duration::from_millis(16);

/// A file that is there, locked against others that change it as we do.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    pub(crate) file: File,
    dir: BorrowedFd<'a>,
    name: &'a str,
    stat: Stat,
}

impl<'a> Locked<'a> {
    /// Opens and locks `name` to be appended to; `None` if there is no such file. Its owner must let us write.
    pub(crate) fn to_append(dir: BorrowedFd<'a>, name: &'a str) -> io::Result<Option<Self>> {
        Self::open(dir, name, false)
    }

    /// Opens and locks `name` to be replaced by another file; `None` if there is no such file.
    pub(crate) fn to_replace(dir: BorrowedFd<'a>, name: &'a str) -> io::Result<Option<Self>> {
        Self::open(dir, name, true)
    }

    fn open(dir: BorrowedFd<'a>, name: &'a str, is_replaced: bool) -> io::Result<Option<Self>> {
        let mut patience = Patience::new(LOCK_PATIENCE, LOCK_PATIENCE_AT_MOST);
        loop {
            // Before it is opened: opening a device can do something.
            let Some(named) = stat_name(dir, name)? else { return Ok(None) };
            check_regular(&named)?;
            let open = |flags| open_name(dir, name, flags, Mode::empty());
            let opened = match open(OFlags::RDWR) {
                // What is replaced need not be writable: the folder's permissions decide.
                Err(Errno::ACCESS) if is_replaced => open(OFlags::RDONLY),
                opened => opened,
            };
            let file = match opened {
                Err(Errno::NOENT) => return Ok(None),
                opened => opened?,
            };
            check_regular(&rustix::fs::fstat(&file)?)?;
            let is_locked = try_lock(&file)?;
            // Meanwhile another file may have got the name; then that one is meant.
            let stat = rustix::fs::fstat(&file)?;
            let named = stat_name(dir, name)?;
            if is_locked && named.is_some_and(|named| identity(&named) == identity(&stat)) {
                return Ok(Some(Self { file: file.into(), dir, name, stat }));
            }
            patience.wait(named.as_ref().map(Stamp::of))?;
        }
    }

    /// Whether the file has another name, perhaps outside.
    pub(crate) fn has_other_names(&self) -> bool {
        self.stat.st_nlink > 1
    }

    /// Puts a file with the content `parts` in its place; owner, permissions and attributes are kept. It stays
    /// locked until the new file has the name, so that the next holder of the lock works on the new one.
    pub(crate) fn replace(&self, parts: &[&[u8]]) -> io::Result<u64> {
        let temporary = self.replacement()?;
        let written = temporary.fill(parts)?;
        self.give_way(temporary)?;
        Ok(written)
    }

    /// Adds `bytes` on a line of their own; how many bytes that took.
    ///
    /// The file is replaced by one that has both: a process killed meanwhile leaves no part of them.
    pub(crate) fn append(&self, bytes: &[u8]) -> io::Result<u64> {
        if bytes.is_empty() {
            return Ok(0);
        }
        for _ in 0..ATTEMPTS {
            let before = Stamp::of_file(&self.file)?;
            let separator = self.separator(before.size)?;
            let temporary = self.replacement()?;
            let copied = disk::copy(&self.file, &temporary.file, before.size)?;
            let written = temporary.fill(&[separator, bytes])?;
            // An editor asks for no lock; what it has written must not be lost.
            if copied == before.size && Stamp::of_file(&self.file)? == before {
                self.give_way(temporary)?;
                return Ok(written);
            }
        }
        Err(Errno::BUSY.into())
    }

    /// How large the file is once `bytes` are appended.
    pub(crate) fn size_with(&self, bytes: &[u8]) -> io::Result<u64> {
        let size = Stamp::of_file(&self.file)?.size;
        if bytes.is_empty() {
            return Ok(size);
        }
        Ok(size.saturating_add((self.separator(size)?.len() + bytes.len()) as u64))
    }

    /// What ends the last line of the first `size` bytes, if nothing does.
    fn separator(&self, size: u64) -> io::Result<&'static [u8]> {
        let mut last = *b"\n";
        if size > 0 {
            self.file.read_exact_at(&mut last, size - 1)?;
        }
        Ok(if matches!(last[0], b'\n' | b'\r') { b"" } else { b"\n" })
    }

    /// An empty file that has everything of this one but its content.
    fn replacement(&self) -> io::Result<Temporary<'a>> {
        // Until it has the permissions of the old file, no other user may open it.
        let temporary = Temporary::create(self.dir, Mode::from_raw_mode(0o600))?;
        attributes::keep(&self.file, &temporary.file)?;
        Ok(temporary)
    }

    fn give_way(&self, to: Temporary<'_>) -> io::Result<()> {
        to.take_name(self.name)?;
        Ok(disk::sync_folder(self.dir).map_err(NotDurable::from)?)
    }
}

/// How long to wait for a lock. As long as the file changes, those before us get on, and our turn comes.
pub(crate) struct Patience {
    /// How long a file that does not change is waited for.
    still: Duration,
    deadline: Instant,
    end: Instant,
    seen: Option<Stamp>,
    pause: Duration,
}

impl Patience {
    pub(crate) fn new(still: Duration, at_most: Duration) -> Self {
        let now = Instant::now();
        Self { still, deadline: now + still, end: now + at_most, seen: None, pause: LOCK_PAUSE }
    }

    /// Waits a moment, or gives up; `now` is what is there by now.
    pub(crate) fn wait(&mut self, now: Option<Stamp>) -> io::Result<()> {
        if now != self.seen {
            self.seen = now;
            self.deadline = Instant::now() + self.still;
        }
        if Instant::now() >= self.deadline.min(self.end) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "another process keeps it locked"));
        }
        std::thread::sleep(self.pause);
        // Many waiters that poll all the time would slow the holder down.
        self.pause = (self.pause * 2).min(LOCK_PAUSE_AT_MOST);
        Ok(())
    }
}

pub(crate) fn try_lock(file: impl AsFd) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
