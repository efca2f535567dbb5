//! The transport to a server over two pipes: one message per line.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::mcp::{Incoming as _, LineReader, MAX_LINE_BYTES};
use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, Implementation, InitializeResult, JsonRpcMessage, ProtocolVersion,
    RequestId, ServerJsonRpcMessage, ServerResult,
};
use rmcp::transport::Transport;
use rustix::io::ioctl_fionread;
use tokio::net::unix::pipe;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use crate::client::exchange::Exchange;

/// The transport. Dropping it closes the server's stdin.
pub(crate) struct Lines {
    server: Arc<str>,
    exchange: Arc<Exchange>,
    handshake: Handshake,
    stdin: Arc<Stdin>,
    stdout: LineReader<pipe::Receiver>,
    /// Whether a line that is not MCP was reported. One warning says enough, and a server can write many.
    has_warned: bool,
    _writer: AbortOnDropHandle<()>,
}

/// The server's stdin. Lines are written in order: a cancellation must not overtake its call.
#[derive(Debug)]
pub(crate) struct Stdin {
    pipe: pipe::Sender,
    unwritten: Mutex<Unwritten>,
    more: Notify,
}

#[derive(Debug, Default)]
struct Unwritten {
    lines: VecDeque<Vec<u8>>,
    /// How much of the first line has been written.
    begun: usize,
    /// The number of bytes written so far.
    written: u64,
    /// The number of bytes queued so far, including the written ones.
    given: u64,
}

impl Lines {
    pub(crate) fn new(
        server: Arc<str>,
        exchange: Arc<Exchange>,
        stdin: pipe::Sender,
        stdout: pipe::Receiver,
    ) -> Self {
        let stdin = Arc::new(Stdin { pipe: stdin, unwritten: Mutex::default(), more: Notify::new() });
        let writer = AbortOnDropHandle::new(tokio::spawn(Arc::clone(&stdin).write_rest()));
        let (handshake, stdout) = (Handshake::default(), LineReader::new(stdout));
        Self { server, exchange, handshake, stdin, stdout, has_warned: false, _writer: writer }
    }

    pub(crate) fn stdin(&self) -> Weak<Stdin> {
        Arc::downgrade(&self.stdin)
    }
}

impl Stdin {
    fn lock(&self) -> MutexGuard<'_, Unwritten> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a line, at once if the pipe has room. Returns the offset of the line in the stream of all
    /// written bytes.
    ///
    /// Errors are ignored: a server that has stopped reading is detected by the end of its stdout.
    pub(crate) fn write(&self, line: Vec<u8>) -> u64 {
        let mut unwritten = self.lock();
        let place = unwritten.given;
        unwritten.given += line.len() as u64;
        unwritten.lines.push_back(line);
        if unwritten.lines.len() == 1 && unwritten.write(&self.pipe).is_err_and(|error| is_full(&error)) {
            self.more.notify_one();
        }
        place
    }

    /// Writes the lines that did not fit into the pipe.
    async fn write_rest(self: Arc<Self>) {
        loop {
            self.more.notified().await;
            loop {
                if self.pipe.writable().await.is_err() {
                    return;
                }
                let written = self.lock().write(&self.pipe);
                match written {
                    Ok(()) => break,
                    Err(error) if is_full(&error) => {}
                    Err(_) => return,
                }
            }
        }
    }

    /// How many bytes the server has read; the rest is still in the pipe.
    fn read_so_far(&self) -> Option<u64> {
        // Other systems do not report this on the write end of a pipe.
        let unwritten = self.lock();
        let unread = cfg!(target_os = "linux").then(|| ioctl_fionread(&self.pipe).ok()).flatten()?;
        unwritten.written.checked_sub(unread)
    }
}

impl Unwritten {
    /// Writes all lines, or as much as fits.
    fn write(&mut self, pipe: &pipe::Sender) -> io::Result<()> {
        while let Some(line) = self.lines.front() {
            let count = pipe.try_write(&line[self.begun..])?;
            self.written += count as u64;
            self.begun += count;
            if self.begun == line.len() {
                self.lines.pop_front();
                self.begun = 0;
            }
        }
        Ok(())
    }
}

fn is_full(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// The two requests that can begin a connection. rmcp sends `initialize` when a slow server has not answered
/// `server/discover` for 10 s, and then takes a late answer to that for a fault.
#[derive(Default)]
struct Handshake {
    discover: Option<RequestId>,
    initialize: Option<RequestId>,
}

impl Handshake {
    fn sent(&mut self, message: &ClientJsonRpcMessage) {
        if let JsonRpcMessage::Request(request) = message {
            match request.request {
                ClientRequest::DiscoverRequest(_) => self.discover = Some(request.id.clone()),
                ClientRequest::InitializeRequest(_) => self.initialize = Some(request.id.clone()),
                _ => {}
            }
        }
    }

    /// The message for rmcp: a late answer to `server/discover` is given to it as the answer to `initialize`
    /// if it says all that is needed, and is left out otherwise.
    fn received(&self, server: &str, message: ServerJsonRpcMessage) -> Option<ServerJsonRpcMessage> {
        let (Some(discover), Some(initialize)) = (&self.discover, &self.initialize) else {
            return Some(message);
        };
        // Some servers return a number as a string.
        let is_late = |id: &RequestId| id.to_string() == discover.to_string();
        match message {
            JsonRpcMessage::Error(error) if error.id.as_ref().is_some_and(is_late) => None,
            JsonRpcMessage::Response(response) if is_late(&response.id) => {
                let ServerResult::DiscoverResult(found) = response.result else { return None };
                let mut versions = ProtocolVersion::KNOWN_VERSIONS.iter().rev();
                let mut result = InitializeResult::default();
                result.protocol_version = versions
                    .find(|version| !version.has_initialize() && found.supported_versions.contains(version))?
                    .clone();
                result.server_info = found.server_info().unwrap_or_else(|| Implementation::new(server, ""));
                (result.capabilities, result.instructions) = (found.capabilities, found.instructions);
                Some(ServerJsonRpcMessage::response(
                    ServerResult::InitializeResult(result),
                    initialize.clone(),
                ))
            }
            message => Some(message),
        }
    }
}

impl Transport<RoleClient> for Lines {
    type Error = Infallible;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
        self.handshake.sent(&message);
        match self.exchange.write(message) {
            Ok((line, request)) => {
                let place = self.stdin.write(line);
                if let Some(id) = request {
                    self.exchange.set_offset(&id, place);
                }
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
                    // The answer's request is unknown, so no request may go on waiting.
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
                Ok(Some(message)) => {
                    if let Some(message) = self.handshake.received(&self.server, message) {
                        return Some(message);
                    }
                }
                Err(error) if !std::mem::replace(&mut self.has_warned, true) => {
                    let (server, bytes) = (&*self.server, line.len());
                    tracing::warn!(
                        server, bytes, %error,
                        "the server wrote a line to stdout that is not MCP; further ones are not reported"
                    );
                }
                Ok(None) | Err(_) => {}
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Infallible>> + Send {
        std::future::ready(Ok(()))
    }
}
