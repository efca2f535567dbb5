//! Any MCP server as a source of tools: a child process, or a URL.
//!
//! rmcp implements the protocol and its versions, 2024-11-05 to 2026-07-28. Arguments and results bypass its
//! types and stay as they were written (`exchange.rs`).

mod config;
mod connection;
mod error;
mod exchange;
mod expand;
mod fetch;
mod http;
mod lines;
mod list;
mod open;
mod process;
mod server;
mod stderr;
mod target;

pub use config::McpServers;
pub use error::ServerError;
pub use server::McpServer;
pub use target::{CommandTarget, McpServerBuilder, Target, UrlTarget};
