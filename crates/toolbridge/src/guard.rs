//! The guardian: a process between a program and the CLI that it starts. It ensures that no process the CLI
//! has started outlives either.
//!
//! A process below the guardian that loses its parent becomes the guardian's child (as a subreaper),
//! regardless of its session and environment; so the guardian kills its children until it has none. Only
//! Linux has subreapers. On other systems the guardian kills the CLI's process group.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::future::poll_fn;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::task::Poll;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getppid, kill_process,
    kill_process_group, setrlimit, wait, waitid,
};
use tokio::signal::unix::{self, SignalKind};
use toolbridge_core::process::guard::{COMMAND, HURRY, SCRATCH_DIRECTORY, die_with_parent};

use crate::stdio::{outside_runtime, small_runtime};

/// How often the guardian checks that its parent lives: not every system sends a signal for it.
const CHECK: Duration = Duration::from_millis(500);

/// How often it looks for more processes to kill.
const ROUND: Duration = Duration::from_millis(10);

/// How long processes that the CLI left running have to exit after SIGTERM, such as a bridge that writes a
/// trace.
const REST_PATIENCE: Duration = Duration::from_millis(500);

/// How long killed processes have to disappear. After that, they belong to another user or hang in the
/// kernel.
const KILL_PATIENCE: Duration = Duration::from_millis(1500);

/// The exit code if the program cannot be started, as in shells.
const NOT_STARTED: i32 = 127;

/// Becomes a guardian, and does not return, if the command line is that of a guardian.
///
/// [`run_bridge_if_asked`](crate::run_bridge_if_asked) calls this. Only a program that calls
/// [`run_bridge`](crate::bridge::run_bridge) instead needs to call it, first in `main`, also in that of
/// `#[tokio::main]`.
pub fn run_guard_if_asked() {
    let mut args = std::env::args_os().skip(1);
    if args.next().as_deref() != Some(OsStr::new(COMMAND)) {
        return;
    }
    let parent = args.next().and_then(|pid| pid.to_str()?.parse().ok()).filter(|pid: &i32| *pid > 0);
    let (Some(parent), Some(program)) = (parent.and_then(Pid::from_raw), args.next()) else { return };
    let args: Vec<_> = args.collect();
    outside_runtime(|| {
        let guarded = small_runtime().and_then(|runtime| {
            runtime.block_on(async { Ok(Guardian::start(parent, &program, &args)?.watch().await) })
        });
        if let Err(error) = &guarded {
            // This stderr is still the program's, and it may be closed.
            _ = writeln!(io::stderr(), "cannot start `{}`: {error}", Path::new(&program).display());
        }
        // The parent removes it too, but it may exit before that.
        remove_scratch_directory();
        match guarded {
            Ok(ended) => end_like(ended),
            Err(_) => std::process::exit(NOT_STARTED),
        }
    });
}

struct Guardian {
    parent: Pid,
    cli: Pid,
    /// How the CLI ended. It is reaped then, and its pid may be reused.
    ended: Option<WaitStatus>,
    /// The processes that the CLI left running and that got SIGTERM.
    asked: Vec<Pid>,
    signals: Vec<(Signal, unix::Signal)>,
}

impl Guardian {
    fn start(parent: Pid, program: &OsStr, args: &[OsString]) -> io::Result<Self> {
        // The CLI does not inherit handlers: they do not survive `exec`.
        let handle = |signal: Signal| Ok((signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?));
        // An ignored signal stays ignored, because the CLI inherits that; but we need the first two.
        let handled =
            [Signal::TERM, Signal::INT, Signal::HUP].into_iter().filter(|signal| !is_ignored(*signal));
        let handled = [Signal::CHILD, HURRY].into_iter().chain(handled);
        let signals = handled.map(handle).collect::<io::Result<_>>()?;
        unblock_signals();
        // Best effort: errors are ignored where the system lacks a feature.
        #[cfg(target_os = "linux")]
        {
            _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
            // Sent when the parent exits, and also when it executes another program.
            _ = rustix::process::set_parent_process_death_signal(Some(HURRY));
        }
        if getppid() != Some(parent) {
            return Err(io::Error::other("the parent process has exited"));
        }
        let mut command = Command::new(program);
        command.args(args).env_remove(SCRATCH_DIRECTORY).process_group(0);
        die_with_parent(&mut command);
        let cli = Pid::from_child(&command.spawn()?);
        close_stdio();
        Ok(Self { parent, cli, ended: None, asked: Vec::new(), signals })
    }

