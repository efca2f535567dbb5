//! The scripted model over real sockets, by hand and with the real CLI.
#![allow(clippy::unwrap_used, reason = "tests")]

mod binary;
mod claude;
mod client;
mod wire;
