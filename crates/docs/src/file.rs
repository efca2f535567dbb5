//! Changing a file so that nobody ever finds half of it.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use uuid::Uuid;

use crate::root::{Identity, identity, is, open_name};

/// A name of ours in a folder, for as long as a new file is being written.
const TEMPORARY_PREFIX: &str = ".toolbridge-";
const TEMPORARY_SUFFIX: &str = ".tmp";

/// How long another process may keep a file locked before the call is given up.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// Whether a new file may take the place of one that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    /// It may; the old file's permissions are kept.
    Replace,
    /// It must not: `EXIST`.
    Refuse,
}

/// Whether a name is one that [`put`] uses while it works.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.strip_prefix(TEMPORARY_PREFIX)
        .and_then(|name| name.strip_suffix(TEMPORARY_SUFFIX))
        .is_some_and(|id| id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Gives `name` the content `parts`: all of it, or nothing happens. After a crash at any moment there is the
/// old file or the new one.
///
/// The content goes into a temporary file beside it, to the disk, and only then under its name.
pub(crate) fn put(dir: BorrowedFd<'_>, name: &str, parts: &[&[u8]], existing: Existing) -> io::Result<u64> {
    let old = stat(dir, name)?;
    if let Some(old) = &old {
        must_be_regular(old)?;
        if existing == Existing::Refuse {
            return Err(Errno::EXIST.into());
        }
    }
    sweep(dir);
    let temporary = Temporary::create(dir)?;
    if let Some(old) = old {
        step(Step::SetMode)?;
        rustix::fs::fchmod(&temporary.file, Mode::from_raw_mode(old.st_mode & 0o777))?;
    }
    let written = write_all(&temporary.file, parts)?;
    step(Step::Sync)?;
    temporary.file.sync_all()?;
    temporary.name_it(name, existing)?;
    step(Step::SyncFolder)?;
    rustix::fs::fsync(dir)?;
    Ok(written)
}

/// A file that is there, locked against others that change it as we do.
#[derive(Debug)]
pub(crate) struct Locked {
    pub(crate) file: File,
    pub(crate) size: u64,
    links: u64,
}

impl Locked {
    /// Opens and locks `name`; `None` if there is no such file.
    pub(crate) fn open(dir: BorrowedFd<'_>, name: &str) -> io::Result<Option<Self>> {
        let deadline = Instant::now() + LOCK_PATIENCE;
        loop {
            let file = match open_name(dir, name, OFlags::RDWR | OFlags::APPEND, Mode::empty()) {
                Ok(file) => file,
                Err(Errno::NOENT) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            must_be_regular(&rustix::fs::fstat(&file)?)?;
            lock(&file, deadline)?;
            if Instant::now() > deadline {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "others replace it all the time"));
            }
            // While we waited, somebody may have put another file under the name; then that one is meant.
            let ours = rustix::fs::fstat(&file)?;
            if stat(dir, name)?.is_some_and(|named| identity(&named) == identity(&ours)) {
                let size = u64::try_from(ours.st_size).unwrap_or_default();
                return Ok(Some(Self { file: file.into(), size, links: link_count(&ours) }));
            }
        }
    }

    /// Whether the file has another name, perhaps outside.
    pub(crate) fn has_other_names(&self) -> bool {
        self.links > 1
    }

    /// Adds `bytes` on a line of their own; how many bytes that took. When it fails, the file is as it was.
    pub(crate) fn append(&self, bytes: &[u8]) -> io::Result<u64> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let mut last = *b"\n";
        if self.size > 0 {
            self.file.read_exact_at(&mut last, self.size - 1)?;
        }
        let separator: &[u8] = if matches!(last[0], b'\n' | b'\r') { b"" } else { b"\n" };
        let added = write_all(&self.file, &[&[separator, bytes].concat()])
            .and_then(|added| step(Step::Sync).and_then(|()| self.file.sync_data()).map(|()| added));
        if added.is_err()
            && let Err(error) = self.file.set_len(self.size)
        {
            tracing::warn!(%error, "a part of a failed append could not be taken back");
        }
        added
    }
}

