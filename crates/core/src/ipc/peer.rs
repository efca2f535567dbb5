//! The process at the other end of a connection, and whether it can still answer.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Pid;

/// How often a bridge checks a parent that does not answer. A parent counts as stopped if two checks in a row see
/// the same stop, so a call to a stopped parent fails within two seconds.
pub(crate) const LOOK: Duration = Duration::from_millis(750);

/// The process that listened when a connection was made.
///
/// A successful `connect` does not mean that a process will accept: the system also completes it for a stopped
/// process, and for one that is gone while a fork of it still has the socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pid: Pid,
    /// When it started, if it was alive. A parent that has handed its socket to a fork and exited was not.
    born: Option<u64>,
}

/// The state of a process, as far as it is visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    Runs,
    Stopped,
    Gone,
}

impl Peer {
    /// The process with that pid; `None` if it is not visible, as from within a container.
    pub(crate) fn new(pid: Option<i32>) -> Option<Self> {
        let pid = Pid::from_raw(pid?)?;
        let born = look(pid).and_then(|(condition, born)| (condition != Condition::Gone).then_some(born));
        Some(Self { pid, born })
    }

    /// Its current state.
    pub(crate) fn condition(&self) -> Condition {
        match look(self.pid) {
            // Another process has reused the pid.
            Some((_, born)) if self.born.is_some_and(|own| own != born) => Condition::Gone,
            Some((condition, _)) => condition,
            None => Condition::Runs,
        }
    }

    /// Waits until no answer can be expected any more; returns why. A running process has unlimited time.
    pub(crate) async fn fails(self, socket: Arc<OwnedFd>) -> &'static str {
        let mut watch = self.watch();
        loop {
            tokio::time::sleep(LOOK).await;
            if let Some(reason) = watch.look(|| unread_bytes(&socket) > 0) {
                return reason;
            }
        }
    }

    /// Checks it repeatedly; the caller does the waiting.
    pub(crate) fn watch(self) -> Watch {
        Watch { peer: self, stop: None }
    }
}

/// Repeated checks of a process.
pub(crate) struct Watch {
    peer: Peer,
    /// Identifies the stop that the last check saw.
    stop: Option<u64>,
}

impl Watch {
    /// Checks once more. `is_unread` says whether the parent has not read the request yet: if it is gone and the
    /// request is read anyway, it has handed its socket to a fork on purpose.
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

/// How many sent bytes the other end has not read; at least 1 if that is unknown.
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

/// The state and the start time of a process; `None` if they are not visible.
#[cfg(target_os = "linux")]
fn look(pid: Pid) -> Option<(Condition, u64)> {
    // A `/proc` of another namespace has other pids.
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

/// A number that differs for each stop of a process, where the system counts them. Tools that limit CPU usage stop
/// a process again and again; it runs in between and must not count as stopped.
fn which_stop(pid: Pid) -> u64 {
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap_or_default();
    // Entering a stop is a voluntary context switch of the first thread.
    let switches = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    switches.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

fn is_gone(pid: Pid) -> bool {
    rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH)
}

/// Reads `/proc/<pid>/stat`.
#[cfg(any(target_os = "linux", test))]
fn read_stat(stat: &str) -> Option<(Condition, u64)> {
    // The name is in parentheses and may contain some itself. After it, the first field is the state, the
    // eighteenth the number of threads, the twentieth the start time.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    let threads: u64 = fields.nth(16)?.parse().ok()?;
    let born = fields.nth(1)?.parse().ok()?;
    let condition = match state {
        // `t` means stopped by a debugger, whose user knows about it.
        "T" => Condition::Stopped,
        // The first thread may end before the others; the process is still alive then.
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
        // The pid now belongs to another process, with another start time.
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
