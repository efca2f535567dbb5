//! What Python offers in one request.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::Deserialize;
use serde_json::Value;
use toolbridge::claude::{ClaudeCodeModelBuilder, PermissionRequest};
use toolbridge::{ClaudeCodeError, ClaudeCodeModel, Permission, RawJson};

use crate::call::Asker;
use crate::event_loop::{EventLoop, undelivered};
use crate::tools::Offer;

/// What Python offers in one request.
#[derive(FromPyObject)]
pub(crate) struct Host {
    server_name: String,
    transport: String,
    /// Called with a [`Call`](crate::call::Call) for each permission, if anybody decides.
    decide: Option<Py<PyAny>>,
    /// Called with each message of the CLI, if anybody listens.
    message: Option<Py<PyAny>>,
}

/// A permission, as Python gives it.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Decision {
    Allow(Option<Value>),
    Deny { message: String, interrupt: bool },
}

impl Host {
    /// A model for one request: everything that is called is called on the loop of that request.
    pub(crate) fn model(
        self,
        py: Python<'_>,
        event_loop: &EventLoop,
        offer: Offer,
        mut builder: ClaudeCodeModelBuilder,
    ) -> Result<ClaudeCodeModel, ClaudeCodeError> {
        if let Some(decide) = self.decide {
            let asker = Arc::new(Asker::new(event_loop.clone_ref(py), decide));
            builder = builder.can_use_tool(move |request| decided(Arc::clone(&asker), request));
        }
        if let Some(callback) = self.message {
            let event_loop = event_loop.clone_ref(py);
            builder = builder.on_message(move |message| tell(&event_loop, &callback, message));
        }
        let model = builder.build()?;
        if let Some(tools) = offer.source(event_loop.clone_ref(py))? {
            model.set_agent_toolsets(tools, &self.server_name, self.transport.parse()?)?;
        }
        Ok(model)
    }
}

async fn decided(asker: Arc<Asker>, request: PermissionRequest) -> Permission {
    let input = RawJson::from(&request.input);
    let decision = asker.ask(request.tool_name, input, request.tool_use_id, None).await;
    match decision.map(|answer| answer.decode::<Decision>()) {
        Ok(Ok(Decision::Allow(None))) => Permission::Allow,
        Ok(Ok(Decision::Allow(Some(input)))) => Permission::AllowWith(input),
        Ok(Ok(Decision::Deny { message, interrupt })) => Permission::Deny { message, interrupt },
        Ok(Err(error)) => Permission::deny(format!("the decision is not understood: {error}")),
        Err(error) => Permission::deny(format!("nobody could decide: {error} (type: {})", error.type_name())),
    }
}

fn tell(event_loop: &EventLoop, callback: &Py<PyAny>, message: &RawJson) {
    Python::try_attach(|py| {
        let text = PyBytes::new(py, message.as_bytes()).into_any();
        if let Err(error) = event_loop.post(py, callback.bind(py), [text]) {
            undelivered(py, &error);
        }
    });
}
