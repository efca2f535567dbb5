//! Keeps large results in the process, so that the model does not read what it only passes on.
//!
//! [`Parked`] is a source around any other. A result over a limit stays in this process; the model gets a
//! *handle*, the size and a preview. When the model passes the handle as the value of an argument, it is
//! replaced by the text, byte for byte. Three tools come with it: `result_read` and `result_find` show parts
//! of a kept result, `result_save` writes it to a file.
//!
//! ```
//! # use toolbridge_core as toolbridge;
//! use toolbridge::park::Parked;
//! use toolbridge::tool::{RawJson, ToolCall};
//! use toolbridge::{CallContext, NoArgs, ToolSource as _, Toolset};
//!
//! let tools = Toolset::builder().tool("dump", "Dumps the database", async |_: NoArgs| "row\n".repeat(1_000_000)).build()?;
//! let tools = Parked::new(tools)?;
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let result = tools.call(ToolCall::new("dump", RawJson::empty_object()), CallContext::default()).await?;
//! assert!(result.as_str().len() < 1000 && result.as_str().contains("parked:"));
//! # Ok::<(), toolbridge_core::ToolError>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Reading order: `parked.rs` (the source), `long.rs` (which results are kept), `store.rs` (where), `expand.rs` (how
//! a handle is replaced), `tools.rs` (the three tools).

mod expand;
mod long;
mod parked;
mod store;
mod tools;

pub use parked::{ParkError, Parked};
