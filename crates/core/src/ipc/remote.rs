//! A session in another process, as a source of tools.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::task::Poll;
use std::time::Duration;

use crate::{
    Answer, Budget, CallContext, CallFuture, Changes, Pending, RawJson, ToolCall, ToolError, ToolList,
    ToolSource,
};
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::ipc::IpcError;
use crate::ipc::connection::{IpcConnection, check_socket_path};
use crate::ipc::files::SessionId;
use crate::ipc::frame::check_size;
use crate::ipc::message::{
    ParentMessage, Watched, read_parent_message, read_watched, write_answer, write_call, write_watch,
};
use crate::ipc::schema_file::read_schema_file;
use crate::tool::lock::lock;

/// How many bytes of large answers are held at a time, for a client that does not read them.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// How many idle connections are kept: each costs the parent a descriptor, and a new one more than a small call.
const MAX_IDLE_CONNECTIONS: usize = 8;

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
    session: Arc<RemoteSession>,
    follower: Follower,
}

/// The task that keeps a list up to date, if it has been started.
pub(crate) type Follower = OnceLock<AbortOnDropHandle<()>>;

/// Starts the task, if it does not run yet and this is inside a runtime.
pub(crate) fn start_following<F>(follower: &Follower, follow: impl FnOnce() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    if follower.get().is_none()
        && let Ok(runtime) = Handle::try_current()
    {
        follower.get_or_init(|| AbortOnDropHandle::new(runtime.spawn(follow())));
    }
}

/// A session in another process: its tools, and the connections to it.
#[derive(Debug)]
pub(crate) struct RemoteSession {
    socket: PathBuf,
    schema: Option<PathBuf>,
    /// Whether the parent supports our extensions.
    is_ours: bool,
    /// Held by the call that runs, if the parent is another implementation: such a parent may not expect calls that
    /// overlap.
    one_at_a_time: tokio::sync::Mutex<()>,
    list: RwLock<ToolList>,
    changed: Arc<watch::Sender<()>>,
    /// The idle connections; the last used one is at the end.
    pool: Mutex<Vec<IpcConnection>>,
    answers: Budget,
}

impl Remote {
    /// A remote for the session at `socket` with those tools. Does not connect yet.
    ///
    /// # Errors
    ///
    /// When the path is too long for a socket.
    pub fn new(socket: impl Into<PathBuf>, tools: ToolList) -> Result<Self, IpcError> {
        RemoteSession::new(socket.into(), None, tools, Arc::default()).map(Self::of)
    }

    /// A remote for the session at `socket` with the tools of its schema file, also when they change. It follows
    /// changes from now on; outside a runtime, from its first use inside one.
    ///
    /// # Errors
    ///
    /// When the path is too long for a socket, or the file cannot be used.
    pub fn open(socket: impl Into<PathBuf>, schema: impl Into<PathBuf>) -> Result<Self, IpcError> {
        let remote = RemoteSession::open(socket.into(), schema.into(), Arc::default()).map(Self::of)?;
        remote.follow();
        Ok(remote)
    }

    fn follow(&self) {
        let session = Arc::clone(&self.session);
        start_following(&self.follower, || async move { session.follow().await });
    }

    fn of(session: RemoteSession) -> Self {
        Self { session: Arc::new(session), follower: Follower::default() }
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
        self.session.relay(call, context).await
    }

    /// How many calls the session has begun to answer; `None` if it does not report that.
    pub async fn count_calls(&self) -> Option<u64> {
        let mut connection = self.session.connect().await.ok()?;
        Some(watch(&mut connection, None).await.ok()?.calls)
    }
}

/// Requests a revision other than the `known` one, and waits for it.
async fn watch(connection: &mut IpcConnection, known: Option<u64>) -> Result<Watched, IpcError> {
    connection.send(&write_watch(known)).await?;
    read_watched(&connection.reader.read_frame().await?.ok_or_else(closed)?)
}

