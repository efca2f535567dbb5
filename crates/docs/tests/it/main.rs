//! The document tools from a client's view: calls in; results, files and log lines out.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "children talk to their parent, tests to people"
)]
#![allow(clippy::disallowed_methods, reason = "tests read the disk as other programs do")]

mod copy;
mod example;
mod find;
mod folder;
mod log;
mod manual;
mod note;
mod process;
mod quality;
mod safety;
mod start;
mod support;
mod tools;
mod vault;
