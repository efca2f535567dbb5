//! Any tool source as an MCP server.
//!
//! rmcp speaks the protocol: versions, discovery, initialisation, everything that is small. What is large
//! or frequent, `tools/call` and `tools/list`, does not pass through its types: a call's arguments and its
//! result are spans of raw JSON from one end to the other.
//!
//! This is the only crate that knows rmcp.

#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;

mod front;
mod line;
mod list;
mod protocol;
mod rpc;
mod stdio;

pub use front::{MAX_CALLS_IN_FLIGHT, ServeError, serve, serve_traced};
pub use line::{Incoming, LineReader, LineTooLong, LineWriter, MAX_LINE_BYTES, Outgoing};
pub use protocol::ServerInfo;
pub use stdio::{Readership, Stdin, Stdout, stdio};
