//! Finds the files of this user's sessions in a directory that others use too.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::files::SessionId;
use crate::user::User;

/// A directory that is being read.
///
/// There may be a hundred thousand files of other users in it, named like sessions' files. Each of them costs
/// one system call at most, which asks for its owner, and no memory.
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

    /// Reads on for `most` entries at most, and says whether that was the whole directory.
    pub(crate) fn read(&mut self, most: usize) -> io::Result<bool> {
        for _ in 0..most {
            match self.entries.next() {
                Some(entry) => self.note(&entry?),
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// What was found so far: files that were this user's when they were seen, by session.
    pub(crate) fn found(self) -> BTreeMap<SessionId, Vec<PathBuf>> {
        self.found
    }

    fn note(&mut self, entry: &DirEntry) {
        let Some((id, kind)) = SessionId::of(&entry.file_name()) else { return };
        // The listing itself mostly says what kind of file it is.
        if entry.file_type().is_ok_and(|file| kind.is(file))
            && entry.metadata().is_ok_and(|meta| self.user.is(meta.uid()))
        {
            self.found.entry(id).or_default().push(entry.path());
        }
    }
}
