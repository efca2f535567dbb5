//! Any tool source as an MCP server.
//!
//! One loop reads lines and answers them. What is small, `initialize`, `server/discover`, errors, is read and written
//! in rmcp's types, which know the versions. What is large or frequent, `tools/call` and `tools/list`, is not: a call's
//! arguments and its result are spans of raw JSON from one end to the other.
//!
//! Besides the client, this is the only crate that knows rmcp. `toolbridge-http` uses the same messages, and shares what is written
//! here.

#[doc(hidden)]
pub mod fuzzing;

mod front;
mod line;
mod list;
mod protocol;
mod question;
mod rpc;
mod stdio;
mod subscription;
#[doc(hidden)]
pub mod wire;

pub use front::{MAX_CALLS_IN_FLIGHT, ServeError, Serving, serve, serve_with};
pub use line::{Incoming, LineReader, LineTooLong, LineWriter, MAX_LINE_BYTES, Outgoing};
pub use stdio::{Stdin, StdioClient, Stdout, stdio};
#[doc(no_inline)]
pub use toolbridge_core::ServerInfo;