/// Waits for the lock, but not for ever: whoever has it may be no process of ours.
fn lock(file: &OwnedFd, deadline: Instant) -> io::Result<()> {
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                std::thread::sleep(LOCK_PAUSE);
            }
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "another process keeps it locked"));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// What a name is, if it is there; a link is itself and not what it points to.
fn stat(dir: BorrowedFd<'_>, name: &str) -> io::Result<Option<Stat>> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The same errors that opening the file gives.
fn must_be_regular(stat: &Stat) -> io::Result<()> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Symlink => Err(Errno::LOOP.into()),
        _ => Err(Errno::ISDIR.into()),
    }
}

#[allow(clippy::useless_conversion, reason = "its type differs from system to system")]
fn link_count(stat: &Stat) -> u64 {
    u64::from(stat.st_nlink)
}

fn write_all(mut file: &File, parts: &[&[u8]]) -> io::Result<u64> {
    let mut written = 0;
    for part in parts {
        if let Err(error) = step(Step::Write) {
            // As a full disk does: a part of it is written.
            file.write_all(&part[..part.len() / 2])?;
            return Err(error);
        }
        file.write_all(part)?;
        written += part.len() as u64;
    }
    Ok(written)
}

/// A new file under a temporary name. It goes again, unless it gets its own name.
struct Temporary<'a> {
    dir: BorrowedFd<'a>,
    /// Locked, so that nobody takes it for one that a dead process left.
    file: File,
    name: String,
    is_named: bool,
}

impl<'a> Temporary<'a> {
    fn create(dir: BorrowedFd<'a>) -> io::Result<Self> {
        step(Step::Create)?;
        loop {
            let name = format!("{TEMPORARY_PREFIX}{}{TEMPORARY_SUFFIX}", Uuid::new_v4().simple());
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            let file = open_name(dir, &name, flags, Mode::from_raw_mode(0o666))?;
            let temporary = Self { dir, file: file.into(), name, is_named: false };
            // Before it was locked, another process may have swept it away; each does so once.
            match rustix::fs::flock(&temporary.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if stat(dir, &temporary.name)?.is_some() => return Ok(temporary),
                Ok(()) | Err(Errno::WOULDBLOCK) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn name_it(mut self, name: &str, existing: Existing) -> io::Result<()> {
        step(Step::Rename)?;
        let (dir, temporary) = (self.dir, self.name.as_str());
        match existing {
            Existing::Replace => rustix::fs::renameat(dir, temporary, dir, name)?,
            Existing::Refuse => {
                match rustix::fs::renameat_with(dir, temporary, dir, name, RenameFlags::NOREPLACE) {
                    // Not every filesystem can; all of them refuse a second link of a name.
                    Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                        rustix::fs::linkat(dir, temporary, dir, name, AtFlags::empty())?;
                        return Ok(());
                    }
                    outcome => outcome?,
                }
            }
        }
        self.is_named = true;
        Ok(())
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

/// Removes what a killed process left in a folder, once for each folder in this process's life.
fn sweep(dir: BorrowedFd<'_>) {
    static SWEPT: Mutex<Option<HashSet<Identity>>> = Mutex::new(None);

    let Ok(stat) = rustix::fs::fstat(dir) else { return };
    let mut swept = SWEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if !swept.get_or_insert_default().insert(identity(&stat)) {
        return;
    }
    drop(swept);
    sweep_now(dir);
}

fn sweep_now(dir: BorrowedFd<'_>) {
    let Ok(entries) = Dir::read_from(dir) else { return };
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().to_str() else { continue };
        if is_temporary(name)
            && let Ok(file) = open_name(dir, name, OFlags::RDONLY, Mode::empty())
            && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
        }
    }
}

/// Whether there is a file of that name; anything but a regular file is an error.
pub(crate) fn exists(dir: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
    match stat(dir, name)? {
        Some(stat) => must_be_regular(&stat).map(|()| true),
        None => Ok(false),
    }
}

/// Whether a file could not be made because its name is taken.
pub(crate) fn is_taken(error: &io::Error) -> bool {
    is(error, Errno::EXIST)
}

/// What can fail on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Create,
    SetMode,
    Write,
    Sync,
    Rename,
    SyncFolder,
}

#[cfg(not(test))]
#[expect(clippy::unnecessary_wraps, reason = "in tests, any step can fail")]
fn step(_: Step) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
use fault::step;

/// Lets a step fail in tests.
#[cfg(test)]
mod fault {
    use std::cell::Cell;
    use std::io;

