//! The bridge process: an MCP server on stdio whose tools live in another process.

use std::error::Error;
use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use toolbridge_core::ToolSource;
use toolbridge_core::ipc::{Attached, IpcError, Remote, own_server_info, this_program_is_a_bridge};
use toolbridge_core::tool::ServerInfo;
use toolbridge_core::trace::{Process, Tracer, trace_path};

pub use crate::guard::run_guard_if_asked;
use crate::stdio::{self, outside_runtime, small_runtime};

/// Becomes a bridge, and does not return, if the command line is `<program> bridge <socket> <schema>`.
///
/// Call it first in `main`, also in that of `#[tokio::main]`. With it, the program needs no other
/// executable: the CLI starts the program itself as the bridge to its sessions. The CLI is also started
/// through it: between this process and the CLI, the program runs as a guardian, which ensures that no
/// process of the CLI outlives this one.
pub fn run_bridge_if_asked() {
    run_guard_if_asked();
    this_program_is_a_bridge();
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let [command, socket, schema] = &args[..] else { return };
    // Absolute paths, as sessions write them, so that a program's own command `bridge` still works.
    if command == OsStr::new("bridge") && Path::new(socket).is_absolute() && Path::new(schema).is_absolute() {
        let code = outside_runtime(|| run_bridge(Path::new(socket), Path::new(schema), None));
        std::process::exit(i32::from(code != ExitCode::SUCCESS));
    }
}

/// Runs a bridge between this process's stdin and stdout and the session at `socket`, until stdin ends,
/// stdout is closed, a SIGINT, SIGTERM or SIGHUP arrives, or the process that started this one has exited.
///
/// `trace` is a file for a trace; without it, `TOOLBRIDGE_TRACE` can name one, which sessions use.
///
/// Writes only MCP to stdout. If it cannot start, it writes the reason to stderr in one line, and the exit
/// code is 1.
#[must_use]
pub fn run_bridge(socket: &Path, schema: &Path, trace: Option<&Path>) -> ExitCode {
    serve(|| Ok((Remote::open(socket, schema)?, own_server_info())), trace)
}

/// The names for [`run_attach`], if the command line is exactly `<program> attach <name>…`.
#[must_use]
pub fn asked_to_attach() -> Option<Vec<String>> {
    let mut args = std::env::args_os().skip(1);
    let is_attach = args.next()? == "attach";
    let names = args.map(std::ffi::OsString::into_string).collect::<Result<Vec<_>, _>>().ok()?;
    (is_attach && names.iter().all(|name| !name.starts_with('-'))).then_some(names)
}

/// Offers the tools of all live sessions of this user that have a name, or only of those in `names`, on
/// this process's stdin and stdout. It ends under the same conditions as a bridge.
///
/// Writes only MCP to stdout. If it cannot start, it writes the reason to stderr in one line, and the exit
/// code is 1.
#[must_use]
pub fn run_attach(names: Vec<String>, trace: Option<&Path>) -> ExitCode {
    let attached = || {
        let attached = Attached::new(names)?;
        let info = attached.info();
        Ok((attached, info))
    };
    serve(attached, trace)
}

fn serve<S: ToolSource>(
    open: impl FnOnce() -> Result<(S, ServerInfo), IpcError>,
    trace: Option<&Path>,
) -> ExitCode {
    // Any error type: it is only printed.
    let serve = || -> Result<(), Box<dyn Error>> {
        let tracer = Tracer::open(Process::Bridge, trace_path(trace).as_deref())?;
        let runtime = small_runtime()?;
        // Inside the runtime, so that it follows its session from the start.
        let inside = runtime.enter();
        let (source, info) = open()?;
        drop(inside);
        Ok(stdio::serve(runtime, Arc::new(source), info, tracer)?)
    };
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not `eprintln`, which panics if stderr is closed.
            _ = io::stderr().write_all(format!("error: {error}\n").as_bytes());
            ExitCode::FAILURE
        }
    }
}
