//! Serves any tool source over MCP with Streamable HTTP.
//!
//! A [`Server`] is a tower service, to be mounted in a program that already has a server ([`Server::service`]), or a small
//! server for programs without one ([`Server::serve`]).
//!
//! ```no_run
//! # use toolbridge_core as toolbridge;
//! # use toolbridge::{NoArgs, Toolset};
//! use toolbridge::http;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tools = Toolset::builder().tool("hello", "Greets", async |_: NoArgs| "hello").build()?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:8000").await?;
//! http::Server::builder(tools).serve(listener, async { _ = tokio::signal::ctrl_c().await }).await?;
//! # Ok(()) }
//! ```
//!
//! Messages are read and written by the same code as those on stdin and stdout (`mcp`): arguments and
//! results are slices of raw JSON, which are passed on byte for byte.

mod auth;
mod body;
mod call;
mod error;
mod header;
mod metrics;
mod origin;
mod refusal;
mod serve;
mod server;
mod service;
mod session;
mod stall;
mod stream;
mod token_file;

pub use body::{Body, Response};
pub use error::HttpError;
pub use server::Server;
pub use service::McpService;
