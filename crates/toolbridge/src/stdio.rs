//! An MCP server on this process's stdin and stdout.

use std::future::pending;
use std::io;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use rustix::process::Signal;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use toolbridge_core::ToolSource;
use toolbridge_core::mcp::{LineReader, LineWriter, ServeError, Serving, serve_with, stdio};
use toolbridge_core::tool::ServerInfo;
use toolbridge_core::trace::{Process, TraceError, Tracer, trace_path};

use crate::guard::is_ignored;

/// A runtime on the current thread.
pub(crate) fn small_runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Runs `work`, which has a runtime of its own: on another thread if this one is in a runtime.
pub(crate) fn outside_runtime<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    if Handle::try_current().is_err() {
        return work();
    }
    thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|panic| resume_unwind(panic))
}

/// Why serving on stdin and stdout failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StdioError {
    /// The trace cannot be written.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Stdin cannot be read, or the runtime cannot be created.
    #[error("cannot serve on stdin and stdout: {error}")]
    Io {
        /// The system's error.
        error: io::Error,
    },
}

/// Serves tools on stdin and stdout as [`StdioServer::serve`] does, in a runtime of its own.
///
/// ```no_run
/// use toolbridge::{NoArgs, Toolset, stdio};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let tools = Toolset::builder().tool("hello", "Greets", async |_: NoArgs| "hello").build()?;
///     Ok(stdio::serve_stdio(tools)?)
/// }
/// ```
///
/// # Errors
///
/// When the trace cannot be written, stdin cannot be read, or the runtime cannot be created.
pub fn serve_stdio(source: impl ToolSource) -> Result<(), StdioError> {
    let server = StdioServer::builder(source);
    let tracer = server.tracer()?;
    let runtime = small_runtime().map_err(|error| StdioError::Io { error })?;
    serve(runtime, server.source, server.info, tracer)
}

/// An MCP server on this process's stdin and stdout.
///
/// ```no_run
/// use toolbridge::stdio::StdioServer;
/// use toolbridge::tool::ServerInfo;
/// use toolbridge::{NoArgs, Toolset};
///
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let tools = Toolset::builder().tool("hello", "Greets", async |_: NoArgs| "hello").build()?;
///     Ok(StdioServer::builder(tools).info(ServerInfo::new("greeter")).serve().await?)
/// }
/// ```
#[derive(Debug)]
#[must_use]
pub struct StdioServer {
    source: Arc<dyn ToolSource>,
    info: ServerInfo,
    trace: Option<PathBuf>,
}

impl StdioServer {
    /// A server for the tools of `source`.
    pub fn builder(source: impl ToolSource) -> Self {
        Self { source: Arc::new(source), info: ServerInfo::default(), trace: None }
    }

    /// Sets how the server introduces itself.
    pub fn info(mut self, info: ServerInfo) -> Self {
        self.info = info;
        self
    }

    /// Writes a trace to a file; without it, `TOOLBRIDGE_TRACE` can name one.
    pub fn trace(mut self, file: impl Into<PathBuf>) -> Self {
        self.trace = Some(file.into());
        self
    }

    /// Serves the MCP client at the other end of this process's stdin and stdout, until stdin ends, stdout is closed, a SIGINT, SIGTERM
    /// or SIGHUP arrives, or the process that started this one has exited. Nothing else may use stdin and stdout.
    ///
    /// If stdin is a terminal or a file, a runtime that is dropped waits for its next line; that of [`serve_stdio`] does
    /// not.
    ///
    /// # Errors
    ///
    /// When the trace cannot be written, or stdin cannot be read.
    pub async fn serve(self) -> Result<(), StdioError> {
        let tracer = self.tracer()?;
        until_end(self.source, self.info, tracer).await.map_err(|error| StdioError::Io { error })
    }

    fn tracer(&self) -> Result<Tracer, TraceError> {
        Tracer::open(Process::Server, trace_path(self.trace.as_deref()).as_deref())
    }
}

pub(crate) fn serve(
    runtime: Runtime,
    source: Arc<dyn ToolSource>,
    info: ServerInfo,
    tracer: Tracer,
) -> Result<(), StdioError> {
    let served = runtime.block_on(until_end(source, info, tracer));
    // Do not wait for a thread that is blocked in a read from a terminal or a file.
    runtime.shutdown_background();
    served.map_err(|error| StdioError::Io { error })
}

async fn until_end(source: Arc<dyn ToolSource>, info: ServerInfo, tracer: Tracer) -> io::Result<()> {
    // The session of the CLI that started this process.
    let session_id = std::env::var("CLAUDE_CODE_SESSION_ID").ok();
    let serving = Serving { info, tracer, session_id };
    let signalled = ending_signal()?;
    let (stdin, stdout, client) = stdio()?;
    let (lines_in, lines_out) = (LineReader::new(stdin), LineWriter::new(stdout));
    tokio::select! {
        served = serve_with(source, serving, lines_in, lines_out) => {
            served.map_err(|(ServeError::Read(error) | ServeError::Write(error))| error)
        }
        _ = signalled => Ok(()),
        () = client.gone(give_memory_back) => Ok(()),
    }
}

/// Waits for SIGINT, SIGTERM or SIGHUP, and returns the exit code that shells use for it. Must be called inside
/// a runtime. A SIGHUP that is ignored, as under `nohup`, stays ignored.
///
/// # Errors
///
/// When a signal cannot be handled.
pub fn ending_signal() -> io::Result<impl Future<Output = u8>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = if is_ignored(Signal::HUP) { None } else { Some(signal(SignalKind::hangup())?) };
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => 130,
            _ = terminate.recv() => 143,
            () = async { match &mut hang_up { Some(signal) => drop(signal.recv().await), None => pending().await } } => 129,
        }
    })
}

/// Returns free memory to the system after large calls.
///
/// glibc keeps such buffers: after calls of 9 MB a bridge held 20 MB for the rest of its life. Not after each
/// call: a call of 9 MB would take a sixth longer with newly allocated buffers.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn give_memory_back() {
    #[expect(unsafe_code, reason = "the C library's allocator is asked to trim its heap")]
    // SAFETY: there are no preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn give_memory_back() {}
