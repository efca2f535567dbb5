//! The old texts of overwritten notes, for undo: files in `.system/trash`.
//!
//! An entry's name consists of an increasing number, a hash of the note's path for lookup, and the readable path.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::attributes;
use crate::disk;
use crate::limit::MAX_SOURCE_BYTES;
use crate::path::RelPath;
use crate::print::Hash;
use crate::root::{NewFolder, Root, Stamp, check_regular, open_name, stat_name};
use crate::temporary::{Swept, Temporary};
use crate::write::{ATTEMPTS, is_taken};

/// The maximum number of entries, and their maximum size in total; the oldest are removed first.
const MOST_ENTRIES: usize = 100;
/// The maximum per note, so that frequent overwrites of one note do not push out deleted ones.
const MOST_OF_ONE: usize = 10;
pub(crate) const MOST_BYTES: u64 = MAX_SOURCE_BYTES;

/// The longest name that common filesystems support.
const MAX_NAME_BYTES: usize = 255;

/// An entry of the trash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    number: u64,
    key: u64,
    size: u64,
}

impl Entry {
    fn parse(name: &str, size: u64) -> Option<Self> {
        let (number, rest) = name.split_once('-')?;
        let (head, _) = rest.split_once('-')?;
        let key = u64::from_str_radix(head.strip_prefix('t')?, 16).ok()?;
        Some(Self { name: name.to_owned(), number: number.parse().ok()?, key, size })
    }
}

/// The trash folder, which is created on first use.
#[derive(Debug)]
pub(crate) struct Trash {
    path: RelPath,
    swept: Swept,
}

impl Default for Trash {
    fn default() -> Self {
        Self { path: RelPath::reserved(".system/trash"), swept: Swept::default() }
    }
}

impl Trash {
    /// Stores a copy of a note that is about to be replaced.
    pub(crate) fn keep(&self, root: &Root, path: &RelPath, file: &File) -> io::Result<Keeping> {
        let size = Stamp::of_file(file)?.size;
        if size > MOST_BYTES {
            return Err(Errno::FBIG.into());
        }
        self.put(root, path, |to| {
            attributes::keep(file, to)?;
            disk::copy(file, to, size).map(drop)
        })
    }

    fn put(
        &self,
        root: &Root,
        path: &RelPath,
        fill: impl Fn(&File) -> io::Result<()>,
    ) -> io::Result<Keeping> {
        let put = || self.put_once(root, path, &fill);
        // Another process was quicker with the same name, or has removed the folder that it had made.
        let is_meanwhile = |error: &io::Error| is_taken(error) || error.kind() == io::ErrorKind::NotFound;
        (1..ATTEMPTS)
            .map(|_| put())
            .find(|outcome| !outcome.as_ref().is_err_and(is_meanwhile))
            .unwrap_or_else(put)
    }

    fn put_once(
        &self,
        root: &Root,
        path: &RelPath,
        fill: impl Fn(&File) -> io::Result<()>,
    ) -> io::Result<Keeping> {
        let folder = self.folder(root)?;
        let (name, others) = new_name(folder.dir.as_fd(), path)?;
        {
            let temporary = Temporary::create(folder.dir.as_fd(), Mode::from_raw_mode(0o600))?;
            fill(&temporary.file)?;
            disk::sync(&temporary.file)?;
            temporary.take_new_name(&name)?;
        }
        Ok(Keeping { folder: Some(folder), name, others })
    }

    fn folder(&self, root: &Root) -> io::Result<NewFolder> {
        let folder = root.make_folder(Some(&self.path))?;
        self.swept.sweep(folder.dir.as_fd());
        Ok(folder)
    }

    /// The entries of a note, oldest first, with the trash folder.
    pub(crate) fn kept(&self, root: &Root, path: &RelPath) -> io::Result<(OwnedFd, Vec<Entry>)> {
        let folder = root.folder(Some(&self.path))?;
        let key = key(path);
        let mut entries = entries(folder.as_fd())?;
        entries.retain(|entry| entry.key == key);
        Ok((folder, entries))
    }

