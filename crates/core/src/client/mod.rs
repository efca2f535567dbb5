//! Any MCP server as a source of tools: a child process, or a URL.
//!
//! rmcp implements the protocol. Results of calls bypass its types and stay as they were written (`interceptor.rs`).

mod config;
mod connection;
mod error;
mod http;
mod interceptor;
mod lines;
mod open;
mod process;
mod server;
mod target;

pub use error::{ConnectError, ServerError, ServerFault};
pub use server::McpServer;
pub use target::{CommandTarget, McpServerBuilder, Target, UrlTarget};