    use rustix::io::Errno;

    use super::Step;

    thread_local! {
        static FAULT: Cell<Option<(Step, Errno)>> = const { Cell::new(None) };
    }

    /// Runs `work` while `step` fails with `errno`.
    pub(super) fn with<T>(step: Step, errno: Errno, work: impl FnOnce() -> T) -> T {
        FAULT.set(Some((step, errno)));
        let outcome = work();
        FAULT.set(None);
        outcome
    }

    pub(super) fn step(step: Step) -> io::Result<()> {
        match FAULT.get() {
            Some((failing, errno)) if failing == step => Err(errno.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look at the disk as anybody would")]
mod tests {
    use std::fs;
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use tempfile::TempDir;

    use super::*;

    struct Folder {
        dir: TempDir,
        handle: OwnedFd,
    }

    impl Folder {
        fn new() -> Self {
            let dir = TempDir::new().unwrap();
            let handle = rustix::fs::open(dir.path(), OFlags::DIRECTORY, Mode::empty()).unwrap();
            Self { dir, handle }
        }

        fn put(&self, name: &str, bytes: &[u8], existing: Existing) -> io::Result<u64> {
            put(self.handle.as_fd(), name, &[bytes], existing)
        }

        fn append(&self, name: &str, bytes: &[u8]) -> io::Result<u64> {
            Locked::open(self.handle.as_fd(), name).unwrap().expect("the file is there").append(bytes)
        }

        /// Every name and what is in it.
        fn content(&self) -> Vec<(String, String)> {
            let mut all: Vec<_> = fs::read_dir(self.dir.path())
                .unwrap()
                .map(|entry| {
                    let entry = entry.unwrap();
                    (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap())
                })
                .collect();
            all.sort();
            all
        }
    }

    fn file(name: &str, text: &str) -> (String, String) {
        (name.to_owned(), text.to_owned())
    }

    const STEPS: [Step; 6] =
        [Step::Create, Step::SetMode, Step::Write, Step::Sync, Step::Rename, Step::SyncFolder];

    #[test]
    fn an_overwrite_that_fails_at_any_step_leaves_the_old_file_or_the_new_one() {
        for step in STEPS {
            for errno in [Errno::NOSPC, Errno::IO] {
                let folder = Folder::new();
                folder.put("a.md", b"old", Existing::Replace).unwrap();
                let outcome = fault::with(step, errno, || folder.put("a.md", b"new text", Existing::Replace));
                assert_eq!(outcome.unwrap_err().raw_os_error(), Some(errno.raw_os_error()), "{step:?}");
                // Once it has its name, the new file stays, though it may not survive a power loss.
                let want = if step == Step::SyncFolder { "new text" } else { "old" };
                assert_eq!(folder.content(), [file("a.md", want)], "{step:?}");
            }
        }
    }

    #[test]
    fn a_new_file_that_fails_at_any_step_leaves_nothing() {
        for step in [Step::Create, Step::Write, Step::Sync, Step::Rename] {
            let folder = Folder::new();
            fault::with(step, Errno::NOSPC, || folder.put("a.md", b"new", Existing::Refuse)).unwrap_err();
            assert_eq!(folder.content(), [], "{step:?}");
        }
    }

    #[test]
    fn an_append_that_fails_at_any_step_leaves_the_old_file() {
        for step in [Step::Write, Step::Sync] {
            for errno in [Errno::NOSPC, Errno::IO] {
                let folder = Folder::new();
                folder.put("a.md", b"old", Existing::Replace).unwrap();
                fault::with(step, errno, || folder.append("a.md", b"some more text")).unwrap_err();
                assert_eq!(folder.content(), [file("a.md", "old")], "{step:?}");
            }
        }
    }

    #[test]
    fn an_append_starts_on_a_line_of_its_own() {
        for (old, new, want, added) in [
            ("", "b", "b", 1),
            ("a\n", "b", "a\nb", 1),
            ("a", "b", "a\nb", 2),
            ("a\r\n", "b", "a\r\nb", 1),
            ("a\r", "b", "a\rb", 1),
            ("a", "", "a", 0),
        ] {
            let folder = Folder::new();
            folder.put("a.md", old.as_bytes(), Existing::Replace).unwrap();
            assert_eq!(folder.append("a.md", new.as_bytes()).unwrap(), added, "{old:?} + {new:?}");
            assert_eq!(folder.content(), [file("a.md", want)], "{old:?} + {new:?}");
        }
    }

    #[test]
    fn an_overwrite_replaces_the_name_and_keeps_the_mode() {
        let folder = Folder::new();
        let (one, other) = (folder.dir.path().join("a.md"), folder.dir.path().join("b.md"));
        fs::write(&one, "old").unwrap();
        fs::set_permissions(&one, fs::Permissions::from_mode(0o640)).unwrap();
        fs::hard_link(&one, &other).unwrap();
        assert!(Locked::open(folder.handle.as_fd(), "a.md").unwrap().unwrap().has_other_names());
        assert_eq!(folder.put("a.md", b"new", Existing::Replace).unwrap(), 3);
        assert_eq!(folder.content(), [file("a.md", "new"), file("b.md", "old")]);
        assert_eq!(fs::metadata(&one).unwrap().mode() & 0o777, 0o640);
    }

    #[test]
    fn a_name_that_is_taken_is_not_made_again() {
        let folder = Folder::new();
        folder.put("a.md", b"old", Existing::Refuse).unwrap();
        assert!(is_taken(&folder.put("a.md", b"new", Existing::Refuse).unwrap_err()));
        // Also when it is taken between the look and the rename.
        let temporary = Temporary::create(folder.handle.as_fd()).unwrap();
        assert!(is_taken(&temporary.name_it("a.md", Existing::Refuse).unwrap_err()));
        assert_eq!(folder.content(), [file("a.md", "old")]);
    }

    #[test]
    fn a_link_or_a_folder_is_no_target() {
        let folder = Folder::new();
        symlink("nowhere", folder.dir.path().join("link")).unwrap();
        fs::create_dir(folder.dir.path().join("folder")).unwrap();
        for (name, errno) in [("link", Errno::LOOP), ("folder", Errno::ISDIR)] {
            for existing in [Existing::Replace, Existing::Refuse] {
                assert!(is(&folder.put(name, b"x", existing).unwrap_err(), errno), "{name}");
            }
            assert!(is(&Locked::open(folder.handle.as_fd(), name).unwrap_err(), errno), "{name}");
        }
        assert!(!folder.dir.path().join("nowhere").exists());
    }

    #[test]
    fn what_a_dead_process_left_is_swept_and_what_a_live_one_writes_is_not() {
        let folder = Folder::new();
        let left = format!("{TEMPORARY_PREFIX}{}{TEMPORARY_SUFFIX}", Uuid::new_v4().simple());
        fs::write(folder.dir.path().join(&left), "half").unwrap();
        fs::write(folder.dir.path().join(".toolbridge-notes.tmp"), "mine").unwrap();
        let live = Temporary::create(folder.handle.as_fd()).unwrap();
        sweep_now(folder.handle.as_fd());
        let names: Vec<_> = folder.content().into_iter().map(|(name, _)| name).collect();
        let mut want = vec![live.name.clone(), ".toolbridge-notes.tmp".into()];
        want.sort();
        assert_eq!(names, want);
    }

    #[test]
    fn a_lock_is_not_waited_for_for_ever() {
        let folder = Folder::new();
        folder.put("a.md", b"old", Existing::Replace).unwrap();
        let holder = Locked::open(folder.handle.as_fd(), "a.md").unwrap().unwrap();
        let other = open_name(folder.handle.as_fd(), "a.md", OFlags::RDWR, Mode::empty()).unwrap();
        let error = lock(&other, Instant::now()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(holder);
        lock(&other, Instant::now()).unwrap();
    }
}
