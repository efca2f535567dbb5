//! A session in another process, as a source of tools.

use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::net::UnixStream;
use toolbridge_core::{Budget, CallContext, CallFuture, RawJson, ToolCall, ToolError, ToolList, ToolSource};

use crate::IpcError;
use crate::connection::{Connection, check_socket_path};
use crate::frame::check_size;
use crate::message::{Reply, read_reply, write_request};

/// Large answers held at a time, for a client that does not read them.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Connections kept for later calls: as many as a busy client has calls in flight. Making a new one costs
/// more than a small call.
const MAX_IDLE_CONNECTIONS: usize = 64;

/// The bridge's end of a session.
///
/// It connects on the first call and keeps the connection. A call that finds all connections busy opens
/// another one, so each carries one request at a time. Dropping a call closes its connection, which is
/// how the parent learns that the call is cancelled.
#[derive(Debug)]
pub struct Remote {
    socket: PathBuf,
    tools: ToolList,
    idle: Mutex<Vec<Connection>>,
    answers: Budget,
}

impl Remote {
    /// A remote of the session at `socket` with the tools of its schema file. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// When the path is too long to be a socket's.
    pub fn new(socket: impl Into<PathBuf>, tools: ToolList) -> Result<Self, IpcError> {
        let socket = socket.into();
        check_socket_path(&socket)?;
        Ok(Self { socket, tools, idle: Mutex::default(), answers: Budget::new(MAX_ANSWER_BYTES) })
    }

    async fn relay(
        &self,
        call: ToolCall,
        context: CallContext,
    ) -> Result<Result<RawJson, ToolError>, IpcError> {
        let wants_progress = call.meta.progress_token.is_some();
        let request = write_request(call);
        // An oversize request costs no connection.
        check_size(request.size())?;
        let mut connection = loop {
            let kept = self.kept();
            let reused = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            match connection.send(&request).await {
                Ok(()) => break connection,
                // The parent closed it between two calls, and cannot have run this one.
                Err(IpcError::Unsent { .. }) if reused => tracing::debug!("a kept connection had closed"),
                Err(error) => return Err(lost(error)),
            }
        };
        context.mark_sent();
        // The arguments may be large, and the answer may take long.
        drop(request);
        let outcome = loop {
            let frame = match connection.reader.read_frame().await {
                Ok(Some(frame)) => frame,
                Ok(None) => return Err(lost("it closed the connection")),
                Err(IpcError::Io { error }) => return Err(lost(error)),
                Err(error) => return Err(error),
            };
            match read_reply(&frame)? {
                Reply::Result(result) => break Ok(result),
                Reply::Error(error) => break Err(error),
                Reply::Progress(_) if !wants_progress => {
                    let reason = "the parent sent progress that nobody asked for".into();
                    return Err(IpcError::Invalid { reason });
                }
                Reply::Progress(Some(report)) => {
                    context.progress(report.progress, report.total, report.message.as_deref());
                }
                Reply::Progress(None) => tracing::debug!("a progress report cannot be read"),
            }
        };
        context.mark_answered();
        self.keep(connection);
        Ok(outcome)
    }

    /// A kept connection that is still good, as far as is known.
    fn kept(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // The parent may have closed it since, or may have sent what nobody asked for.
        std::iter::from_fn(|| idle.pop()).find(Connection::is_fresh)
    }

    async fn connect(&self) -> Result<Connection, IpcError> {
        const BUSY_PAUSE: Duration = Duration::from_millis(2);
        let stream = loop {
            match UnixStream::connect(&self.socket).await {
                Ok(stream) => break stream,
                // The parent's queue of connections is full for the moment.
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(BUSY_PAUSE).await;
                }
                Err(error) => {
                    let other = std::fs::symlink_metadata(&self.socket);
                    return Err(if other.is_ok_and(|other| !other.file_type().is_socket()) {
                        IpcError::NotASocket { path: self.socket.clone() }
                    } else {
                        IpcError::Connect { path: self.socket.clone(), error }
                    });
                }
            }
        };
        tracing::debug!(socket = %self.socket.display(), "connected");
        Ok(Connection::new(stream)?.within(self.answers.clone()))
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE_CONNECTIONS {
            idle.push(connection);
        }
    }
}

fn lost(reason: impl std::fmt::Display) -> IpcError {
    IpcError::Lost { reason: reason.to_string() }
}

impl ToolSource for Remote {
    fn tools(&self) -> &ToolList {
        &self.tools
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        Box::pin(async { self.relay(call, context).await? })
    }
}
