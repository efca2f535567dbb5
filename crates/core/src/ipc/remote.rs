//! A session in another process, as a source of tools.

use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::{
    Answer, Budget, CallContext, CallFuture, Changes, Client, RawJson, ToolCall, ToolError, ToolList,
    ToolSource,
};
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::ipc::IpcError;
use crate::ipc::connection::{Connection, check_socket_path};
use crate::ipc::files::SessionId;
use crate::ipc::frame::check_size;
use crate::ipc::idle::Idle;
use crate::ipc::message::{Parts, Reply, introduce, read_reply, write_answer, write_request};
use crate::ipc::peer::{LOOK, Peer};
use crate::ipc::questions::PassedOn;
use crate::ipc::schema_file::{Stamp, read_stamped};
use crate::ipc::watch::{Watched, read_watched, write_watch};

/// How many bytes of large answers are held at a time, for a client that does not read them.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// How long to retry while the parent's accept queue is full. A running parent empties its queue; the state of one
/// that was never connected to is unknown.
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);

/// The pause between these retries.
const BUSY_PAUSE: Duration = Duration::from_millis(2);

/// The pause before following the parent's tools again after it closed the connection: the first one, and the
/// longest.
const FOLLOW_AGAIN: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(5)];

/// The bridge's end of a session.
///
/// It connects on the first call and keeps the connection. If all connections are busy, a call opens another one,
/// so each carries one request at a time; a parent that is another implementation gets one call at a time.
/// Dropping a call closes its connection, which tells the parent that the call is cancelled. A remote made by
/// [`open`](Self::open) inside a runtime waits for changes on a separate connection.
#[derive(Debug)]
pub struct Remote {
    link: Arc<Parent>,
    /// The task that keeps the list up to date.
    follower: OnceLock<AbortOnDropHandle<()>>,
}

/// The parent's end.
#[derive(Debug)]
pub(crate) struct Parent {
    socket: PathBuf,
    schema: Option<PathBuf>,
    /// Whether the parent supports our extensions.
    is_ours: bool,
    /// Held by the call that runs, if the parent is another implementation: such a parent may not expect calls that
    /// overlap.
    one_at_a_time: tokio::sync::Mutex<()>,
    list: RwLock<(ToolList, Stamp)>,
    changed: Arc<watch::Sender<()>>,
    idle: Arc<Idle>,
    /// The process that listened at the last successful connect.
    peer: Mutex<Option<Peer>>,
    answers: Budget,
}

impl Remote {
    /// A remote for the session at `socket` with those tools. Does not connect yet.
    ///
    /// # Errors
    ///
    /// When the path is too long for a socket.
    pub fn new(socket: impl Into<PathBuf>, tools: ToolList) -> Result<Self, IpcError> {
        Parent::new(socket.into(), None, (tools, Stamp::default()), Arc::default()).map(Self::of)
    }

    /// A remote for the session at `socket` with the tools of its schema file, also when they change. It follows
    /// changes from now on; outside a runtime, from its first use inside one.
    ///
    /// # Errors
    ///
    /// When the path is too long for a socket, or the file cannot be used.
    pub fn open(socket: impl Into<PathBuf>, schema: impl Into<PathBuf>) -> Result<Self, IpcError> {
        let remote = Parent::open(socket.into(), schema.into(), Arc::default()).map(Self::of)?;
        remote.follow();
        Ok(remote)
    }

    /// Keeps the list up to date from now on, if this is inside a runtime.
    fn follow(&self) {
        if self.follower.get().is_none()
            && self.link.schema.is_some()
            && let Ok(runtime) = Handle::try_current()
        {
            let link = Arc::clone(&self.link);
            self.follower
                .get_or_init(|| AbortOnDropHandle::new(runtime.spawn(async move { link.follow().await })));
        }
    }

    fn of(parent: Parent) -> Self {
        Self { link: Arc::new(parent), follower: OnceLock::new() }
    }

    /// Calls a tool; the outer error is one of the connection, the inner one is the parent's answer.
    ///
    /// # Errors
    ///
    /// When the parent cannot be reached, or the request or its answer cannot be transmitted.
    pub async fn relay(
        &self,
        call: ToolCall,
        context: CallContext,
    ) -> Result<Result<RawJson, ToolError>, IpcError> {
        self.link.relay(call, context).await
    }

    /// How many calls the session has begun to answer; `None` if it does not report that.
    pub async fn count_calls(&self) -> Option<u64> {
        let mut connection = self.link.connect().await.ok()?.connection;
        Some(ask(&mut connection, None).await.ok()?.calls)
    }
}

