//! The guardian: a process between a program and the CLI that it starts, so that nothing the CLI has started
//! outlives either.
//!
//! Whoever loses its parent below the guardian becomes the guardian's child, in whatever session and with
//! whatever environment; so it need only kill its children until it has none. Only Linux has that. Elsewhere the
//! guardian looks after the CLI's process group.

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
use toolbridge_ipc::guard::{COMMAND, HURRY, ROOM, die_with_parent};

/// How often it looks whether its parent is there: the system tells, where it can, but not everywhere.
const CHECK: Duration = Duration::from_millis(500);

/// How often it looks for others to kill.
const ROUND: Duration = Duration::from_millis(10);

/// How long what a CLI leaves has to end after SIGTERM: a bridge, say, that has a trace to write.
const REST_PATIENCE: Duration = Duration::from_millis(500);

/// How long those have to end who were killed. Whoever is left then belongs to another user, or hangs in the system.
const KILL_PATIENCE: Duration = Duration::from_millis(1500);

/// The exit code of a shell that cannot start a program, and ours.
const NOT_STARTED: i32 = 127;

/// Becomes a guardian if the command line is one's, and does not return then.
///
/// [`run_bridge_if_asked`](crate::run_bridge_if_asked) calls this. Only who calls [`run_bridge`](crate::run_bridge)
/// instead needs to, first in `main`, before any thread or runtime starts.
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
            // The parent does so too; but it may be about to end, and not come to it.
            remove_room();
            end_like(ended)
        }
        Err(error) => {
            // This stderr is still the program's, and nobody may be there to read it.
            _ = writeln!(io::stderr(), "cannot start `{}`: {error}", Path::new(&program).display());
            std::process::exit(NOT_STARTED);
        }
    }
}

struct Guardian {
    parent: Pid,
    cli: Pid,
    /// How the CLI ended. It is reaped then, and its number may be somebody else's.
    ended: Option<WaitStatus>,
    /// Those whom the CLI has left and who were asked to end.
    asked: Vec<Pid>,
    /// Has something to read when a signal has come.
    signals: PipeReader,
}

impl Guardian {
    fn start(parent: Pid, program: &OsStr, args: impl Iterator<Item = OsString>) -> io::Result<Self> {
        let signals = hear_signals()?;
        // The best there is: what the system does not have, we do without.
        #[cfg(target_os = "linux")]
        {
            _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
            // Not only when the parent is gone, but also when it becomes another program.
            _ = rustix::process::set_parent_process_death_signal(Some(HURRY));
        }
        if getppid() != Some(parent) {
            return Err(io::Error::other("the process that wanted it is gone"));
        }
        let mut command = Command::new(program);
        command.args(args).env_remove(ROOM).process_group(0);
        die_with_parent(&mut command);
        let cli = Pid::from_child(&command.spawn()?);
        let_go();
        Ok(Self { parent, cli, ended: None, asked: Vec::new(), signals })
    }

