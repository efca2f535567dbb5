//! A server as a child process that does not outlive us.

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
use toolbridge_ipc::guard;

/// How long a server has to end by itself once its stdin is closed, and then once more after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(2);

/// A running server. Dropping it ends its whole process group; its stdin should be closed by then.
#[derive(Debug)]
pub(crate) struct Process {
    group: Arc<Group>,
    exit: watch::Receiver<Option<ExitStatus>>,
}

/// The ends of a child's pipes that are ours.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdin: pipe::Sender,
    pub(crate) stdout: pipe::Receiver,
    pub(crate) stderr: pipe::Receiver,
}

#[derive(Debug)]
struct Group {
    leader: Pid,
    /// Who started it: a child by `fork` must not end what is its parent's.
    parent: u32,
    /// Whether the leader has been reaped; its number may be somebody else's from then on.
    is_gone: Mutex<bool>,
    gone: Condvar,
}

impl Process {
    /// Starts a command as the leader of a process group. Must be called inside a runtime.
    pub(crate) fn start(mut command: Command) -> io::Result<(Self, Pipes)> {
        command.process_group(0);
        // Not SIGKILL: many servers are started by a launcher (`uvx`, `npx`), which passes this on.
        guard::end_with_parent(&mut command, Signal::TERM);
        let (stdin, their_stdin) = pipe::pipe()?;
        let (their_stdout, stdout) = pipe::pipe()?;
        let (their_stderr, stderr) = pipe::pipe()?;
        command.stdin(their_stdin.into_blocking_fd()?);
        command.stdout(their_stdout.into_blocking_fd()?).stderr(their_stderr.into_blocking_fd()?);
        let (tell_start, start) = sync_channel(1);
        let (tell_exit, exit) = watch::channel(None);
        // In the thread that waits for it: the system takes the end of the thread that started a child for the end
        // of its parent, and any other may end at any time.
        let reaper = move || {
            let spawned = command.spawn();
            // It holds the other ends of the pipes.
            drop(command);
            match spawned {
                Ok(child) => {
                    let group = Arc::new(Group::of(&child));
                    _ = tell_start.send(Ok(Arc::clone(&group)));
                    let status = group.reap(child);
                    _ = tell_exit.send(Some(status));
                }
                Err(error) => _ = tell_start.send(Err(error)),
            }
        };
        thread::Builder::new().name("toolbridge-server".into()).spawn(reaper)?;
        let group = start.recv().unwrap_or_else(|_| Err(Errno::CHILD.into()))?;
        Ok((Self { group, exit }, Pipes { stdin, stdout, stderr }))
    }

    pub(crate) fn id(&self) -> u32 {
        self.group.leader.as_raw_nonzero().get().unsigned_abs()
    }

    /// Says whether it still runs.
    pub(crate) fn pulse(&self) -> Pulse {
        Pulse(Arc::clone(&self.group))
    }

    /// Says when the server has ended, and how.
    pub(crate) fn exit(&self) -> watch::Receiver<Option<ExitStatus>> {
        self.exit.clone()
    }
}

/// Says whether a server still runs.
#[derive(Debug, Clone)]
pub(crate) struct Pulse(Arc<Group>);

impl Pulse {
    /// The system knows it before anybody here does.
    pub(crate) fn has_stopped(&self) -> bool {
        let is_gone = self.0.lock();
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        *is_gone || matches!(waitid(WaitId::Pid(self.0.leader), options), Ok(Some(_)))
    }
}

/// Waits for the end that `exit` tells of.
pub(crate) async fn exited(exit: &mut watch::Receiver<Option<ExitStatus>>) -> ExitStatus {
    exit.wait_for(Option::is_some).await.ok().and_then(|status| *status).unwrap_or_default()
}

impl Drop for Process {
    /// Returns at once, and needs no runtime.
    fn drop(&mut self) {
        if *self.group.lock() || self.group.parent != std::process::id() {
            return;
        }
        let group = Arc::clone(&self.group);
        let killer = thread::Builder::new().name("toolbridge-killer".into()).spawn(move || {
            for signal in [Signal::TERM, Signal::KILL] {
                let waited = group.gone.wait_timeout_while(group.lock(), PATIENCE, |is_gone| !*is_gone);
                drop(waited);
                group.signal(signal);
            }
        });
        if killer.is_err() {
            self.group.signal(Signal::KILL);
        }
    }
}

impl Group {
    fn of(child: &Child) -> Self {
        Self {
            leader: Pid::from_child(child),
            parent: std::process::id(),
            is_gone: Mutex::new(false),
            gone: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.is_gone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a signal to everybody in the group, while its number is surely ours.
    fn signal(&self, signal: Signal) {
        let is_gone = self.lock();
        if !*is_gone {
            _ = kill_process_group(self.leader, signal);
        }
    }

    /// Waits for the leader's end, and ends what is left of its group.
    fn reap(&self, mut child: Child) -> ExitStatus {
        // Not reaped yet, so the number stays ours. A signal may interrupt the wait.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while matches!(waitid(WaitId::Pid(self.leader), options), Err(Errno::INTR)) {}
        let status = {
            let mut is_gone = self.lock();
            _ = kill_process_group(self.leader, Signal::KILL);
            let status = child.wait().unwrap_or_default();
            *is_gone = true;
            status
        };
        self.gone.notify_all();
        status
    }
}
