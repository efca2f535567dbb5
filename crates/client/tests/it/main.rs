//! A client of real servers.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod calls;
mod config;
mod errors;
mod life;
mod support;
