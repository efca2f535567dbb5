//! Tools as data: what a tool is, a call of it, its result and its errors.

pub(crate) mod arguments;
pub(crate) mod budget;
pub(crate) mod call;
pub(crate) mod caller;
pub(crate) mod error;
pub(crate) mod json;
pub(crate) mod lock;
pub(crate) mod name;
pub(crate) mod outcome;
pub(crate) mod result;
#[cfg(feature = "schema")]
pub(crate) mod schema;
#[cfg(not(feature = "schema"))]
#[path = "no_schema.rs"]
pub(crate) mod schema;
pub(crate) mod server_info;
pub(crate) mod spec;
pub(crate) mod traceparent;
pub(crate) mod type_schema;

pub use arguments::Fault;
pub use call::{CallMeta, ToolCall};
pub use caller::Caller;
pub use error::{Hint, RegistrationError, ToolError, did_you_mean, hint_of, with_causes};
pub use json::RawJson;
pub use name::check_server_name;
pub use result::{Content, ToolResult};
pub use schema::Schema;
pub use server_info::ServerInfo;
pub use spec::{ToolList, ToolSpec};
pub use type_schema::schema_of;

pub use crate::show_hint;
