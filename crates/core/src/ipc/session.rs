//! A session: a tool source served on its own socket, from start to stop.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::tool::lock::lock;
use crate::trace::{Process, TRACE_VARIABLE, Tracer, What, trace_path};
use crate::{CancellationToken, Changes, ServerInfo, ToolList, ToolSource, check_server_name};
use serde_json::{Value, json};
use tempfile::TempPath;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::Instrument as _;

use crate::ipc::IpcError;
use crate::ipc::files::{Lock, SessionFiles, SessionId, session_dir};
use crate::ipc::locate::{BridgeCommand, bridge_executable};
use crate::ipc::names::{check_name, create_entry, names_dirs};
use crate::ipc::schema_file::write_schema_file;
use crate::ipc::server::IpcServer;
use crate::ipc::sweep::sweep;

/// The environment variable that tells a bridge how to introduce itself, as JSON. The bridge does not contact the
/// session before the first call.
const SERVER_VARIABLE: &str = "TOOLBRIDGE_SERVER";

/// How the bridge in this process is to introduce itself, as set by its session.
#[must_use]
pub fn own_server_info() -> ServerInfo {
    let info = std::env::var(SERVER_VARIABLE).ok();
    // A session always writes valid JSON; anything else is ignored.
    info.and_then(|info| serde_json::from_str(&info).ok()).unwrap_or_default()
}

/// How long until replacing the schema file is retried.
const WRITE_AGAIN: Duration = Duration::from_secs(1);

/// How long [`Session::stop`] waits for calls to end before it abandons them.
const STOP_PATIENCE: Duration = Duration::from_secs(2);

/// A live session: its socket answers calls until it is stopped or dropped.
///
/// Both remove its files immediately. Dropping it needs no runtime and also works during a panic. The session
/// belongs to the process that started it: a fork keeps neither its socket nor its lock, and dropping the copy
/// there does nothing.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use toolbridge_core as toolbridge;
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
    info: Option<ServerInfo>,
    tracer: Tracer,
    stop: CancellationToken,
    /// The pid of the process that started it; a fork only has a copy.
    owner: u32,
    running: Arc<Mutex<Option<RunningSession>>>,
}

/// The parts of a session that end with it. Dropping them records the end in the trace.
#[derive(Debug)]
struct RunningSession {
    /// The entry of its name, and its other files. In this order, so that a name always belongs to a session that accepts
    /// connections. `None` when they are removed.
    files: Option<(Option<(TempPath, Lock)>, SessionFiles)>,
    /// The task that serves, and keeps the schema file up to date.
    server: JoinHandle<()>,
    id: SessionId,
    tracer: Tracer,
}

impl Drop for RunningSession {
    fn drop(&mut self) {
        self.tracer.note(|| What::SessionEnd { session: self.id.text() });
    }
}

/// A session that has not started; it has no files yet.
#[derive(Debug)]
pub struct SessionBuilder {
    id: SessionId,
    source: Arc<dyn ToolSource>,
    dir: Option<PathBuf>,
    bridge: Option<PathBuf>,
    trace: Option<PathBuf>,
    name: Option<String>,
    names_dir: Option<PathBuf>,
    info: Option<ServerInfo>,
}

