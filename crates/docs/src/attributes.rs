//! Copies a file's owner, mode and extended attributes to the file that replaces it.

use std::fs::File;
use std::io;

use rustix::buffer::spare_capacity;
use rustix::fs::{Gid, Mode, Uid};
use rustix::io::Errno;

use crate::disk;

/// The name of the access control list attribute.
const ACL: &str = "system.posix_acl_access";

/// The largest attribute value, and the longest list of names, that Linux supports.
const MAX_ATTRIBUTE_BYTES: usize = 64 * 1024;

/// Copies what this user and this file system permit. What is lost gives nobody more access than before.
pub(crate) fn keep(old: &File, new: &File) -> io::Result<()> {
    let (before, made) = (rustix::fs::fstat(old)?, rustix::fs::fstat(new)?);
    if made.st_uid != before.st_uid {
        is_allowed(disk::set_owner(new, Some(Uid::from_raw(before.st_uid)), None))?;
    }
    let is_same_group = made.st_gid == before.st_gid
        || is_allowed(disk::set_owner(new, None, Some(Gid::from_raw(before.st_gid))))?;
    // The folder may have given it one that the old file does not have.
    if value(new, ACL).is_some() {
        disk::remove_attribute(new, ACL)?;
    }
    let mut has_list = true;
    for name in names(old) {
        if let Some(value) = value(old, &name) {
            let is_set = is_allowed(disk::set_attribute(new, &name, &value))?;
            has_list &= is_set || name != ACL;
        }
    }
    // Without setuid and setgid, as after a write.
    let mut rights = before.st_mode & 0o1777;
    if !is_same_group {
        let for_all = rights >> 3 & rights & 0o7;
        rights = rights & 0o1700 | for_all << 3 | for_all;
    }
    if !has_list {
        rights &= 0o1700;
    }
    // Last, because the owner and the list change it.
    disk::set_mode(new, Mode::from_raw_mode(rights))
}

/// The names of the attributes to copy; those of `security` describe the old content.
fn names(file: &File) -> Vec<String> {
    let mut list = Vec::with_capacity(MAX_ATTRIBUTE_BYTES);
    _ = rustix::fs::flistxattr(file, spare_capacity(&mut list));
    let names = list.split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
    names.filter(|name| !name.is_empty() && !name.starts_with("security.")).map(str::to_owned).collect()
}

fn value(file: &File, name: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(MAX_ATTRIBUTE_BYTES);
    rustix::fs::fgetxattr(file, name, spare_capacity(&mut bytes)).is_ok().then_some(bytes)
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
