//! Tools as data.
//!
//! A **source** is anything that can list tools and call them ([`ToolSource`]); a **front** exposes a
//! source to somebody. This crate holds what both sides speak about: [`ToolSpec`], [`ToolCall`],
//! [`ToolResult`], [`ToolError`], and the source for functions in this process, [`Toolset`]. It knows
//! no socket, no MCP, and no file but the one that a trace goes to ([`trace`]).
//!
//! ```
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//! # use toolbridge_core as toolbridge;
//! use toolbridge::Toolset;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Add {
//!     a: f64,
//!     b: f64,
//! }
//!
//! let tools = Toolset::builder()
//!     .tool("add", "Adds two numbers", async |args: Add| args.a + args.b)
//!     .build()?;
//! assert_eq!(tools.names(), ["add"]);
//! # Ok::<(), toolbridge_core::RegistrationError>(())
//! ```

pub mod json;
pub mod trace;

mod arguments;
mod budget;
mod call;
mod changes;
mod client;
mod clock;
mod combined;
mod context;
mod dispatcher;
mod error;
mod extract;
mod fault;
mod flaw;
mod form;
mod function;
mod handler;
mod lane;
mod leniency;
mod name;
mod panic;
mod prefixed;
mod progress;
mod question;
mod result;
mod returned;
mod scan;
mod schema;
mod selection;
mod server_info;
mod shape;
mod source;
mod spec;
mod tool;
mod toolset;

pub use budget::{Budget, Share};
pub use call::{CallMeta, ToolCall};
pub use changes::{Changes, DerivedList};
pub use client::Client;
pub use combined::Combined;
pub use context::{CallContext, States};
pub use dispatcher::Dispatcher;
pub use error::{Hint, RegistrationError, ToolError, Warning, hint_of, with_causes};
pub use extract::{FromContext, State};
#[doc(hidden)]
pub use fault::Fault;
pub use flaw::{Flaw, MAX_RESULT_DEPTH, ResultSpan};
pub use form::Form;
pub use handler::{FromArguments, IntoHandler, NoArgs};
pub use json::RawJson;
pub use name::{MAX_FULL_NAME_CHARS, check_server_name, check_tool_name};
pub use prefixed::{Prefixed, with_prefix};
pub use progress::{CallReceiver, Progress, Step, Underway};
pub use question::{Answer, Asked, Pending, Question};
pub use result::{Content, ToolResult};
pub use returned::{IntoToolError, IntoToolResult, Json, ResultJson, Returned};
#[doc(hidden)]
pub use schema::Schema;
pub use selection::Selection;
pub use server_info::ServerInfo;
pub use source::{CallFuture, ToolSource};
pub use spec::{DuplicateName, ToolList, ToolSpec};
pub use tokio_util::sync::CancellationToken;
pub use tool::{IntoTools, Tool, schema_of};
pub use toolset::{Toolset, ToolsetBuilder};

/// Calls the builder's method of the same name for each setting that was given.
#[doc(hidden)]
#[macro_export]
macro_rules! set {
    ($builder:ident: $($name:ident = $value:expr),* $(,)?) => {
        $(if let Some(value) = $value {
            $builder = $builder.$name(value);
        })*
    };
}

/// What the code that `#[tool]` and `#[tools]` write refers to. It may change with every version.
#[doc(hidden)]
pub mod __private {
    pub use schemars;
    pub use serde;

    pub use crate::error::advice;
    pub use crate::function::*;
}
