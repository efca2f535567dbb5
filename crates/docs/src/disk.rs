//! Every system call that changes the disk, and nothing else. Tests can record the calls and make them fail.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::BorrowedFd;

use rustix::fs::{self, AtFlags, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;

#[cfg(test)]
use self::tests::step;
use crate::root::open_name;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Create,
    SetOwner,
    SetMode,
    Copy,
    Write,
    Sync,
    Rename,
    SyncFolder,
    Unlink,
}

#[cfg(not(test))]
#[expect(clippy::unnecessary_wraps, reason = "in tests, any step can fail")]
fn step(_: Step) -> io::Result<()> {
    Ok(())
}

pub(crate) fn create(dir: BorrowedFd<'_>, name: &str, mode: Mode) -> io::Result<File> {
    step(Step::Create)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    Ok(open_name(dir, name, flags, mode)?.into())
}

/// Defines the steps that are one system call each.
macro_rules! calls {
    ($($step:ident: $name:ident($($argument:ident: $type:ty),*) = $call:expr;)*) => {
        $(pub(crate) fn $name($($argument: $type),*) -> io::Result<()> {
            step(Step::$step)?;
            Ok($call?)
        })*
    };
}

calls! {
    SetOwner: set_owner(file: &File, user: Option<Uid>, group: Option<Gid>) = fs::fchown(file, user, group);
    SetMode: set_mode(file: &File, mode: Mode) = fs::fchmod(file, mode);
    Sync: sync(file: &File) = file.sync_all();
    Rename: rename(dir: BorrowedFd<'_>, old: &str, new: &str) = fs::renameat(dir, old, dir, new);
    Rename: rename_new(dir: BorrowedFd<'_>, old: &str, new: &str)
        = fs::renameat_with(dir, old, dir, new, RenameFlags::NOREPLACE);
    SyncFolder: sync_folder(dir: BorrowedFd<'_>) = fs::fsync(dir);
    Unlink: unlink(dir: BorrowedFd<'_>, name: &str) = fs::unlinkat(dir, name, AtFlags::empty());
}

/// Copies the first `size` bytes of a file, inside the kernel where possible; returns the number of bytes
/// copied.
pub(crate) fn copy(mut from: &File, mut to: &File, size: u64) -> io::Result<u64> {
    step(Step::Copy)?;
    from.rewind()?;
    io::copy(&mut from.take(size), &mut to)
}

pub(crate) fn write_all(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    let fault = step(Step::Write);
    // Like a full disk: only a part is written.
    file.write_all(if fault.is_ok() { bytes } else { &bytes[..bytes.len() / 2] })?;
    fault
}

/// Renames a file. The new name must be free.
pub(crate) fn move_new(dir: BorrowedFd<'_>, old: &str, new: &str) -> io::Result<()> {
    let Err(error) = rename_new(dir, old, new) else { return Ok(()) };
    match Errno::from_io_error(&error) {
        // Not every filesystem supports this rename; `link` fails everywhere if the name is taken.
        Some(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            fs::linkat(dir, old, dir, new, AtFlags::empty())?;
            // If the old name cannot be removed, remove the new one: the file must not keep two names.
            unlink(dir, old).inspect_err(|_| _ = fs::unlinkat(dir, new, AtFlags::empty()))
        }
        _ => Err(error),
    }
}

/// Makes a step fail in tests, and records the steps taken.
#[cfg(test)]
pub(crate) mod tests {
    use std::cell::{Cell, RefCell};
    use std::io;

    use rustix::io::Errno;

    use super::Step;

    type Work = Box<dyn FnMut()>;

    thread_local! {
        static FAULT: Cell<Option<(Step, Errno)>> = const { Cell::new(None) };
        static BEFORE: RefCell<Option<(Step, Work)>> = const { RefCell::new(None) };
        static TAKEN: RefCell<Vec<Step>> = const { RefCell::new(Vec::new()) };
    }

    /// Runs `work` while `step` fails with `errno`.
    pub(crate) fn with<T>(step: Step, errno: Errno, work: impl FnOnce() -> T) -> T {
        FAULT.set(Some((step, errno)));
        let outcome = work();
        FAULT.set(None);
        outcome
    }

    /// Runs `meanwhile` before each `step` of `work`.
    pub(crate) fn meanwhile<T>(step: Step, meanwhile: impl FnMut() + 'static, work: impl FnOnce() -> T) -> T {
        BEFORE.set(Some((step, Box::new(meanwhile))));
        let outcome = work();
        BEFORE.set(None);
        outcome
    }

    /// The steps that `work` takes.
    pub(crate) fn steps(work: impl FnOnce()) -> Vec<Step> {
        TAKEN.take();
        work();
        TAKEN.take()
    }

    pub(super) fn step(step: Step) -> io::Result<()> {
        TAKEN.with_borrow_mut(|taken| taken.push(step));
        BEFORE.with_borrow_mut(|before| match before {
            Some((awaited, work)) if *awaited == step => work(),
            _ => {}
        });
        match FAULT.get() {
            Some((failing, errno)) if failing == step => Err(errno.into()),
            _ => Ok(()),
        }
    }
}
