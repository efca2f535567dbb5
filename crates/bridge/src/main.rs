//! The bridge alone, also for named sessions, and the CLI's guardian.
//!
//! `toolbridge` does the same. This executable contains nothing else, so it starts in half the time and takes half
//! the memory, and it can be linked statically; packages include it.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolbridge::run_bridge_if_asked();
    if let Some(names) = toolbridge::bridge::asked_to_attach() {
        return toolbridge::bridge::run_attach(names, None);
    }
    #[expect(clippy::print_stderr, reason = "it was started by hand")]
    {
        eprintln!(
            "error: this is the bridge that an MCP client starts\n\
             hint: start it as `toolbridge-bridge bridge SOCKET SCHEMA`, with the absolute paths of a session's files, \
             or as `toolbridge-bridge attach [NAME…]`"
        );
    }
    ExitCode::from(2)
}
