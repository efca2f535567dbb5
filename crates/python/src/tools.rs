//! Tools that live in Python, as a source.

use std::collections::HashSet;
use std::sync::Arc;

use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::Value;
use toolbridge::core::{CallFuture, ToolCall, ToolList};
use toolbridge::{
    CallContext, ClaudeCodeError, Combined, RawJson, Tool, ToolSource, Toolset, ToolsetBuilder,
};

use crate::call::Asker;
use crate::documents::Documents;
use crate::event_loop::EventLoop;
use crate::threads::Threads;

/// What Python offers to a model: its own tools, and documents.
#[derive(FromPyObject)]
pub(crate) struct Offer {
    /// The tools as JSON, if there are any.
    tools: Option<Vec<u8>>,
    /// Called with a [`Call`](crate::call::Call) for each use of such a tool.
    call: Py<PyAny>,
    /// Tools that are called in threads instead, and how such a thread is started.
    direct: HashSet<String>,
    start_thread: Py<PyAny>,
    documents: Vec<Py<Documents>>,
}

impl Offer {
    /// All of it as one source, if there is any.
    ///
    /// # Errors
    ///
    /// When a name or a schema is not usable, or two tools have the same name.
    pub(crate) fn source(self, event_loop: EventLoop) -> Result<Option<Combined>, ClaudeCodeError> {
        if self.tools.is_none() && self.documents.is_empty() {
            return Ok(None);
        }
        let mut all = Combined::new();
        if let Some(tools) = self.tools {
            let direct = Direct { names: self.direct, threads: Arc::new(Threads::new(self.start_thread)) };
            all = all.with(PyTools::new(&tools, Asker::new(event_loop, self.call), direct)?)?;
        }
        for documents in self.documents {
            all = all.with(documents.get().source())?;
        }
        Ok(Some(all))
    }
}

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
struct PyTools {
    described: Toolset,
    asker: Arc<Asker>,
    direct: Direct,
}

/// Plain functions. The way over the event loop and its worker threads would take five times as long.
struct Direct {
    names: HashSet<String>,
    threads: Arc<Threads>,
}

impl PyTools {
    /// The tools of a JSON array.
    ///
    /// # Errors
    ///
    /// When a name or a schema is not usable.
    fn new(described: &[u8], asker: Asker, direct: Direct) -> Result<Self, ClaudeCodeError> {
        let described: Vec<Described> = serde_json::from_slice(described).map_err(|error| {
            ClaudeCodeError::InvalidRequest { reason: format!("the tools are not understood: {error}") }
        })?;
        let builder = described.into_iter().map(Tool::from).fold(Toolset::builder(), ToolsetBuilder::with);
        Ok(Self { described: builder.build()?, asker: Arc::new(asker), direct })
    }
}

impl ToolSource for PyTools {
    fn tools(&self) -> &ToolList {
        self.described.tools()
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        if self.described.tools().get(&call.name).is_none() {
            return Box::pin(async { Err(self.described.tools().not_found(call.name)) });
        }
        let ToolCall { name, arguments, meta } = call;
        let asker = Arc::clone(&self.asker);
        if self.direct.names.contains(&name) {
            let threads = Arc::clone(&self.direct.threads);
            return Box::pin(asker.ask_in_thread(threads, name, arguments, meta.tool_use_id, context));
        }
        Box::pin(asker.ask(name, arguments, meta.tool_use_id, Some(context)))
    }

    fn is_exclusive(&self, name: &str) -> bool {
        self.described.is_exclusive(name)
    }
}
