//! The tools and callbacks that Python provides for one request.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyString};
use serde::Deserialize;
use serde_json::{Value, json};
use toolbridge::Request;
use toolbridge::call::{Answer, CancellationToken};
use toolbridge::model::{AskRequest, ClaudeCodeError, Permission, PermissionRequest, PermissionUpdate};
use toolbridge::tool::RawJson;

use crate::call::Asker;
use crate::config;
use crate::event_loop::{EventLoop, undelivered};
use crate::hook::NativeHook;
use crate::tools::{Live, Offer};

/// The tools and callbacks that Python provides for one request.
#[derive(FromPyObject)]
pub(crate) struct Host {
    /// The request and its settings as JSON.
    request: PyBackedBytes,
    server_name: String,
    transport: String,
    /// Called with a [`Call`](crate::call::Call) for each permission request, if there is a `can_use_tool`.
    decide: Option<Py<PyAny>>,
    /// Called with a [`Call`](crate::call::Call) for each question to the user, if there is an `on_ask`.
    ask: Option<Py<PyAny>>,
    /// Called with each message of the CLI, if there is a callback.
    message: Option<Py<PyAny>>,
    /// Called with each line of the CLI's stderr, if there is a callback.
    stderr: Option<Py<PyAny>>,
    hooks: Vec<NativeHook>,
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

/// A permission decision from Python.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Decision {
    Allow { tool_input: Option<Value>, updates: Vec<PermissionUpdate> },
    Deny { message: String, interrupt: bool },
}

impl Host {
    /// The request with its tools and callbacks, which run on the event loop.
    ///
    /// # Errors
    ///
    /// Fails if the request, the tools or the transport are invalid.
    pub(crate) fn request(
        self,
        py: Python<'_>,
        event_loop: &EventLoop,
        offer: Offer,
    ) -> Result<(Request, Option<Live>), ClaudeCodeError> {
        let mut request = config::request(&self.request)?;
        if let Some(function) = self.decide {
            let asker = Arc::new(Asker::new(event_loop.clone_ref(py), function));
            request = request.can_use_tool(move |asked| decide(Arc::clone(&asker), asked));
        }
        if let Some(function) = self.ask {
            let asker = Arc::new(Asker::new(event_loop.clone_ref(py), function));
            request = request.on_ask(move |asked| answer_question(Arc::clone(&asker), asked));
        }
        if let Some(callback) = self.message {
            let event_loop = event_loop.clone_ref(py);
            request = request.on_message(move |message| {
                post(&event_loop, &callback, |py| PyBytes::new(py, message.as_bytes()).into_any());
            });
        }
        if let Some(callback) = self.stderr {
            let event_loop = event_loop.clone_ref(py);
            request = request.on_stderr(move |line| {
                post(&event_loop, &callback, |py| PyString::new(py, line).into_any());
            });
        }
        for hook in self.hooks {
            request = hook.add_to(event_loop.clone_ref(py), request)?;
        }
        if let Some(until) = &self.until {
            request = request.until(until.get().0.clone());
        }
        let mut live = None;
        if !offer.is_empty() {
            let (tools, own) = offer.serve(py, event_loop.clone_ref(py))?;
            let transport = self.transport.parse()?;
            request = request.tools(tools).server_name(self.server_name).transport(transport);
            live = Some(own);
        }
        Ok((request, live))
    }
}

/// An update that Python has no type for, or an invalid one.
fn is_unknown(update: &PermissionUpdate) -> bool {
    matches!(update, PermissionUpdate::Other(_))
}

/// An answer from Python.
#[derive(Deserialize)]
struct Answered {
    action: String,
    content: Option<Value>,
}

async fn answer_question(asker: Arc<Asker>, request: AskRequest) -> Answer<Value> {
    let AskRequest { server_name, message, schema, url, .. } = request;
    let question = RawJson::from(&json!({ "message": message, "schema": schema, "url": url }));
    let answer = asker.ask(None, server_name, question, None, None).await;
    match answer.map(|answer| answer.decode::<Answered>()) {
        Ok(Ok(Answered { action, content })) => match action.as_str() {
            "accept" => Answer::Accepted(content.unwrap_or_default()),
            "decline" => Answer::Declined,
            _ => Answer::Cancelled,
        },
        // The exception it raised has been logged.
        Ok(Err(_)) | Err(_) => Answer::Cancelled,
    }
}

async fn decide(asker: Arc<Asker>, request: PermissionRequest) -> Permission {
    let suggestions: Vec<_> = request.suggestions.iter().filter(|one| !is_unknown(one)).collect();
    let input = RawJson::from(json!({
        "tool_input": request.input,
        "suggestions": suggestions,
        "reason": request.reason,
        "blocked_path": request.blocked_path,
        "agent_id": request.agent_id,
    }));
    let decision = asker.ask(None, request.tool_name, input, request.tool_use_id, None).await;
    match decision.map(|answer| answer.decode::<Decision>()) {
        Ok(Ok(Decision::Allow { updates, .. })) if updates.iter().any(is_unknown) => {
            Permission::deny("the decision is invalid: one of its updates is unknown")
        }
        Ok(Ok(Decision::Allow { tool_input: input, updates })) => Permission::AllowAnd { input, updates },
        Ok(Ok(Decision::Deny { message, interrupt })) => Permission::Deny { message, interrupt },
        Ok(Err(error)) => Permission::deny(format!("the decision is invalid: {error}")),
        Err(error) => {
            Permission::deny(format!("`can_use_tool` failed: {error} (type: {})", error.type_name()))
        }
    }
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
