//! The `toolbridge` executable.

mod args;
mod ask;
mod call;
mod demo;
mod docs;
mod doctor;
mod excerpt;
mod generate;
mod nats;
#[cfg(feature = "otel")]
mod otel;
mod output;
mod question;
mod serve;
mod sessions;
mod trace;

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;
use tracing_subscriber::filter::LevelFilter;

use crate::args::{Args, Command};
use crate::serve::{Front, Serve, Source};

fn main() -> ExitCode {
    // Fast path for bridges, which every request starts: no argument parser and no log before the first read.
    toolbridge::bridge::run_guard_if_asked();
    if let Some((socket, schema)) = plain_bridge() {
        return toolbridge::bridge::run_bridge(Path::new(&socket), Path::new(&schema), None);
    }
    if let Some(names) = toolbridge::bridge::asked_to_attach().filter(|_| is_silent()) {
        become_small(&names);
        return toolbridge::bridge::run_attach(names, None);
    }
    toolbridge::ipc::this_program_is_a_bridge();
    let args = Args::parse();
    // A bridge's stderr belongs to the client that started it, so a bridge logs nothing by default.
    let is_bridge = matches!(args.command, Command::Bridge { .. } | Command::Attach { .. });
    let default = if is_bridge { LevelFilter::OFF } else { LevelFilter::WARN };
    let level = args.log.or_else(output::level_from_environment).unwrap_or(default);
    // Dropped last: it flushes the remaining spans.
    let _listeners = output::log_to_stderr(level);
    let done = match args.command {
        Command::Bridge { socket, schema, trace } => {
            return toolbridge::bridge::run_bridge(&socket, &schema, trace.file.as_deref());
        }
        Command::Attach { names, trace } => {
            return toolbridge::bridge::run_attach(names, trace.file.as_deref());
        }
        Command::Demo { serve: true, name, trace, .. } => {
            let front = Front::Session { name, ends_with_stdin: true };
            serve::serve(Serve::one(Source::Demo, front, trace.file))
        }
        Command::Serve(args) => serve::run(*args),
        Command::Demo { json, trace, .. } => demo::run(json, trace.file.as_deref()),
        Command::Ask(args) => ask::run(&args),
        Command::Docs(args) => docs::run(&args),
        Command::Doctor { claude, json } => doctor::run(claude.as_deref(), json),
        Command::Call { socket, tool, arguments, json } => call::run(&socket, &tool, &arguments, json),
        Command::Sessions { watch: true, json, .. } => sessions::watch(json),
        Command::Sessions { clean, json, .. } => sessions::run(clean, json),
        Command::Trace(args) => trace::run(&args),
        Command::Generate { what } => generate::run(what),
    };
    match done {
        Ok(code) => code,
        Err(error) => output::report(&error),
    }
}

/// The socket and the schema file, when the command line is exactly `bridge <socket> <schema>` and logging is
/// off.
fn plain_bridge() -> Option<(std::ffi::OsString, std::ffi::OsString)> {
    let mut args = std::env::args_os().skip(1);
    let (command, socket, schema) = (args.next()?, args.next()?, args.next()?);
    let plain = |path: &std::ffi::OsString| !path.as_encoded_bytes().starts_with(b"-");
    let exact = command == "bridge" && args.next().is_none() && plain(&socket) && plain(&schema);
    (exact && is_silent()).then_some((socket, schema))
}

/// Replaces this process by `toolbridge-bridge`, if that is installed: it does the same with half the memory,
/// and each CLI has one.
fn become_small(names: &[String]) {
    if let Ok(this) = std::env::current_exe() {
        _ = std::process::Command::new(this.with_file_name("toolbridge-bridge"))
            .arg("attach")
            .args(names)
            .exec();
    }
}

/// Whether neither logs nor spans are wanted.
fn is_silent() -> bool {
    #[cfg(feature = "otel")]
    if otel::endpoint().is_some() {
        return false;
    }
    std::env::var_os(args::LOG_VARIABLE).is_none()
}
