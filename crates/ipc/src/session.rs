//! A session: a tool source on a socket of its own, from start to stop.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;
use toolbridge_core::trace::{Process, TRACE_VARIABLE, Tracer, What, trace_path};
use toolbridge_core::{CancellationToken, Changes, ServerInfo, ToolList, ToolSource, check_server_name};
use tracing::Instrument as _;

use crate::files::{SessionFiles, SessionId, session_dir};
use crate::locate::{BridgeCommand, bridge_executable};
use crate::names::{NameEntry, check_name, names_dirs};
use crate::schema_file::write_schema_file;
use crate::sweep::sweep_briefly;
use crate::{IpcError, Server};

/// Tells a bridge how to introduce itself, as JSON. It asks the session nothing before the first call.
const SERVER_VARIABLE: &str = "TOOLBRIDGE_SERVER";

/// How the session that this process is a bridge of wants it to introduce itself.
#[must_use]
pub fn own_server_info() -> ServerInfo {
    let info = std::env::var(SERVER_VARIABLE).ok();
    // What cannot be read was not written by a session.
    info.and_then(|info| serde_json::from_str(&info).ok()).unwrap_or_default()
}

/// How long until a schema file that could not be replaced is tried again.
const WRITE_AGAIN: Duration = Duration::from_secs(1);

/// How long [`Session::stop`] waits for calls to end before it leaves them behind.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// A live session: its socket answers calls until it is stopped or dropped.
///
/// Both ways remove its files, at once. Dropping it needs no runtime and works in a panic. It belongs to the process that
/// started it: a fork keeps neither its socket nor its lock, and dropping the copy there does nothing.
///
/// ```no_run
/// # use std::sync::Arc;
/// # mod toolbridge { pub use toolbridge_core::*; pub use toolbridge_ipc::*; }
/// # use toolbridge::{NoArgs, Toolset};
/// use toolbridge::Session;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let tools = Toolset::builder().tool("hello", "Greets", async |_: NoArgs| "hello").build()?;
/// let session = Session::start(tools).await?;
/// let config = session.mcp_config("tools")?; // for `claude --mcp-config`
/// # let _ = config;
/// session.stop().await;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Session {
    socket: PathBuf,
    schema: PathBuf,
    source: Arc<dyn ToolSource>,
    bridge: Option<PathBuf>,
    trace: Option<PathBuf>,
    server: Option<ServerInfo>,
    tracer: Tracer,
    stop: CancellationToken,
    /// The process that started it; a fork only has a copy.
    owner: u32,
    running: Shared,
}

/// What there is of a session, until it ends.
type Shared = Arc<Mutex<Option<Running>>>;

#[derive(Debug)]
struct Running {
    // Before the files: whoever finds the name can connect.
    name: Option<NameEntry>,
    files: SessionFiles,
    server: JoinHandle<()>,
    /// Keeps the schema file up to date.
    listing: Option<AbortOnDropHandle<()>>,
    _end: SessionEnd,
}

/// Says in the trace that the session has ended.
#[derive(Debug)]
struct SessionEnd {
    id: String,
    tracer: Tracer,
}

impl Drop for SessionEnd {
    fn drop(&mut self) {
        self.tracer.note(|| What::SessionEnd { session: std::mem::take(&mut self.id) });
    }
}

/// A session that has not started: nothing of it exists outside.
#[derive(Debug)]
pub struct SessionBuilder {
    id: SessionId,
    source: Arc<dyn ToolSource>,
    dir: Option<PathBuf>,
    bridge: Option<PathBuf>,
    trace: Option<PathBuf>,
    name: Option<String>,
    names_dir: Option<PathBuf>,
    server: Option<ServerInfo>,
}

