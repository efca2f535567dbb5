//! The users that this process trusts: its own, and root.

/// The number of possible user ids; a map of this size leaves no user out.
#[cfg(any(target_os = "linux", test))]
const ALL_USERS: u64 = u32::MAX as u64;

/// The id of unmapped users if the system does not report it.
#[cfg(any(target_os = "linux", test))]
const USUAL_OVERFLOW_UID: u32 = 65534;

/// The user of this process, for comparison with the owners of files and with peers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct User {
    uid: u32,
    /// The id of all users that are not mapped into this user namespace; `None` if all are mapped.
    nobody: Option<u32>,
}

impl User {
    /// The current effective user of this process.
    pub(crate) fn of_this_process() -> Self {
        Self { uid: rustix::process::geteuid().as_raw(), nobody: nobody() }
    }

    pub(crate) fn uid(self) -> u32 {
        self.uid
    }

    /// Whether `uid` is certainly this user.
    pub(crate) fn is(self, uid: u32) -> bool {
        uid == self.uid && Some(uid) != self.nobody
    }

    /// Whether `uid` is certainly this user or root.
    pub(crate) fn trusts(self, uid: u32) -> bool {
        self.is(uid) || (uid == 0 && Some(uid) != self.nobody)
    }
}

/// Why a process of user `own` does not trust `uid`.
pub(crate) fn strangeness(uid: u32, own: u32) -> String {
    if uid == own {
        return "which stands for every user that this user namespace does not map".into();
    }
    format!("this process runs as user {own}")
}

/// Read again each time, because a process can enter another user namespace, typically after a fork.
#[cfg(target_os = "linux")]
fn nobody() -> Option<u32> {
    use std::{fs, io, path::Path};

    let map = match fs::read_to_string("/proc/self/uid_map") {
        Ok(map) => map,
        // The kernel has no user namespaces.
        Err(error) if error.kind() == io::ErrorKind::NotFound && Path::new("/proc/self").exists() => {
            return None;
        }
        // The map is unknown, for example without `/proc`, so the overflow id is not trusted.
        Err(_) => String::new(),
    };
    unmapped(&map, || fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?.trim().parse().ok())
}

#[cfg(not(target_os = "linux"))]
fn nobody() -> Option<u32> {
    None
}

/// The id of users that a `uid_map` leaves out; `None` if it leaves out none.
#[cfg(any(target_os = "linux", test))]
fn unmapped(map: &str, overflow_uid: impl FnOnce() -> Option<u32>) -> Option<u32> {
    // Columns: first id inside, first id outside, count. Ranges never overlap, on either side.
    let sizes = map.lines().map(|range| range.split_whitespace().nth(2)?.parse::<u64>().ok());
    let mapped: u64 = sizes.map(Option::unwrap_or_default).sum();
    (mapped < ALL_USERS).then(|| overflow_uid().unwrap_or(USUAL_OVERFLOW_UID))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "         0          0 4294967295\n";

    #[test]
    fn an_unmapped_user_is_nobody_and_neither_us_nor_root() {
        // The map, the overflow id, our id; another id, whether it is us, whether it is trusted.
        let rows = [
            (WHOLE, 65534, 65534, 65534, true, true),
            (WHOLE, 65534, 65534, 0, false, true),
            (WHOLE, 65534, 1000, 65534, false, false),
            (WHOLE, 65534, 0, 0, true, true),
            // All users, in two ranges or with other ids.
            ("0 0 1000\n1000 1000 4294966295\n", 65534, 65534, 65534, true, true),
            ("0 1 4294967294\n4294967294 0 1\n", 65534, 65534, 65534, true, true),
            // One user, as `unshare --user` maps it: to nobody, to root, to its own id.
            ("65534 1000 1\n", 65534, 65534, 65534, false, false),
            ("0 1000 1\n", 65534, 0, 0, true, true),
            ("0 1000 1\n", 65534, 0, 65534, false, false),
            ("1000 1000 1\n", 65534, 1000, 1000, true, true),
            ("1000 1000 1\n", 65534, 1000, 65534, false, false),
            // A container without the machine's root.
            ("0 1000 1\n1 100000 65536\n", 65534, 65534, 65534, false, false),
            ("0 1000 1\n1 100000 65536\n", 65534, 1000, 1000, true, true),
            ("0 1000 1\n1 100000 65536\n", 65534, 1000, 0, false, true),
            // All but one.
            ("0 0 4294967294\n", 65534, 65534, 65534, false, false),
            // No map yet, or one that cannot be read.
            ("", 65534, 65534, 65534, false, false),
            ("nonsense\n", 65534, 65534, 65534, false, false),
            ("", 65534, 1000, 1000, true, true),
            // The administrator has configured another overflow id.
            ("1000 1000 1\n", 1000, 1000, 1000, false, false),
            ("65534 1000 1\n", 99, 65534, 65534, true, true),
            ("1000 1000 1\n", 0, 1000, 0, false, false),
        ];
        for (map, overflow, own, other, is_us, is_trusted) in rows {
            let user = User { uid: own, nobody: unmapped(map, || Some(overflow)) };
            let got = (user.is(other), user.trusts(other));
            assert_eq!(got, (is_us, is_trusted), "{map:?}, overflow {overflow}, {own} looks at {other}");
        }
    }

    #[test]
    fn the_usual_id_is_nobodys_where_the_system_does_not_say() {
        assert_eq!(unmapped("", || None), Some(65534));
        assert_eq!(unmapped(WHOLE, || None), None);
    }
}
