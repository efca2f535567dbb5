//! A directory for one request: files for the CLI, and files that it writes.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use uuid::Uuid;

use crate::ClaudeCodeError;
use crate::error::ExecutionKind;

const PREFIX: &str = "run-";

/// How often to retry when a concurrent clean-up removed the new one, or the directory of all of them. Each time another
/// process was quicker, so this is reached only if something else is wrong.
const TRIES: usize = 1000;

/// How often to try to remove a scratch directory.
const REMOVE_TRIES: usize = 10;

/// The pause between two attempts to remove a scratch directory.
const REMOVE_PAUSE: Duration = Duration::from_millis(5);

/// A private directory for one request. Dropping it removes it with its content.
///
/// It is locked while in use, so that the next start can detect what a killed process left.
#[derive(Debug)]
pub(crate) struct ScratchDir {
    path: PathBuf,
    _lock: OwnedFd,
}

impl ScratchDir {
    /// Creates a scratch directory below `base`, in a per-user directory, and removes those of dead processes there.
    pub(crate) fn new(base: &Path) -> Result<Self, ClaudeCodeError> {
        let home = base.join(format!("toolbridge-{}", rustix::process::getuid().as_raw()));
        let failed = |error: io::Error| {
            let message =
                format!("cannot create a directory for the request in `{}`: {error}", home.display());
            ClaudeCodeError::execution(ExecutionKind::Start, message)
        };
        for _ in 0..TRIES {
            make_private(&home).map_err(failed)?;
            sweep(&home);
            match Self::make(&home) {
                Ok(Some(scratch)) => return Ok(scratch),
                Ok(None) => {}
                Err(error) => {
                    _ = fs::remove_dir(&home);
                    return Err(failed(error));
                }
            }
        }
        Err(failed(io::Error::other("other processes keep removing it")))
    }

    /// Creates one, or returns `None` if a concurrent clean-up removed it.
    fn make(home: &Path) -> io::Result<Option<Self>> {
        let path = home.join(format!("{PREFIX}{}", Uuid::new_v4().simple()));
        let opened = fs::DirBuilder::new().mode(0o700).create(&path).and_then(|()| open(&path));
        let failed = match opened {
            Ok(lock) if try_lock(&lock) && fs::metadata(&path).is_ok() => {
                return Ok(Some(Self { path, _lock: lock }));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            // A sweep came before the lock: it is gone, or about to be.
            _ => Ok(None),
        };
        remove(&path);
        failed
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of all of them. It contains nothing else, and its name never changes.
    pub(crate) fn home(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    /// Creates a directory in it.
    pub(crate) fn dir(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(path)
    }

    /// Creates a file in it.
    pub(crate) fn file(&self, name: &str, content: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        io::Write::write_all(&mut file, content.as_bytes())?;
        Ok(path)
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        remove(&self.path);
        // Succeeds only if this was the last.
        _ = fs::remove_dir(self.home());
    }
}

/// Removes a scratch directory. Retries on failure, because the process may be out of file descriptors.
fn remove(scratch: &Path) {
    for tries in 1.. {
        match fs::remove_dir_all(scratch) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(_) if tries < REMOVE_TRIES => thread::sleep(REMOVE_PAUSE),
            Err(error) => {
                tracing::warn!(path = %scratch.display(), %error, "the directory of a request is left behind");
                return;
            }
            Ok(()) => return,
        }
    }
}

/// Creates the directory of all of them, or checks that the existing one belongs to this user and is not a
/// link.
fn make_private(path: &Path) -> io::Result<()> {
    let is_made = match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        made => made.is_ok(),
    };
    let found = match fs::symlink_metadata(path) {
        // It has just been removed and will be created again.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            if is_made {
                _ = fs::remove_dir(path);
            }
            return Err(error);
        }
        Ok(found) => found,
    };
    let (owner, mode) = (found.uid(), found.mode() & 0o777);
    if found.is_dir() && owner == rustix::process::getuid().as_raw() && mode == 0o700 {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "it exists and is not a private directory of this user (user {owner}, mode {mode:o}); \
         remove it, or use another temporary directory"
    )))
}

fn open(scratch: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(scratch, flags, Mode::empty())?)
}

fn try_lock(scratch: &OwnedFd) -> bool {
    rustix::fs::flock(scratch, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Removes the scratch directories that are not locked.
fn sweep(home: &Path) {
    let Ok(entries) = fs::read_dir(home) else { return };
    for entry in entries.filter_map(Result::ok) {
        if entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes())
            && let Ok(scratch) = open(&entry.path())
            && try_lock(&scratch)
        {
            remove(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_scratch_directory_is_private_and_removed_with_its_content() {
        let base = tempfile::tempdir().unwrap();
        let scratch = ScratchDir::new(base.path()).unwrap();
        let file = scratch.file("mcp.json", "{}").unwrap();
        let dir = scratch.dir("tmp").unwrap();
        fs::write(dir.join("picture.png"), "x").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(scratch.home()), mode(&scratch.path), mode(&file)), (0o700, 0o700, 0o600));
        drop(scratch);
        assert!(names(base.path()).is_empty());
    }

    #[test]
    fn only_those_of_dead_processes_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let live = ScratchDir::new(base.path()).unwrap();
        let stale = live.home().join("run-0123");
        fs::create_dir(&stale).unwrap();
        fs::write(stale.join("mcp.json"), "{}").unwrap();
        // Entries that are not scratch directories must be left alone.
        fs::create_dir(live.home().join("other")).unwrap();
        symlink(base.path(), live.home().join("run-link")).unwrap();
        let next = ScratchDir::new(base.path()).unwrap();
        assert!(!stale.exists());
        assert!(live.path.exists() && next.path.exists());
        assert!(live.home().join("other").exists() && live.home().join("run-link").exists());
    }

    #[test]
    fn a_directory_that_others_can_enter_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let home = base.path().join(format!("toolbridge-{}", rustix::process::getuid().as_raw()));
        fs::create_dir(&home).unwrap();
        fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).unwrap();
        let error = ScratchDir::new(base.path()).unwrap_err().to_string();
        assert!(error.contains("is not a private directory of this user"), "{error}");
        fs::remove_dir(&home).unwrap();
        symlink(base.path(), &home).unwrap();
        assert!(ScratchDir::new(base.path()).is_err());
    }

    #[test]
    fn concurrent_scratch_directories_do_not_remove_each_other() {
        let base = tempfile::tempdir().unwrap();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let scratch = ScratchDir::new(base.path()).unwrap();
                        scratch.file("x", "y").unwrap();
                    }
                });
            }
        });
        assert!(names(base.path()).is_empty());
    }
}
