//! Our end of a socket pair.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

/// Whoever does not answer within this never will.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Whoever does not end within this is killed.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Room for most answers; grows for large ones, once.
const FIRST_BUFFER_BYTES: usize = 64 * 1024;

/// Sends and receives lines.
pub(crate) struct Connection {
    name: &'static str,
    stream: UnixStream,
    buffer: Vec<u8>,
    filled: usize,
    /// What the last `lines` returned.
    taken: usize,
}

impl Connection {
    pub(crate) fn new(name: &'static str, stream: UnixStream) -> Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { name, stream, buffer: vec![0; FIRST_BUFFER_BYTES], filled: 0, taken: 0 })
    }

    /// Who is at the other end.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).with_context(|| format!("{}: it takes no more bytes", self.name))
    }

    /// Reads one line, where only one can be coming. The newline stays on it.
    pub(crate) fn line(&mut self) -> Result<&[u8]> {
        (self.filled, self.taken) = (0, 0);
        loop {
            self.fill()?;
            // Only at the end: JSON has no raw newline, so the rest need not be searched.
            if self.buffer[self.filled - 1] == b'\n' {
                self.taken = self.filled;
                return Ok(&self.buffer[..self.filled]);
            }
        }
    }

    /// Reads once; returns the lines that are complete, all of which have `length` bytes.
    ///
    /// The length is known, so nothing is searched: the client must cost as little as it can.
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

    /// Ends the other's stdin, and waits for the end of its stdout; `false` if that does not come.
    pub(crate) fn close(&mut self) -> Result<bool> {
        // Fails if it has ended by itself, which is as good.
        _ = self.stream.shutdown(Shutdown::Write);
        self.stream.set_read_timeout(Some(LAST_WAIT))?;
        loop {
            match self.stream.read(&mut self.buffer) {
                Ok(1..) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Ok(0) | Err(_) => return Ok(true),
            }
        }
    }
}
