//! Tools that live in Python, as a source.

use std::sync::Arc;

use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::Value;
use toolbridge::core::{CallFuture, ToolCall, ToolList};
use toolbridge::{
    CallContext, ClaudeCodeError, RawJson, Tool, ToolError, ToolSource, Toolset, ToolsetBuilder,
};

use crate::call::Asker;
use crate::event_loop::EventLoop;

/// What Python says about a tool.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    name: String,
    description: String,
    input_schema: Value,
    title: Option<String>,
    read_only: Option<bool>,
    destructive: Option<bool>,
    idempotent: Option<bool>,
    open_world: Option<bool>,
    max_result_chars: Option<u32>,
}

impl From<Described> for Tool {
    fn from(said: Described) -> Self {
        // Only described here. Its calls go to Python, which checks the arguments by its own rules.
        let mut tool =
            Tool::raw(said.name, said.description, said.input_schema, async |_: RawJson| String::new());
        if said.read_only == Some(true) {
            tool = tool.read_only();
        }
        if let Some(title) = said.title {
            tool = tool.title(title);
        }
        if let Some(hint) = said.destructive {
            tool = tool.destructive(hint);
        }
        if let Some(hint) = said.idempotent {
            tool = tool.idempotent(hint);
        }
        if let Some(hint) = said.open_world {
            tool = tool.open_world(hint);
        }
        if let Some(chars) = said.max_result_chars {
            tool = tool.max_result_chars(chars);
        }
        tool
    }
}

/// Tools that live in Python.
///
/// A [`Toolset`] holds what is said about them; calls do not pass it, because its check of the arguments is
/// stricter than Python's: `"1"` is a number there.
pub(crate) struct PyTools {
    described: Toolset,
    asker: Arc<Asker>,
}

impl PyTools {
    /// The tools of a JSON array, called as `call(Call)` on the event loop.
    ///
    /// # Errors
    ///
    /// When a name or a schema is not usable.
    pub(crate) fn new(
        described: &[u8],
        event_loop: EventLoop,
        call: Py<PyAny>,
    ) -> Result<Self, ClaudeCodeError> {
        let described: Vec<Described> = serde_json::from_slice(described).map_err(|error| {
            ClaudeCodeError::InvalidRequest { reason: format!("the tools are not understood: {error}") }
        })?;
        let builder = described.into_iter().map(Tool::from).fold(Toolset::builder(), ToolsetBuilder::with);
        Ok(Self { described: builder.build()?, asker: Arc::new(Asker::new(event_loop, call)) })
    }
}

impl ToolSource for PyTools {
    fn tools(&self) -> &ToolList {
        self.described.tools()
    }

    fn call(&self, call: ToolCall, _context: CallContext) -> CallFuture<'_> {
        if self.described.tools().get(&call.name).is_none() {
            return Box::pin(async { Err(ToolError::NotFound { name: call.name }) });
        }
        Box::pin(Arc::clone(&self.asker).ask(call.name, call.arguments, call.meta.tool_use_id))
    }

    fn is_exclusive(&self, name: &str) -> bool {
        self.described.is_exclusive(name)
    }
}
