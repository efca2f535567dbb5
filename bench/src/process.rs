//! A process at the other end of a socket pair.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

/// The timeout for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A process that does not exit within this time is killed.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Large enough for most answers; grows once for large ones.
const FIRST_BUFFER_BYTES: usize = 64 * 1024;

/// A process whose stdin and stdout are one socket, as the CLI starts its servers. It reads and writes lines,
/// and ends when this is dropped.
pub(crate) struct Process {
    pub(crate) name: &'static str,
    /// `None` if another process has started it, and after its end.
    child: Option<Child>,
    stream: UnixStream,
    buffer: Vec<u8>,
    filled: usize,
    /// The number of bytes that the last `lines` returned.
    taken: usize,
}

impl Process {
    pub(crate) fn start(name: &'static str, mut command: Command) -> Result<Self> {
        let (stream, other) = UnixStream::pair().context("cannot create a socket pair")?;
        let mut process = Self::that_connected(name, stream)?;
        let (stdin, stdout): (OwnedFd, OwnedFd) = (other.try_clone()?.into(), other.into());
        let child = command.stdin(stdin).stdout(stdout).spawn();
        process.child = Some(child.with_context(|| format!("{name}: cannot start {command:?}"))?);
        Ok(process)
    }

    /// A process that connected to us.
    pub(crate) fn that_connected(name: &'static str, stream: UnixStream) -> Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { name, child: None, stream, buffer: vec![0; FIRST_BUFFER_BYTES], filled: 0, taken: 0 })
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.child.is_some()
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).with_context(|| format!("{}: it accepts no more bytes", self.name))
    }

    /// Reads one line, if only one is expected. It includes the newline.
    pub(crate) fn line(&mut self) -> Result<&[u8]> {
        (self.filled, self.taken) = (0, 0);
        loop {
            self.fill()?;
            // Only the end is checked: JSON has no raw newline, so the rest need not be searched.
            if self.buffer[self.filled - 1] == b'\n' {
                self.taken = self.filled;
                return Ok(&self.buffer[..self.filled]);
            }
        }
    }

    /// Reads once; returns the complete lines, all of which have `length` bytes.
    ///
    /// The length is known, so nothing is searched: the client must cost as little as possible.
    pub(crate) fn lines(&mut self, length: usize) -> Result<&[u8]> {
        self.buffer.copy_within(self.taken..self.filled, 0);
        self.filled -= std::mem::take(&mut self.taken);
        self.fill()?;
        let rest = self.filled % length;
        let wrong = rest > 0 && self.buffer[self.filled - 1] == b'\n';
        ensure!(!wrong, "{}: a wrong answer, not of {length} bytes", self.name);
        self.taken = self.filled - rest;
        Ok(&self.buffer[..self.taken])
    }

    fn fill(&mut self) -> Result<()> {
        if self.filled == self.buffer.len() {
            self.buffer.resize(self.filled * 2, 0);
        }
        match self.stream.read(&mut self.buffer[self.filled..]) {
            Ok(0) => bail!("{}: it ended in the middle of the measurement", self.name),
            Ok(count) => self.filled += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                bail!("{}: no answer within {} s", self.name, PATIENCE.as_secs())
            }
            Err(error) => return Err(error).with_context(|| format!("{}: cannot read", self.name)),
        }
        Ok(())
    }

    /// The memory of the process that is in RAM, in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<f64> {
        self.memory("status", "VmRSS:")
    }

    /// The most it has held at any time.
    pub(crate) fn most_resident_bytes(&self) -> Result<f64> {
        self.memory("status", "VmHWM:")
    }

    /// The resident memory, but memory shared by several processes, such as an executable's pages, is divided among
    /// them.
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

    /// The number of open file descriptors.
    pub(crate) fn descriptors(&self) -> Result<f64> {
        let path = self.in_proc("fd")?;
        let count = std::fs::read_dir(&path).with_context(|| format!("cannot read {path}"))?.count();
        Ok(u32::try_from(count)?.into())
    }

    fn in_proc(&self, file: &str) -> Result<String> {
        Ok(format!("/proc/{}/{file}", self.child.as_ref().context("not our process")?.id()))
    }

    /// Lets the process end, and checks that it succeeded.
    pub(crate) fn finish(mut self) -> Result<()> {
        let status = self.stop()?;
        ensure!(status.is_none_or(|status| status.success()), "{}: it ended with {status:?}", self.name);
        Ok(())
    }

    /// Closes its stdin, and waits for the end of its stdout; kills it if that does not come.
    fn stop(&mut self) -> Result<Option<ExitStatus>> {
        let child = self.child.take();
        // Fails if it has already ended, which is fine.
        _ = self.stream.shutdown(Shutdown::Write);
        self.stream.set_read_timeout(Some(LAST_WAIT))?;
        let has_closed = loop {
            match self.stream.read(&mut self.buffer) {
                Ok(1..) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break false,
                Ok(0) | Err(_) => break true,
            }
        };
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
            eprintln!("warning: {}: cannot be ended: {error:#}", self.name);
        }
    }
}
