//! The guardian: a process between a program and the CLI that it starts. It ensures that no process the CLI
//! has started outlives either.
//!
//! A process below the guardian that loses its parent becomes the guardian's child (as a subreaper),
//! regardless of its session and environment; so the guardian kills its children until it has none. Only
//! Linux has subreapers. On other systems the guardian kills the CLI's process group.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, IntoRawFd as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getppid, kill_process,
    kill_process_group, setrlimit, wait, waitid,
};
use toolbridge_core::ipc::guard::{COMMAND, HURRY, ROOM, die_with_parent};

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
/// [`run_bridge`](crate::run_bridge) instead needs to call it, first in `main`, also in that of
/// `#[tokio::main]`.
pub fn run_guard_if_asked() {
    let mut args = std::env::args_os().skip(1);
    if args.next().as_deref() != Some(OsStr::new(COMMAND)) {
        return;
    }
    let parent = args.next().and_then(|pid| pid.to_str()?.parse().ok()).filter(|pid: &i32| *pid > 0);
    let (Some(parent), Some(program)) = (parent.and_then(Pid::from_raw), args.next()) else { return };
    match Guardian::start(parent, &program, args) {
        Ok(guardian) => {
            let ended = guardian.watch();
            // The parent removes it too, but it may exit before that.
            remove_room();
            end_like(ended)
        }
        Err(error) => {
            // This stderr is still the program's, and it may be closed.
            _ = writeln!(io::stderr(), "cannot start `{}`: {error}", Path::new(&program).display());
            remove_room();
            std::process::exit(NOT_STARTED);
        }
    }
}

struct Guardian {
    parent: Pid,
    cli: Pid,
    /// How the CLI ended. It is reaped then, and its pid may be reused.
    ended: Option<WaitStatus>,
    /// The processes that the CLI left running and that got SIGTERM.
    asked: Vec<Pid>,
    /// Readable after a signal.
    signals: PipeReader,
}

impl Guardian {
    fn start(parent: Pid, program: &OsStr, args: impl Iterator<Item = OsString>) -> io::Result<Self> {
        let signals = install_handlers()?;
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
        command.args(args).env_remove(ROOM).process_group(0);
        die_with_parent(&mut command);
        let cli = Pid::from_child(&command.spawn()?);
        close_stdio();
        Ok(Self { parent, cli, ended: None, asked: Vec::new(), signals })
    }

    /// Waits until no process is left, and returns how the CLI ended; `None` if it has not.
    fn watch(mut self) -> Option<WaitStatus> {
        let (mut rest_since, mut killing_since) = (None, None);
        while self.reap() {
            if self.ended.is_some() {
                rest_since.get_or_insert_with(Instant::now);
            }
            let is_out_of_time = rest_since.is_some_and(|since| since.elapsed() > REST_PATIENCE);
            if is_out_of_time || KILL_AT_ONCE.load(Ordering::Relaxed) || getppid() != Some(self.parent) {
                if killing_since.get_or_insert_with(Instant::now).elapsed() > KILL_PATIENCE {
                    break;
                }
                self.kill();
            } else if self.ended.is_some() {
                self.ask_rest();
            } else if let Some(signal) = Signal::from_named_raw(PASSED_ON.swap(0, Ordering::Relaxed)) {
                _ = kill_process_group(self.cli, signal);
            }
            let is_ending = rest_since.is_some() || killing_since.is_some();
            self.wait_for_signal(if is_ending { ROUND } else { CHECK });
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

    fn wait_for_signal(&mut self, limit: Duration) {
        let limit = Timespec { tv_sec: 0, tv_nsec: limit.subsec_nanos().into() };
        if matches!(poll(&mut [PollFd::new(&self.signals, PollFlags::IN)], Some(&limit)), Ok(1..)) {
            _ = self.signals.read(&mut [0; 64]);
        }
    }
}

/// Removes the request's directory, which is no longer used, and its parent if that is empty.
fn remove_room() {
    let Some(room) = std::env::var_os(ROOM).map(PathBuf::from) else { return };
    let begins = |path: Option<&Path>, with: &str| {
        path.and_then(Path::file_name).is_some_and(|name| name.to_string_lossy().starts_with(with))
    };
    // Check the names again before removing a whole directory: nothing else is named like this.
    if begins(Some(&room), "run-") && begins(room.parent(), "toolbridge-") {
        _ = std::fs::remove_dir_all(&room);
        room.parent().map(std::fs::remove_dir);
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

/// Whether all processes are to be killed at once.
static KILL_AT_ONCE: AtomicBool = AtomicBool::new(false);

/// A signal to pass on to the CLI, or 0.
static PASSED_ON: AtomicI32 = AtomicI32::new(0);

/// The write end of the pipe that wakes the waiting thread.
static WAKE_FD: AtomicI32 = AtomicI32::new(-1);

extern "C" fn on_signal(signal: i32) {
    if signal == HURRY.as_raw() {
        KILL_AT_ONCE.store(true, Ordering::Relaxed);
    } else if signal != Signal::CHILD.as_raw() {
        PASSED_ON.store(signal, Ordering::Relaxed);
    }
    #[expect(unsafe_code, reason = "a signal handler has nothing but statics")]
    // SAFETY: the descriptor is never closed.
    let told = unsafe { BorrowedFd::borrow_raw(WAKE_FD.load(Ordering::Relaxed)) };
    // A full pipe wakes the reader too.
    _ = rustix::io::write(told, b"!");
}

/// Installs the signal handlers. The CLI does not inherit them: handlers do not survive `exec`.
fn install_handlers() -> io::Result<PipeReader> {
    let (signals, told) = io::pipe()?;
    rustix::io::ioctl_fionbio(&signals, true)?;
    rustix::io::ioctl_fionbio(&told, true)?;
    WAKE_FD.store(told.as_raw_fd(), Ordering::Relaxed);
    _ = told.into_raw_fd();
    for signal in [Signal::CHILD, HURRY, Signal::TERM, Signal::INT, Signal::HUP] {
        // An ignored signal stays ignored, because the CLI inherits that; but we need these two.
        if [Signal::CHILD, HURRY].contains(&signal) || !is_ignored(signal) {
            handle(signal)?;
        }
    }
    unblock_signals();
    Ok(signals)
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

fn handle(signal: Signal) -> io::Result<()> {
    #[expect(unsafe_code, reason = "there is no other way to handle a signal without a runtime")]
    // SAFETY: all that is passed is valid, and the handler does only what a handler may: atomics and a write.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigemptyset(&raw mut action.sa_mask);
        action.sa_sigaction = on_signal as extern "C" fn(i32) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART | libc::SA_NOCLDSTOP;
        if libc::sigaction(signal.as_raw(), &raw const action, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
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
    // SAFETY: there is one thread, and it ends here.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
    std::process::exit(128 + signal)
}
