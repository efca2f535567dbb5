//! A session in another process, as a source of tools.

use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::UnixStream;
use toolbridge_core::{Budget, CallContext, CallFuture, RawJson, ToolCall, ToolError, ToolList, ToolSource};

use crate::IpcError;
use crate::connection::{Connection, check_socket_path};
use crate::frame::check_size;
use crate::idle::Idle;
use crate::message::{Parts, Reply, read_reply, write_request};
use crate::peer::{LOOK, Peer};

/// Large answers held at a time, for a client that does not read them.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// How long a full queue is waited for. A parent that runs empties its queue; whether one does that never could be
/// connected to is not known.
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);

/// How long until it is tried again.
const BUSY_PAUSE: Duration = Duration::from_millis(2);

/// The bridge's end of a session.
///
/// It connects on the first call and keeps the connection. A call that finds all connections busy opens
/// another one, so each carries one request at a time. Dropping a call closes its connection, which is
/// how the parent learns that the call is cancelled.
#[derive(Debug)]
pub struct Remote {
    socket: PathBuf,
    tools: ToolList,
    idle: Arc<Idle>,
    /// Who listened when last somebody did.
    parent: Mutex<Option<Peer>>,
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
        Ok(Self {
            socket,
            tools,
            idle: Arc::default(),
            parent: Mutex::default(),
            answers: Budget::new(MAX_ANSWER_BYTES),
        })
    }

    /// Calls a tool; the outer error is one of the connection, the inner one is what the parent answered.
    ///
    /// # Errors
    ///
    /// When the parent cannot be reached, or the request or its answer cannot be carried.
    pub async fn relay(
        &self,
        call: ToolCall,
        context: CallContext,
    ) -> Result<Result<RawJson, ToolError>, IpcError> {
        let wants_progress = call.meta.progress_token.is_some();
        let request = write_request(call);
        // An oversize request costs no connection.
        check_size(request.size())?;
        let mut exchange = Exchange { request: Some(request), wants_progress, context };
        loop {
            let kept = self.idle.take();
            let reused = kept.is_some();
            let mut link = match kept {
                Some(link) => link,
                None => self.connect().await?,
            };
            let parent_fails = link.parent_fails();
            let hunger = self.idle.make_room((!reused).then(|| link.connection.socket()));
            let outcome = tokio::select! {
                biased;
                outcome = exchange.run(&mut link.connection) => outcome,
                reason = parent_fails => return Err(lost(reason)),
                never = hunger => match never {},
            };
            match outcome {
                Ok(outcome) => {
                    self.idle.keep(link);
                    return Ok(outcome);
                }
                // The parent closed it between two calls, and cannot have run this one.
                Err(IpcError::Unsent { .. }) if reused => tracing::debug!("a kept connection had closed"),
                Err(IpcError::Unsent { error } | IpcError::Io { error }) => return Err(lost(error)),
                Err(error) => return Err(error),
            }
        }
    }

    async fn connect(&self) -> Result<Link, IpcError> {
        let started = Instant::now();
        let mut watch = self.parent().map(Peer::watch);
        let mut looked = started;
        let stream = loop {
            let error = match UnixStream::connect(&self.socket).await {
                Ok(stream) => break stream,
                Err(error) => error,
            };
            // The parent's queue of connections is full for the moment; or for ever, if nobody empties it.
            let is_full = error.kind() == io::ErrorKind::WouldBlock;
            if is_full && started.elapsed() < CONNECT_PATIENCE {
                tokio::time::sleep(BUSY_PAUSE).await;
                if looked.elapsed() >= LOOK {
                    looked = Instant::now();
                    if let Some(reason) = watch.as_mut().and_then(|watch| watch.look(|| true)) {
                        let error = io::Error::new(io::ErrorKind::NotConnected, reason);
                        return Err(IpcError::Connect { path: self.socket.clone(), error });
                    }
                }
                continue;
            }
            let other = std::fs::symlink_metadata(&self.socket);
            return Err(if other.is_ok_and(|other| !other.file_type().is_socket()) {
                IpcError::NotASocket { path: self.socket.clone() }
            } else {
                IpcError::Connect { path: self.socket.clone(), error }
            });
        };
        tracing::debug!(socket = %self.socket.display(), "connected");
        let parent = Peer::new(stream.peer_cred()?.pid());
        *self.parent() = parent;
        Ok(Link { connection: Connection::new(stream)?.within(self.answers.clone()), parent })
    }

    fn parent(&self) -> MutexGuard<'_, Option<Peer>> {
        self.parent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection, and the process that listened when it was made.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) connection: Connection,
    parent: Option<Peer>,
}

impl Link {
    /// Waits until no answer can be expected any more; says why. It borrows nothing: meanwhile the call goes on.
    fn parent_fails(&self) -> impl Future<Output = &'static str> + use<> {
        let watched = self.parent.map(|parent| (parent, self.connection.socket()));
        async {
            match watched {
                Some((parent, socket)) => parent.fails(socket).await,
                None => std::future::pending().await,
            }
        }
    }
}

/// A request, and what it takes to get its answer.
struct Exchange {
    /// Until it has been sent: the arguments may be large, and the answer may take long.
    request: Option<Parts>,
    wants_progress: bool,
    context: CallContext,
}

impl Exchange {
    /// Sends the request and waits for its answer.
    async fn run(&mut self, connection: &mut Connection) -> Result<Result<RawJson, ToolError>, IpcError> {
        let Some(request) = &self.request else {
            return Err(lost("the request has been sent before"));
        };
        connection.send(request).await?;
        self.context.mark_sent();
        self.request = None;
        let outcome = loop {
            let Some(frame) = connection.reader.read_frame().await? else {
                return Err(lost("it closed the connection"));
            };
            match read_reply(&frame)? {
                Reply::Result(result) => break Ok(result),
                Reply::Error(error) => break Err(error),
                Reply::Progress(_) if !self.wants_progress => {
                    let reason = "the parent sent progress that nobody asked for".into();
                    return Err(IpcError::Invalid { reason });
                }
                Reply::Progress(Some(report)) => {
                    self.context.progress(report.progress, report.total, report.message.as_deref());
                }
                Reply::Progress(None) => tracing::debug!("a progress report cannot be read"),
            }
        };
        self.context.mark_answered();
        Ok(outcome)
    }
}

fn lost(reason: impl std::fmt::Display) -> IpcError {
    IpcError::Lost { reason: reason.to_string() }
}

impl ToolSource for Remote {
    fn tools(&self) -> ToolList {
        self.tools.clone()
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        Box::pin(async { self.relay(call, context).await? })
    }
}
