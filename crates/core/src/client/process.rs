//! A server as a child process that does not outlive this process.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::process::child::{self, Exit, Group, Pipes};
use crate::process::guard;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

/// How long a server may take to exit once its stdin is closed, and again after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long to wait for the exit of a server whose connection has ended, or the reverse.
pub(crate) const SECOND_END_TIMEOUT: Duration = Duration::from_millis(500);

/// The limit for one line on stderr; a longer one is logged as several.
const MAX_LINE_BYTES: u64 = 1000;

/// How long to wait for the end of stderr after the server has ended: another process may still hold the pipe
/// open.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(300);

/// Ends what is left of the process group `$0` when stdin ends, with the same pauses as [`ServerProcess`]'s `drop`.
const END_GROUP: &str = "read _; sleep 2; kill -TERM -$0 && sleep 2 && kill -KILL -$0";

/// A running server. Dropping it ends its process group; its stdin should be closed by then.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    group: Arc<Group>,
    exit: Exit,
    /// The process that started it: after a `fork`, the child must not end its parent's server.
    parent: u32,
}

impl ServerProcess {
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

/// What tells how a server has ended: its exit status, and the last line of its stderr.
pub(crate) struct ServerExit {
    pub(crate) exit: Exit,
    last_line: watch::Receiver<Option<String>>,
    _reading: AbortOnDropHandle<()>,
}

impl ServerExit {
    /// Reads stderr to its end, and logs it line by line.
    pub(crate) fn new(server: Arc<str>, exit: Exit, stderr: pipe::Receiver) -> Self {
        let (tell, last_line) = watch::channel(None);
        let reading = tokio::spawn(async move {
            let (mut stderr, mut line) = (BufReader::new(stderr), Vec::new());
            while let Ok(1..) = (&mut stderr).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await {
                let text = String::from_utf8_lossy(&line).replace(char::is_control, " ");
                let text = text.trim_end();
                if !text.is_empty() {
                    tracing::info!(target: "toolbridge::server", server = &*server, "{text}");
                    tell.send_replace(Some(text.to_owned()));
                }
                line.clear();
            }
        });
        Self { exit, last_line, _reading: AbortOnDropHandle::new(reading) }
    }

    /// The last line on stderr so far.
    pub(crate) fn last_line(&self) -> Option<String> {
        self.last_line.borrow().clone()
    }

    /// How the server ended, if it has or is about to.
    pub(crate) async fn description(&mut self) -> Option<String> {
        let status = timeout(SECOND_END_TIMEOUT, exited(&mut self.exit)).await.ok()?;
        _ = timeout(DRAIN_TIMEOUT, async { while self.last_line.changed().await.is_ok() {} }).await;
        Some(match self.last_line() {
            Some(line) => format!("{status}; its last line on stderr was `{line}`"),
            None => format!("{status}, and it said nothing on stderr"),
        })
    }
}

/// Waits for the end of the process.
pub(crate) async fn exited(exit: &mut Exit) -> ExitStatus {
    exit.wait_for(Option::is_some).await.ok().and_then(|status| *status).unwrap_or_default()
}

impl Drop for ServerProcess {
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