/// Requests a revision other than the `known` one, and waits for it.
async fn ask(connection: &mut Connection, known: Option<u64>) -> Result<Watched, IpcError> {
    connection.send(&write_watch(known)).await?;
    match connection.reader.read_frame().await? {
        Some(frame) => read_watched(&frame),
        None => Err(lost("it closed the connection")),
    }
}

/// The session whose file it is.
fn id_of(path: &Path) -> Option<SessionId> {
    path.file_name().and_then(SessionId::of).map(|(id, _)| id)
}

impl Parent {
    fn new(
        socket: PathBuf,
        schema: Option<PathBuf>,
        list: (ToolList, Stamp),
        changed: Arc<watch::Sender<()>>,
    ) -> Result<Self, IpcError> {
        check_socket_path(&socket)?;
        let is_ours = id_of(&socket).is_some_and(SessionId::is_ours);
        Ok(Self {
            is_ours,
            one_at_a_time: tokio::sync::Mutex::default(),
            socket,
            schema,
            list: RwLock::new(list),
            changed,
            idle: Arc::default(),
            peer: Mutex::default(),
            answers: Budget::new(MAX_ANSWER_BYTES),
        })
    }

    /// A parent that notifies `changed` when its tools have changed, as long as `follow` runs.
    pub(crate) fn open(
        socket: PathBuf,
        schema: PathBuf,
        changed: Arc<watch::Sender<()>>,
    ) -> Result<Self, IpcError> {
        let list = read_stamped(&schema)?;
        // `watch_tools` is an extension, so only our own sessions are asked.
        let is_ours = id_of(&socket).is_some_and(|own| own.is_ours() && Some(own) == id_of(&schema));
        let schema = is_ours.then_some(schema);
        Self::new(socket, schema, list, changed)
    }

    pub(crate) fn tools(&self) -> ToolList {
        self.list.read().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// Keeps the list up to date, and returns when the parent is gone. If the parent does not report changes, it
    /// waits for the end of the connection.
    pub(crate) async fn follow(&self) {
        let Some(schema) = &self.schema else { return };
        let [shortest, longest] = FOLLOW_AGAIN;
        let mut pause = shortest;
        loop {
            match self.connect().await {
                Ok(Link { mut connection, .. }) => {
                    let Err(error) = self.follow_on(&mut connection, schema, || pause = shortest).await;
                    if let IpcError::Invalid { reason } = error {
                        tracing::debug!(reason, "the list of tools stays as it is");
                        connection.reader.closed().await;
                    } else {
                        tracing::debug!(%error, "the parent closed the connection");
                    }
                }
                Err(IpcError::Connect { error, .. })
                    if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) =>
                {
                    return;
                }
                // A temporary problem, such as a lack of descriptors here or a stopped parent.
                Err(error) => tracing::debug!(%error, "the parent cannot be followed for now"),
            }
            // The parent may have needed the descriptor for a call; or it may be gone, which the next attempt
            // shows.
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(longest);
        }
    }

    async fn follow_on(
        &self,
        connection: &mut Connection,
        schema: &Path,
        mut answered: impl FnMut(),
    ) -> Result<std::convert::Infallible, IpcError> {
        let mut known = None;
        loop {
            let watched = ask(connection, known).await?;
            answered();
            known = Some(watched.revision);
            self.reload(schema).map_err(lost)?;
        }
    }

    /// Reads the schema file again, if it was replaced.
    fn reload(&self, schema: &Path) -> Result<(), IpcError> {
        let known = self.list.read().unwrap_or_else(PoisonError::into_inner).1;
        if Stamp::of(schema).is_ok_and(|stamp| stamp == known) {
            return Ok(());
        }
        let list = read_stamped(schema)?;
        *self.list.write().unwrap_or_else(PoisonError::into_inner) = list;
        self.changed.send_replace(());
        Ok(())
    }

