//! Every system call that changes something on the disk, and nothing else. In tests, each is written down and
//! can fail.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Uid, XattrFlags};

#[cfg(test)]
use self::fault::step;
use crate::root::open_name;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Create,
    SetOwner,
    SetAttribute,
    RemoveAttribute,
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

pub(crate) fn set_owner(file: &File, user: Option<Uid>, group: Option<Gid>) -> io::Result<()> {
    step(Step::SetOwner)?;
    Ok(rustix::fs::fchown(file, user, group)?)
}

pub(crate) fn set_attribute(file: &File, name: &str, value: &[u8]) -> io::Result<()> {
    step(Step::SetAttribute)?;
    Ok(rustix::fs::fsetxattr(file, name, value, XattrFlags::empty())?)
}

pub(crate) fn remove_attribute(file: &File, name: &str) -> io::Result<()> {
    step(Step::RemoveAttribute)?;
    Ok(rustix::fs::fremovexattr(file, name)?)
}

pub(crate) fn set_mode(file: &File, mode: Mode) -> io::Result<()> {
    step(Step::SetMode)?;
    Ok(rustix::fs::fchmod(file, mode)?)
}

/// Copies the first `size` bytes of a file, without reading them where the system can; how many there were.
pub(crate) fn copy(mut from: &File, mut to: &File, size: u64) -> io::Result<u64> {
    step(Step::Copy)?;
    from.rewind()?;
    io::copy(&mut from.take(size), &mut to)
}

pub(crate) fn write_all(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    let fault = step(Step::Write);
    // As a full disk does: a part of it is written.
    file.write_all(if fault.is_ok() { bytes } else { &bytes[..bytes.len() / 2] })?;
    fault
}

pub(crate) fn sync(file: &File) -> io::Result<()> {
    step(Step::Sync)?;
    file.sync_all()
}

pub(crate) fn rename(dir: BorrowedFd<'_>, old: &str, new: &str) -> io::Result<()> {
    step(Step::Rename)?;
    Ok(rustix::fs::renameat(dir, old, dir, new)?)
}

pub(crate) fn rename_new(dir: BorrowedFd<'_>, old: &str, new: &str) -> io::Result<()> {
    step(Step::Rename)?;
    Ok(rustix::fs::renameat_with(dir, old, dir, new, RenameFlags::NOREPLACE)?)
}

pub(crate) fn link(dir: BorrowedFd<'_>, old: &str, new: &str) -> io::Result<()> {
    Ok(rustix::fs::linkat(dir, old, dir, new, AtFlags::empty())?)
}

pub(crate) fn sync_folder(dir: BorrowedFd<'_>) -> io::Result<()> {
    step(Step::SyncFolder)?;
    Ok(rustix::fs::fsync(dir)?)
}

pub(crate) fn unlink(dir: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    step(Step::Unlink)?;
    Ok(rustix::fs::unlinkat(dir, name, AtFlags::empty())?)
}

/// Lets a step fail in tests, and says which were taken.
#[cfg(test)]
pub(crate) mod fault {
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

    /// Does `meanwhile` before each `step` of `work`.
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
