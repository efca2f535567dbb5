//! A server as a child process that does not outlive this process.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::process::child::{self, Exit, Group, Pipes};
use crate::process::guard;
use rustix::process::{Pid, Signal, kill_process_group};

/// How long a server may take to exit once its stdin is closed, and again after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(2);

/// Ends what is left of the process group `$0` when stdin ends, with the same pauses as [`Process`]'s `drop`.
const END_GROUP: &str = "read _; sleep 2; kill -TERM -$0 && sleep 2 && kill -KILL -$0";

/// A running server. Dropping it ends its process group; its stdin should be closed by then.
#[derive(Debug)]
pub(crate) struct Process {
    group: Arc<Group>,
    exit: Exit,
    /// The process that started it: after a `fork`, the child must not end its parent's server.
    parent: u32,
}

impl Process {
    /// Starts a command as the leader of a process group. Must be called inside a runtime.
    pub(crate) fn start(mut command: Command) -> io::Result<(Self, Pipes)> {
        // Not SIGKILL: many servers are started by a launcher (`uvx`, `npx`), which forwards SIGTERM.
        guard::end_with_parent(&mut command, Signal::TERM);
        let pipes = Pipes::to(&mut command)?;
        let (group, exit) = child::start(command, Group::of, |group: &Group, child| {
            let watcher = watch(group.leader());
            let status = group.reap(child, |leader| _ = kill_process_group(leader, Signal::KILL));
            match watcher {
                Ok(mut watcher) => _ = watcher.kill().and_then(|()| watcher.wait()),
                Err(error) => tracing::debug!(%error, "a server had no watcher"),
            }
            status
        })?;
        Ok((Self { group, exit, parent: std::process::id() }, pipes))
    }

    pub(crate) fn id(&self) -> u32 {
        self.group.leader().as_raw_nonzero().get().unsigned_abs()
    }

    /// Tells whether the server still runs.
    pub(crate) fn group(&self) -> Arc<Group> {
        Arc::clone(&self.group)
    }

    /// Tells when and how the server has ended.
    pub(crate) fn exit(&self) -> Exit {
        self.exit.clone()
    }
}

/// Starts a shell that ends a process group when this process is killed: only this process holds the other end
/// of its stdin. The system itself can only signal the leader.
fn watch(group: Pid) -> io::Result<Child> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", END_GROUP]).arg(group.as_raw_nonzero().to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // A group of its own: it must survive what ends the group of this process.
    command.env_clear().current_dir("/").process_group(0).spawn()
}

/// Waits for the end of the process.
pub(crate) async fn exited(exit: &mut Exit) -> ExitStatus {
    exit.wait_for(Option::is_some).await.ok().and_then(|status| *status).unwrap_or_default()
}

impl Drop for Process {
    /// Returns at once; needs no runtime.
    fn drop(&mut self) {
        if self.group.is_gone() || self.parent != std::process::id() {
            return;
        }
        if !self.group.end(PATIENCE, &[Signal::TERM, Signal::KILL]) {
            self.group.signal(Signal::KILL);
        }
    }
}
