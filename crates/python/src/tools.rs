//! Tools that live in Python, as a source.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::Value;
use toolbridge::core::{ResultJson, set};
use toolbridge::{CallContext, ClaudeCodeError, Combined, RawJson, Tool, Toolset, ToolsetBuilder};

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
            let described: Vec<Described> = serde_json::from_slice(&tools).map_err(|error| {
                ClaudeCodeError::InvalidRequest { reason: format!("the tools are not understood: {error}") }
            })?;
            let asker = Arc::new(Asker::new(event_loop, self.call));
            let threads = Arc::new(Threads::new(self.start_thread));
            let tools = described.into_iter().map(|described| {
                // Plain functions: over the event loop and its worker threads a call takes five times as long.
                let threads = self.direct.contains(&described.name).then(|| Arc::clone(&threads));
                described.tool(Arc::clone(&asker), threads)
            });
            all = all.with(tools.fold(Toolset::builder(), ToolsetBuilder::with).build()?)?;
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
    /// In MCP's words.
    annotations: BTreeMap<String, bool>,
    parallel: Option<bool>,
    max_result_chars: Option<u32>,
}

impl Described {
    /// Its calls go to Python, which checks the arguments by its own rules: `"1"` is a number there.
    fn tool(self, asker: Arc<Asker>, threads: Option<Arc<Threads>>) -> Tool {
        let name = self.name.clone();
        let handler = move |arguments: RawJson, context: CallContext| {
            let (asker, threads, name) = (Arc::clone(&asker), threads.clone(), name.clone());
            let id = context.tool_use_id().map(Into::into);
            async move { asker.ask(threads, name, arguments, id, Some(context)).await.map(ResultJson) }
        };
        let mut tool = Tool::raw(self.name, self.description, self.input_schema, handler).unchecked();
        set!(tool: title = self.title, max_result_chars = self.max_result_chars);
        if self.parallel == Some(true) {
            tool = tool.parallel();
        }
        self.annotations.into_iter().fold(tool, |tool, (hint, value)| tool.annotation(hint, value))
    }
}
