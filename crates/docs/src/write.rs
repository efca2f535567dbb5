//! Changes files atomically: readers see the old content or the new, never a part.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;

use crate::disk;
use crate::root::{identity, stat_name};
use crate::temporary::Temporary;

/// How often to retry a change because another process has changed the file meanwhile.
pub(crate) const ATTEMPTS: usize = 10;

/// A new file's mode, before the umask.
const FOR_ALL: Mode = Mode::from_raw_mode(0o666);

/// Creates a file with the content `parts`, completely or not at all; `EXIST` if the name is taken.
///
/// The content is written to a temporary file in the same folder and synced before it gets the name.
pub(crate) fn create(dir: BorrowedFd<'_>, name: &str, parts: &[&[u8]]) -> io::Result<u64> {
    if let Some(taken) = stat_name(dir, name)? {
        return Err(match FileType::from_raw_mode(taken.st_mode) {
            FileType::Symlink => Errno::LOOP,
            _ => Errno::EXIST,
        }
        .into());
    }
    let temporary = Temporary::create(dir, FOR_ALL)?;
    let written = temporary.fill(parts)?;
    let file = temporary.take_new_name(name)?;
    disk::sync_folder(dir).map_err(|error| take_back(dir, name, &file, error))?;
    Ok(written)
}

/// Removes a new file that might not survive a crash.
fn take_back(dir: BorrowedFd<'_>, name: &str, file: &File, error: io::Error) -> io::Error {
    let is_ours = || -> io::Result<bool> {
        let ours = identity(&rustix::fs::fstat(file)?);
        Ok(stat_name(dir, name)?.is_some_and(|named| identity(&named) == ours))
    };
    match is_ours().and_then(|ours| if ours { disk::unlink(dir, name) } else { Ok(()) }) {
        Ok(()) => error,
        Err(_) => NotDurable(error).into(),
    }
}

/// Whether a file could not be created because its name is taken.
pub(crate) fn is_taken(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::EXIST)
}

