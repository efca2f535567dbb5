//! The bridge process: an MCP server on stdio whose tools live in another process.

use std::error::Error;
use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use toolbridge_core::trace::{Process, Tracer, trace_path};
use toolbridge_ipc::{Attached, Remote, own_server_info, this_program_is_a_bridge};

use crate::guard::run_guard_if_asked;
use crate::stdio;

/// Becomes a bridge if the command line is `<program> bridge <socket> <schema>`, and does not return then.
///
/// Call it first in `main`, before any thread or runtime starts. With it, the program needs no other
/// executable: the CLI starts the program itself as the bridge to its sessions. The CLI, too, is started through
/// it: between this process and the CLI the program is a guardian, which sees to it that nothing of the CLI
/// outlives this process.
pub fn run_bridge_if_asked() {
    run_guard_if_asked();
    this_program_is_a_bridge();
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let [command, socket, schema] = &args[..] else { return };
    // Absolute, as sessions write them: a program's own command called `bridge` is left alone.
    if command == OsStr::new("bridge") && Path::new(socket).is_absolute() && Path::new(schema).is_absolute() {
        let code = run_bridge(Path::new(socket), Path::new(schema), None);
        std::process::exit(i32::from(code != ExitCode::SUCCESS));
    }
}

/// Runs a bridge between this process's stdin and stdout and the session at `socket`, until stdin ends,
/// nobody reads stdout any more, a SIGINT or SIGTERM arrives, or the process that started this one is gone.
///
/// `trace` names a file for a trace; without it `TOOLBRIDGE_TRACE` may, which is how a session does.
///
/// Writes nothing to stdout but MCP. When it cannot start it says why in one line on stderr, and the exit
/// code is 1.
#[must_use]
pub fn run_bridge(socket: &Path, schema: &Path, trace: Option<&Path>) -> ExitCode {
    exit_code(bridge(socket, schema, trace))
}

/// The names on a command line that is exactly `<program> attach <name>…`.
#[doc(hidden)]
#[must_use]
pub fn asked_to_attach() -> Option<Vec<String>> {
    let mut args = std::env::args_os().skip(1);
    let is_attach = args.next()? == "attach";
    let names = args.map(std::ffi::OsString::into_string).collect::<Result<Vec<_>, _>>().ok()?;
    (is_attach && names.iter().all(|name| !name.starts_with('-'))).then_some(names)
}

/// Offers the tools of all live sessions of this user that have a name, or of those called `names`, on this process's stdin and
/// stdout. It ends as a bridge does.
///
/// Writes nothing to stdout but MCP. When it cannot start it says why in one line on stderr, and the exit
/// code is 1.
#[must_use]
pub fn run_attach(names: Vec<String>, trace: Option<&Path>) -> ExitCode {
    exit_code(attach(names, trace))
}

fn exit_code(done: Result<(), Box<dyn Error>>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without `eprintln`, which panics where nobody reads it.
            _ = io::stderr().write_all(format!("error: {error}\n").as_bytes());
            ExitCode::FAILURE
        }
    }
}

/// The error is only printed, so that it may be any.
fn bridge(socket: &Path, schema: &Path, trace: Option<&Path>) -> Result<(), Box<dyn Error>> {
    let tracer = Tracer::open(Process::Bridge, trace_path(trace).as_deref())?;
    let remote = Remote::open(socket, schema)?;
    Ok(stdio::serve(Arc::new(remote), own_server_info(), tracer)?)
}

fn attach(names: Vec<String>, trace: Option<&Path>) -> Result<(), Box<dyn Error>> {
    let tracer = Tracer::open(Process::Bridge, trace_path(trace).as_deref())?;
    let attached = Attached::new(names)?;
    let info = attached.info();
    Ok(stdio::serve(Arc::new(attached), info, tracer)?)
}
