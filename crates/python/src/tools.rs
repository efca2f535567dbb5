//! Python tools as a tool source.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::Value;
use toolbridge::model::ClaudeCodeError;
use toolbridge::source::{Combined, Selection};
use toolbridge::tool::{RawJson, RegistrationError};
use toolbridge::{CallContext, Tool, ToolResult, ToolSource as _, Toolset, set};

use crate::call::Asker;
use crate::documents::Documents;
use crate::event_loop::EventLoop;
use crate::server::RunningServer;
use crate::threads::Threads;

/// What Python offers to a model: its own tools, documents, and other servers.
#[derive(FromPyObject)]
pub(crate) struct Offer {
    tools: Vec<Py<PyAny>>,
    /// Called with a [`Call`](crate::call::Call) for each call of a Python tool.
    call: Py<PyAny>,
    /// Starts a thread for tools that run in one.
    start_thread: Py<PyAny>,
    documents: Vec<Py<Documents>>,
    /// Other MCP servers.
    servers: Vec<Py<RunningServer>>,
    /// The names of tools of documents and servers that are not offered.
    left_out: Vec<String>,
}

/// The tools of an offer while they are served.
pub(crate) struct Live {
    tools: Toolset,
    /// All tools: these, and those that are not Python's.
    all: Arc<Combined>,
    asker: Arc<Asker>,
    threads: Arc<Threads>,
}

/// A Python tool's properties.
#[derive(FromPyObject)]
struct Served {
    /// A [`Described`] as JSON.
    described: Vec<u8>,
    /// Whether it runs in a thread of ours. Through the event loop and its worker threads a call takes five
    /// times as long.
    is_direct: bool,
}

impl Offer {
    pub(crate) fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.documents.is_empty() && self.servers.is_empty()
    }

    /// Combines everything into one source, and a handle for later changes.
    ///
    /// # Errors
    ///
    /// Fails if a name or a schema is invalid, or two tools have the same name.
    pub(crate) fn serve(
        self,
        py: Python<'_>,
        event_loop: EventLoop,
    ) -> Result<(Arc<Combined>, Live), ClaudeCodeError> {
        let tools = Toolset::builder().build()?;
        let all = Arc::new(Combined::new().with(tools.clone())?.with(self.others()?)?);
        let live = Live {
            tools,
            all: Arc::clone(&all),
            asker: Arc::new(Asker::new(event_loop, self.call)),
            threads: Arc::new(Threads::new(self.start_thread)),
        };
        for tool in self.tools {
            live.add(py, tool)?;
        }
        Ok((all, live))
    }

    /// The tools that are not Python's.
    fn others(&self) -> Result<Combined, RegistrationError> {
        let mut documents = self.documents.iter().map(|documents| documents.get().source());
        let all = documents.try_fold(Combined::new(), Combined::with)?;
        let all = self.servers.iter().try_fold(all, |all, server| server.get().join(all))?;
        let tools = all.tools();
        let names = || tools.iter().map(|tool| tool.name.as_str());
        if !names().any(|name| self.left_out.iter().any(|out| out == name)) {
            return Ok(all);
        }
        let left: Vec<_> = names().filter(|name| self.left_out.iter().all(|out| out != name)).collect();
        Combined::new().with(Selection::new(all, &left)?)
    }
}

impl Live {
    /// Adds a tool.
    ///
    /// # Errors
    ///
    /// Fails if its name or its schema is invalid, or a tool of that name exists.
    pub(crate) fn add(&self, py: Python<'_>, tool: Py<PyAny>) -> Result<(), ClaudeCodeError> {
        let not_understood = |error: &dyn std::fmt::Display| ClaudeCodeError::InvalidRequest {
            reason: format!("a tool is invalid: {error}"),
        };
        let served: Served = tool.extract(py).map_err(|error: PyErr| not_understood(&error))?;
        let described: Described =
            serde_json::from_slice(&served.described).map_err(|error| not_understood(&error))?;
        let name = described.name.clone();
        let is_offered = || self.all.tools().get(&name).is_some();
        if !is_offered() {
            let threads = served.is_direct.then(|| Arc::clone(&self.threads));
            self.tools.add(described.tool(Arc::new(tool), Arc::clone(&self.asker), threads))?;
            if is_offered() {
                return Ok(());
            }
            // The name belongs to another source, which does not list it at the moment.
            self.tools.remove(&name);
        }
        Err(RegistrationError::Duplicate(name).into())
    }

    /// Removes a Python tool; returns whether it existed.
    pub(crate) fn remove(&self, name: &str) -> bool {
        self.tools.remove(name)
    }
}

/// A tool's description from Python.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    name: String,
    description: String,
    input_schema: Value,
    title: Option<String>,
    /// The names are MCP's.
    annotations: BTreeMap<String, bool>,
    parallel: Option<bool>,
    max_result_chars: Option<u32>,
}

impl Described {
    /// Python validates the arguments by its own rules, which accept `"1"` as a number.
    fn tool(self, tool: Arc<Py<PyAny>>, asker: Arc<Asker>, threads: Option<Arc<Threads>>) -> Tool {
        let name = self.name.clone();
        let handler = move |arguments: RawJson, context: CallContext| {
            let (asker, threads, name) = (Arc::clone(&asker), threads.clone(), name.clone());
            let (id, tool) = (context.tool_use_id().map(Into::into), Arc::clone(&tool));
            let called = Some((tool, context));
            async move { asker.ask(threads, name, arguments, id, called).await.map(ToolResult::complete) }
        };
        let mut tool = Tool::raw(self.name, self.description, self.input_schema, handler).unchecked();
        set!(tool: title = self.title, max_result_chars = self.max_result_chars);
        if self.parallel == Some(true) {
            tool = tool.parallel();
        }
        self.annotations.into_iter().fold(tool, |tool, (hint, value)| tool.annotation(hint, value))
    }
}
