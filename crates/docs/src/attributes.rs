//! Gives a file that replaces another one its owner and mode.

use std::fs::File;
use std::io;

use rustix::fs::{Gid, Mode, Uid};
use rustix::io::Errno;

use crate::disk;

/// Keeps the owner, the group and the mode as far as this user may. What is lost gives nobody more access than before.
pub(crate) fn keep(old: &File, new: &File) -> io::Result<()> {
    let (before, made) = (rustix::fs::fstat(old)?, rustix::fs::fstat(new)?);
    if made.st_uid != before.st_uid {
        is_allowed(disk::set_owner(new, Some(Uid::from_raw(before.st_uid)), None))?;
    }
    let is_same_group = made.st_gid == before.st_gid
        || is_allowed(disk::set_owner(new, None, Some(Gid::from_raw(before.st_gid))))?;
    // Without setuid and setgid, as after a write.
    let mut rights = before.st_mode & 0o1777;
    if !is_same_group {
        let for_all = rights >> 3 & rights & 0o7;
        rights = rights & 0o1700 | for_all << 3 | for_all;
    }
    // With an access control list, which is not kept, the group's rights are not the group's.
    if rustix::fs::fgetxattr(old, "system.posix_acl_access", &mut [0; 0]).is_ok() {
        rights &= 0o1700;
    }
    // Last, because a new owner changes it.
    disk::set_mode(new, Mode::from_raw_mode(rights))
}

/// `true` if the operation succeeded, `false` if this user or this file system does not support it.
fn is_allowed(outcome: io::Result<()>) -> io::Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        // `INVAL`: the owner is not mapped in this user namespace.
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::PERM | Errno::ACCESS | Errno::NOTSUP | Errno::INVAL) => Ok(false),
            _ => Err(error),
        },
    }
}
