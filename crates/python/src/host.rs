//! What Python provides for one request or session.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyString};
use serde::Deserialize;
use toolbridge::Request;
use toolbridge::call::CancellationToken;
use toolbridge::model::{ClaudeCodeError, Settings};

use crate::call::Asker;
use crate::callbacks::{answer_question, call_hook, decide};
use crate::documents::Documents;
use crate::event_loop::{EventLoop, undelivered};
use crate::server::RunningServer;
use crate::tools::ServedTools;

/// The tools and callbacks of one request or session. A callback is a Python function that takes a
/// [`Call`](crate::call::Call) and returns a coroutine with its answer.
#[derive(FromPyObject)]
pub(crate) struct Host {
    pub(crate) event_loop: EventLoop,
    /// Whether the request is made by a function that a CLI waits for.
    pub(crate) is_nested: bool,
    /// The request and its settings as JSON; empty for a session.
    request: PyBackedBytes,
    server_name: String,
    transport: String,
    pub(crate) tools: Vec<Py<PyAny>>,
    pub(crate) documents: Vec<Py<Documents>>,
    /// Other MCP servers.
    pub(crate) servers: Vec<Py<RunningServer>>,
    /// The names of tools of documents and servers that are not offered.
    pub(crate) left_out: Vec<String>,
    /// Starts a callback on the event loop.
    start: Py<PyAny>,
    /// Runs a plain function in a thread.
    run_in_thread: Py<PyAny>,
    /// The callback for calls of tools.
    call: Py<PyAny>,
    /// The callback for permission requests, if there is a `can_use_tool`.
    decide: Option<Py<PyAny>>,
    /// The callback for questions to the user, if there is an `on_ask`.
    ask: Option<Py<PyAny>>,
    /// Called with each message of the CLI, if there is a callback.
    message: Option<Py<PyAny>>,
    /// Called with each line of the CLI's stderr, if there is a callback.
    stderr: Option<Py<PyAny>>,
    /// The event, the matcher and the callback of each hook.
    hooks: Vec<(String, String, Py<PyAny>)>,
    /// Ends the request early; its answer is what was received so far.
    until: Option<Py<Ending>>,
}

/// Ends a request early; its answer is what was received so far.
#[pyclass(frozen, module = "toolbridge._native")]
pub(crate) struct Ending(CancellationToken);

#[pymethods]
impl Ending {
    #[new]
    fn new() -> Self {
        Self(CancellationToken::new())
    }

    /// Ends the request.
    fn now(&self) {
        self.0.cancel();
    }
}

/// A request as Python sends it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestConfig {
    request: Request,
    settings: Settings,
}

impl Host {
    /// What calls the functions.
    pub(crate) fn asker(&self, py: Python<'_>) -> Arc<Asker> {
        let (start, run_in_thread) = (self.start.clone_ref(py), self.run_in_thread.clone_ref(py));
        Arc::new(Asker::new(self.event_loop.clone_ref(py), start, run_in_thread, self.call.clone_ref(py)))
    }

    /// The request with its tools and callbacks, which run on the event loop.
    ///
    /// # Errors
    ///
    /// Fails if the request, the tools or the transport are invalid.
    pub(crate) fn request(&self, py: Python<'_>) -> Result<(Request, Option<ServedTools>), ClaudeCodeError> {
        let RequestConfig { request, settings } =
            serde_json::from_slice(&self.request).map_err(|error| invalid_request("setting", &error))?;
        let mut request = request.settings(settings);
        let asker = self.asker(py);
        let callback = |function: &Py<PyAny>| (Arc::clone(&asker), Arc::new(function.clone_ref(py)));
        if let Some((asker, function)) = self.decide.as_ref().map(callback) {
            request =
                request.can_use_tool(move |asked| decide(Arc::clone(&asker), Arc::clone(&function), asked));
        }
        if let Some((asker, function)) = self.ask.as_ref().map(callback) {
            request = request
                .on_ask(move |asked| answer_question(Arc::clone(&asker), Arc::clone(&function), asked));
        }
        for (event, matcher, function) in &self.hooks {
            let (asker, function) = callback(function);
            request = request.hook(event.parse()?, matcher, move |call| {
                call_hook(Arc::clone(&asker), Arc::clone(&function), call)
            });
        }
        if let Some(callback) = &self.message {
            let (event_loop, callback) = (self.event_loop.clone_ref(py), callback.clone_ref(py));
            request = request.on_message(move |message| {
                post(&event_loop, &callback, |py| PyBytes::new(py, message.as_bytes()).into_any());
            });
        }
        if let Some(callback) = &self.stderr {
            let (event_loop, callback) = (self.event_loop.clone_ref(py), callback.clone_ref(py));
            request = request.on_stderr(move |line| {
                post(&event_loop, &callback, |py| PyString::new(py, line).into_any());
            });
        }
        if let Some(until) = &self.until {
            request = request.until(until.get().0.clone());
        }
        if self.tools.is_empty() && self.documents.is_empty() && self.servers.is_empty() {
            return Ok((request, None));
        }
        let served = ServedTools::new(py, self, asker)?;
        let request = request.tools(served.source()).server_name(&self.server_name);
        Ok((request.transport(self.transport.parse()?), Some(served)))
    }
}

/// JSON of Python that is invalid.
pub(crate) fn invalid_request(what: &str, error: &dyn std::fmt::Display) -> ClaudeCodeError {
    ClaudeCodeError::InvalidRequest { reason: format!("a {what} is invalid: {error}") }
}

fn post(
    event_loop: &EventLoop,
    callback: &Py<PyAny>,
    argument: impl for<'py> FnOnce(Python<'py>) -> Bound<'py, PyAny>,
) {
    Python::try_attach(|py| {
        if let Err(error) = event_loop.post(py, callback.bind(py), [argument(py)]) {
            undelivered(py, &error);
        }
    });
}