impl SessionBuilder {
    /// Gives the session a name for `toolbridge attach`: 1 to 48 characters of `A-Z a-z 0-9 _ -`. Several sessions
    /// may have the same name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Registers the name in `dir` instead of the user's own directory of names. Only this user may have access to
    /// it.
    #[must_use]
    pub fn names_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.names_dir = Some(dir.into());
        self
    }

    /// Sets how the session's MCP server introduces itself: its name, its version, and instructions for the model.
    #[must_use]
    pub fn info(mut self, info: ServerInfo) -> Self {
        self.info = Some(info);
        self
    }

    /// Puts the session's files into `dir` instead of the temporary directory.
    #[must_use]
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Sets the executable that the CLI is to start, instead of the one found by [`bridge_executable`].
    #[must_use]
    pub fn bridge(mut self, executable: impl Into<PathBuf>) -> Self {
        self.bridge = Some(executable.into());
        self
    }

    /// Appends a line of JSON to that file for everything that happens, here and in the bridge; payloads are never
    /// included. The default is the file in `TOOLBRIDGE_TRACE`, if set.
    #[must_use]
    pub fn trace(mut self, file: impl Into<PathBuf>) -> Self {
        self.trace = Some(file.into());
        self
    }

    /// Starts the session: removes the files of dead sessions, creates its own, and serves.
    ///
    /// When this returns, a bridge can connect. Needs a tokio runtime, which must keep running.
    ///
    /// # Errors
    ///
    /// When the directory does not exist, cannot be written, is full, or its path is too long; when the name is
    /// invalid, or other users can access the directory of names; when the trace cannot be written.
    #[expect(clippy::unused_async, reason = "it is the form of every start, and needs a runtime")]
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
        sweep(&dir).map_err(failed("cannot read the directory"))?;
        // Before the list is read, so that later changes are noticed.
        let changes = self.source.changes();
        let list = self.source.tools();
        let (files, listener, guard) = SessionFiles::create(&dir, self.id, &write_schema_file(&list))?;
        let listener = (guard, UnixListener::from_std(listener).map_err(failed("cannot listen"))?);
        let (socket, schema) = (files.socket.to_path_buf(), files.schema.to_path_buf());
        let name = self.name.map(|name| {
            let dir = self.names_dir.or_else(|| names_dirs().into_iter().next()).unwrap_or_default();
            let info = self.info.clone().unwrap_or_default();
            create_entry(&dir, self.id, &name, (&socket, &schema), info)
        });
        let name = name.transpose()?;

        let tools = list.len() as u64;
        tracer.note(|| What::SessionStart { session: self.id.text(), tools });
        let (running, stop, revision) = (Arc::default(), CancellationToken::new(), watch::Sender::new(0));
        let server = IpcServer::new(Arc::clone(&self.source), tracer.clone(), revision.subscribe());
        let listing = keep_listing(Arc::clone(&running), Arc::clone(&self.source), list, changes, revision);
        let (serving, stopped) = (server.serve(listener, stop.clone()), stop.clone());
        let work = async move { _ = tokio::join!(serving, stopped.run_until_cancelled(listing)) };
        {
            // Locked before, because the list may change at once.
            let mut running = lock(&running);
            let (files, server) = (Some((name, files)), tokio::spawn(work.in_current_span()));
            *running = Some(RunningSession { files, server, id: self.id, tracer: tracer.clone() });
        }
        tracing::debug!(socket = %socket.display(), "session started");
        let (source, bridge, info) = (self.source, self.bridge, self.info);
        let owner = std::process::id();
        Ok(Session { socket, schema, source, bridge, trace, info, tracer, stop, owner, running })
    }
}

/// Rewrites the schema file and increments the revision whenever the tools have changed.
async fn keep_listing(
    running: Arc<Mutex<Option<RunningSession>>>,
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
        // Under the lock, so that nothing is written once the session has ended.
        let mut running = lock(&running);
        let Some((_, files)) = running.as_mut().and_then(|running| running.files.as_mut()) else { return };
        match files.replace_schema(&write_schema_file(&now)) {
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
            info: None,
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

    /// The command that the CLI is to start: an entry for `mcpServers`.
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
        if let Some(info) = &self.info {
            let info = serde_json::to_string(info).expect("strings can always be written");
            server = server.with(SERVER_VARIABLE, info);
        }
        Ok(server)
    }

    /// The complete object for `claude --mcp-config`, with this session as the server called `name`.
    ///
    /// # Errors
    ///
    /// When there is no bridge executable, or the CLI would not accept a server or tool of that name.
    pub fn mcp_config(&self, name: &str) -> Result<Value, IpcError> {
        check_server_name(name, &self.source.tools())?;
        let server = serde_json::to_value(self.mcp_server()?).map_err(|error| IpcError::Invalid {
            reason: format!("the path cannot be written as JSON: {error}"),
        })?;
        Ok(json!({ "mcpServers": { name: server } }))
    }

    /// Stops the session: removes its files, refuses new connections, and cancels running calls.
    ///
    /// Returns within 2 s, even if a handler does not end. A second call does nothing.
    pub async fn stop(&self) {
        if self.is_copy() {
            return;
        }
        // The trace's last line comes after those of the calls.
        let Some(mut running) = self.end() else { return };
        if tokio::time::timeout(STOP_PATIENCE, &mut running.server).await.is_err() {
            tracing::warn!("a call did not end in time and was abandoned");
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
        // The server's task ends when its runtime polls it next.
        drop(self.end());
    }

    /// Removes the files and tells the server to end. The lock makes a concurrent second call wait until the files
    /// are gone.
    fn end(&self) -> Option<RunningSession> {
        self.stop.cancel();
        let mut running = lock(&self.running);
        let mut ended = running.take()?;
        ended.files = None;
        Some(ended)
    }

    /// Whether this is a fork's copy of a session. The session and its files belong to the other process, and the
    /// runtime that served it does not run here.
    fn is_copy(&self) -> bool {
        let is_copy = self.owner != std::process::id();
        // If the lock was held during the fork, another thread was ending the session; that thread does not exist
        // here and will never unlock it.
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
