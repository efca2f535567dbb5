//! Runs the CLI as a child process and ensures that neither it nor its descendants outlive this process.
//!
//! Three things see to it, because any process can be killed, and none of them notices all of these:
//!
//! - This process is killed: the guardian (`process/guard.rs` of the engine), between this process and the CLI, kills
//!   all that is left. It does the same when the CLI ends.
//! - This process is killed, and there is no guardian executable: the CLI dies with its parent.
//! - The guardian or the CLI is killed: this process finds what they have started by the process group, and what has
//!   left the group by a variable in its environment (`sweep.rs`).

pub(crate) mod diagnose;
pub(crate) mod locate;
pub(crate) mod scratch;
pub(crate) mod stderr;
pub(crate) mod sweep;
pub(crate) mod version;

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process_group};
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;
use toolbridge_core::ipc::own_executable;
use toolbridge_core::process::child::{self, Exit, Pipes};
use toolbridge_core::process::guard;
use uuid::Uuid;

use crate::ClaudeCodeError;
use crate::error::start_error;
use crate::process::scratch::ScratchDir;
use crate::process::stderr::Tail;
use crate::process::sweep::{MARKER, Mark};

/// How long the CLI may take to exit once its stdin is closed, and again after each signal.
const ORDERLY_PATIENCE: Duration = Duration::from_secs(5);

/// How long it may take after each signal if its result is no longer needed.
const HASTY_PATIENCE: Duration = Duration::from_secs(2);

/// How much of a program's output is read.
const READ_BYTES: u64 = 16 * 1024;

/// How long the rest of the group may take once the CLI itself has exited.
const REST_PATIENCE: Duration = Duration::from_millis(500);

/// A running CLI. Dropping it ends the whole group; see [`Group::end`].
#[derive(Debug)]
pub(crate) struct Process {
    group: Arc<Group>,
    exit: Exit,
    /// The executable that guards it.
    pub(crate) guardian: Option<PathBuf>,
}

/// The processes of a CLI.
#[derive(Debug)]
pub(crate) struct Group {
    /// The group of the guardian, which is its only member, or else of the CLI.
    led: Arc<child::Group>,
    is_guarded: bool,
    /// Whether the group is already being ended.
    is_ending: AtomicBool,
    mark: Mark,
}

/// The command that starts `program`, without arguments: through the `given` guardian, or through the one
/// that is found, if any.
pub(crate) fn command(program: &Path, given: Option<&Path>) -> Command {
    // Absolute: the CLI may be started in another directory.
    let given = given.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.into()));
    let Some(guardian) = given.or_else(own_executable) else { return Command::new(program) };
    let mut command = Command::new(guardian);
    command.arg(guard::COMMAND).arg(std::process::id().to_string()).arg(program);
    command
}

fn is_guarded(command: &Command) -> bool {
    command.get_args().next() == Some(guard::COMMAND.as_ref())
}

/// Warns once about the consequences of a missing guardian.
pub(crate) fn warn_if_unguarded(command: &Command) {
    static WARNED: Once = Once::new();
    if !is_guarded(command) {
        WARNED.call_once(|| {
            tracing::warn!(
                "there is no guardian for the CLI: if this process is killed, commands that the CLI has started may \
                 go on; call `toolbridge::run_bridge_if_asked()` first in `main`, or install `toolbridge-bridge`"
            );
        });
    }
}

/// Runs a program to its end: how it ends, and what it writes to stdout and stderr. `None` if it takes longer than
/// `limit`; it is ended then.
pub(crate) async fn output_of(
    command: Command,
    scratch: Option<ScratchDir>,
    limit: Duration,
) -> Result<Option<(Option<ExitStatus>, String, String)>, ClaudeCodeError> {
    let (mut process, pipes) = Process::start(command, scratch)?;
    drop(pipes.stdin);
    let (mut text, mut stdout) = (Vec::new(), pipes.stdout.take(READ_BYTES));
    let mut stderr = Tail::of(pipes.stderr);
    let ending = async {
        _ = stdout.read_to_end(&mut text).await;
        process.exited().await
    };
    let Ok(status) = timeout(limit, ending).await else { return Ok(None) };
    Ok(Some((status, String::from_utf8_lossy(&text).into_owned(), stderr.text().await)))
}

