//! A call on its way to a tool.

use std::sync::Arc;

use crate::trace::TraceParent;
use crate::{Client, RawJson};

/// One call: which tool, with what, and what the caller said about it.
#[derive(Debug, Clone)]
pub struct ToolCall {
    /// The tool's name, without any server prefix.
    pub name: String,
    /// The arguments: always a JSON object, not decoded yet.
    pub arguments: RawJson,
    /// What the caller said about the call.
    pub meta: CallMeta,
}

impl ToolCall {
    /// A call without anything said about it.
    #[must_use]
    pub fn new(name: impl Into<String>, arguments: RawJson) -> Self {
        Self { name: name.into(), arguments, meta: CallMeta::default() }
    }
}

/// What a caller may say about a call.
#[derive(Debug, Clone, Default)]
pub struct CallMeta {
    /// The model's id for this use of the tool.
    pub tool_use_id: Option<String>,
    /// The token under which the caller wants progress; nothing is reported without one.
    pub progress_token: Option<RawJson>,
    /// The call's place in a trace that the caller keeps.
    pub traceparent: Option<TraceParent>,
    /// Who calls.
    pub client: Option<Arc<Client>>,
    /// The caller can put questions to a person; nobody is asked without this.
    pub can_ask: bool,
}
