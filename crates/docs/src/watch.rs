//! Watches for changes below a root, so that a search need not check all files.

use std::collections::BTreeSet;

use crate::path::RelPath;

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) use self::inotify::Watch;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) use self::nowhere::Watch;

/// What has to be checked again.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// All files.
    pub(crate) everything: bool,
    /// Folders, with everything below them.
    pub(crate) folders: BTreeSet<RelPath>,
    pub(crate) files: BTreeSet<RelPath>,
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod inotify {
    use std::collections::HashMap;
    use std::mem::MaybeUninit;
    use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
    use rustix::io::Errno;

    use super::Changes;
    #[cfg(test)]
    use super::fault::step;
    use crate::path::RelPath;

    #[cfg(not(test))]
    #[expect(clippy::unnecessary_wraps, reason = "in tests, any step can fail")]
    fn step() -> Result<(), Errno> {
        Ok(())
    }

    const EVENTS: WatchFlags = WatchFlags::CREATE
        .union(WatchFlags::DELETE)
        .union(WatchFlags::MODIFY)
        .union(WatchFlags::ATTRIB)
        .union(WatchFlags::MOVE)
        .union(WatchFlags::EXCL_UNLINK)
        .union(WatchFlags::ONLYDIR);

    const EVENT_BYTES: usize = 8 * 1024;

    /// Filesystems that only this system changes, so that it sees every change: ext2 to 4, xfs, btrfs, tmpfs,
    /// ramfs, overlay, f2fs, zfs, bcachefs, jfs, reiserfs, squashfs, erofs, iso9660, vfat, exfat, ntfs.
    const LOCAL: [u64; 17] = [
        0xef53,
        0x5846_5342,
        0x9123_683e,
        0x0102_1994,
        0x8584_58f6,
        0x794c_7630,
        0xf2f5_2010,
        0x2fc1_2fc1,
        0xca45_1a4e,
        0x3153_464a,
        0x5265_4973,
        0x7371_7368,
        0xe0f5_e1e2,
        0x9660,
        0x4d44,
        0x2011_bab0,
        0x7366_746e,
    ];

    /// The watched folders. Files are not watched themselves: their folder's watch reports them.
    #[derive(Debug)]
    pub(crate) struct Watch {
        inotify: OwnedFd,
        /// By inotify's watch descriptor; `None` is the root.
        folders: HashMap<i32, Option<RelPath>>,
        /// The last device found to have a local filesystem.
        local: Option<i128>,
    }

    impl Watch {
        /// `None` if the system has no inotify instance left.
        pub(crate) fn new() -> Option<Self> {
            let inotify = step().and_then(|()| inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK));
            let opened = inotify.map_err(|error| tracing::info!(%error, "the manuals are not watched"));
            Some(Self { inotify: opened.ok()?, folders: HashMap::new(), local: None })
        }

        /// Starts watching a folder. Fails if some changes would not be reported.
        pub(crate) fn add(&mut self, folder: BorrowedFd<'_>, path: Option<&RelPath>) -> Result<(), Errno> {
            step()?;
            let device = i128::from(rustix::fs::fstat(folder)?.st_dev);
            if self.local != Some(device) {
                #[expect(clippy::cast_sign_loss, reason = "only compared, as 32 bits")]
                let kind = rustix::fs::fstatfs(folder)?.f_type as u64 & 0xffff_ffff;
                if !LOCAL.contains(&kind) {
                    return Err(Errno::NOTSUP);
                }
                self.local = Some(device);
            }
            // By file descriptor, because the path may refer to another folder by now.
            let place = format!("/proc/self/fd/{}", folder.as_raw_fd());
            let number = inotify::add_watch(&self.inotify, place, EVENTS)?;
            self.folders.insert(number, path.cloned());
            Ok(())
        }

        /// Collects the changes since the last call.
        pub(crate) fn drain(&mut self, changes: &mut Changes) {
            let mut buffer = [MaybeUninit::uninit(); EVENT_BYTES];
            let mut reader = Reader::new(&self.inotify, &mut buffer);
            loop {
                let event = match reader.next() {
                    Ok(event) => event,
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR) => continue,
                    Err(_) => {
                        changes.everything = true;
                        break;
                    }
                };
                let kind = event.events();
                if kind.intersects(ReadFlags::QUEUE_OVERFLOW | ReadFlags::UNMOUNT) {
                    changes.everything = true;
                }
                if kind.contains(ReadFlags::IGNORED) {
                    self.folders.remove(&event.wd());
                }
                let Some(folder) = self.folders.get(&event.wd()) else { continue };
                let name = event.file_name().and_then(|name| name.to_str().ok());
                let Some(path) = name.and_then(|name| RelPath::child(folder.as_ref(), name)) else {
                    continue;
                };
                if kind.contains(ReadFlags::ISDIR) {
                    changes.folders.insert(path);
                } else {
                    changes.files.insert(path);
                }
            }
        }

        /// Stops watching a folder and those below it: they may have been moved.
        pub(crate) fn forget(&mut self, folder: &RelPath) {
            let gone = self
                .folders
                .extract_if(|_, path| path.as_ref().is_some_and(|path| path.is_at_or_below(folder)));
            for (number, _) in gone {
                // Fails if the folder was removed.
                _ = inotify::remove_watch(&self.inotify, number);
            }
        }

        #[cfg(test)]
        pub(crate) fn folders(&self) -> usize {
            self.folders.len()
        }
    }
}

/// Other systems can watch a file only while it is open.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod nowhere {
    use std::os::fd::BorrowedFd;

    use rustix::io::Errno;

    use super::Changes;
    use crate::path::RelPath;

    #[derive(Debug)]
    pub(crate) enum Watch {}

    impl Watch {
        pub(crate) fn new() -> Option<Self> {
            None
        }

        pub(crate) fn add(&mut self, _: BorrowedFd<'_>, _: Option<&RelPath>) -> Result<(), Errno> {
            match *self {}
        }

        pub(crate) fn drain(&mut self, _: &mut Changes) {
            match *self {}
        }

        pub(crate) fn forget(&mut self, _: &RelPath) {
            match *self {}
        }
    }
}

/// Makes the watch fail in tests.
#[cfg(all(test, target_os = "linux"))]
pub(crate) mod fault {
    use std::cell::Cell;

    use rustix::io::Errno;

    thread_local! {
        static FAULT: Cell<Option<(usize, Errno)>> = const { Cell::new(None) };
    }

    /// Runs `work` with `steps` successful operations of the watch, after which each fails with `errno`.
    pub(crate) fn with(steps: usize, errno: Errno, work: impl FnOnce()) {
        FAULT.set(Some((steps, errno)));
        work();
        FAULT.set(None);
    }

    pub(super) fn step() -> Result<(), Errno> {
        match FAULT.get() {
            Some((0, errno)) => Err(errno),
            Some((left, errno)) => {
                FAULT.set(Some((left - 1, errno)));
                Ok(())
            }
            None => Ok(()),
        }
    }
}
