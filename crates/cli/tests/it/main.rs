//! The real executable, over socket pairs and pipes, with real signals.
#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::needless_pass_by_value, reason = "tests")]

mod support;
mod world;

mod ask;
mod attach;
mod bridge;
mod command_line;
mod docs;
mod errors;
mod first_steps;
mod foreign_bridge;
mod foreign_parent;
mod inject;
mod join;
mod kill;
#[cfg(feature = "nats")]
mod nats;
mod serve;
mod session;
mod shared;
mod strangers;
mod trace;
mod wire;
