//! The bridge process: an MCP server on stdio whose tools live in another process.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use toolbridge_core::ToolSource;
use toolbridge_ipc::{IpcError, Remote, read_schema_file, this_program_is_a_bridge};
use toolbridge_mcp::{LineReader, LineWriter, ServeError, ServerInfo, serve, stdio};

/// How often a bridge looks whether the process that started it is still there.
const PARENT_CHECK: Duration = Duration::from_secs(1);

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
        let code = run_bridge(Path::new(socket), Path::new(schema));
        std::process::exit(i32::from(code != ExitCode::SUCCESS));
    }
}

/// Runs a bridge between this process's stdin and stdout and the session at `socket`, until stdin ends, a
/// SIGINT or SIGTERM arrives, or the process that started this one is gone.
///
/// Writes nothing to stdout but MCP. When it cannot start it says why in one line on stderr, and the exit
/// code is 1.
#[must_use]
pub fn run_bridge(socket: &Path, schema: &Path) -> ExitCode {
    match bridge(socket, schema) {
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

fn bridge(socket: &Path, schema: &Path) -> Result<(), IpcError> {
    let tools = read_schema_file(schema)?;
    let remote = Remote::new(socket, tools)?;
    Ok(serve_stdio(Arc::new(remote), ServerInfo::default())?)
}

/// Serves a source to the MCP client at the other end of this process's stdin and stdout, until stdin ends, a
/// SIGINT or SIGTERM arrives, or the process that started this one is gone. Nothing else may use them.
///
/// # Errors
///
/// When stdin cannot be read, or there is no runtime to be had.
pub fn serve_stdio(source: Arc<dyn ToolSource>, info: ServerInfo) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let (stdin, stdout) = stdio()?;
        let (lines_in, lines_out) = (LineReader::new(stdin), LineWriter::new(stdout));
        tokio::select! {
            served = serve(source, info, lines_in, lines_out) => {
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
        tokio::time::sleep(PARENT_CHECK).await;
        if rustix::process::getppid() != parent {
            return;
        }
    }
}
