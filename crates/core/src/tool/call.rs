//! A call on its way to a tool.

use std::sync::Arc;

use crate::call::trace::TraceParent;
use crate::{Client, RawJson};

/// One call: the tool, its arguments, and metadata from the caller.
#[derive(Debug, Clone)]
pub struct ToolCall {
    /// The tool's name, without any server prefix.
    pub name: String,
    /// The arguments: always a JSON object, not decoded yet.
    pub arguments: RawJson,
    /// The caller's metadata.
    pub meta: CallMeta,
}

impl ToolCall {
    /// A call without metadata.
    #[must_use]
    pub fn new(name: impl Into<String>, arguments: RawJson) -> Self {
        Self { name: name.into(), arguments, meta: CallMeta::default() }
    }
}

/// Metadata that a caller may send with a call.
#[derive(Debug, Clone, Default)]
pub struct CallMeta {
    /// The model's id for this use of the tool.
    pub tool_use_id: Option<String>,
    /// The token for progress notifications; without one, no progress is reported.
    pub progress_token: Option<RawJson>,
    /// The call's place in a trace that the caller keeps.
    pub traceparent: Option<TraceParent>,
    /// The client that calls.
    pub client: Option<Arc<Client>>,
    /// The caller can put questions to a person; nobody is asked without this.
    pub can_ask: bool,
}
