//! Serves any tool source over MCP.
//!
//! One loop reads lines and answers them. Small messages (`initialize`, `server/discover`, errors) use rmcp's
//! types, which know the protocol's versions. Large or frequent ones (`tools/call`, `tools/list`) do not: a call's
//! arguments and its result are passed through as slices of raw JSON.
//!
//! `http` uses the same messages
//! and runs calls in the same way.

pub(crate) mod call;
pub(crate) mod front;
mod line;
pub(crate) mod protocol;
mod question;
pub(crate) mod rpc;
mod stdio;
pub(crate) mod subscription;

pub use front::{MAX_CALLS_IN_FLIGHT, ServeError, Serving, serve, serve_with};
pub use line::{Incoming, LineReader, LineTooLong, LineWriter, MAX_LINE_BYTES, Outgoing};
pub use stdio::{Stdin, Stdio, StdioClient, Stdout, stdio};
