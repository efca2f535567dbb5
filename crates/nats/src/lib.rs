//! Tools on many machines, over NATS.
//!
//! A [`Host`] makes this process a host of a name: it offers a source's tools there. [`Tools`] is a source
//! with the tools of all live hosts of a name. Neither listens on a port; both have one connection to a NATS
//! server.
//!
//! ```no_run
//! # mod toolbridge { pub use toolbridge_core::*; pub use toolbridge_nats as nats; }
//! # use toolbridge::{NoArgs, ToolSource as _, Toolset};
//! use toolbridge::nats;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // On each host:
//! let tools = Toolset::builder().tool("hello", "Greets", async |_: NoArgs| "hello").build()?;
//! let host = nats::Host::builder(tools, "greeters").at("nats://127.0.0.1:4222").start().await?;
//!
//! // Wherever tools are called:
//! let tools = nats::Tools::connect("nats://127.0.0.1:4222", "greeters").await?;
//! assert_eq!(tools.tools()[0].name, "hello");
//!
//! host.drain().await;
//! # Ok(()) }
//! ```
//!
//! The wire protocol is described in docs/NATS.md. Arguments and results are raw JSON, passed byte for byte.

mod call;
mod connection;
mod directory;
mod error;
mod fan_out;
mod host;
mod received_call;
mod tools;
mod wire;

/// The settings of a connection, from async-nats: credentials, TLS, the prefix of inboxes.
pub use async_nats::ConnectOptions;
pub use connection::ConnectFiles;
pub use directory::LiveHost;
pub use error::NatsError;
pub use host::{Host, HostBuilder};
pub use tools::{Tools, ToolsBuilder};
