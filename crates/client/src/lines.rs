//! A server at the other end of two pipes: one message a line.

use std::convert::Infallible;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use toolbridge_mcp::{Incoming as _, LineReader, MAX_LINE_BYTES};

use crate::exchange::Exchange;

/// Dropping it closes the server's stdin.
pub(crate) struct Lines {
    server: Arc<str>,
    exchange: Arc<Exchange>,
    stdout: LineReader<pipe::Receiver>,
    /// Not rmcp's tasks, which may overtake each other: a cancellation must not come before its call.
    unwritten: mpsc::UnboundedSender<Vec<u8>>,
    _writer: AbortOnDropHandle<()>,
}

impl Lines {
    pub(crate) fn new(
        server: Arc<str>,
        exchange: Arc<Exchange>,
        mut stdin: pipe::Sender,
        stdout: pipe::Receiver,
    ) -> Self {
        let (unwritten, mut lines) = mpsc::unbounded_channel::<Vec<u8>>();
        let writer = tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                // A server that reads no more has ended, or will: its stdout says so.
                if stdin.write_all(&line).await.is_err() {
                    return;
                }
            }
        });
        let writer = AbortOnDropHandle::new(writer);
        Self { server, exchange, stdout: LineReader::new(stdout), unwritten, _writer: writer }
    }
}

impl Transport<RoleClient> for Lines {
    type Error = Infallible;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        match self.exchange.write(message) {
            Ok(mut line) => {
                line.push(b'\n');
                _ = self.unwritten.send(line);
            }
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
                Ok(None) | Err(_) => return None,
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
