//! A directory that is held open. Everything below it is opened through its handle, and nothing outside of
//! it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::path::RelPath;

/// Files opened here are not inherited by child processes, do not become the controlling terminal and do not
/// block on pipes.
const ALWAYS: OFlags = OFlags::CLOEXEC.union(OFlags::NOCTTY).union(OFlags::NONBLOCK);

/// Access to the files below one directory.
///
/// The system resolves paths beneath the handle and never follows links, so there is no race between a check
/// and the use.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) path: PathBuf,
    /// Unset as long as the directory does not exist.
    dir: OnceLock<OwnedFd>,
    /// The system cannot resolve a whole path safely, so it is opened name by name.
    by_steps: bool,
}

/// The metadata that identifies a version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    identity: Identity,
    pub(crate) size: u64,
    /// In nanoseconds, as are changes.
    modified: i64,
    changed: i64,
}

impl Stamp {
    /// Filesystems stamp changes with a coarse clock: two changes within a tick look like one.
    const TICK: Duration = Duration::from_millis(100);

    pub(crate) fn of(stat: &Stat) -> Self {
        let nanos = |seconds: i128, nanos: i128| i64::try_from(seconds * 1_000_000_000 + nanos);
        Self {
            identity: identity(stat),
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            modified: nanos(stat.st_mtime.into(), stat.st_mtime_nsec.into()).unwrap_or_default(),
            changed: nanos(stat.st_ctime.into(), stat.st_ctime_nsec.into()).unwrap_or_default(),
        }
    }

    /// All but the device, in less memory.
    pub(crate) fn numbers(&self) -> [i64; 4] {
        let inode = u64::try_from(self.identity.1).unwrap_or_default();
        // The values are only compared, so the sign does not matter.
        [inode.cast_signed(), self.size.cast_signed(), self.modified, self.changed]
    }

    /// The current stamp of an open file.
    pub(crate) fn of_file(file: &File) -> io::Result<Self> {
        Ok(Self::of(&rustix::fs::fstat(file)?))
    }

    /// Whether a later change would be visible in a new stamp.
    pub(crate) fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // Users can set the modification time; only the system sets the change time.
        now > Duration::from_nanos(u64::try_from(self.changed).unwrap_or_default()) + Self::TICK
    }
}

/// A file independent of its name: its device and inode number. Their types differ between systems.
pub(crate) type Identity = (i128, i128);

pub(crate) fn identity(stat: &Stat) -> Identity {
    (stat.st_dev.into(), stat.st_ino.into())
}

/// An entry of a directory.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) path: RelPath,
    pub(crate) is_dir: bool,
    pub(crate) stamp: Stamp,
}

