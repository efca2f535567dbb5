//! Finds the files of this user's sessions in a shared directory.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::ipc::files::SessionId;
use crate::ipc::user::User;

/// A directory that is being read.
///
/// It may contain a hundred thousand files of other users with names like sessions' files. Each of them costs at
/// most one system call, for its owner, and no memory.
#[derive(Debug)]
pub(crate) struct Search {
    pub(crate) dir: PathBuf,
    pub(crate) user: User,
    entries: fs::ReadDir,
    found: BTreeMap<SessionId, Vec<PathBuf>>,
}

impl Search {
    pub(crate) fn begin(dir: &Path) -> io::Result<Self> {
        let entries = fs::read_dir(dir)?;
        Ok(Self { dir: dir.into(), user: User::of_this_process(), entries, found: BTreeMap::new() })
    }

    /// Reads at most `most` further entries; returns whether the end of the directory was reached.
    pub(crate) fn read(&mut self, most: usize) -> io::Result<bool> {
        for _ in 0..most {
            match self.entries.next() {
                Some(entry) => self.note(&entry?),
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// What was found so far, by session: files that belonged to this user when they were read.
    pub(crate) fn found(self) -> BTreeMap<SessionId, Vec<PathBuf>> {
        self.found
    }

    fn note(&mut self, entry: &DirEntry) {
        let Some((id, kind)) = SessionId::of(&entry.file_name()) else { return };
        // The directory entry usually contains the file type, so this needs no system call.
        if entry.file_type().is_ok_and(|file| kind.is(file))
            && entry.metadata().is_ok_and(|meta| self.user.is(meta.uid()))
        {
            self.found.entry(id).or_default().push(entry.path());
        }
    }
}
