//! The index file on disk, so that the next start need not read all manuals again.
//!
//! The file is only used if this user owns it, it was written for these manuals and this version, and its
//! checksums match. Otherwise it is ignored.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat};

use crate::disk;
use crate::index::{Blob, Segment, Unmerged};
use crate::print::Hash;
use crate::root::open_name;
use crate::temporary::{Temporary, sweep};

/// Smaller indexes are stored only if a folder was given: reading the texts again is as fast.
const LEAST_BYTES: u64 = 4 * 1024 * 1024;
const BUFFER_BYTES: usize = 1024 * 1024;
const OURS_ALONE: Mode = Mode::RWXU;
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Where the index is stored.
#[derive(Debug, Default)]
pub(crate) enum Place {
    /// In `toolbridge` in the user's cache folder, if the index is large.
    #[default]
    Usual,
    /// In this folder.
    Named(PathBuf),
    /// In memory only.
    Nowhere,
}

impl Place {
    /// The folder; `None` if the index is not stored.
    pub(crate) fn folder(&self, variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
        match self {
            Self::Nowhere => None,
            Self::Named(folder) => Some(folder.clone()),
            Self::Usual => {
                let absolute = |name| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
                let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
                Some(caches.join("toolbridge"))
            }
        }
    }
}

/// An index file.
#[derive(Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
    name: String,
    pub(crate) key: String,
    least_bytes: u64,
}

impl Cache {
    /// For the manuals at `manuals`, in a folder that is created on first use.
    pub(crate) fn new(folder: PathBuf, manuals: &Path, is_named: bool) -> Self {
        let manuals = manuals.to_string_lossy();
        Self {
            folder,
            name: format!("manuals-{:016x}.index", Hash::of(manuals.as_bytes()).number()),
            key: format!("{} {manuals}", env!("CARGO_PKG_VERSION")),
            least_bytes: if is_named { 0 } else { LEAST_BYTES },
        }
    }

    /// Whether an index of this size should be stored.
    pub(crate) fn wants(&self, bytes: u64) -> bool {
        bytes >= self.least_bytes
    }

    /// Loads the stored index, if it exists and is valid.
    pub(crate) fn load(&self) -> Option<Segment> {
        let open = || -> io::Result<File> {
            let folder = self.open_folder()?;
            let file = open_name(folder.as_fd(), &self.name, OFlags::RDONLY, Mode::empty())?;
            check_ours(&rustix::fs::fstat(&file)?, FileType::RegularFile)?;
            Ok(file.into())
        };
        let file = match open() {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::info!(folder = %self.folder.display(), %error, "the stored index is not used");
                return None;
            }
        };
        let segment = Segment::open(Blob::File(file), &self.key);
        segment
            .inspect_err(|_| {
                tracing::info!(name = self.name, "the stored index is not valid; it is built again");
            })
            .ok()
    }

    /// Writes an index and opens it.
    pub(crate) fn keep(
        &self,
        write: impl FnOnce(&mut dyn Write, &str) -> Result<(), Unmerged>,
    ) -> Result<Segment, Unmerged> {
        let blob = self.write(Some(&self.name), &self.key, write)?;
        // The file does not match what was written: handle it as a write error.
        Segment::open(blob, &self.key).map_err(|_| io::Error::from(io::ErrorKind::InvalidData).into())
    }

    /// Writes a part of an index to a file that is deleted when it is no longer used.
    pub(crate) fn scratch(
        &self,
        write: impl FnOnce(&mut dyn Write, &str) -> Result<(), Unmerged>,
    ) -> Result<Blob, Unmerged> {
        self.write(None, "", write)
    }

    fn write(
        &self,
        name: Option<&str>,
        key: &str,
        write: impl FnOnce(&mut dyn Write, &str) -> Result<(), Unmerged>,
    ) -> Result<Blob, Unmerged> {
        self.make_folder()?;
        let folder = self.open_folder()?;
        sweep(folder.as_fd());
        let temporary = Temporary::create(folder.as_fd(), FILE_MODE)?;
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, Disk(&temporary.file));
        write(&mut out, key)?;
        out.flush()?;
        drop(out);
        let file = open_name(folder.as_fd(), &temporary.name, OFlags::RDONLY, Mode::empty())
            .map_err(io::Error::from)?;
        if let Some(name) = name {
            disk::sync(&temporary.file)?;
            temporary.take_name(name)?;
        }
        Ok(Blob::File(file.into()))
    }

    fn make_folder(&self) -> io::Result<()> {
        let mut missing = Vec::new();
        for path in self.folder.ancestors() {
            match rustix::fs::mkdir(path, OURS_ALONE) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => break,
                Err(rustix::io::Errno::NOENT) => missing.push(path),
                Err(error) => return Err(error.into()),
            }
        }
        missing.into_iter().rev().try_for_each(|path| Ok(rustix::fs::mkdir(path, OURS_ALONE)?))
    }

    /// The folder must be owned by this user, not be a link, and not be writable by others.
    fn open_folder(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = rustix::fs::open(&self.folder, flags, Mode::empty())?;
        check_ours(&rustix::fs::fstat(&folder)?, FileType::Directory)?;
        Ok(folder)
    }
}

fn check_ours(stat: &Stat, kind: FileType) -> io::Result<()> {
    let mode = Mode::from_raw_mode(stat.st_mode);
    let is_ours =
        stat.st_uid == rustix::process::geteuid().as_raw() && !mode.intersects(Mode::WGRP | Mode::WOTH);
    if FileType::from_raw_mode(stat.st_mode) == kind && is_ours {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "it belongs to another user, or other users may write to it",
    ))
}

/// A file, written through the calls that tests can make fail.
struct Disk<'a>(&'a File);

impl Write for Disk<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        disk::write_all(self.0, bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