    /// Waits until nobody is left, and returns how the CLI ended; `None` if it did not.
    fn watch(mut self) -> Option<WaitStatus> {
        let (mut rest_since, mut killing_since) = (None, None);
        while self.reap() {
            if self.ended.is_some() {
                rest_since.get_or_insert_with(Instant::now);
            }
            let is_out_of_time = rest_since.is_some_and(|since| since.elapsed() > REST_PATIENCE);
            if is_out_of_time || HURRIED.load(Ordering::Relaxed) || getppid() != Some(self.parent) {
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

    /// Reaps who has ended; returns whether there is anybody left.
    fn reap(&mut self) -> bool {
        if !cfg!(target_os = "linux") && has_ended(self.cli) == Ok(true) {
            // Orphans do not come to us: what is left of the group goes while its number is surely ours.
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

    /// Asks those to end whom the CLI has left; each once, for many take a second time for an order to hurry.
    fn ask_rest(&mut self) {
        for child in children() {
            if !self.asked.contains(&child) {
                _ = kill_process(child, Signal::TERM);
                self.asked.push(child);
            }
        }
    }

    /// Kills the CLI's group and every child. They are not reaped meanwhile, so their numbers are theirs; their own
    /// children are ours once they are gone.
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

/// Removes the request's directory, which nobody uses any more, and the one of all requests if it was the last.
fn remove_room() {
    let Some(room) = std::env::var_os(ROOM).map(PathBuf::from) else { return };
    let begins = |path: Option<&Path>, with: &str| {
        path.and_then(Path::file_name).is_some_and(|name| name.to_string_lossy().starts_with(with))
    };
    // Nothing else is ever named so: a second look before so much is removed.
    if begins(Some(&room), "run-") && begins(room.parent(), "toolbridge-") {
        _ = std::fs::remove_dir_all(&room);
        room.parent().map(std::fs::remove_dir);
    }
}

/// The processes whose parent we are.
fn children() -> impl Iterator<Item = Pid> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let numbers = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    // Whoever we may wait for is our child, and nobody else is.
    numbers.filter_map(Pid::from_raw).filter(|pid| has_ended(*pid).is_ok())
}

/// Whether a child has ended; it stays as it is. An error if it is no child of ours.
fn has_ended(child: Pid) -> rustix::io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(child), options)?.is_some())
}

/// Lets go of what is the CLI's, so that the other ends see when the CLI does.
fn let_go() {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        _ = rustix::stdio::dup2_stdin(&null);
        _ = rustix::stdio::dup2_stdout(&null);
        _ = rustix::stdio::dup2_stderr(&null);
    }
}

/// Whether everybody is to be killed at once.
static HURRIED: AtomicBool = AtomicBool::new(false);

/// A signal that is meant for the CLI, or 0.
static PASSED_ON: AtomicI32 = AtomicI32::new(0);

/// Where a signal is told to the one who waits.
static TOLD: AtomicI32 = AtomicI32::new(-1);

extern "C" fn on_signal(signal: i32) {
    if signal == HURRY.as_raw() {
        HURRIED.store(true, Ordering::Relaxed);
    } else if signal != Signal::CHILD.as_raw() {
        PASSED_ON.store(signal, Ordering::Relaxed);
    }
    #[expect(unsafe_code, reason = "a signal handler has nothing but statics")]
    // SAFETY: the descriptor is never closed.
    let told = unsafe { BorrowedFd::borrow_raw(TOLD.load(Ordering::Relaxed)) };
    // If it is full, there is enough to read.
    _ = rustix::io::write(told, b"!");
}

/// Hears signals from now on. The CLI does not inherit any of that: handlers do not survive `exec`.
fn hear_signals() -> io::Result<PipeReader> {
    let (signals, told) = io::pipe()?;
    rustix::io::ioctl_fionbio(&signals, true)?;
    rustix::io::ioctl_fionbio(&told, true)?;
    TOLD.store(told.as_raw_fd(), Ordering::Relaxed);
    _ = told.into_raw_fd();
    for signal in [Signal::CHILD, HURRY, Signal::TERM, Signal::INT, Signal::HUP] {
        // Whoever started us may have wanted the CLI to ignore it; but we must hear of our children.
        let is_needed = [Signal::CHILD, HURRY].contains(&signal);
        handle(signal, is_needed)?;
    }
    hear_all();
    Ok(signals)
}

fn handle(signal: Signal, even_if_ignored: bool) -> io::Result<()> {
    #[expect(unsafe_code, reason = "there is no other way to handle a signal without a runtime")]
    // SAFETY: all that is passed is valid, and the handler does only what a handler may: atomics and a write.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal.as_raw(), std::ptr::null(), &raw mut action) != 0 {
            return Err(io::Error::last_os_error());
        }
        if action.sa_sigaction == libc::SIG_IGN && !even_if_ignored {
            return Ok(());
        }
        action.sa_sigaction = on_signal as extern "C" fn(i32) as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART | libc::SA_NOCLDSTOP;
        if libc::sigaction(signal.as_raw(), &raw const action, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Blocks no signal, whatever the thread blocked that started us; nor does the CLI then.
fn hear_all() {
    #[expect(unsafe_code, reason = "there is no other way to change what is blocked")]
    // SAFETY: the set is made before it is used.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Ends as the CLI did: with its code or by its signal.
fn end_like(status: Option<WaitStatus>) -> ! {
    if let Some(code) = status.and_then(WaitStatus::exit_status) {
        std::process::exit(code);
    }
    let signal = status.and_then(WaitStatus::terminating_signal).unwrap_or(Signal::KILL.as_raw());
    // If there was a core file to write, the CLI has written it.
    _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    // A limit is nothing to a system that pipes its core files to a program.
    #[cfg(target_os = "linux")]
    {
        _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    }
    #[expect(
        unsafe_code,
        reason = "to die of a signal it must not be handled, and any may have been the CLI's"
    )]
    // SAFETY: there is one thread, and it ends here.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
    std::process::exit(128 + signal)
}