    /// Waits until no process is left, and returns how the CLI ended; `None` if it has not.
    async fn watch(mut self) -> Option<WaitStatus> {
        let (mut rest_since, mut killing_since, mut signal, mut is_hurried) = (None, None, None, false);
        while self.reap() {
            if self.ended.is_some() {
                rest_since.get_or_insert_with(Instant::now);
            }
            is_hurried |= signal == Some(HURRY);
            let is_out_of_time = rest_since.is_some_and(|since| since.elapsed() > REST_PATIENCE);
            if is_out_of_time || is_hurried || getppid() != Some(self.parent) {
                if killing_since.get_or_insert_with(Instant::now).elapsed() > KILL_PATIENCE {
                    break;
                }
                self.kill();
            } else if self.ended.is_some() {
                self.ask_rest();
            } else if let Some(signal) = signal.filter(|signal| *signal != Signal::CHILD) {
                _ = kill_process_group(self.cli, signal);
            }
            let is_ending = rest_since.is_some() || killing_since.is_some();
            signal = self.next_signal(if is_ending { ROUND } else { CHECK }).await;
        }
        self.ended
    }

    /// Reaps ended processes; returns whether any process is left.
    fn reap(&mut self) -> bool {
        if !cfg!(target_os = "linux") && has_ended(self.cli) == Ok(true) {
            // Orphans do not become our children here: kill the rest of the group while its pid cannot have
            // been reused.
            _ = kill_process_group(self.cli, Signal::KILL);
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.cli && self.ended.is_none() => {
                    self.ended = Some(status);
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Sends SIGTERM to processes that the CLI left running; once each, because many treat a second one as a
    /// request to exit at once.
    fn ask_rest(&mut self) {
        for child in children() {
            if !self.asked.contains(&child) {
                _ = kill_process(child, Signal::TERM);
                self.asked.push(child);
            }
        }
    }

    /// Kills the CLI's group and every child. They are not reaped meanwhile, so their pids cannot be reused;
    /// their own children become ours once they have ended.
    fn kill(&self) {
        if self.ended.is_none() {
            _ = kill_process_group(self.cli, Signal::KILL);
        }
        for child in children() {
            _ = kill_process(child, Signal::KILL);
        }
    }

    /// Waits for a signal, at most that long.
    async fn next_signal(&mut self, limit: Duration) -> Option<Signal> {
        let next = poll_fn(|context| {
            let mut signals = self.signals.iter_mut();
            let next = signals
                .find_map(|(signal, handled)| handled.poll_recv(context).is_ready().then_some(*signal));
            next.map_or(Poll::Pending, Poll::Ready)
        });
        tokio::time::timeout(limit, next).await.ok()
    }
}

/// Removes the request's scratch directory, which is no longer used, and its parent if that is empty.
fn remove_scratch_directory() {
    let Some(scratch) = std::env::var_os(SCRATCH_DIRECTORY).map(PathBuf::from) else { return };
    let begins = |path: Option<&Path>, with: &str| {
        path.and_then(Path::file_name).is_some_and(|name| name.to_string_lossy().starts_with(with))
    };
    // Check the names again before removing a whole directory: nothing else is named like this.
    if begins(Some(&scratch), "run-") && begins(scratch.parent(), "toolbridge-") {
        _ = std::fs::remove_dir_all(&scratch);
        scratch.parent().map(std::fs::remove_dir);
    }
}

/// The child processes of this one.
fn children() -> impl Iterator<Item = Pid> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let numbers = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    // Only our own children can be waited for.
    numbers.filter_map(Pid::from_raw).filter(|pid| has_ended(*pid).is_ok())
}

/// Whether a child has ended, without reaping it. An error if it is not our child.
fn has_ended(child: Pid) -> rustix::io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(child), options)?.is_some())
}

/// Closes the CLI's descriptors, so that the other ends notice when the CLI exits.
fn close_stdio() {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        _ = rustix::stdio::dup2_stdin(&null);
        _ = rustix::stdio::dup2_stdout(&null);
        _ = rustix::stdio::dup2_stderr(&null);
    }
}

/// Whether this process was started with a signal ignored, as `nohup` does with SIGHUP.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    #[expect(unsafe_code, reason = "there is no other way to ask for the action of a signal")]
    // SAFETY: all that is passed is valid; nothing is changed.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal.as_raw(), std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Unblocks all signals, whatever the thread that started us had blocked; the CLI inherits that.
fn unblock_signals() {
    #[expect(unsafe_code, reason = "there is no other way to change what is blocked")]
    // SAFETY: the set is initialised before it is used.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Exits as the CLI did: with its code or by its signal.
fn end_like(status: Option<WaitStatus>) -> ! {
    if let Some(code) = status.and_then(WaitStatus::exit_status) {
        std::process::exit(code);
    }
    let signal = status.and_then(WaitStatus::terminating_signal).unwrap_or(Signal::KILL.as_raw());
    // The CLI has already written a core file if there was one.
    _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    // The limit has no effect if core files are piped to a program.
    #[cfg(target_os = "linux")]
    {
        _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    }
    #[expect(
        unsafe_code,
        reason = "a signal kills only with its default action, and any signal may have ended the CLI"
    )]
    // SAFETY: the process ends here.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
    std::process::exit(128 + signal)
}
