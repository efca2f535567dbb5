//! A child process that leads its own process group.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::net::unix::pipe;
use tokio::sync::watch;

/// Resolves when a child has ended, with its status.
pub type Exit = watch::Receiver<Option<ExitStatus>>;

/// Starts a command as the leader of a new process group, on the thread that then waits for its end with `reap`.
/// The death signal that the system sends to a child is tied to the thread that started it, so that thread must
/// live as long as the child.
///
/// If the command cannot be started, `reap` is dropped before the error is returned.
///
/// # Errors
///
/// When the command or the thread cannot be started.
pub fn start<G: Send + Sync + 'static>(
    mut command: Command,
    group: impl FnOnce(&Child) -> G + Send + 'static,
    reap: impl FnOnce(&G, Child) -> ExitStatus + Send + 'static,
) -> io::Result<(Arc<G>, Exit)> {
    command.process_group(0);
    let (tell_start, start) = sync_channel(1);
    let (tell_exit, exit) = watch::channel(None);
    let reaper = move || {
        let spawned = command.spawn();
        // The command holds the other ends of the pipes.
        drop(command);
        match spawned {
            Ok(child) => {
                let group = Arc::new(group(&child));
                _ = tell_start.send(Ok(Arc::clone(&group)));
                let status = reap(&group, child);
                _ = tell_exit.send(Some(status));
            }
            Err(error) => {
                drop(reap);
                _ = tell_start.send(Err(error));
            }
        }
    };
    thread::Builder::new().name("toolbridge-reaper".into()).spawn(reaper)?;
    let group = start.recv().unwrap_or_else(|_| Err(Errno::CHILD.into()))?;
    Ok((group, exit))
}

/// Our ends of a child's pipes.
#[derive(Debug)]
pub struct Pipes {
    /// Its stdin.
    pub stdin: pipe::Sender,
    /// Its stdout.
    pub stdout: pipe::Receiver,
    /// Its stderr.
    pub stderr: pipe::Receiver,
}

impl Pipes {
    /// Gives the other ends to a command. Must be called inside a runtime.
    ///
    /// # Errors
    ///
    /// When the pipes cannot be made.
    pub fn to(command: &mut Command) -> io::Result<Self> {
        let (stdin, their_stdin) = pipe::pipe()?;
        let (their_stdout, stdout) = pipe::pipe()?;
        let (their_stderr, stderr) = pipe::pipe()?;
        command.stdin(their_stdin.into_blocking_fd()?);
        command.stdout(their_stdout.into_blocking_fd()?).stderr(their_stderr.into_blocking_fd()?);
        Ok(Self { stdin, stdout, stderr })
    }
}

/// A process group whose leader is our child.
#[derive(Debug)]
pub struct Group {
    leader: Pid,
    /// Whether the leader has been reaped; after that its pid may be reused by another process.
    is_gone: Mutex<bool>,
    gone: Condvar,
}

impl Group {
    /// The group of a child that was started as its leader.
    #[must_use]
    pub fn of(child: &Child) -> Self {
        Self { leader: Pid::from_child(child), is_gone: Mutex::new(false), gone: Condvar::new() }
    }

    /// The leader's pid.
    #[must_use]
    pub fn leader(&self) -> Pid {
        self.leader
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_gone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the leader has been reaped.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        *self.lock()
    }

    /// Whether the leader has ended. The system knows this before it is reaped here.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let is_gone = self.lock();
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        *is_gone || matches!(waitid(WaitId::Pid(self.leader), options), Ok(Some(_)))
    }

    /// Sends a signal to the whole group, unless its leader was reaped and its pid may have been reused.
    pub fn signal(&self, signal: Signal) {
        let is_gone = self.lock();
        if !*is_gone {
            _ = kill_process_group(self.leader, signal);
        }
    }

    /// Sends one signal after the other until the leader is gone. Uses a thread, since the runtime may already have
    /// ended. Returns immediately; `false` if no thread could be started.
    #[must_use]
    pub fn end(self: &Arc<Self>, patience: Duration, signals: &'static [Signal]) -> bool {
        let group = Arc::clone(self);
        let killer = thread::Builder::new().name("toolbridge-killer".into()).spawn(move || {
            for signal in signals {
                let waited = group.gone.wait_timeout_while(group.lock(), patience, |is_gone| !*is_gone);
                drop(waited);
                group.signal(*signal);
            }
        });
        killer.is_ok()
    }

    /// Waits for the leader's end. `last` may still signal the group by its pid.
    pub fn reap(&self, mut child: Child, last: impl FnOnce(Pid)) -> ExitStatus {
        // `NOWAIT`: the leader is only reaped under the lock, so its pid is not reused before that. A signal may
        // interrupt the wait.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(self.leader), options), Err(Errno::INTR)) {}
        let status = {
            let mut is_gone = self.lock();
            last(self.leader);
            let status = child.wait().unwrap_or_default();
            *is_gone = true;
            status
        };
        self.gone.notify_all();
        status
    }
}
