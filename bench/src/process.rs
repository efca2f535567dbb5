//! A process at the other end of a socket pair.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus};

use anyhow::{Context as _, Result, ensure};

use crate::connection::Connection;

/// A process whose stdin and stdout are one socket, as the CLI starts its servers. It ends when this is
/// dropped.
pub(crate) struct Process {
    /// `None` if somebody else has started it, and when it has ended.
    child: Option<Child>,
    pub(crate) connection: Connection,
}

impl Process {
    pub(crate) fn start(name: &'static str, mut command: Command) -> Result<Self> {
        let (stream, other) = UnixStream::pair().context("cannot make a socket pair")?;
        let (stdin, stdout): (OwnedFd, OwnedFd) = (other.try_clone()?.into(), other.into());
        let child = command
            .stdin(stdin)
            .stdout(stdout)
            .spawn()
            .with_context(|| format!("{name}: cannot start {command:?}"))?;
        Ok(Self { child: Some(child), connection: Connection::new(name, stream)? })
    }

    /// A process that connected to us.
    pub(crate) fn that_connected(connection: Connection) -> Self {
        Self { child: None, connection }
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.child.is_some()
    }

    /// The memory of the process that is in RAM, in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<f64> {
        self.memory("status", "VmRSS:")
    }

    /// The same, but what several processes share, such as an executable's pages, is divided among them.
    pub(crate) fn proportional_bytes(&self) -> Result<f64> {
        self.memory("smaps_rollup", "Pss:")
    }

    fn memory(&self, file: &str, key: &str) -> Result<f64> {
        let path = self.in_proc(file)?;
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let kib = text.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_suffix(" kB"));
        let kib: f64 = kib.and_then(|kib| kib.parse().ok()).with_context(|| format!("no {key} in {path}"))?;
        Ok(kib * 1024.0)
    }

    /// How many files, sockets and the like it has open.
    pub(crate) fn descriptors(&self) -> Result<f64> {
        let path = self.in_proc("fd")?;
        let count = std::fs::read_dir(&path).with_context(|| format!("cannot read {path}"))?.count();
        Ok(u32::try_from(count)?.into())
    }

    fn in_proc(&self, file: &str) -> Result<String> {
        Ok(format!("/proc/{}/{file}", self.child.as_ref().context("not our process")?.id()))
    }

    /// Lets the process end, and checks that it ended well.
    pub(crate) fn finish(mut self) -> Result<()> {
        let status = self.stop()?;
        let is_good = status.is_none_or(|status| status.success());
        ensure!(is_good, "{}: it ended with {status:?}", self.connection.name());
        Ok(())
    }

    fn stop(&mut self) -> Result<Option<ExitStatus>> {
        let child = self.child.take();
        let has_closed = self.connection.close()?;
        let Some(mut child) = child else { return Ok(None) };
        if !has_closed {
            child.kill()?;
        }
        Ok(Some(child.wait()?))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.child.is_some()
            && let Err(error) = self.stop()
        {
            eprintln!("warning: {}: cannot be ended: {error:#}", self.connection.name());
        }
    }
}
