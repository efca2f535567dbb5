//! A server at the other end of two pipes: one message a line.

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use rustix::io::ioctl_fionread;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use toolbridge_mcp::{Incoming as _, LineReader, MAX_LINE_BYTES};

use crate::exchange::Exchange;

/// Dropping it closes the server's stdin.
pub(crate) struct Lines {
    server: Arc<str>,
    exchange: Arc<Exchange>,
    stdin: Arc<Stdin>,
    stdout: LineReader<pipe::Receiver>,
    /// Not rmcp's tasks, which may overtake each other: a cancellation must not come before its call.
    unwritten: mpsc::UnboundedSender<Vec<u8>>,
    _writer: AbortOnDropHandle<io::Result<()>>,
}

struct Stdin {
    pipe: pipe::Sender,
    /// How many bytes have been written; locked while some are.
    written: Mutex<u64>,
}

impl Lines {
    pub(crate) fn new(
        server: Arc<str>,
        exchange: Arc<Exchange>,
        stdin: pipe::Sender,
        stdout: pipe::Receiver,
    ) -> Self {
        let (unwritten, lines) = mpsc::unbounded_channel();
        let stdin = Arc::new(Stdin { pipe: stdin, written: Mutex::new(0) });
        let writer = tokio::spawn(Arc::clone(&stdin).write_all(lines));
        let writer = AbortOnDropHandle::new(writer);
        Self { server, exchange, stdin, stdout: LineReader::new(stdout), unwritten, _writer: writer }
    }
}

impl Stdin {
    /// A server that reads no more has ended, or will: its stdout says so.
    async fn write_all(self: Arc<Self>, mut lines: mpsc::UnboundedReceiver<Vec<u8>>) -> io::Result<()> {
        while let Some(line) = lines.recv().await {
            let mut rest = &line[..];
            while !rest.is_empty() {
                self.pipe.writable().await?;
                let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
                match self.pipe.try_write(rest) {
                    Ok(count) => {
                        *written += count as u64;
                        rest = &rest[count..];
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// How many bytes have been read from the other end of the pipe; the rest is still in it.
    fn read_so_far(&self) -> Option<u64> {
        // Elsewhere it is not known what the end for writing says.
        let written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let unread = cfg!(target_os = "linux").then(|| ioctl_fionread(&self.pipe).ok()).flatten()?;
        written.checked_sub(unread)
    }
}

impl Transport<RoleClient> for Lines {
    type Error = Infallible;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        match self.exchange.write(message) {
            Ok(line) => _ = self.unwritten.send(line),
            Err(error) => self.exchange.give_up(format!("a message cannot be written: {error}")),
        }
        std::future::ready(Ok(()))
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let line = match self.stdout.next().await {
                Ok(Some(Ok(line))) => line,
                Ok(Some(Err(_))) => {
                    // Whose answer it was is not known, so nobody may wait for it.
                    let limit = MAX_LINE_BYTES;
                    self.exchange.give_up(format!("it sent a message over the limit of {limit} bytes"));
                    return None;
                }
                Ok(None) | Err(_) => {
                    if let Some(bytes) = self.stdin.read_so_far() {
                        self.exchange.has_read(bytes);
                    }
                    return None;
                }
            };
            match self.exchange.read(&line) {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(error) => {
                    let (server, bytes) = (&*self.server, line.len());
                    tracing::warn!(server, bytes, %error, "the server wrote a line to stdout that is not MCP");
                }
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Infallible>> + Send {
        std::future::ready(Ok(()))
    }
}
