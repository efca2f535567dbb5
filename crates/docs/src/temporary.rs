//! New files have a temporary name until they are complete; those left by killed processes are removed.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;
use uuid::Uuid;

use crate::disk;
use crate::lock::try_lock;
use crate::root::{open_name, stat_name};

const PREFIX: &str = ".toolbridge-";
const SUFFIX: &str = ".tmp";

pub(crate) fn temporary_name() -> String {
    format!("{PREFIX}{}{SUFFIX}", Uuid::new_v4().simple())
}

/// Whether a name is that of a temporary file.
fn is_temporary(name: &str) -> bool {
    let id = name.strip_prefix(PREFIX).and_then(|name| name.strip_suffix(SUFFIX));
    id.is_some_and(|id| Uuid::try_parse(id).is_ok())
}

/// A new file with a temporary name. It is removed on drop, unless it got its final name.
pub(crate) struct Temporary<'a> {
    dir: BorrowedFd<'a>,
    /// Locked, to tell it from a file left by a dead process.
    pub(crate) file: File,
    pub(crate) name: String,
    is_named: bool,
}

impl<'a> Temporary<'a> {
    /// Creates it, after removing what killed processes left in its folder.
    pub(crate) fn create(dir: BorrowedFd<'a>, mode: Mode) -> io::Result<Self> {
        sweep(dir);
        loop {
            let name = temporary_name();
            let file = disk::create(dir, &name, mode)?;
            let temporary = Self { dir, file, name, is_named: false };
            // Another process may have removed it before it was locked.
            if try_lock(&temporary.file)? && stat_name(dir, &temporary.name)?.is_some() {
                return Ok(temporary);
            }
        }
    }

    /// Writes the content and syncs it to disk.
    pub(crate) fn fill(&self, parts: &[&[u8]]) -> io::Result<u64> {
        let mut written = 0;
        for part in parts {
            disk::write_all(&self.file, part)?;
            written += part.len() as u64;
        }
        disk::sync(&self.file)?;
        Ok(written)
    }

    /// Renames the file to `name`, replacing an existing file.
    pub(crate) fn take_name(mut self, name: &str) -> io::Result<()> {
        disk::rename(self.dir, &self.name, name)?;
        self.is_named = true;
        Ok(())
    }

    /// Renames the file to a name that must be free.
    pub(crate) fn take_new_name(mut self, name: &str) -> io::Result<File> {
        disk::move_new(self.dir, &self.name, name)?;
        self.is_named = true;
        self.file.try_clone()
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if self.is_named {
            return;
        }
        match rustix::fs::unlinkat(self.dir, self.name.as_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => tracing::warn!(name = self.name, %error, "temporary file left behind"),
        }
    }
}

/// Removes what killed processes left in a folder.
pub(crate) fn sweep(dir: BorrowedFd<'_>) {
    let Ok(entries) = Dir::read_from(dir) else { return };
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().to_str() else { continue };
        if is_temporary(name)
            && let Ok(file) = open_name(dir, name, OFlags::RDONLY, Mode::empty())
            && try_lock(&file).is_ok_and(|locked| locked)
        {
            _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
        }
    }
}
