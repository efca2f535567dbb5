//! A conversation, for Python.

use std::sync::Mutex;

use pyo3::prelude::*;
use toolbridge::Request;
use toolbridge::model::{self, Input};

use crate::error::{Result, invalid};
use crate::event_loop::EventLoop;
use crate::host::invalid_request;
use crate::json;
use crate::process::{Own, lock};
use crate::stream::Stream;
use crate::task::Task;
use crate::tools::ServedTools;

/// A conversation, open on one CLI. Closing it stops the CLI.
#[pyclass(frozen, module = "toolbridge._native")]
pub(crate) struct Conversation {
    open: Mutex<Own<Open>>,
    event_loop: EventLoop,
}

struct Open {
    conversation: model::Conversation,
    /// Set if it has Python tools.
    tools: Option<ServedTools>,
}

impl Conversation {
    pub(crate) fn new(
        conversation: model::Conversation,
        tools: Option<ServedTools>,
        event_loop: EventLoop,
    ) -> Self {
        Self { open: Mutex::new(Own::new(Open { conversation, tools })), event_loop }
    }

    fn with<T>(&self, call: impl FnOnce(&mut Open) -> Result<T>) -> Result<T> {
        let mut open = lock(&self.open);
        match open.get_mut() {
            Some(open) => call(open),
            None => Err(invalid(
                "the conversation was closed, or belongs to the process that this one was forked from",
            )),
        }
    }

    /// Sends the CLI a control request; `done` is called with the response.
    fn ask<T, F>(
        &self,
        py: Python<'_>,
        done: Py<PyAny>,
        ask: impl FnOnce(&model::Conversation) -> F,
    ) -> Result<Task>
    where
        T: for<'py> IntoPyObject<'py> + Send + 'static,
        F: Future<Output = std::result::Result<T, toolbridge::model::ClaudeCodeError>> + Send + 'static,
    {
        let answer = self.with(|open| Ok(ask(&open.conversation)))?;
        Task::start(py, self.event_loop.clone_ref(py), done, async move { Ok(answer.await?) })
    }
}

#[pymethods]
impl Conversation {
    /// Sends a prompt: a JSON list of texts and attachments. The answer arrives through the stream.
    fn stream(&self, py: Python<'_>, prompt_json: &[u8]) -> Result<Stream> {
        let inputs: Vec<Input> =
            serde_json::from_slice(prompt_json).map_err(|error| invalid_request("prompt", &error))?;
        let stream = self.with(|open| Ok(open.conversation.stream(Request::with_inputs(inputs))?))?;
        Ok(Stream::new(stream, self.event_loop.clone_ref(py)))
    }

    /// The conversation's id; set once the first answer has begun.
    #[getter]
    fn session_id(&self) -> Option<String> {
        lock(&self.open).get()?.conversation.session_id().map(Into::into)
    }

    fn set_model(&self, py: Python<'_>, model: Option<&str>, done: Py<PyAny>) -> Result<Task> {
        self.ask(py, done, |conversation| conversation.set_model(model))
    }

    fn set_permission_mode(&self, py: Python<'_>, mode: &str, done: Py<PyAny>) -> Result<Task> {
        let mode = mode.parse()?;
        self.ask(py, done, |conversation| conversation.set_permission_mode(mode))
    }

    /// `done` is called with a JSON list.
    fn mcp_servers(&self, py: Python<'_>, done: Py<PyAny>) -> Result<Task> {
        self.ask(py, done, |conversation| {
            let servers = conversation.mcp_servers();
            async move { Ok(json(&servers.await?)) }
        })
    }

    /// `done` is called with a JSON object.
    fn context_usage(&self, py: Python<'_>, done: Py<PyAny>) -> Result<Task> {
        self.ask(py, done, |conversation| {
            let usage = conversation.context_usage();
            async move { Ok(usage.await?.as_bytes().to_vec()) }
        })
    }

    fn rewind_files(&self, py: Python<'_>, prompt_id: &str, done: Py<PyAny>) -> Result<Task> {
        self.ask(py, done, |conversation| conversation.rewind_files(prompt_id))
    }

    /// Adds a tool and notifies the CLI.
    fn add(&self, py: Python<'_>, tool: Py<PyAny>) -> Result<()> {
        self.with(|open| match &open.tools {
            Some(tools) => Ok(tools.add(py, tool)?),
            None => Err(invalid("a conversation that began without tools has none")),
        })
    }

    /// Removes a tool and notifies the CLI. Returns whether it existed.
    fn remove(&self, name: &str) -> Result<bool> {
        self.with(|open| Ok(open.tools.as_ref().is_some_and(|tools| tools.remove(name))))
    }

    /// Stops the CLI; `done` is called when it has exited and everything is cleaned up.
    fn stop(&self, py: Python<'_>, done: Py<PyAny>) -> Result<Task> {
        let open = lock(&self.open).take();
        Task::start(py, self.event_loop.clone_ref(py), done, async move {
            if let Some(Open { conversation, .. }) = open {
                conversation.close().await;
            }
            Ok(())
        })
    }
}
