//! A session: a tool source on a socket of its own, from start to stop.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use toolbridge_core::trace::{Process, Tracer, What, trace_path};
use toolbridge_core::{CancellationToken, ToolSource, check_server_name};
use tracing::Instrument as _;

use crate::files::{SessionFiles, SessionId, session_dir};
use crate::locate::{McpServer, bridge_executable};
use crate::schema_file::write_schema_file;
use crate::sweep::sweep_briefly;
use crate::{IpcError, Server};

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
    stop: CancellationToken,
    /// The process that started it; a fork only has a copy.
    owner: u32,
    running: Mutex<Option<Running>>,
}

#[derive(Debug)]
struct Running {
    _files: SessionFiles,
    server: JoinHandle<()>,
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
}

impl SessionBuilder {
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
    /// When the directory does not exist, cannot be written, is full, or its path is too long; when the
    /// trace cannot be written.
    pub async fn start(self) -> Result<Session, IpcError> {
        let trace = trace_path(self.trace.as_deref());
        let tracer = Tracer::open(Process::Parent, trace.as_deref())?;
        let dir = self.dir.unwrap_or_else(session_dir);
        let dir = std::path::absolute(&dir).unwrap_or(dir);
        let failed = |what| {
            let dir = dir.clone();
            move |error| IpcError::Start { dir, what, error }
        };
        sweep_briefly(&dir).await.map_err(failed("cannot read the directory"))?;
        let tools = write_schema_file(&self.source.tools());
        let (files, listener) = SessionFiles::create(&dir, self.id, &tools)?;
        let listener = listener.try_map(UnixListener::from_std).map_err(failed("cannot listen"))?;

        let stop = CancellationToken::new();
        let id = self.id.text();
        let tools = self.source.tools().len() as u64;
        tracer.note(|| What::SessionStart { session: id.clone(), tools });
        let server = Server::traced(Arc::clone(&self.source), tracer.clone());
        let stopped = stop.clone();
        let server =
            tokio::spawn(async move { server.serve_private(listener, stopped).await }.in_current_span());
        tracing::debug!(socket = %files.socket().display(), "session started");
        Ok(Session {
            socket: files.socket().into(),
            schema: files.schema().into(),
            source: self.source,
            bridge: self.bridge,
            trace,
            stop,
            owner: std::process::id(),
            running: Mutex::new(Some(Running { _files: files, server, _end: SessionEnd { id, tracer } })),
        })
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
    pub fn mcp_server(&self) -> Result<McpServer, IpcError> {
        let command = bridge_executable(self.bridge.as_deref())?;
        Ok(McpServer::new(command, &self.socket, &self.schema, self.trace.as_deref()))
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

    /// Removes the files and ends the server without waiting for it, as dropping the session does, but while
    /// others still hold it.
    pub fn abandon(&self) {
        if self.is_copy() {
            return;
        }
        // The server's task ends when its runtime sees this.
        drop(self.end());
    }

    /// Removes the files and tells the server to end. Whoever calls this second finds the files gone.
    fn end(&self) -> Option<JoinHandle<()>> {
        self.stop.cancel();
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
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
