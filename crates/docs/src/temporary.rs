//! New files under a temporary name until they are complete, and removing those of killed processes.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;
use uuid::Uuid;

use crate::disk;
use crate::lock::try_lock;
use crate::root::{Identity, Stamp, identity, open_name, stat_name};

const PREFIX: &str = ".toolbridge-";
const SUFFIX: &str = ".tmp";

pub(crate) fn temporary_name() -> String {
    format!("{PREFIX}{}{SUFFIX}", Uuid::new_v4().simple())
}

/// Whether a name is one that a new file has while it is written.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.strip_prefix(PREFIX)
        .and_then(|name| name.strip_suffix(SUFFIX))
        .is_some_and(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// A new file under a temporary name. It goes again, unless it gets its own name.
pub(crate) struct Temporary<'a> {
    dir: BorrowedFd<'a>,
    /// Locked, which tells it from one that a dead process left.
    pub(crate) file: File,
    pub(crate) name: String,
    is_named: bool,
}

impl<'a> Temporary<'a> {
    pub(crate) fn create(dir: BorrowedFd<'a>, mode: Mode) -> io::Result<Self> {
        loop {
            let name = temporary_name();
            let file = disk::create(dir, &name, mode)?;
            let temporary = Self { dir, file, name, is_named: false };
            // Before it was locked, another process may have swept it away.
            if try_lock(&temporary.file)? && stat_name(dir, &temporary.name)?.is_some() {
                return Ok(temporary);
            }
        }
    }

    /// Writes the content, to the disk itself.
    pub(crate) fn fill(&self, parts: &[&[u8]]) -> io::Result<u64> {
        let mut written = 0;
        for part in parts {
            disk::write_all(&self.file, part)?;
            written += part.len() as u64;
        }
        disk::sync(&self.file)?;
        Ok(written)
    }

    /// Takes the place of what has the name.
    pub(crate) fn take_name(mut self, name: &str) -> io::Result<()> {
        disk::rename(self.dir, &self.name, name)?;
        self.is_named = true;
        Ok(())
    }

    /// Takes a name that must be free.
    pub(crate) fn take_new_name(mut self, name: &str) -> io::Result<File> {
        disk::move_new(self.dir, &self.name, self.dir, name)?;
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

/// The folders in which nothing of a killed process is left, each with the time of its last change.
#[derive(Debug, Default)]
pub(crate) struct Swept(Mutex<HashMap<Identity, Stamp>>);

impl Swept {
    /// Removes what a killed process left in a folder, unless nothing has changed there since the last time.
    pub(crate) fn sweep(&self, dir: BorrowedFd<'_>) {
        let Ok(stat) = rustix::fs::fstat(dir) else { return };
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&identity(&stat)).copied();
        if known != Some(Stamp::of(&stat)) {
            sweep_now(dir);
            self.note(dir);
        }
    }

    /// What has changed in a folder since the last time was our own doing.
    pub(crate) fn note(&self, dir: BorrowedFd<'_>) {
        if let Ok(stat) = rustix::fs::fstat(dir) {
            let mut swept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            swept.insert(identity(&stat), Stamp::of(&stat));
        }
    }
}

pub(crate) fn sweep_now(dir: BorrowedFd<'_>) {
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