/// The session whose file it is.
fn id_of(path: &Path) -> Option<SessionId> {
    path.file_name().and_then(SessionId::of).map(|(id, _)| id)
}

impl RemoteSession {
    fn new(
        socket: PathBuf,
        schema: Option<PathBuf>,
        list: ToolList,
        changed: Arc<watch::Sender<()>>,
    ) -> Result<Self, IpcError> {
        check_socket_path(&socket)?;
        let id = id_of(&socket).filter(|id| id.is_ours());
        Ok(Self {
            is_ours: id.is_some(),
            one_at_a_time: tokio::sync::Mutex::default(),
            socket,
            // `watch_tools` is an extension, so only our own sessions are asked.
            schema: schema.filter(|schema| id.is_some() && id_of(schema) == id),
            list: RwLock::new(list),
            changed,
            pool: Mutex::default(),
            answers: Budget::new(MAX_ANSWER_BYTES),
        })
    }

    /// A session that notifies `changed` when its tools have changed, as long as `follow` runs.
    pub(crate) fn open(
        socket: PathBuf,
        schema: PathBuf,
        changed: Arc<watch::Sender<()>>,
    ) -> Result<Self, IpcError> {
        let list = read_schema_file(&schema)?;
        Self::new(socket, Some(schema), list, changed)
    }

    pub(crate) fn tools(&self) -> ToolList {
        self.list.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps the list up to date, and returns when the parent is gone. If the parent does not report changes, it
    /// waits for the end of the connection.
    pub(crate) async fn follow(&self) {
        let Some(schema) = &self.schema else { return };
        let [shortest, longest] = FOLLOW_AGAIN;
        let mut pause = shortest;
        loop {
            let following = async {
                let (mut connection, mut known) = (self.connect().await?, None);
                loop {
                    let watched = watch(&mut connection, known).await;
                    if let Err(IpcError::Invalid { reason }) = &watched {
                        tracing::debug!(reason, "the list of tools stays as it is");
                        connection.reader.closed().await;
                    }
                    known = Some(watched?.revision);
                    pause = shortest;
                    self.reload(schema)?;
                }
            };
            let Err::<Infallible, _>(error) = following.await;
            if let IpcError::Connect { error, .. } = &error
                && matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
            {
                return;
            }
            // It may be gone, which the next attempt shows; or there is a temporary problem here.
            tracing::debug!(%error, "the parent cannot be followed for now");
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(longest);
        }
    }

    /// Reads the schema file again.
    fn reload(&self, schema: &Path) -> Result<(), IpcError> {
        let list = read_schema_file(schema)?;
        if list[..] != self.tools()[..] {
            *self.list.write().unwrap_or_else(PoisonError::into_inner) = list;
            self.changed.send_replace(());
        }
        Ok(())
    }

    async fn relay(
        &self,
        mut call: ToolCall,
        context: CallContext,
    ) -> Result<Result<RawJson, ToolError>, IpcError> {
        let wants_progress = call.meta.progress_token.is_some();
        // An extension, like naming the client and `watch_tools`.
        call.meta.can_ask = context.can_ask() && self.is_ours;
        let can_ask = call.meta.can_ask;
        let client = call.meta.caller.take().filter(|_| self.schema.is_some());
        // Checked before a connection is used for it.
        check_size(write_call(&call, None).size())?;
        let _turn = if self.is_ours { None } else { Some(self.one_at_a_time.lock().await) };
        let mut connection = loop {
            let kept = self.kept();
            let was_kept = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            let client = client.clone().filter(|_| connection.introduced != client);
            match connection.send(&write_call(&call, client.as_deref())).await {
                Ok(()) => {
                    connection.introduced = client.or(connection.introduced);
                    break connection;
                }
                // The parent closed it between two calls, so it cannot have run this one.
                Err(IpcError::Unsent { .. }) if was_kept => tracing::debug!("a kept connection had closed"),
                Err(error) => return Err(in_call(error)),
            }
        };
        // The arguments may be large, and the answer may take long.
        drop(call);
        context.mark_sent();
        let mut questions = BTreeMap::new();
        let outcome = loop {
            let frame = tokio::select! {
                biased;
                frame = connection.reader.read_frame() => frame.map_err(in_call)?,
                (id, answer) = next_answer(&mut questions) => {
                    connection.send(&write_answer(id, answer)).await.map_err(in_call)?;
                    continue;
                }
            };
            match read_parent_message(&frame.ok_or_else(closed)?)? {
                ParentMessage::Result(result) => break Ok(result),
                ParentMessage::Error(error) => break Err(error),
                ParentMessage::Progress(Some(report)) if wants_progress => {
                    context.progress(report.progress, report.total, report.message.as_deref());
                }
                ParentMessage::Progress(None) if wants_progress => {
                    tracing::debug!("a progress report cannot be read");
                }
                ParentMessage::Ask(id, Some(question)) if can_ask => {
                    questions.insert(id, context.put(question));
                }
                ParentMessage::Ask(id, None) if can_ask => _ = questions.remove(&id),
                ParentMessage::Progress(_) | ParentMessage::Ask(..) => {
                    let reason = "the parent sent progress or a question that was not requested".into();
                    return Err(IpcError::Invalid { reason });
                }
            }
        };
        context.mark_answered();
        let mut pool = lock(&self.pool);
        if pool.len() < MAX_IDLE_CONNECTIONS {
            pool.push(connection);
        }
        Ok(outcome)
    }

    /// A kept connection that is still usable, as far as is known.
    fn kept(&self) -> Option<IpcConnection> {
        let mut pool = lock(&self.pool);
        // The parent may have closed it meanwhile, or may have sent something unexpected.
        std::iter::from_fn(|| pool.pop()).find(IpcConnection::is_fresh)
    }

    async fn connect(&self) -> Result<IpcConnection, IpcError> {
        let error = match UnixStream::connect(&self.socket).await {
            Ok(stream) => {
                tracing::debug!(socket = %self.socket.display(), "connected");
                return IpcConnection::new(stream, self.answers.clone());
            }
            Err(error) => error,
        };
        let path = self.socket.clone();
        let other = std::fs::symlink_metadata(&path);
        Err(if other.is_ok_and(|other| !other.file_type().is_socket()) {
            IpcError::NotASocket { path }
        } else {
            IpcError::Connect { path, error }
        })
    }

    pub(crate) fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        Box::pin(async { self.relay(call, context).await? })
    }
}