impl Root {
    /// Opens the directory itself; links in its path are followed only here.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let root = Self::open_later(path)?;
        root.dir()?;
        Ok(root)
    }

    /// A directory that the first write creates if it does not exist. Until then it is empty.
    pub(crate) fn open_later(path: &Path) -> io::Result<Self> {
        let by_steps = open_beneath(rustix::fs::CWD, ".", OFlags::DIRECTORY, Mode::empty()).is_err();
        Ok(Self { path: std::path::absolute(path)?, dir: OnceLock::new(), by_steps })
    }

    fn dir(&self) -> io::Result<&OwnedFd> {
        if let Some(dir) = self.dir.get() {
            return Ok(dir);
        }
        let dir = rustix::fs::open(&self.path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(self.dir.get_or_init(|| dir))
    }

    /// Whether the directory exists.
    pub(crate) fn exists(&self) -> io::Result<bool> {
        match self.dir() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What of a path lies below a folder, whether the path names the folder as given or as the file system also knows
    /// it: in another case or Unicode form, by a short name.
    pub(crate) fn below<'a>(&self, folder: &RelPath, path: &'a RelPath) -> Option<&'a str> {
        let stat = |dir: &OwnedFd| rustix::fs::fstat(dir).map(|stat| identity(&stat)).ok();
        // Held open while others are compared with it, because some file systems number only what is in use.
        let known = self.folder(Some(folder)).ok();
        let is_known = |dir: &OwnedFd| known.as_ref().is_some_and(|known| stat(known) == stat(dir));
        let is_it =
            |above: &RelPath| above == folder || self.folder(Some(above)).is_ok_and(|dir| is_known(&dir));
        let above = std::iter::successors(Some(path.clone()), |path| path.split().0).find(is_it)?;
        Some(path.as_str()[above.as_str().len()..].trim_start_matches('/'))
    }

    /// Opens a regular file for reading.
    pub(crate) fn read(&self, path: &RelPath) -> io::Result<(File, Stamp)> {
        let file = self.open_at(path.as_str(), OFlags::RDONLY, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        check_regular(&stat)?;
        Ok((file.into(), Stamp::of(&stat)))
    }

    /// The file that is in the place of a folder, if that caused the error.
    pub(crate) fn file_among_parents(&self, path: &RelPath, error: &io::Error) -> Option<RelPath> {
        let is_it = Errno::from_io_error(error) == Some(Errno::NOTDIR);
        let mut above = std::iter::successors(path.split().0, |folder| folder.split().0);
        above.find(|folder| is_it && self.read(folder).is_ok())
    }

    /// Opens a folder below the root, or the root itself.
    pub(crate) fn folder(&self, path: Option<&RelPath>) -> io::Result<OwnedFd> {
        self.open_at(path.map_or(".", RelPath::as_str), OFlags::DIRECTORY, Mode::empty())
    }

    /// Opens a folder; creates it and its parents if they are missing.
    #[expect(clippy::disallowed_methods, reason = "the root's own path; calls cannot change it")]
    pub(crate) fn make_folder(&self, path: Option<&RelPath>) -> io::Result<NewFolder> {
        match self.folder(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return Ok(NewFolder { dir: opened?, made: Vec::new() }),
        }
        if !self.exists()? {
            std::fs::create_dir_all(&self.path)?;
            self.path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())?;
        }
        let mut folder = NewFolder { dir: self.folder(None)?, made: Vec::new() };
        for name in path.into_iter().flat_map(RelPath::names) {
            match rustix::fs::mkdirat(&folder.dir, name, Mode::from_raw_mode(0o777)) {
                Ok(()) => {
                    folder.made.push((folder.dir.try_clone()?, name.to_owned()));
                    rustix::fs::fsync(&folder.dir)?;
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            folder.dir = open_name(folder.dir.as_fd(), name, OFlags::DIRECTORY, Mode::empty())?;
        }
        Ok(folder)
    }

    /// The regular files and folders in a folder, sorted by name. Links, devices and names that callers could
    /// not use are left out.
    pub(crate) fn list(&self, path: Option<&RelPath>) -> io::Result<Vec<Entry>> {
        if path.is_none() && !self.exists()? {
            return Ok(Vec::new());
        }
        let folder = self.folder(path)?;
        let mut entries = Vec::new();
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let child = entry.file_name().to_str().ok().and_then(|name| RelPath::child(path, name));
            if let Some(path) = child
                && let Some(stat) = stat_name(folder.as_fd(), path.name())?
                && let kind @ (FileType::RegularFile | FileType::Directory) =
                    FileType::from_raw_mode(stat.st_mode)
            {
                entries.push(Entry { path, is_dir: kind == FileType::Directory, stamp: Stamp::of(&stat) });
            }
        }
        entries.sort_unstable_by(|one, other| one.path.name().cmp(other.path.name()));
        Ok(entries)
    }

    /// All regular files below a folder, sorted by path. Folders that cannot be opened are left out.
    pub(crate) fn walk(&self, from: Option<&RelPath>) -> io::Result<Vec<Entry>> {
        let mut files = Vec::new();
        // A stack: the next entry is at the end.
        let mut left: Vec<_> = self.list(from)?.into_iter().rev().collect();
        while let Some(entry) = left.pop() {
            if !entry.is_dir {
                files.push(entry);
                continue;
            }
            match self.list(Some(&entry.path)) {
                Ok(entries) => left.extend(entries.into_iter().rev()),
                Err(error) => tracing::debug!(folder = entry.path.as_str(), %error, "folder left out"),
            }
        }
        Ok(files)
    }

    fn open_at(&self, path: &str, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let dir = self.dir()?.as_fd();
        let opened = if self.by_steps {
            open_by_steps(dir, path, flags, mode)
        } else {
            open_beneath(dir, path, flags, mode)
        };
        Ok(opened?)
    }
}

/// Missing on old systems, forbidden in some sandboxes.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn open_beneath(dir: BorrowedFd<'_>, path: &str, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    use rustix::fs::ResolveFlags;

    // Not `NOFOLLOW`: a link at the end of the path would be reported as not a folder instead of as a
    // link.
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(dir, path, flags | ALWAYS, mode, resolve)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn open_beneath(_: BorrowedFd<'_>, _: &str, _: OFlags, _: Mode) -> rustix::io::Result<OwnedFd> {
    Err(Errno::NOSYS)
}

