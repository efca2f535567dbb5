//! Copies a file's owner, permissions and extended attributes to the file that replaces it.

use std::fs::File;
use std::io;

use rustix::buffer::spare_capacity;
use rustix::fs::{Gid, Mode, RawMode, Stat, Uid};
use rustix::io::Errno;

use crate::disk;

/// The name of the access control list attribute.
const ACL: &str = "system.posix_acl_access";

/// The largest attribute value, and the longest list of names, that Linux supports.
const MAX_ATTRIBUTE_BYTES: usize = 64 * 1024;

/// Copies owner, group, mode and extended attributes of `old` to `new`, which so far only its creator can
/// open.
///
/// Only root can change a file's owner, and some attributes only the system can set. What cannot be copied is
/// left out; the mode is then narrowed so that no user gets more access than before.
pub(crate) fn keep(old: &File, new: &File) -> io::Result<()> {
    let stat = rustix::fs::fstat(old)?;
    let (user, group) = keep_owner(&stat, new)?;
    let kept = Kept { user, group, acl: keep_acl(old, new, group)? };
    for name in names(old)? {
        keep_attribute(old, new, &name)?;
    }
    // Last, because changing the owner and setting the ACL change the mode.
    disk::set_mode(new, Mode::from_raw_mode(narrowed(stat.st_mode, kept)))
}

/// Which properties were copied to the new file.
#[derive(Debug, Clone, Copy)]
struct Kept {
    user: bool,
    group: bool,
    /// Both files have the same access control list, or neither has one.
    acl: bool,
}

fn keep_owner(old: &Stat, new: &File) -> io::Result<(bool, bool)> {
    let made = rustix::fs::fstat(new)?;
    let user =
        made.st_uid == old.st_uid || is_allowed(disk::set_owner(new, Some(Uid::from_raw(old.st_uid)), None))?;
    // A user may assign a file to any group it is a member of.
    let group =
        made.st_gid == old.st_gid || is_allowed(disk::set_owner(new, None, Some(Gid::from_raw(old.st_gid))))?;
    Ok((user, group))
}

fn keep_acl(old: &File, new: &File, has_group: bool) -> io::Result<bool> {
    let list = value(old, ACL)?;
    // Only with the same group: the list's entry for the file's group would otherwise apply to another group.
    if let Some(list) = &list
        && has_group
        && is_allowed(disk::set_attribute(new, ACL, list))?
    {
        return Ok(true);
    }
    // Remove a list inherited from the folder's default ACL: the old file did not have it.
    if value(new, ACL)?.is_some() {
        disk::remove_attribute(new, ACL)?;
    }
    Ok(list.is_none())
}

fn keep_attribute(old: &File, new: &File, name: &str) -> io::Result<()> {
    let Some(bytes) = value(old, name)? else { return Ok(()) };
    if value(new, name)?.as_ref() != Some(&bytes) && !is_allowed(disk::set_attribute(new, name, &bytes))? {
        tracing::debug!(name, "attribute not kept");
    }
    Ok(())
}

/// The mode without the permissions that are unsafe when not everything could be copied.
fn narrowed(mode: RawMode, kept: Kept) -> RawMode {
    // Drop setuid and setgid, as writing to the file would.
    let sticky = mode & 0o1000;
    let [user, mut group, mut others] = [6, 3, 0].map(|shift| mode >> shift & 0o7);
    if !kept.acl {
        // The mode alone does not tell which users the list allowed or denied.
        (group, others) = (0, 0);
    }
    if !kept.group {
        // Members of the old group count as others now, and members of the new group were others before.
        group &= others;
        others = group;
    }
    if !kept.user {
        group &= user;
        others &= user;
    }
    sticky | user << 6 | group << 3 | others
}

/// The names of the attributes to copy.
fn names(file: &File) -> io::Result<Vec<String>> {
    let mut list = Vec::with_capacity(MAX_ATTRIBUTE_BYTES);
    match rustix::fs::flistxattr(file, spare_capacity(&mut list)) {
        Ok(_) => {}
        Err(Errno::NOTSUP | Errno::RANGE) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    }
    let names = list.split(|byte| *byte == 0).filter_map(|name| std::str::from_utf8(name).ok());
    Ok(names.filter(|name| is_kept(name)).map(str::to_owned).collect())
}

/// Skips attributes that describe the old content, and the ACL, which is copied separately.
fn is_kept(name: &str) -> bool {
    !matches!(name, "" | ACL | "security.capability" | "security.ima" | "security.evm")
}

fn value(file: &File, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::with_capacity(MAX_ATTRIBUTE_BYTES);
    match rustix::fs::fgetxattr(file, name, spare_capacity(&mut bytes)) {
        Ok(_) => Ok(Some(bytes)),
        // The attribute is gone, unsupported by this filesystem, not readable by this user, or too large.
        Err(Errno::NODATA | Errno::NOTSUP | Errno::PERM | Errno::ACCESS | Errno::RANGE) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// `true` if the operation succeeded, `false` if this user or this filesystem does not support it.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_that_cannot_be_kept_give_no_user_more_access() {
        const SAME: bool = true;
        const LOST: bool = false;
        for (mode, user, group, acl, want) in [
            (0o640, true, true, SAME, 0o640),
            (0o664, true, true, SAME, 0o664),
            (0o604, true, true, SAME, 0o604),
            (0o4755, true, true, SAME, 0o755),
            (0o3755, true, true, SAME, 0o1755),
            // The new group must not get the old group's access, nor the old group that of others.
            (0o660, true, false, SAME, 0o600),
            (0o664, true, false, SAME, 0o644),
            (0o604, true, false, SAME, 0o600),
            (0o644, false, false, SAME, 0o644),
            (0o646, false, true, SAME, 0o646),
            (0o066, false, true, SAME, 0o000),
            (0o664, true, true, LOST, 0o600),
            (0o664, false, false, LOST, 0o600),
        ] {
            let got = narrowed(mode, Kept { user, group, acl });
            assert_eq!(got, want, "{mode:o} {user} {group} {acl}: {got:o}");
        }
    }

    #[test]
    fn what_is_about_the_old_content_is_not_kept() {
        for name in ["user.tag", "trusted.x", "security.selinux"] {
            assert!(is_kept(name), "{name}");
        }
        for name in ["security.capability", "security.ima", ACL, ""] {
            assert!(!is_kept(name), "{name}");
        }
    }
}
