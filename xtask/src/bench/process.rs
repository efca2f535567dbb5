//! A process at the other end of a socket pair.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus};

use anyhow::{Context as _, Result, ensure};

use super::connection::Connection;

/// A process whose stdin and stdout are one socket, as the CLI starts its servers. It ends when this is
/// dropped.
pub(crate) struct Process {
    child: Child,
    connection: Connection,
    reaped: bool,
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
        Ok(Self { child, connection: Connection::new(name, stream)?, reaped: false })
    }

    pub(crate) fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// The memory of the process that is in RAM, in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u32> {
        self.memory("status", "VmRSS:")
    }

    /// The same, but what several processes share, such as an executable's pages, is divided among them.
    pub(crate) fn proportional_bytes(&self) -> Result<u32> {
        self.memory("smaps_rollup", "Pss:")
    }

    fn memory(&self, file: &str, key: &str) -> Result<u32> {
        let path = format!("/proc/{}/{file}", self.child.id());
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let kib = text.lines().find_map(|line| line.strip_prefix(key)?.trim().strip_suffix(" kB"));
        let kib: u32 = kib.and_then(|kib| kib.parse().ok()).with_context(|| format!("no {key} in {path}"))?;
        Ok(kib * 1024)
    }

    /// How many files, sockets and the like it has open.
    pub(crate) fn descriptors(&self) -> Result<usize> {
        let path = format!("/proc/{}/fd", self.child.id());
        Ok(std::fs::read_dir(&path).with_context(|| format!("cannot read {path}"))?.count())
    }

    /// Lets the process end, and checks that it ended well.
    pub(crate) fn finish(mut self) -> Result<()> {
        let status = self.stop()?;
        ensure!(status.success(), "{}: it ended with {status}", self.connection.name());
        Ok(())
    }

    fn stop(&mut self) -> Result<ExitStatus> {
        self.reaped = true;
        if !self.connection.close()? {
            self.child.kill()?;
        }
        Ok(self.child.wait()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.reaped
            && let Err(error) = self.stop()
        {
            eprintln!("warning: {}: cannot be ended: {error:#}", self.connection.name());
        }
    }
}