impl Process {
    /// Starts a [`command`] as the leader of a new process group. Must be called inside a runtime.
    ///
    /// The scratch is removed when no process is left that could write to it.
    pub(crate) fn start(
        mut command: Command,
        scratch: Option<ScratchDir>,
    ) -> Result<(Self, Pipes), ClaudeCodeError> {
        let is_guarded = is_guarded(&command);
        let id = Uuid::new_v4().simple();
        command.env(MARKER, id.to_string());
        if is_guarded {
            guard::hold_signals(&mut command);
            scratch.as_ref().map(|scratch| command.env(guard::SCRATCH_DIRECTORY, scratch.path()));
        } else {
            guard::die_with_parent(&mut command);
        }
        let executable = PathBuf::from(command.get_program());
        // Checked before the start: a failed one removes the scratch directory, which may be the directory.
        let missing = command.get_current_dir().filter(|dir| !dir.is_dir()).map(Path::to_path_buf);
        let failed = |error: io::Error| start_error(&executable, missing.as_deref(), is_guarded, &error);
        let pipes = Pipes::to(&mut command).map_err(failed)?;
        // Held while the CLI lives: it takes 2 s to exit if its stdout has no reader.
        let stdout = pipes.stdout.as_fd().try_clone_to_owned().map_err(failed)?;
        let group = move |child: &Child| Group::new(child, is_guarded, format!("{MARKER}={id}"));
        let held = (stdout, scratch);
        let (group, exit) = child::start(command, group, move |group: &Group, child| {
            let status = group.reap(child);
            drop(held);
            status
        })
        .map_err(failed)?;
        // From here on, dropping it ends the group.
        Ok((Self { group, exit, guardian: is_guarded.then_some(executable) }, pipes))
    }

    /// The processes, for another owner that may have to end them.
    pub(crate) fn group(&self) -> Arc<Group> {
        Arc::clone(&self.group)
    }

    /// Waits until the CLI and all processes in its group have exited.
    pub(crate) async fn exited(&mut self) -> Option<ExitStatus> {
        self.exit.wait_for(Option::is_some).await.ok().and_then(|status| *status)
    }

    /// Ends the CLI after its result. Its stdin is already closed, so it exits by itself or after a signal.
    pub(crate) async fn end_orderly(&mut self) -> Option<ExitStatus> {
        for signal in self.group.signals() {
            if let Ok(status) = tokio::time::timeout(ORDERLY_PATIENCE, self.exited()).await {
                return status;
            }
            tracing::debug!(?signal, "the CLI does not end by itself");
            self.group.led.signal(*signal);
        }
        self.exited().await
    }

    /// Kills the CLI: a graceful shutdown may query the model once more.
    pub(crate) async fn kill(&mut self) -> Option<ExitStatus> {
        self.group.led.signal(self.group.signals()[1]);
        self.end_now().await
    }

    /// Ends the CLI at once.
    pub(crate) async fn end_now(&mut self) -> Option<ExitStatus> {
        self.group.end();
        self.exited().await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.group.end();
    }
}

impl Group {
    fn new(child: &Child, is_guarded: bool, variable: String) -> Self {
        let led = Arc::new(child::Group::of(child));
        let mark = Mark::of(led.leader(), variable);
        Self { led, is_guarded, is_ending: AtomicBool::new(false), mark }
    }

    /// Whether the CLI or its guardian has exited.
    pub(crate) fn has_ended(&self) -> bool {
        self.led.has_ended()
    }