    async fn relay(
        &self,
        mut call: ToolCall,
        context: CallContext,
    ) -> Result<Result<RawJson, ToolError>, IpcError> {
        let wants_progress = call.meta.progress_token.is_some();
        // An extension, like `watch_tools`.
        let can_ask = context.can_ask() && self.is_ours;
        call.meta.can_ask = can_ask;
        let client = call.meta.client.clone();
        let request = write_request(call);
        // Checked before a connection is used for it.
        check_size(request.size())?;
        let _turn = if self.is_ours { None } else { Some(self.one_at_a_time.lock().await) };
        let mut exchange = Exchange { request: Some(request), wants_progress, can_ask, context };
        loop {
            let kept = self.idle.take();
            let reused = kept.is_some();
            let mut link = match kept {
                Some(link) => link,
                None => self.connect().await?,
            };
            // An extension, like `watch_tools`.
            let is_new = |client: &Arc<Client>| {
                self.schema.is_some() && link.introduced.as_ref().is_none_or(|known| known != client)
            };
            if let (Some(request), Some(client)) = (&mut exchange.request, client.clone().filter(is_new)) {
                introduce(request, &client);
                link.introduced = Some(client);
            }
            let parent_fails = link.parent_fails();
            let make_room = self.idle.make_room((!reused).then(|| link.connection.socket()));
            let outcome = tokio::select! {
                biased;
                outcome = exchange.run(&mut link.connection) => outcome,
                reason = parent_fails => return Err(lost(reason)),
                never = make_room => match never {},
            };
            match outcome {
                Ok(outcome) => {
                    self.idle.keep(link);
                    return Ok(outcome);
                }
                // The parent closed it between two calls, so it cannot have run this one.
                Err(IpcError::Unsent { .. }) if reused => tracing::debug!("a kept connection had closed"),
                Err(IpcError::Unsent { error } | IpcError::Io { error }) => return Err(lost(error)),
                Err(error) => return Err(error),
            }
        }
    }

    async fn connect(&self) -> Result<Link, IpcError> {
        let started = Instant::now();
        let mut watch = self.peer().map(Peer::watch);
        let mut looked = started;
        let stream = loop {
            let error = match UnixStream::connect(&self.socket).await {
                Ok(stream) => break stream,
                Err(error) => error,
            };
            // The parent's accept queue is full; temporarily, or permanently if the parent no longer accepts.
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
        *self.peer() = parent;
        let connection = Connection::new(stream)?.within(self.answers.clone());
        Ok(Link { connection, parent, introduced: None })
    }

    fn peer(&self) -> MutexGuard<'_, Option<Peer>> {
        self.peer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection, and the process that listened when it was made.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) connection: Connection,
    parent: Option<Peer>,
    /// The client that was sent on this connection.
    introduced: Option<Arc<Client>>,
}

impl Link {
    /// Waits until no answer can be expected any more; returns why. Borrows nothing, so that the call can use the
    /// connection.
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

/// A request and what is needed to get its answer.
struct Exchange {
    /// `None` once sent: the arguments may be large, and the answer may take long.
    request: Option<Parts>,
    wants_progress: bool,
    can_ask: bool,
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
        let mut questions = PassedOn::default();
        let outcome = loop {
            let frame = tokio::select! {
                biased;
                frame = connection.reader.read_frame() => frame?,
                (id, answer) = questions.next() => {
                    connection.send(&sized(id, answer)).await?;
                    continue;
                }
            };
            let Some(frame) = frame else { return Err(lost("it closed the connection")) };
            match read_reply(&frame)? {
                Reply::Result(result) => break Ok(result),
                Reply::Error(error) => break Err(error),
                Reply::Progress(_) if !self.wants_progress => {
                    let reason = "the parent sent progress that was not requested".into();
                    return Err(IpcError::Invalid { reason });
                }
                Reply::Progress(Some(report)) => {
                    self.context.progress(report.progress, report.total, report.message.as_deref());
                }
                Reply::Progress(None) => tracing::debug!("a progress report cannot be read"),
                Reply::Ask(_) if !self.can_ask => {
                    let reason = "the parent asks, though nobody said that this bridge can".into();
                    return Err(IpcError::Invalid { reason });
                }
                Reply::Ask(ask) => questions.take(ask, &self.context),
            }
        };
        self.context.mark_answered();
        Ok(outcome)
    }
}

/// The answer, or an error if it is too large.
fn sized(id: u64, answer: Result<Answer, ToolError>) -> Parts {
    let parts = write_answer(id, answer);
    match check_size(parts.size()) {
        Ok(()) => parts,
        Err(error) => write_answer(id, Err(ToolError::new(error.type_name(), error.to_string()))),
    }
}

fn lost(reason: impl std::fmt::Display) -> IpcError {
    IpcError::Lost { reason: reason.to_string() }
}

impl Parent {
    pub(crate) fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        Box::pin(async { self.relay(call, context).await? })
    }
}

impl ToolSource for Remote {
    fn tools(&self) -> ToolList {
        self.follow();
        self.link.tools()
    }

    fn changes(&self) -> Changes {
        self.follow();
        Changes::of(self.link.changed.subscribe())
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        self.link.call(call, context)
    }
}
