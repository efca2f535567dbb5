//! Finds and kills processes that a CLI has started outside its process group.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use toolbridge_core::process::guard;

/// The environment variable that marks processes started by a CLI.
pub(crate) const MARKER: &str = "TOOLBRIDGE_REQUEST";

/// How the processes started by a CLI are recognized.
#[derive(Debug)]
pub(crate) struct Mark {
    /// A variable in their environment: `NAME=value`, with an unguessable value.
    pub(crate) variable: String,
    /// None of them started earlier; in the system's clock ticks.
    since: u64,
}

impl Mark {
    pub(crate) fn of(leader: Pid, variable: String) -> Self {
        Self { variable, since: start_of(leader).unwrap_or(u64::MAX) }
    }

    /// Kills processes that a CLI has started outside its group, as it does with shell commands, and that
    /// were left because the CLI or its guardian was killed. Only Linux exposes the environment of other
    /// processes.
    pub(crate) fn kill_all(&self) {
        self.processes().for_each(|pid| self.kill(pid));
    }

    fn processes(&self) -> impl Iterator<Item = Pid> {
        let processes = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
        let numbers = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
        numbers.filter_map(Pid::from_raw).filter(|pid| self.is_on(*pid))
    }

    #[cfg(target_os = "linux")]
    fn kill(&self, pid: Pid) {
        use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

        // Checked again once the pidfd is open: the process id may have been reused.
        if let Ok(process) = pidfd_open(pid, PidfdFlags::empty())
            && self.is_on(pid)
        {
            _ = pidfd_send_signal(process, Signal::KILL);
        }
    }

    #[cfg(not(target_os = "linux"))]
    #[expect(clippy::unused_self, reason = "no process is found there")]
    fn kill(&self, _pid: Pid) {}

    /// Whether that process is one of them: it has the variable, belongs to our user, and is not older than
    /// the CLI.
    fn is_on(&self, pid: Pid) -> bool {
        let folder = PathBuf::from(format!("/proc/{}", pid.as_raw_pid()));
        let environment = std::fs::read(folder.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == self.variable.as_bytes())
            && rustix::fs::stat(&folder).is_ok_and(|stat| stat.st_uid == rustix::process::geteuid().as_raw())
            && start_of(pid).is_some_and(|start| start >= self.since)
    }
}

/// Kills the CLIs with this home that requests have started, and waits until they have ended, with their guardians:
/// from then on nothing is written there. For tests, whose homes have names that cannot be guessed.
#[doc(hidden)]
pub fn end_all_with_home(home: &Path) {
    const PATIENCE: Duration = Duration::from_secs(10);
    let mark = Mark { variable: format!("HOME={}", home.display()), since: 0 };
    let has = |pid: &Pid, file: &str, start: &str| {
        let text = std::fs::read(format!("/proc/{}/{file}", pid.as_raw_pid())).unwrap_or_default();
        text.split(|byte| *byte == 0).any(|part| part.starts_with(start.as_bytes()))
    };
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let started: Vec<_> = mark.processes().filter(|pid| has(pid, "environ", MARKER)).collect();
        if started.is_empty() {
            return;
        }
        // The guardian ends by itself, once it has removed the files of the request.
        started.into_iter().filter(|pid| !has(pid, "cmdline", guard::COMMAND)).for_each(|pid| mark.kill(pid));
        sleep(Duration::from_millis(5));
    }
}

/// When a process started, in the system's clock ticks; unknown on systems other than Linux.
fn start_of(pid: Pid) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    // The 22nd field; the second is the name in parentheses and may contain anything.
    String::from_utf8_lossy(&stat).rsplit(')').next()?.split(' ').nth(20)?.parse().ok()
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
    use std::process::{Child, Command};

    use rustix::process::Signal;
    use toolbridge_scripted::report_skipped;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn only_processes_with_our_marker_are_killed() {
        let id = Uuid::new_v4().simple().to_string();
        let mut ours = sleeper(&id, None);
        let start = start_of(Pid::from_child(&ours)).unwrap();
        let mark = |since| Mark { variable: format!("{MARKER}={id}"), since };
        let others = [sleeper(&format!("{id}0"), None), sleeper("", None)];
        mark(start + 1_000_000).kill_all();
        assert!(ours.try_wait().unwrap().is_none(), "it is older than the CLI");
        mark(start).kill_all();
        assert_eq!(ours.wait().unwrap().signal(), Some(9));
        others.into_iter().for_each(was_left_alone);
    }

    /// A process with the marker; of another user, if one is given.
    fn sleeper(marker: &str, uid: Option<u32>) -> Child {
        let mut command = Command::new("/bin/sleep");
        command.arg("600").env(MARKER, marker);
        uid.map(|uid| command.uid(uid));
        let child = command.spawn().unwrap();
        // While a program is being started, the system shows no environment of its process.
        let environment = format!("/proc/{}/environ", child.id());
        let until = Instant::now() + Duration::from_secs(60);
        while std::fs::read(&environment).unwrap().is_empty() {
            assert!(Instant::now() < until, "it has no environment");
            sleep(Duration::from_millis(1));
        }
        child
    }

    /// SIGTERM must end it: otherwise it was killed before.
    fn was_left_alone(mut other: Child) {
        rustix::process::kill_process(Pid::from_child(&other), Signal::TERM).unwrap();
        assert_eq!(other.wait().unwrap().signal(), Some(15));
    }

    #[test]
    fn processes_of_other_users_are_not_killed() {
        if !rustix::process::geteuid().is_root() {
            return report_skipped("only root can start a process of another user");
        }
        let id = Uuid::new_v4().simple().to_string();
        let mut ours = sleeper(&id, None);
        let theirs = sleeper(&id, Some(65534));
        let since = start_of(Pid::from_child(&ours)).unwrap();
        Mark { variable: format!("{MARKER}={id}"), since }.kill_all();
        ours.wait().unwrap();
        was_left_alone(theirs);
    }
}
