//! Python tools as a tool source.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use serde::Deserialize;
use serde_json::Value;
use toolbridge::model::ClaudeCodeError;
use toolbridge::source::{Combined, Selection};
use toolbridge::tool::{RawJson, RegistrationError};
use toolbridge::{CallContext, Tool, ToolResult, ToolSource as _, Toolset, set};

use crate::call::Asker;
use crate::host::{Host, invalid_request};

/// The tools of a host while they are served: its own, documents, and other servers.
pub(crate) struct ServedTools {
    own: Toolset,
    /// All tools: these, and those that are not Python's.
    all: Arc<Combined>,
    asker: Arc<Asker>,
}

/// A Python tool.
#[derive(FromPyObject)]
struct Served {
    /// A [`Described`] as JSON.
    described: PyBackedBytes,
    /// Whether it runs in a thread of ours. Through the event loop and its worker threads a call takes five
    /// times as long.
    is_direct: bool,
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
    parallel: bool,
    max_result_chars: Option<u32>,
}

impl ServedTools {
    /// Combines everything into one source.
    ///
    /// # Errors
    ///
    /// Fails if a name or a schema is invalid, or two tools have the same name.
    pub(crate) fn new(py: Python<'_>, host: &Host, asker: Arc<Asker>) -> Result<Self, ClaudeCodeError> {
        let own = Toolset::builder().build()?;
        let all = Arc::new(Combined::new().with(own.clone())?.with(others(host)?)?);
        let served = Self { own, all, asker };
        for tool in &host.tools {
            served.add(py, tool.clone_ref(py))?;
        }
        Ok(served)
    }

    pub(crate) fn source(&self) -> Arc<Combined> {
        Arc::clone(&self.all)
    }

    /// Adds a tool.
    ///
    /// # Errors
    ///
    /// Fails if its name or its schema is invalid, or a tool of that name exists.
    pub(crate) fn add(&self, py: Python<'_>, tool: Py<PyAny>) -> Result<(), ClaudeCodeError> {
        let served: Served = tool.extract(py).map_err(|error: PyErr| invalid_request("tool", &error))?;
        let described: Described =
            serde_json::from_slice(&served.described).map_err(|error| invalid_request("tool", &error))?;
        let name = described.name.clone();
        let is_offered = || self.all.tools().get(&name).is_some();
        if !is_offered() {
            self.own.add(described.tool(Arc::new(tool), Arc::clone(&self.asker), served.is_direct))?;
            if is_offered() {
                return Ok(());
            }
            // The name belongs to another source, which does not list it at the moment.
            self.own.remove(&name);
        }
        Err(RegistrationError::Duplicate(name).into())
    }

    /// Removes a Python tool; returns whether it existed.
    pub(crate) fn remove(&self, name: &str) -> bool {
        self.own.remove(name)
    }
}

/// The tools that are not Python's.
fn others(host: &Host) -> Result<Combined, RegistrationError> {
    let mut documents = host.documents.iter().map(|documents| documents.get().source());
    let all = documents.try_fold(Combined::new(), Combined::with)?;
    let all = host.servers.iter().try_fold(all, |all, server| server.get().join(all))?;
    if host.left_out.is_empty() {
        return Ok(all);
    }
    let tools = all.tools();
    let names = tools.iter().map(|tool| tool.name.as_str());
    let left: Vec<_> = names.filter(|name| host.left_out.iter().all(|out| out != name)).collect();
    Combined::new().with(Selection::new(all, &left)?)
}

impl Described {
    /// Python validates the arguments by its own rules, which accept `"1"` as a number.
    fn tool(self, tool: Arc<Py<PyAny>>, asker: Arc<Asker>, is_direct: bool) -> Tool {
        let name = self.name.clone();
        let handler = move |arguments: RawJson, context: CallContext| {
            let (asker, name, tool) = (Arc::clone(&asker), name.clone(), Arc::clone(&tool));
            async move {
                asker.call_tool(name, arguments, tool, context, is_direct).await.map(ToolResult::complete)
            }
        };
        let mut tool = Tool::raw(self.name, self.description, self.input_schema, handler).unchecked();
        set!(tool: title = self.title, max_result_chars = self.max_result_chars);
        if self.parallel {
            tool = tool.parallel();
        }
        self.annotations.into_iter().fold(tool, |tool, (hint, value)| tool.annotation(hint, value))
    }
}