    /// The signals that end it, in order: a guardian first asks the CLI to exit, then kills all processes,
    /// and is finally killed itself.
    fn signals(&self) -> &'static [Signal] {
        if self.is_guarded {
            &[Signal::TERM, guard::HURRY, Signal::KILL]
        } else {
            &[Signal::TERM, Signal::KILL]
        }
    }

    /// Ends all processes: SIGTERM at once, SIGKILL soon after. Returns at once and needs no runtime.
    pub(crate) fn end(&self) {
        if self.led.is_gone() || self.is_ending.swap(true, Ordering::Relaxed) {
            return;
        }
        self.led.signal(Signal::TERM);
        let further = &self.signals()[1..];
        if !self.led.end(HASTY_PATIENCE, further) {
            self.led.signal(further[0]);
        }
    }

    /// Waits until the leader exits, and ends the rest of the group.
    fn reap(&self, child: Child) -> ExitStatus {
        let status = self.led.reap(child, |_| {});
        if !self.is_guarded {
            self.end_rest();
        }
        if status.code().is_none() {
            // Twice: a process in the middle of an `exec` has no readable environment.
            self.mark.kill_all();
            thread::sleep(Duration::from_millis(20));
            self.mark.kill_all();
        }
        status
    }

    /// Ends the rest of the group after its leader has exited. A group id is not reused while the group has
    /// members; without members, a signal fails.
    fn end_rest(&self) {
        let started = Instant::now();
        while kill_process_group(self.led.leader(), Signal::TERM).is_ok() {
            if started.elapsed() > REST_PATIENCE {
                _ = kill_process_group(self.led.leader(), Signal::KILL);
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, test_kill_process_group};

    use super::*;

    /// Killed processes remain visible until init has reaped them.
    const AFTERWARDS: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> (Process, Pipes) {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        Process::start(command, None).unwrap()
    }

    async fn first_byte(pipes: &mut Pipes) {
        pipes.stdout.read_u8().await.unwrap();
    }

    fn group_ends_within(leader: Pid, limit: Duration) {
        let started = Instant::now();
        while test_kill_process_group(leader).is_ok() {
            assert!(started.elapsed() < limit, "the group is still there");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[tokio::test]
    async fn the_exit_status_is_reported() {
        let (mut process, _pipes) = shell("exit 3");
        assert_eq!(process.exited().await.unwrap().code(), Some(3));
        assert_eq!(process.end_orderly().await.unwrap().code(), Some(3));
    }

    #[tokio::test]
    async fn dropping_ends_the_whole_group_even_one_that_ignores_signals() {
        for script in ["sleep 600 & echo; wait", "trap '' TERM; echo; while :; do sleep 600 & wait; done"] {
            let (process, mut pipes) = shell(script);
            first_byte(&mut pipes).await;
            let leader = process.group.led.leader();
            drop(process);
            group_ends_within(leader, HASTY_PATIENCE + AFTERWARDS);
        }
    }

    #[tokio::test]
    async fn an_orphan_in_the_group_is_ended() {
        let (mut process, mut pipes) = shell("(trap '' TERM; echo; sleep 600 & wait) & read line; exit 0");
        first_byte(&mut pipes).await;
        let leader = process.group.led.leader();
        drop(pipes.stdin);
        assert!(process.exited().await.unwrap().success());
        group_ends_within(leader, AFTERWARDS);
    }

    #[tokio::test]
    async fn processes_outside_the_group_are_ended_with_a_killed_leader() {
        let (mut process, mut pipes) = shell("setsid sh -c 'echo; exec sleep 600' & wait");
        first_byte(&mut pipes).await;
        process.group.led.signal(Signal::KILL);
        assert_eq!(process.exited().await.unwrap().code(), None);
        // Reading stdout ends when the last process that holds it has exited.
        let mut rest = Vec::new();
        let end = pipes.stdout.read_to_end(&mut rest);
        tokio::time::timeout(Duration::from_secs(5), end).await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_marker_cannot_be_guessed() {
        let mut markers = std::collections::HashSet::new();
        for _ in 0..4 {
            let (process, mut pipes) = shell("echo $TOOLBRIDGE_REQUEST");
            let mut marker = String::new();
            pipes.stdout.read_to_string(&mut marker).await.unwrap();
            assert_eq!(format!("{MARKER}={}", marker.trim()), process.group.mark.variable);
            assert!(
                marker.trim().len() == 32 && marker.trim().chars().all(|c| c.is_ascii_hexdigit()),
                "{marker}"
            );
            markers.insert(marker);
        }
        assert_eq!(markers.len(), 4);
    }

    #[tokio::test]
    async fn ending_at_once_takes_bounded_time() {
        let (mut process, mut pipes) = shell("trap '' TERM; echo; while :; do sleep 600 & wait; done");
        first_byte(&mut pipes).await;
        let started = Instant::now();
        assert_eq!(process.end_now().await.unwrap().code(), None);
        assert!(started.elapsed() < HASTY_PATIENCE + AFTERWARDS);
    }

    #[tokio::test]
    async fn a_missing_program_or_directory_is_named() {
        let error = Process::start(Command::new("/no/claude"), None).unwrap_err();
        assert!(error.to_string().starts_with("cannot start `/no/claude`: "), "{error}");
        let mut command = Command::new("/bin/sh");
        command.current_dir("/no/where");
        let error = Process::start(command, None).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the working directory `/no/where` does not exist or is not a directory"
        );
    }
}