/// Opens name by name, each relative to the previous folder, never through a link.
fn open_by_steps(root: BorrowedFd<'_>, path: &str, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    let (folders, last) = path.rsplit_once('/').map_or(("", path), |(folders, last)| (folders, last));
    let mut dir = rustix::fs::openat(root, ".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for name in folders.split('/').filter(|name| !name.is_empty()) {
        dir = open_name(dir.as_fd(), name, OFlags::DIRECTORY, Mode::empty())?;
    }
    open_name(dir.as_fd(), last, flags, mode)
}

/// Opens one name in a folder; a link fails with `LOOP`, as for a whole path.
pub(crate) fn open_name(
    dir: BorrowedFd<'_>,
    name: &str,
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(dir, name, flags | ALWAYS | OFlags::NOFOLLOW, mode).map_err(|error| match error {
        // Some systems report a link in the place of a folder as `NOTDIR`.
        Errno::NOTDIR if is_link(dir, name) => Errno::LOOP,
        error => error,
    })
}

/// The metadata of a name, if it exists; links are not followed.
pub(crate) fn stat_name(dir: BorrowedFd<'_>, name: &str) -> io::Result<Option<Stat>> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_link(dir: BorrowedFd<'_>, name: &str) -> bool {
    let stat = stat_name(dir, name).ok().flatten();
    stat.is_some_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

/// Fails for anything but a regular file, with the error that opening it for writing would give.
pub(crate) fn check_regular(stat: &Stat) -> io::Result<()> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Symlink => Err(Errno::LOOP.into()),
        _ => Err(Errno::ISDIR.into()),
    }
}

/// A folder that is about to be written to. Folders created for it are removed on drop, unless it is
/// [kept](Self::keep).
#[derive(Debug)]
pub(crate) struct NewFolder {
    pub(crate) dir: OwnedFd,
    /// The parent and name of each created folder.
    made: Vec<(OwnedFd, String)>,
}

impl NewFolder {
    /// Keeps the created folders.
    pub(crate) fn keep(mut self) {
        self.made.clear();
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        for (parent, name) in self.made.iter().rev() {
            // This fails if another process has put something into the folder.
            _ = rustix::fs::unlinkat(parent, name.as_str(), AtFlags::REMOVEDIR);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    /// Tests both ways of opening with the same table.
    #[test]
    fn nothing_is_opened_through_a_link_whole_or_by_steps() {
        let dir = tempfile::TempDir::new().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("root/real")).unwrap();
        fs::create_dir(at("outside")).unwrap();
        fs::write(at("outside/secret.md"), "secret").unwrap();
        fs::write(at("root/real/a.md"), "a").unwrap();
        symlink(at("outside"), at("root/away")).unwrap();
        symlink("real", at("root/near")).unwrap();
        symlink(at("outside/secret.md"), at("root/secret.md")).unwrap();
        symlink("nowhere", at("root/dangling.md")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(at("root/pipe.md")).status().unwrap().success());
        let rows = [
            ("real/a.md", None),
            ("away/secret.md", Some(Errno::LOOP)),
            ("near/a.md", Some(Errno::LOOP)),
            ("secret.md", Some(Errno::LOOP)),
            ("dangling.md", Some(Errno::LOOP)),
            ("pipe.md", Some(Errno::ISDIR)),
            ("real", Some(Errno::ISDIR)),
            ("none.md", Some(Errno::NOENT)),
            ("real/a.md/b.md", Some(Errno::NOTDIR)),
        ];
        let mut root = Root::open(&at("root")).unwrap();
        for by_steps in [root.by_steps, true] {
            root.by_steps = by_steps;
            for (name, want) in rows {
                let got = root.read(&path(name)).err().and_then(|error| error.raw_os_error());
                assert_eq!(got, want.map(Errno::raw_os_error), "{name}, by steps: {by_steps}");
            }
            let listed: Vec<_> = root.walk(None).unwrap().into_iter().map(|entry| entry.path).collect();
            assert_eq!(listed, [path("real/a.md")]);
        }
    }

    #[test]
    fn the_system_resolves_whole_paths_here() {
        let dir = tempfile::TempDir::new().unwrap();
        assert_eq!(Root::open(dir.path()).unwrap().by_steps, !cfg!(target_os = "linux"));
    }

    #[test]
    fn folders_made_for_nothing_go_again() {
        let dir = tempfile::TempDir::new().unwrap();
        fs::create_dir(dir.path().join("old")).unwrap();
        let root = Root::open(dir.path()).unwrap();
        drop(root.make_folder(Some(&path("old/a/b"))).unwrap());
        assert_eq!(fs::read_dir(dir.path().join("old")).unwrap().count(), 0);
        root.make_folder(Some(&path("old/a/b"))).unwrap().keep();
        assert!(dir.path().join("old/a/b").is_dir());
    }
}
