//! The bridge process: an MCP server on stdio whose tools live in another process.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use toolbridge_core::ToolSource;
use toolbridge_core::trace::{Process, TraceError, Tracer, trace_path};
use toolbridge_ipc::{IpcError, Remote, read_schema_file, this_program_is_a_bridge};
use toolbridge_mcp::{LineReader, LineWriter, ServeError, ServerInfo, serve_traced, stdio};

/// How often a bridge looks after itself.
const CHECK: Duration = Duration::from_secs(1);

/// Becomes a bridge if the command line is `<program> bridge <socket> <schema>`, and does not return then.
///
/// Call it first in `main`, before any thread or runtime starts. With it, the program needs no other
/// executable: the CLI starts the program itself as the bridge to its sessions.
pub fn run_bridge_if_asked() {
    this_program_is_a_bridge();
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let [command, socket, schema] = &args[..] else { return };
    // Absolute, as sessions write them: a program's own command called `bridge` is left alone.
    if command == OsStr::new("bridge") && Path::new(socket).is_absolute() && Path::new(schema).is_absolute() {
        let code = run_bridge(Path::new(socket), Path::new(schema), None);
        std::process::exit(i32::from(code != ExitCode::SUCCESS));
    }
}

/// Runs a bridge between this process's stdin and stdout and the session at `socket`, until stdin ends, a
/// SIGINT or SIGTERM arrives, or the process that started this one is gone.
///
/// `trace` names a file for a trace; without it `TOOLBRIDGE_TRACE` may, which is how a session does.
///
/// Writes nothing to stdout but MCP. When it cannot start it says why in one line on stderr, and the exit
/// code is 1.
#[must_use]
pub fn run_bridge(socket: &Path, schema: &Path, trace: Option<&Path>) -> ExitCode {
    match bridge(socket, schema, trace) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "the one line that says why there is no bridge")]
            {
                eprintln!("error: {error}");
            }
            ExitCode::FAILURE
        }
    }
}

fn bridge(socket: &Path, schema: &Path, trace: Option<&Path>) -> Result<(), IpcError> {
    let tracer = Tracer::open(Process::Bridge, trace_path(trace).as_deref())?;
    let tools = read_schema_file(schema)?;
    let remote = Remote::new(socket, tools)?;
    Ok(serve_stdio_traced(Arc::new(remote), ServerInfo::default(), tracer)?)
}

/// Serves a source to the MCP client at the other end of this process's stdin and stdout, until stdin ends, a
/// SIGINT or SIGTERM arrives, or the process that started this one is gone. Nothing else may use them.
///
/// # Errors
///
/// When stdin cannot be read, there is no runtime to be had, or `TOOLBRIDGE_TRACE` names a file that cannot be
/// used.
pub fn serve_stdio(source: Arc<dyn ToolSource>, info: ServerInfo) -> io::Result<()> {
    let tracer = server_tracer(None).map_err(io::Error::other)?;
    serve_stdio_traced(source, info, tracer)
}

/// The tracer of an MCP server whose tools live in itself: it writes to `file`, or to what `TOOLBRIDGE_TRACE`
/// names, if it does.
///
/// # Errors
///
/// When the file cannot be used.
pub fn server_tracer(file: Option<&Path>) -> Result<Tracer, TraceError> {
    Tracer::open(Process::Server, trace_path(file).as_deref())
}

/// The same as [`serve_stdio`], telling `tracer` what happens.
///
/// # Errors
///
/// When stdin cannot be read, or there is no runtime to be had.
pub fn serve_stdio_traced(source: Arc<dyn ToolSource>, info: ServerInfo, tracer: Tracer) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let (stdin, stdout) = stdio()?;
        let (lines_in, lines_out) = (LineReader::new(stdin), LineWriter::new(stdout));
        tokio::select! {
            served = serve_traced(source, info, lines_in, lines_out, tracer) => {
                served.map_err(|ServeError::Read(error)| error)
            }
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
            () = orphaned() => Ok(()),
        }
    });
    // A thread that waits for a terminal or a file must not hold the process.
    runtime.shutdown_background();
    served
}

/// Waits until the process that started this one is gone. Usually stdin ends then; not if somebody else
/// holds its other end.
async fn orphaned() {
    let parent = rustix::process::getppid();
    loop {
        tokio::time::sleep(CHECK).await;
        give_memory_back();
        if rustix::process::getppid() != parent {
            return;
        }
    }
}

/// Gives back what large calls took.
///
/// glibc learns to keep such buffers: after calls of 9 MB a bridge held 20 MB for as long as it lived. Not after
/// each call: one of 9 MB would take a sixth longer with buffers that are new each time.
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