impl SessionBuilder {
    /// Gives the session a name, under which `toolbridge attach` finds it: 1 to 48 characters of `A-Z a-z 0-9 _ -`. Several
    /// sessions may have the same one.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Makes the name known in `dir` instead of the user's own directory of names. It must belong to this user alone.
    #[must_use]
    pub fn names_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.names_dir = Some(dir.into());
        self
    }

    /// What the session's MCP server is called, its version, and what a model should know before it uses the tools.
    #[must_use]
    pub fn server(mut self, info: ServerInfo) -> Self {
        self.server = Some(info);
        self
    }

    /// What a model should know before it uses the tools.
    #[must_use]
    pub fn instructions(mut self, instructions: impl Into<String>) -> Self {
        self.server.get_or_insert_default().instructions = Some(instructions.into());
        self
    }

    /// Puts the session's files into `dir` instead of the temporary directory.
    #[must_use]
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Names the executable that the CLI is to start, instead of the one found by
    /// [`bridge_executable`].
    #[must_use]
    pub fn bridge(mut self, executable: impl Into<PathBuf>) -> Self {
        self.bridge = Some(executable.into());
        self
    }

    /// Appends to that file a line of JSON for everything that happens, here and in the bridge; never a
    /// payload. Without this, the file that `TOOLBRIDGE_TRACE` names, if it does.
    #[must_use]
    pub fn trace(mut self, file: impl Into<PathBuf>) -> Self {
        self.trace = Some(file.into());
        self
    }

    /// Starts the session: removes what dead sessions left behind, makes the files, and serves.
    ///
    /// When this returns, a bridge can connect. Needs a tokio runtime, and it must go on running. In a directory
    /// of very many files, dead sessions' may be removed only later.
    ///
    /// # Errors
    ///
    /// When the directory does not exist, cannot be written, is full, or its path is too long; when the name cannot be one, or
    /// others can write to the directory of names; when the trace cannot be written.
    pub async fn start(self) -> Result<Session, IpcError> {
        self.name.as_deref().map(check_name).transpose()?;
        let trace = trace_path(self.trace.as_deref());
        let tracer = Tracer::open(Process::Parent, trace.as_deref())?;
        let dir = self.dir.unwrap_or_else(session_dir);
        let dir = std::path::absolute(&dir).unwrap_or(dir);
        let failed = |what| {
            let dir = dir.clone();
            move |error| IpcError::Start { dir, what, error }
        };
        sweep_briefly(&dir).await.map_err(failed("cannot read the directory"))?;
        // Before the list is taken: what changes from here on is written later.
        let changes = self.source.changes();
        let list = self.source.tools();
        let (files, listener) = SessionFiles::create(&dir, self.id, &write_schema_file(&list))?;
        let listener = listener.try_map(UnixListener::from_std).map_err(failed("cannot listen"))?;

        let stop = CancellationToken::new();
        let id = self.id.text();
        let tools = list.len() as u64;
        tracer.note(|| What::SessionStart { session: id.clone(), tools });
        let revision = watch::Sender::new(0);
        let server = Server::traced(Arc::clone(&self.source), tracer.clone(), Some(revision.subscribe()));
        let stopped = stop.clone();
        let server =
            tokio::spawn(async move { server.serve_private(listener, stopped).await }.in_current_span());
        tracing::debug!(socket = %files.socket().display(), "session started");
        let session = Session {
            socket: files.socket().into(),
            schema: files.schema().into(),
            source: self.source,
            bridge: self.bridge,
            trace,
            server: self.server,
            tracer: tracer.clone(),
            stop,
            owner: std::process::id(),
            running: Shared::default(),
        };
        let running = Running { name: None, files, server, listing: None, _end: SessionEnd { id, tracer } };
        *lock(&session.running) = Some(running);
        let (running, source) = (Arc::clone(&session.running), Arc::clone(&session.source));
        let listing = tokio::spawn(keep_listing(running, source, list, changes, revision).in_current_span());
        session.set(|running| running.listing = Some(AbortOnDropHandle::new(listing)));
        if let Some(name) = self.name {
            let dir = self.names_dir.or_else(|| names_dirs().into_iter().next()).unwrap_or_default();
            let files = (session.socket.as_path(), session.schema.as_path());
            let server = session.server.clone().unwrap_or_default();
            let entry = NameEntry::create(&dir, self.id, &name, files, server)?;
            session.set(|running| running.name = Some(entry));
        }
        Ok(session)
    }
}

/// Writes the schema file anew, and says so, whenever the tools have changed.
async fn keep_listing(
    running: Shared,
    source: Arc<dyn ToolSource>,
    mut listed: ToolList,
    mut changes: Changes,
    revision: watch::Sender<u64>,
) {
    let mut is_behind = false;
    loop {
        tokio::select! {
            () = changes.next() => {}
            () = tokio::time::sleep(WRITE_AGAIN), if is_behind => {}
        }
        let now = source.tools();
        if now.is(&listed) {
            continue;
        }
        // With the lock, so that nothing is written once the session has ended.
        let mut running = lock(&running);
        let Some(running) = running.as_mut() else { return };
        match running.files.replace_schema(&write_schema_file(&now)) {
            Ok(()) => {
                revision.send_modify(|revision| *revision += 1);
                listed = now;
                is_behind = false;
            }
            Err(error) => {
                tracing::warn!(%error, "the schema file cannot be replaced, bridges keep their old list for now");
                is_behind = true;
            }
        }
    }
}

