//! The process at the other end of a connection, and whether it can be expected to answer.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Pid;

/// How often a bridge looks at a parent that does not answer. Stopped means stopped at two looks in a row, and all the
/// while, so a call to such a parent fails within two seconds.
pub(crate) const LOOK: Duration = Duration::from_millis(750);

/// The process that listened when a connection was made.
///
/// Connecting does not tell whether somebody is there to accept: the system does it for a process that is stopped, and
/// for one that is gone while a fork of it has the socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pid: Pid,
    /// When it began, if it was alive. A parent that listened and left the rest to a fork is not.
    born: Option<u64>,
}

/// How a process is, as far as can be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    Runs,
    Stopped,
    Gone,
}

impl Peer {
    /// The process with that number; `None` when there is none to be seen, as from within a container.
    pub(crate) fn new(pid: Option<i32>) -> Option<Self> {
        let pid = Pid::from_raw(pid?)?;
        let born = look(pid).and_then(|(condition, born)| (condition != Condition::Gone).then_some(born));
        Some(Self { pid, born })
    }

    /// How it is now.
    pub(crate) fn condition(&self) -> Condition {
        match look(self.pid) {
            // Another process by now, with the same number.
            Some((_, born)) if self.born.is_some_and(|own| own != born) => Condition::Gone,
            Some((condition, _)) => condition,
            None => Condition::Runs,
        }
    }

    /// Waits until no answer can be expected any more; says why. A process that runs has all the time it likes.
    pub(crate) async fn fails(self, socket: Arc<OwnedFd>) -> &'static str {
        let mut watch = self.watch();
        loop {
            tokio::time::sleep(LOOK).await;
            if let Some(reason) = watch.look(|| unread_bytes(&socket) > 0) {
                return reason;
            }
        }
    }

    /// Looks at it again and again, for who does the waiting.
    pub(crate) fn watch(self) -> Watch {
        Watch { peer: self, stop: None }
    }
}

/// One look after the other.
pub(crate) struct Watch {
    peer: Peer,
    /// Which stop the last look saw.
    stop: Option<u64>,
}

impl Watch {
    /// Looks once more. `is_unread` says whether the parent has yet to read what was sent: one that is gone and reads
    /// all the same has left its socket to a fork on purpose.
    pub(crate) fn look(&mut self, is_unread: impl FnOnce() -> bool) -> Option<&'static str> {
        let condition = self.peer.condition();
        let stop = (condition == Condition::Stopped).then(|| which_stop(self.peer.pid));
        let last = std::mem::replace(&mut self.stop, stop);
        match condition {
            Condition::Stopped if last == stop => Some("the parent process is stopped"),
            Condition::Gone if self.peer.born.is_some() || is_unread() => Some("the parent process is gone"),
            _ => None,
        }
    }
}

/// How many bytes that were sent the other end has not read; at least 1 where that cannot be known.
pub(crate) fn unread_bytes(socket: &impl AsFd) -> usize {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd as _;

        let mut count = 0;
        #[expect(unsafe_code, reason = "the system is asked for a number, and writes it")]
        // SAFETY: the descriptor is open, and the number is an `int`.
        let asked = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
        if asked == 0 {
            let count: libc::c_int = count;
            return usize::try_from(count).unwrap_or(0);
        }
    }
    _ = socket;
    1
}

/// How a process is and when it began; `None` when that cannot be seen.
#[cfg(target_os = "linux")]
fn look(pid: Pid) -> Option<(Condition, u64)> {
    // Another namespace's /proc has other numbers.
    let is_own = std::fs::read_link("/proc/self")
        .is_ok_and(|own| own.to_str().and_then(|own| own.parse().ok()) == Some(std::process::id()));
    if is_own && let Ok(stat) = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())) {
        return read_stat(&stat);
    }
    is_gone(pid).then_some((Condition::Gone, 0))
}

#[cfg(not(target_os = "linux"))]
fn look(pid: Pid) -> Option<(Condition, u64)> {
    Some((if is_gone(pid) { Condition::Gone } else { Condition::Runs }, 0))
}

