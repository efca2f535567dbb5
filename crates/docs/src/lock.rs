//! Locks a file while it is replaced or appended to.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::arguments::Mode as WriteMode;
use crate::attributes;
use crate::disk;
use crate::root::{Stamp, check_regular, identity, open_name, stat_name};
use crate::temporary::Temporary;
use crate::write::{ATTEMPTS, NotDurable};

/// How long to wait for the lock: the holder may never release it.
const LOCK_PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 30 });
const LOCK_PAUSE: Duration = Duration::from_millis(3);

/// An existing file, locked against other writers that use the lock.
#[derive(Debug)]
pub(crate) struct Locked<'a> {
    pub(crate) file: File,
    dir: BorrowedFd<'a>,
    name: &'a str,
    stat: Stat,
}

impl<'a> Locked<'a> {
    /// Opens and locks `name`; `None` if there is no such file. Appending needs write permission.
    pub(crate) fn open(dir: BorrowedFd<'a>, name: &'a str, mode: WriteMode) -> io::Result<Option<Self>> {
        let deadline = Instant::now() + LOCK_PATIENCE;
        loop {
            // Check before opening: opening a device can have side effects.
            let Some(named) = stat_name(dir, name)? else { return Ok(None) };
            check_regular(&named)?;
            let open = |flags| open_name(dir, name, flags, Mode::empty());
            let opened = match open(OFlags::RDWR) {
                // A file that is replaced need not be writable: the folder's permissions decide.
                Err(Errno::ACCESS) if mode == WriteMode::Overwrite => open(OFlags::RDONLY),
                opened => opened,
            };
            let file = match opened {
                Err(Errno::NOENT) => return Ok(None),
                opened => opened?,
            };
            check_regular(&rustix::fs::fstat(&file)?)?;
            let is_locked = try_lock(&file)?;
            // Another file may have got the name in the meantime; then open that one.
            let stat = rustix::fs::fstat(&file)?;
            let named = stat_name(dir, name)?;
            if is_locked && named.is_some_and(|named| identity(&named) == identity(&stat)) {
                return Ok(Some(Self { file: file.into(), dir, name, stat }));
            }
            if Instant::now() >= deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "another process keeps it locked"));
            }
            std::thread::sleep(LOCK_PAUSE);
        }
    }

    /// Whether the file has other hard links, possibly outside of the root.
    pub(crate) fn has_other_names(&self) -> bool {
        self.stat.st_nlink > 1
    }

    /// Replaces the file by one with the content `parts`; owner, permissions and attributes are kept. The
    /// lock is held until the new file has the name, so that the next holder works on the new file.
    pub(crate) fn replace(&self, parts: &[&[u8]]) -> io::Result<u64> {
        let temporary = self.replacement()?;
        let written = temporary.fill(parts)?;
        self.give_way(temporary)?;
        Ok(written)
    }

    /// Appends `bytes` on a new line, unless they `continue` the last one; returns the number of bytes added.
    ///
    /// The file is replaced by a complete new one, so a process killed in between leaves no partial text.
    pub(crate) fn append(&self, bytes: &[u8], continues: bool) -> io::Result<u64> {
        if bytes.is_empty() {
            return Ok(0);
        }
        for _ in 0..ATTEMPTS {
            let before = Stamp::of_file(&self.file)?;
            let separator = self.separator(before.size, continues)?;
            let temporary = self.replacement()?;
            let copied = disk::copy(&self.file, &temporary.file, before.size)?;
            let written = temporary.fill(&[separator, bytes])?;
            // Editors do not take the lock; what they write must not be lost.
            if copied == before.size && Stamp::of_file(&self.file)? == before {
                self.give_way(temporary)?;
                return Ok(written);
            }
        }
        Err(Errno::BUSY.into())
    }

    /// A line feed if the first `size` bytes do not end with a line break, and what follows does not `continue` a
    /// line.
    fn separator(&self, size: u64, continues: bool) -> io::Result<&'static [u8]> {
        let mut last = *b"\n";
        if size > 0 && !continues {
            self.file.read_exact_at(&mut last, size - 1)?;
        }
        Ok(if matches!(last[0], b'\n' | b'\r') { b"" } else { b"\n" })
    }

    /// An empty file with the owner, permissions and attributes of this one.
    fn replacement(&self) -> io::Result<Temporary<'a>> {
        // Until it has the old file's permissions, no other user may open it.
        let temporary = Temporary::create(self.dir, Mode::from_raw_mode(0o600))?;
        attributes::keep(&self.file, &temporary.file)?;
        Ok(temporary)
    }

    fn give_way(&self, to: Temporary<'_>) -> io::Result<()> {
        to.take_name(self.name)?;
        Ok(disk::sync_folder(self.dir).map_err(NotDurable::from)?)
    }
}

pub(crate) fn try_lock(file: impl AsFd) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
