//! The transport to a server over two pipes: one message per line.
//!
//! rmcp has one too, but that drops a message over its limit, so that its request waits forever, lets a cancellation
//! overtake its request, and says nothing of other output on stdout.

use std::convert::Infallible;
use std::future::ready;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::client::interceptor::Interceptor;
use crate::mcp::MAX_LINE_BYTES;
use crate::tool::lock::lock;

/// The transport. Dropping it closes the server's stdin.
pub(crate) struct Lines {
    server: Arc<str>,
    interceptor: Arc<Interceptor>,
    /// Lines for the server, with the id of the request in them.
    stdin: mpsc::UnboundedSender<(Vec<u8>, Option<RequestId>)>,
    stdout: BufReader<pipe::Receiver>,
    /// What has been read of the current line.
    line: Vec<u8>,
    /// Whether a line that is not MCP was reported. One warning says enough, and a server can write many.
    has_warned: bool,
    _writer: AbortOnDropHandle<()>,
}

impl Lines {
    pub(crate) fn new(
        server: Arc<str>,
        interceptor: Arc<Interceptor>,
        mut stdin: pipe::Sender,
        stdout: pipe::Receiver,
    ) -> Self {
        let (send, mut unwritten) = mpsc::unbounded_channel::<(Vec<u8>, Option<RequestId>)>();
        let requests = Arc::clone(&interceptor);
        let writer = tokio::spawn(async move {
            while let Some((line, id)) = unwritten.recv().await {
                // Before, because the answer may come at once.
                lock(&requests.written).extend(id.clone());
                // A server that has stopped reading is noticed by the end of its stdout.
                if stdin.write_all(&line).await.is_err()
                    && let Some(id) = id
                {
                    lock(&requests.written).remove(&id);
                }
                requests.unread.fetch_sub(line.len(), Ordering::Relaxed);
            }
        });
        Self {
            server,
            interceptor,
            stdin: send,
            stdout: BufReader::with_capacity(64 * 1024, stdout),
            line: Vec::new(),
            has_warned: false,
            _writer: AbortOnDropHandle::new(writer),
        }
    }
}

impl Transport<RoleClient> for Lines {
    type Error = Infallible;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        let id = match &message {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        match serde_json::to_vec(&message) {
            Ok(mut line) => {
                line.push(b'\n');
                self.interceptor.unread.fetch_add(line.len(), Ordering::Relaxed);
                _ = self.stdin.send((line, id));
            }
            Err(error) => tracing::warn!(server = &*self.server, %error, "a message cannot be written"),
        }
        ready(Ok(()))
    }

    /// Cancel-safe: what was read stays in `line`.
    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let room = (MAX_LINE_BYTES + 1).saturating_sub(self.line.len());
            _ = (&mut self.stdout).take(room as u64).read_until(b'\n', &mut self.line).await;
            let (server, line) = (&*self.server, mem::take(&mut self.line));
            let bytes = line.len();
            if line.last() != Some(&b'\n') {
                if bytes > MAX_LINE_BYTES {
                    // The request that it answers is unknown, so none may go on waiting.
                    let limit = MAX_LINE_BYTES;
                    tracing::warn!(server, limit, "the server sent a message over the limit");
                }
                return None;
            }
            match self.interceptor.read(&line) {
                Ok(Some(message)) => return Some(message),
                Err(error) if !mem::replace(&mut self.has_warned, true) => tracing::warn!(
                    server, bytes, %error,
                    "the server wrote a line to stdout that is not MCP; further ones are not reported"
                ),
                Ok(None) | Err(_) => {}
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Infallible>> + Send {
        ready(Ok(()))
    }
}