fn lock(running: &Shared) -> MutexGuard<'_, Option<Running>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// A session for `source` that has not started.
    pub fn builder(source: impl ToolSource) -> SessionBuilder {
        SessionBuilder {
            id: SessionId::random(),
            source: Arc::new(source),
            dir: None,
            bridge: None,
            trace: None,
            name: None,
            names_dir: None,
            server: None,
        }
    }

    /// Starts a session for `source` in the temporary directory.
    ///
    /// # Errors
    ///
    /// See [`SessionBuilder::start`].
    pub async fn start(source: impl ToolSource) -> Result<Self, IpcError> {
        Self::builder(source).start().await
    }

    /// The socket's path; absolute.
    #[must_use]
    pub fn socket_path(&self) -> &Path {
        &self.socket
    }

    /// The schema file's path; absolute.
    #[must_use]
    pub fn schema_path(&self) -> &Path {
        &self.schema
    }

    /// What the CLI is to start: an entry for `mcpServers`.
    ///
    /// # Errors
    ///
    /// [`IpcError::NoBridge`] when there is no bridge executable.
    pub fn mcp_server(&self) -> Result<BridgeCommand, IpcError> {
        let command = bridge_executable(self.bridge.as_deref())?;
        let mut server = BridgeCommand::new(command, &self.socket, &self.schema);
        if let Some(trace) = &self.trace {
            let unwritable = || IpcError::Invalid { reason: "the trace's path is not UTF-8".into() };
            server = server.with(TRACE_VARIABLE, trace.to_str().ok_or_else(unwritable)?);
        }
        if let Some(info) = &self.server {
            let info = serde_json::to_string(info).expect("strings can always be written");
            server = server.with(SERVER_VARIABLE, info);
        }
        Ok(server)
    }

    /// The whole object for `claude --mcp-config`, with this session as the server called `name`.
    ///
    /// # Errors
    ///
    /// When there is no bridge executable, or the CLI would not take a server or tool of that name.
    pub fn mcp_config(&self, name: &str) -> Result<Value, IpcError> {
        check_server_name(name, &self.source.tools())?;
        let server = serde_json::to_value(self.mcp_server()?).map_err(|error| IpcError::Invalid {
            reason: format!("the path cannot be written as JSON: {error}"),
        })?;
        Ok(json!({ "mcpServers": { name: server } }))
    }

    /// Stops the session: removes its files, refuses new connections, cancels the calls under way.
    ///
    /// Returns within 2 s, even when a handler does not end. A second call does nothing.
    pub async fn stop(&self) {
        if self.is_copy() {
            return;
        }
        let Some(server) = self.end() else { return };
        if tokio::time::timeout(STOP_PATIENCE, server).await.is_err() {
            tracing::warn!("a call did not end in time and was left behind");
        }
    }

    /// Has the spans of calls be in that one from now on, instead of in that which the session was started in; `None` is that one
    /// again. A span that is given does not end before another takes its place.
    pub fn surround_calls(&self, span: Option<tracing::Span>) {
        self.tracer.surround(span);
    }

    /// Removes the files and ends the server without waiting for it, as dropping the session does, but while
    /// others still hold it.
    pub fn abandon(&self) {
        if self.is_copy() {
            return;
        }
        // The server's task ends when its runtime sees this.
        drop(self.end());
    }

    fn set(&self, set: impl FnOnce(&mut Running)) {
        if let Some(running) = lock(&self.running).as_mut() {
            set(running);
        }
    }

    /// Removes the files and tells the server to end. Whoever calls this second finds the files gone.
    fn end(&self) -> Option<JoinHandle<()>> {
        self.stop.cancel();
        let mut running = lock(&self.running);
        running.take().map(|running| running.server)
    }

    /// Whether this is a fork's copy of a session. The session is the other process's, its files too, and the runtime
    /// that served it is not here.
    fn is_copy(&self) -> bool {
        let is_copy = self.owner != std::process::id();
        // Whoever held the lock while the process was forked was just ending the session, and is not here to unlock.
        if is_copy && let Ok(mut running) = self.running.try_lock() {
            std::mem::forget(running.take());
        }
        is_copy
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.abandon();
    }
}