/// The change is made, but might not survive a crash.
#[derive(Debug, thiserror::Error)]
#[error("the change is made, but may not survive a crash: {0}")]
pub(crate) struct NotDurable(#[from] io::Error);

impl NotDurable {
    /// The system's error, if `error` is a [`NotDurable`].
    pub(crate) fn of(error: &io::Error) -> Option<&io::Error> {
        error.get_ref()?.downcast_ref::<Self>().map(|Self(source)| source)
    }
}

impl From<NotDurable> for io::Error {
    fn from(error: NotDurable) -> Self {
        Self::new(error.0.kind(), error)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::{AsFd as _, OwnedFd};
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use rustix::fs::OFlags;
    use tempfile::TempDir;

    use toolbridge_scripted::report_skipped;

    use super::*;
    use crate::arguments::Mode::{Append, Overwrite};
    use crate::disk::{Step, tests as fault};
    use crate::lock::{Locked, try_lock};
    use crate::temporary::{sweep, temporary_name};

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

        fn with(name: &str, text: &str) -> Self {
            let folder = Self::new();
            fs::write(folder.dir.path().join(name), text).unwrap();
            folder
        }

        fn create(&self, name: &str, bytes: &[u8]) -> io::Result<u64> {
            create(self.handle.as_fd(), name, &[bytes])
        }

        fn overwrite(&self, name: &str, bytes: &[u8]) -> io::Result<u64> {
            match Locked::open(self.handle.as_fd(), name, Overwrite)? {
                Some(old) => old.replace(&[bytes]),
                None => self.create(name, bytes),
            }
        }

        fn append(&self, name: &str, bytes: &[u8]) -> io::Result<u64> {
            Locked::open(self.handle.as_fd(), name, Append)
                .unwrap()
                .expect("the file is there")
                .append(bytes, false)
        }

        /// Every file's name and content.
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

    fn is(error: &io::Error, errno: Errno) -> bool {
        Errno::from_io_error(error) == Some(errno)
    }

    fn file(name: &str, text: &str) -> (String, String) {
        (name.to_owned(), text.to_owned())
    }

    /// Some network filesystems have no rename that fails if the name is taken; `link` does.
    #[test]
    fn a_disk_that_cannot_rename_without_replacing_creates_all_the_same() {
        for errno in [Errno::INVAL, Errno::NOSYS] {
            let folder = Folder::new();
            fault::with(Step::Rename, errno, || folder.create("a.md", b"a")).unwrap();
            let error = fault::with(Step::Rename, errno, || folder.create("a.md", b"b")).unwrap_err();
            assert!(is(&error, Errno::EXIST), "{error}");
            assert_eq!(folder.content(), [file("a.md", "a")]);
        }
    }

    /// The state after a crash depends on the order of the calls, so the test fixes the order.
    #[test]
    fn the_content_is_on_the_disk_before_its_name_and_the_name_before_the_answer() {
        let folder = Folder::new();
        let new = [Step::Create, Step::Write, Step::Sync, Step::Rename, Step::SyncFolder];
        assert_eq!(fault::steps(|| _ = folder.create("a.md", b"a").unwrap()), new);
        assert_eq!(fault::steps(|| _ = folder.overwrite("b.md", b"b").unwrap()), new);
        let over = [Step::Create, Step::SetMode, Step::Write, Step::Sync, Step::Rename, Step::SyncFolder];
        assert_eq!(fault::steps(|| _ = folder.overwrite("a.md", b"b").unwrap()), over);
        let added = [
            Step::Create,
            Step::SetMode,
            Step::Copy,
            Step::Write,
            Step::Write,
            Step::Sync,
            Step::Rename,
            Step::SyncFolder,
        ];
        assert_eq!(fault::steps(|| _ = folder.append("a.md", b"c").unwrap()), added);
        assert_eq!(folder.content(), [file("a.md", "b\nc"), file("b.md", "b")]);
    }

    type Change = fn(&Folder, &str, &[u8]) -> io::Result<u64>;

    #[test]
    fn a_change_that_fails_at_any_step_leaves_the_old_file_or_the_new_one() {
        let over = [Step::Create, Step::SetMode, Step::Write, Step::Sync, Step::Rename, Step::SyncFolder];
        let added = over.iter().copied().chain([Step::Copy]).collect::<Vec<_>>();
        let changes: [(Change, &[Step], &str); 2] =
            [(Folder::overwrite, &over, "new text"), (Folder::append, &added, "old\nnew text")];
        for (change, steps, new) in changes {
            for (step, errno) in steps.iter().flat_map(|step| [(*step, Errno::NOSPC), (*step, Errno::IO)]) {
                let folder = Folder::with("a.md", "old");
                let error = fault::with(step, errno, || change(&folder, "a.md", b"new text")).unwrap_err();
                // After the rename the new file stays, though it may not survive a power loss.
                let (system, want) = match NotDurable::of(&error) {
                    Some(source) if step == Step::SyncFolder => (source, new),
                    _ => (&error, "old"),
                };
                assert!(is(system, errno), "{step:?}: {error}");
                assert_eq!(folder.content(), [file("a.md", want)], "{step:?}");
            }
        }
    }

    #[test]
    fn a_new_file_that_fails_at_any_step_leaves_nothing() {
        for step in [Step::Create, Step::Write, Step::Sync, Step::Rename, Step::SyncFolder] {
            for make in [Folder::create, Folder::overwrite] {
                let folder = Folder::new();
                let error = fault::with(step, Errno::NOSPC, || make(&folder, "a.md", b"new")).unwrap_err();
                assert!(is(&error, Errno::NOSPC), "{step:?}: {error}");
                assert_eq!(folder.content(), [], "{step:?}");
                make(&folder, "a.md", b"new").unwrap();
            }
        }
    }

    /// Editors do not take the lock.
    #[test]
    fn an_append_takes_nothing_away_that_others_wrote_meanwhile() {
        let folder = Folder::with("a.md", "old\n");
        for (round, step) in [Step::Create, Step::Copy, Step::Write, Step::Sync].into_iter().enumerate() {
            let path = folder.dir.path().join("a.md");
            let before = fs::read_to_string(&path).unwrap();
            let mut left = 1;
            let others = move || {
                use std::io::Write as _;
                if left > 0 {
                    left -= 1;
                    fs::File::options().append(true).open(&path).unwrap().write_all(b"theirs\n").unwrap();
                }
            };
            let mine = format!("mine {round}\n");
            fault::meanwhile(step, others, || folder.append("a.md", mine.as_bytes()).unwrap());
            assert_eq!(folder.content(), [file("a.md", &format!("{before}theirs\n{mine}"))], "{step:?}");
        }
    }

    #[test]
    fn an_append_to_a_file_that_always_changes_is_an_error() {
        let folder = Folder::with("a.md", "old\n");
        let path = folder.dir.path().join("a.md");
        let grow = move || {
            let text = fs::read_to_string(&path).unwrap() + "more\n";
            fs::write(&path, text).unwrap();
        };
        let error = fault::meanwhile(Step::Copy, grow, || folder.append("a.md", b"mine\n")).unwrap_err();
        assert!(is(&error, Errno::BUSY), "{error}");
        assert_eq!(folder.content(), [file("a.md", &("old\n".to_owned() + &"more\n".repeat(ATTEMPTS)))]);
    }

    /// Returns whether the filesystem supports such attributes; old in-memory ones do not.
    fn set_attribute(path: &std::path::Path, name: &str, value: &[u8]) -> bool {
        match rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()) {
            Ok(()) => true,
            Err(Errno::NOTSUP) => false,
            Err(error) => panic!("{name}: {error}"),
        }
    }

    /// An access control list with the three classes, and one user by number who may read and write.
    fn acl_for(user: u32) -> Vec<u8> {
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, rights, id) in
            [(1_u16, 6_u16, u32::MAX), (2, 6, user), (4, 0, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)]
        {
            list.extend(tag.to_le_bytes());
            list.extend(rights.to_le_bytes());
            list.extend(id.to_le_bytes());
        }
        list
    }

    const ACL: &str = "system.posix_acl_access";

    #[test]
    fn a_changed_file_keeps_its_mode() {
        for change in [Folder::overwrite, Folder::append] {
            let folder = Folder::with("a.md", "old");
            let path = folder.dir.path().join("a.md");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o604)).unwrap();
            change(&folder, "a.md", b"new").unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o604);
        }
    }

    /// The mode of a file with a list has the rights of the users in it where it has the group's.
    #[test]
    fn a_changed_file_gives_nobody_more_access_than_its_access_control_list_did() {
        for change in [Folder::overwrite, Folder::append] {
            let folder = Folder::with("a.md", "old");
            let path = folder.dir.path().join("a.md");
            if !set_attribute(&path, ACL, &acl_for(12345)) {
                return report_skipped("the disk has no access control lists");
            }
            change(&folder, "a.md", b"new").unwrap();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        }
    }

    /// Root can change a file's owner; others cannot, and then the mode must not give another group access.
    #[test]
    fn a_changed_file_keeps_its_owner_where_it_can() {
        if !rustix::process::geteuid().is_root() {
            return report_skipped("only root can give files away");
        }
        for change in [Folder::overwrite, Folder::append] {
            let folder = Folder::with("a.md", "old");
            let path = folder.dir.path().join("a.md");
            let set = || {
                std::os::unix::fs::chown(&path, Some(12345), Some(54321)).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o660)).unwrap();
            };
            let owner = || {
                let meta = fs::metadata(&path).unwrap();
                (meta.uid(), meta.gid(), meta.mode() & 0o7777)
            };
            set();
            change(&folder, "a.md", b"new").unwrap();
            assert_eq!(owner(), (12345, 54321, 0o660));
            fault::with(Step::SetOwner, Errno::PERM, || change(&folder, "a.md", b"newer")).unwrap();
            assert_eq!(owner(), (0, 0, 0o600));
            set();
            fault::with(Step::SetOwner, Errno::IO, || change(&folder, "a.md", b"never")).unwrap_err();
            assert_eq!(owner(), (12345, 54321, 0o660));
            assert_eq!(folder.content().len(), 1);
        }
    }

    #[test]
    fn a_file_stays_locked_until_its_replacement_has_the_name() {
        let folder = Folder::with("a.md", "old");
        let path = folder.dir.path().join("a.md");
        for step in [Step::Create, Step::Rename, Step::SyncFolder] {
            let old = fs::File::open(&path).unwrap();
            let is_locked = move || assert!(!try_lock(&old).unwrap(), "{step:?}");
            fault::meanwhile(step, is_locked, || folder.overwrite("a.md", b"new").unwrap());
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
            let folder = Folder::with("a.md", old);
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
        assert!(Locked::open(folder.handle.as_fd(), "a.md", Append).unwrap().unwrap().has_other_names());
        assert_eq!(folder.overwrite("a.md", b"new").unwrap(), 3);
        assert_eq!(folder.content(), [file("a.md", "new"), file("b.md", "old")]);
        assert_eq!(fs::metadata(&one).unwrap().mode() & 0o777, 0o640);
    }

    #[test]
    fn a_name_that_is_taken_is_not_made_again() {
        let folder = Folder::new();
        folder.create("a.md", b"old").unwrap();
        assert!(is_taken(&folder.create("a.md", b"new").unwrap_err()));
        // Also if the name is taken between the check and the rename.
        let temporary = Temporary::create(folder.handle.as_fd(), FOR_ALL).unwrap();
        assert!(is_taken(&temporary.take_new_name("a.md").unwrap_err()));
        assert_eq!(folder.content(), [file("a.md", "old")]);
    }

    #[test]
    fn a_link_or_a_folder_is_no_target() {
        let folder = Folder::new();
        symlink("nowhere", folder.dir.path().join("link")).unwrap();
        fs::create_dir(folder.dir.path().join("folder")).unwrap();
        for (name, errno) in [("link", Errno::LOOP), ("folder", Errno::ISDIR)] {
            assert!(is(&folder.overwrite(name, b"x").unwrap_err(), errno), "{name}");
            assert!(is(&Locked::open(folder.handle.as_fd(), name, Append).unwrap_err(), errno), "{name}");
        }
        assert!(is(&folder.create("link", b"x").unwrap_err(), Errno::LOOP));
        assert!(is_taken(&folder.create("folder", b"x").unwrap_err()));
        assert!(!folder.dir.path().join("nowhere").exists());
    }

    #[test]
    fn what_a_dead_process_left_is_swept_and_what_a_live_one_writes_is_not() {
        let folder = Folder::new();
        let left = temporary_name();
        fs::write(folder.dir.path().join(&left), "half").unwrap();
        fs::write(folder.dir.path().join(".toolbridge-notes.tmp"), "mine").unwrap();
        let live = Temporary::create(folder.handle.as_fd(), FOR_ALL).unwrap();
        sweep(folder.handle.as_fd());
        let names: Vec<_> = folder.content().into_iter().map(|(name, _)| name).collect();
        let mut want = vec![live.name.clone(), ".toolbridge-notes.tmp".into()];
        want.sort();
        assert_eq!(names, want);
    }

    #[test]
    fn a_lock_is_not_waited_for_for_ever() {
        let folder = Folder::with("a.md", "old");
        let _holder = Locked::open(folder.handle.as_fd(), "a.md", Append).unwrap();
        for change in [Folder::overwrite, |folder: &Folder, name: &str, _: &[u8]| {
            Locked::open(folder.handle.as_fd(), name, Append).map(|_| 0)
        }] {
            assert_eq!(change(&folder, "a.md", b"new").unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        assert_eq!(folder.content(), [file("a.md", "old")]);
    }

    #[test]
    fn a_lock_that_others_hold_is_waited_for() {
        let folder = Folder::with("a.md", "old");
        let holder = Locked::open(folder.handle.as_fd(), "a.md", Append).unwrap().unwrap();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| folder.append("a.md", b"second"));
            holder.append(b"first", false).unwrap();
            drop(holder);
            other.join().unwrap().unwrap();
        });
        assert_eq!(folder.content(), [file("a.md", "old\nfirst\nsecond")]);
    }
}
