//! What Python offers in one request.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use serde::Deserialize;
use serde_json::{Value, json};
use toolbridge::claude::PermissionRequest;
use toolbridge::{Answer, AskRequest, ClaudeCodeError, Permission, RawJson, Request};

use crate::call::Asker;
use crate::event_loop::{EventLoop, undelivered};
use crate::tools::Offer;

/// What Python offers in one request.
#[derive(FromPyObject)]
pub(crate) struct Host {
    server_name: String,
    transport: String,
    /// Called with a [`Call`](crate::call::Call) for each permission, if there is a `can_use_tool`.
    decide: Option<Py<PyAny>>,
    /// Called with a [`Call`](crate::call::Call) for each question, if there is an `on_ask`.
    ask: Option<Py<PyAny>>,
    /// Called with each message of the CLI, if there is a callback.
    message: Option<Py<PyAny>>,
    /// Called with each line of the CLI's stderr, if there is a callback.
    stderr: Option<Py<PyAny>>,
}

/// A permission, as Python gives it.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Decision {
    Allow(Option<Value>),
    Deny { message: String, interrupt: bool },
}

impl Host {
    /// Gives all of it to a request: everything that is called is called on the loop of that request.
    ///
    /// # Errors
    ///
    /// When the tools or the transport are not usable.
    pub(crate) fn give(
        self,
        py: Python<'_>,
        event_loop: &EventLoop,
        offer: Offer,
        mut request: Request,
    ) -> Result<Request, ClaudeCodeError> {
        if let Some(decide) = self.decide {
            let asker = Arc::new(Asker::new(event_loop.clone_ref(py), decide));
            request = request.can_use_tool(move |asked| decided(Arc::clone(&asker), asked));
        }
        if let Some(ask) = self.ask {
            let asker = Arc::new(Asker::new(event_loop.clone_ref(py), ask));
            request = request.on_ask(move |asked| answered(Arc::clone(&asker), asked));
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
        if !offer.is_empty() {
            let (tools, _) = offer.serve(py, event_loop.clone_ref(py))?;
            let transport = self.transport.parse()?;
            request = request.tools(tools).server_name(self.server_name).transport(transport);
        }
        Ok(request)
    }
}

/// An answer, as Python gives it.
#[derive(Deserialize)]
struct Answered {
    action: String,
    content: Option<Value>,
}

async fn answered(asker: Arc<Asker>, request: AskRequest) -> Answer<Value> {
    let AskRequest { server_name, message, schema, url, .. } = request;
    let question = RawJson::from(&json!({ "message": message, "schema": schema, "url": url }));
    let answer = asker.ask(None, server_name, question, None, None).await;
    match answer.map(|answer| answer.decode::<Answered>()) {
        Ok(Ok(Answered { action, content })) => match action.as_str() {
            "accept" => Answer::Accepted(content.unwrap_or_default()),
            "decline" => Answer::Declined,
            _ => Answer::Cancelled,
        },
        // What it raised has been logged.
        Ok(Err(_)) | Err(_) => Answer::Cancelled,
    }
}

async fn decided(asker: Arc<Asker>, request: PermissionRequest) -> Permission {
    let input = RawJson::from(&request.input);
    let decision = asker.ask(None, request.tool_name, input, request.tool_use_id, None).await;
    match decision.map(|answer| answer.decode::<Decision>()) {
        Ok(Ok(Decision::Allow(None))) => Permission::Allow,
        Ok(Ok(Decision::Allow(Some(input)))) => Permission::AllowWith(input),
        Ok(Ok(Decision::Deny { message, interrupt })) => Permission::Deny { message, interrupt },
        Ok(Err(error)) => Permission::deny(format!("the decision is not understood: {error}")),
        Err(error) => Permission::deny(format!("nobody could decide: {error} (type: {})", error.type_name())),
    }
}

fn post(
    event_loop: &EventLoop,
    callback: &Py<PyAny>,
    said: impl for<'py> FnOnce(Python<'py>) -> Bound<'py, PyAny>,
) {
    Python::try_attach(|py| {
        if let Err(error) = event_loop.post(py, callback.bind(py), [said(py)]) {
            undelivered(py, &error);
        }
    });
}