/// Waits for the next answer to a question; those that nobody can be asked are answered at once. Cancel-safe.
async fn next_answer(questions: &mut BTreeMap<u64, Option<Pending>>) -> (u64, Result<Answer, ToolError>) {
    let (id, answer) = poll_fn(|context| {
        for (id, pending) in questions.iter_mut() {
            let answer = match pending {
                Some(pending) => Pin::new(pending).poll(context),
                None => Poll::Ready(Ok(Answer::Nobody)),
            };
            if let Poll::Ready(answer) = answer {
                return Poll::Ready((*id, answer));
            }
        }
        Poll::Pending
    })
    .await;
    questions.remove(&id);
    (id, answer)
}

fn lost(reason: impl std::fmt::Display) -> IpcError {
    IpcError::Lost { reason: reason.to_string() }
}

fn closed() -> IpcError {
    lost("it closed the connection")
}

/// An error of the socket in the middle of a call.
fn in_call(error: IpcError) -> IpcError {
    match error {
        IpcError::Unsent { error } | IpcError::Io { error } => lost(error),
        error => error,
    }
}

impl ToolSource for Remote {
    fn tools(&self) -> ToolList {
        self.follow();
        self.session.tools()
    }

    fn changes(&self) -> Changes {
        self.follow();
        Changes::of(self.session.changed.subscribe())
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        self.session.call(call, context)
    }
}
