//! The HTTP front over real sockets.
#![allow(clippy::unwrap_used, reason = "tests")]

mod authorization;
mod calls;
mod checks;
mod client;
mod end;
mod handshake;
mod limits;
mod lists;
mod questions;
