//! A client of real servers.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod calls;
mod config;
mod errors;
#[cfg(feature = "http")]
mod http;
mod life;
mod support;