/// A number that is another one for each stop of a process, where the system counts them. A process that is stopped again and
/// again runs in between; that is how some limit what a process may use.
fn which_stop(pid: Pid) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap_or_default();
    // Each stop is one that its first thread went into by itself.
    let switches = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    switches.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

fn is_gone(pid: Pid) -> bool {
    rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH)
}

/// Reads `/proc/<pid>/stat`.
#[cfg(any(target_os = "linux", test))]
fn read_stat(stat: &str) -> Option<(Condition, u64)> {
    // The name stands in brackets, and may have some itself. Behind it: the state is the first, the number of threads
    // the eighteenth, the time of its beginning the twentieth.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    let threads: u64 = fields.nth(16)?.parse().ok()?;
    let born = fields.nth(1)?.parse().ok()?;
    let condition = match state {
        // `t` is a debugger's doing; whoever sits there knows.
        "T" => Condition::Stopped,
        // A first thread that has ended before the others is no end.
        "Z" | "X" | "x" if threads <= 1 => Condition::Gone,
        _ => Condition::Runs,
    };
    Some((condition, born))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_it_is_called() {
        let stat = |name: &str, state: &str, threads: u32| {
            format!("7 ({name}) {state} 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 {threads} 0 8123 1 2 3\n")
        };
        for name in ["a", "a b", "a) Z 1", "(", "))"] {
            for (state, threads, want) in [
                ("R", 1, Condition::Runs),
                ("S", 9, Condition::Runs),
                ("D", 1, Condition::Runs),
                ("t", 1, Condition::Runs),
                ("T", 4, Condition::Stopped),
                ("Z", 1, Condition::Gone),
                ("Z", 0, Condition::Gone),
                ("Z", 2, Condition::Runs),
                ("X", 1, Condition::Gone),
            ] {
                assert_eq!(
                    read_stat(&stat(name, state, threads)),
                    Some((want, 8123)),
                    "{name} {state} {threads}"
                );
            }
        }
        for odd in ["", "7 (a)", "7 (a) S 1 2"] {
            assert_eq!(read_stat(odd), None, "{odd}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_that_was_reaped_is_gone_and_one_that_waits_to_be_too() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(Peer::new(Some(own)).unwrap().condition(), Condition::Runs);
        assert!(Peer::new(None).is_none() && Peer::new(Some(0)).is_none());

        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let peer = Peer::new(Some(i32::try_from(child.id()).unwrap())).unwrap();
        assert!(peer.born.is_some());
        assert_eq!(peer.condition(), Condition::Runs);
        child.kill().unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(10);
        while peer.condition() != Condition::Gone {
            assert!(std::time::Instant::now() < until, "a zombie is not gone");
        }
        child.wait().unwrap();
        assert_eq!(peer.condition(), Condition::Gone);
        // Its number is another's now, who began at another time.
        let another = Peer { pid: Pid::from_raw(own).unwrap(), born: Some(0) };
        assert_eq!(another.condition(), Condition::Gone);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_that_ran_between_two_looks_is_not_taken_for_a_stopped_one() {
        use rustix::process::{Signal, kill_process};

        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let peer = Peer::new(Some(i32::try_from(child.id()).unwrap())).unwrap();
        let signal = |signal, want| {
            kill_process(peer.pid, signal).unwrap();
            let until = std::time::Instant::now() + Duration::from_secs(10);
            while peer.condition() != want {
                assert!(std::time::Instant::now() < until, "not {want:?}");
            }
        };
        let mut watch = peer.watch();
        for _ in 0..5 {
            signal(Signal::STOP, Condition::Stopped);
            assert_eq!(watch.look(|| true), None, "it has run since the last look");
            signal(Signal::CONT, Condition::Runs);
        }
        signal(Signal::STOP, Condition::Stopped);
        assert_eq!(watch.look(|| true), None);
        assert_eq!(watch.look(|| true), Some("the parent process is stopped"));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