    /// Removes all entries of a note after a change that could not be recorded: undo would restore the wrong
    /// text.
    pub(crate) fn forget(&self, root: &Root, path: &RelPath) {
        if let Ok((folder, entries)) = self.kept(root, path) {
            for entry in &entries {
                remove(folder.as_fd(), entry);
            }
        }
    }
}

/// A stored copy; it is removed on drop, unless its note was replaced.
#[derive(Debug)]
pub(crate) struct Keeping {
    folder: Option<NewFolder>,
    name: String,
    /// The entries that existed before.
    others: Vec<Entry>,
}

impl Keeping {
    pub(crate) fn settle(mut self) {
        if let Some(folder) = self.folder.take() {
            let dir = folder.dir.as_fd();
            let size = stat_name(dir, &self.name).ok().flatten().map_or(0, |stat| Stamp::of(&stat).size);
            if let Some(new) = Entry::parse(&self.name, size) {
                purge(dir, std::mem::take(&mut self.others), &new);
            }
            folder.keep();
        }
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder
            && let Err(error) = disk::unlink(folder.dir.as_fd(), &self.name)
        {
            tracing::warn!(name = self.name, %error, "copy left in the trash");
        }
    }
}

/// The content of an entry.
pub(crate) fn content(dir: BorrowedFd<'_>, entry: &Entry) -> io::Result<Vec<u8>> {
    let file = File::from(open_name(dir, &entry.name, OFlags::RDONLY, Mode::empty())?);
    check_regular(&rustix::fs::fstat(&file)?)?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Removes the oldest of the earlier entries: first of the same note, then of all.
fn purge(dir: BorrowedFd<'_>, mut others: Vec<Entry>, new: &Entry) {
    let mut too_many =
        (1 + others.iter().filter(|entry| entry.key == new.key).count()).saturating_sub(MOST_OF_ONE);
    others.retain(|entry| {
        let goes = entry.key == new.key && too_many > 0;
        if goes {
            too_many -= 1;
            remove(dir, entry);
        }
        !goes
    });
    let (mut count, mut bytes) =
        (others.len() + 1, new.size + others.iter().map(|entry| entry.size).sum::<u64>());
    for entry in others {
        if count <= MOST_ENTRIES && bytes <= MOST_BYTES {
            return;
        }
        remove(dir, &entry);
        (count, bytes) = (count - 1, bytes - entry.size);
    }
}

/// Removes an entry; another process may already have done so.
pub(crate) fn remove(dir: BorrowedFd<'_>, entry: &Entry) {
    if let Err(error) = disk::unlink(dir, &entry.name)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(name = entry.name, %error, "entry left in the trash");
    }
}

/// All entries, oldest first.
fn entries(dir: BorrowedFd<'_>) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for found in Dir::read_from(dir)? {
        let found = found?;
        let Ok(name) = found.file_name().to_str() else { continue };
        if let Some(stat) = stat_name(dir, name)?
            && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        {
            entries.extend(Entry::parse(name, Stamp::of(&stat).size));
        }
    }
    entries.sort_by(|one, other| (one.number, &one.name).cmp(&(other.number, &other.name)));
    Ok(entries)
}

fn key(path: &RelPath) -> u64 {
    Hash::of(path.as_str().as_bytes()).number()
}

/// A name with a number above all others, and the existing entries.
fn new_name(dir: BorrowedFd<'_>, path: &RelPath) -> io::Result<(String, Vec<Entry>)> {
    let others = entries(dir)?;
    let number = others.last().map_or(0, |last| last.number) + 1;
    let mut name = format!("{number:06}-t{:016x}-", key(path));
    for char in path.as_str().chars() {
        let mut plain = [0; 4];
        let shown = match char {
            '/' => "%2F",
            '%' => "%25",
            char => char.encode_utf8(&mut plain),
        };
        if name.len() + shown.len() > MAX_NAME_BYTES {
            break;
        }
        name.push_str(shown);
    }
    Ok((name, others))
}
