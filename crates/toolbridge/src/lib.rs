//! Lets a model in the Claude Code CLI call functions inside your running process.
//!
//! Register functions, open a [`Session`], and give its MCP config to the CLI. The CLI starts a small
//! bridge process, your own program again, and each call of the model runs **here**, with your
//! connections, caches and state.
//!
//! ```no_run
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//! use toolbridge::{Session, Toolset};
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Add {
//!     a: f64,
//!     b: f64,
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     toolbridge::run_bridge_if_asked(); // the CLI starts this program again, as the bridge
//!     serve()
//! }
//!
//! #[tokio::main]
//! async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//!     let tools = Toolset::builder()
//!         .tool("add", "Adds two numbers", async |args: Add| args.a + args.b)
//!         .build()?;
//!     let session = Session::start(tools).await?;
//!     println!("claude --mcp-config '{}' --allowedTools mcp__tools", session.mcp_config("tools")?);
//!     tokio::signal::ctrl_c().await?;
//!     Ok(()) // dropping the session removes its files
//! }
//! ```
//!
//! [`ClaudeCodeModel`] does all of that by itself, for each request: it starts the CLI, asks, and ends both.
//!
//! This crate only puts the parts together: [`core`] (tools), [`ipc`] (sessions and the socket), [`mcp`] (the
//! MCP server), [`claude`] (the CLI as a model), [`docs`] (the document tools), and the bridge process out of the
//! second and third.

#[cfg(feature = "bridge")]
mod bridge;
#[cfg(feature = "bridge")]
mod guard;
#[cfg(feature = "bridge")]
mod stdio;

#[cfg(feature = "bridge")]
pub use bridge::{run_bridge, run_bridge_if_asked};
#[cfg(feature = "bridge")]
pub use guard::run_guard_if_asked;
pub use schemars;
#[cfg(feature = "bridge")]
pub use stdio::{StdioError, serve_stdio};
#[cfg(feature = "claude")]
pub use toolbridge_claude as claude;
#[cfg(feature = "claude")]
pub use toolbridge_claude::{ClaudeCodeError, ClaudeCodeModel, Event, Part, Permission, Request, Transport};
pub use toolbridge_core as core;
pub use toolbridge_core::{
    CallContext, CancellationToken, Combined, Content, FromContext, IntoToolError, IntoToolResult, IntoTools,
    Json, NoArgs, RawJson, RegistrationError, Returned, State, Tool, ToolError, ToolResult, ToolSource,
    Toolset, ToolsetBuilder,
};
#[cfg(feature = "docs")]
pub use toolbridge_docs as docs;
#[cfg(feature = "docs")]
pub use toolbridge_docs::Documents;
pub use toolbridge_ipc as ipc;
pub use toolbridge_ipc::{IpcError, Session, SessionBuilder};
#[cfg(feature = "macros")]
pub use toolbridge_macros::{tool, tools};
#[cfg(feature = "bridge")]
pub use toolbridge_mcp as mcp;

#[doc(hidden)]
pub use toolbridge_core::__private;

/// The programs of the README and of the pages for users are compiled, and those that can be are run.
#[cfg(all(doctest, feature = "bridge"))]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../USING.md")]
#[doc = include_str!("../SAFETY.md")]
struct Pages;
