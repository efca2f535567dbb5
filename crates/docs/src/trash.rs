//! The old texts of overwritten notes, for undo: files in `.system/trash`.
//!
//! An entry's name consists of an increasing number, a hash of the note's path for lookup, and the readable path.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::disk;
use crate::limit::MAX_SOURCE_BYTES;
use crate::path::{MAX_NAME_BYTES, RelPath};
use crate::print::Hash;
use crate::root::{NewFolder, Root, Stamp, check_regular, open_name};
use crate::temporary::Temporary;
use crate::write::{ATTEMPTS, is_taken};

/// Of more entries, the oldest are removed.
const MOST_ENTRIES: usize = 100;

const FOLDER: &str = ".system/trash";

/// Stores a copy of a note that is about to be replaced.
pub(crate) fn keep(root: &Root, path: &RelPath, file: &File) -> io::Result<Kept> {
    let size = Stamp::of_file(file)?.size;
    if size > MAX_SOURCE_BYTES {
        return Err(Errno::FBIG.into());
    }
    let once = || {
        let folder = root.make_folder(Some(&RelPath::reserved(FOLDER)))?;
        let name = new_name(folder.dir.as_fd(), path)?;
        let temporary = Temporary::create(folder.dir.as_fd(), Mode::from_raw_mode(0o600))?;
        disk::copy(file, &temporary.file, size)?;
        disk::sync(&temporary.file)?;
        temporary.take_new_name(&name)?;
        Ok(Kept { folder: Some(folder), name })
    };
    // Another process was quicker with the same name, or has removed the folder that it had made.
    let is_meanwhile = |error: &io::Error| is_taken(error) || error.kind() == io::ErrorKind::NotFound;
    let mut attempts = 1..ATTEMPTS;
    loop {
        match once() {
            Err(error) if is_meanwhile(&error) && attempts.next().is_some() => {}
            outcome => return outcome,
        }
    }
}

/// A stored copy; it is removed on drop, unless its note was replaced.
#[derive(Debug)]
pub(crate) struct Kept {
    folder: Option<NewFolder>,
    name: String,
}

impl Kept {
    /// The note was replaced.
    pub(crate) fn settle(mut self) {
        let Some(folder) = self.folder.take() else { return };
        let names = names(folder.dir.as_fd()).unwrap_or_default();
        for name in &names[..names.len().saturating_sub(MOST_ENTRIES)] {
            remove(folder.dir.as_fd(), name);
        }
        folder.keep();
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            remove(folder.dir.as_fd(), &self.name);
        }
    }
}

/// The names of a note's entries, oldest first, with the folder that has them.
pub(crate) fn entries(root: &Root, path: &RelPath) -> io::Result<(OwnedFd, Vec<String>)> {
    let folder = root.folder(Some(&RelPath::reserved(FOLDER)))?;
    let mut names = names(folder.as_fd())?;
    let key = key(path);
    names.retain(|name| name.split('-').nth(1) == Some(&key));
    Ok((folder, names))
}

/// Removes all entries of a note.
pub(crate) fn forget(root: &Root, path: &RelPath) {
    if let Ok((folder, names)) = entries(root, path) {
        for name in &names {
            remove(folder.as_fd(), name);
        }
    }
}

/// The text of an entry.
pub(crate) fn content(dir: BorrowedFd<'_>, name: &str) -> io::Result<Vec<u8>> {
    let file = File::from(open_name(dir, name, OFlags::RDONLY, Mode::empty())?);
    check_regular(&rustix::fs::fstat(&file)?)?;
    let mut bytes = Vec::new();
    file.take(MAX_SOURCE_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Removes an entry; another process may already have done so.
pub(crate) fn remove(dir: BorrowedFd<'_>, name: &str) {
    if let Err(error) = disk::unlink(dir, name)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(name, %error, "entry left in the trash");
    }
}

/// The names of all entries, oldest first.
fn names(dir: BorrowedFd<'_>) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let is_file = matches!(entry.file_type(), FileType::RegularFile | FileType::Unknown);
        if let Ok(name) = entry.file_name().to_str()
            && is_file
            && number(name).is_some()
        {
            names.push(name.to_owned());
        }
    }
    names.sort_by_cached_key(|name| (number(name), name.clone()));
    Ok(names)
}

fn number(name: &str) -> Option<u64> {
    let (number, rest) = name.split_once('-')?;
    rest.starts_with('t').then(|| number.parse().ok()).flatten()
}

/// What the entries of a note have in common.
fn key(path: &RelPath) -> String {
    format!("t{:016x}", Hash::of(path.as_str().as_bytes()).number())
}

/// A name with a number above all others.
fn new_name(dir: BorrowedFd<'_>, path: &RelPath) -> io::Result<String> {
    let last = names(dir)?.last().and_then(|name| number(name)).unwrap_or_default();
    let readable = path.as_str().replace('%', "%25").replace('/', "%2F");
    let mut name = format!("{:06}-{}-{readable}", last + 1, key(path));
    while name.len() > MAX_NAME_BYTES {
        name.pop();
    }
    Ok(name)
}
