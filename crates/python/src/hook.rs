//! Python hooks.

use std::sync::Arc;

use pyo3::prelude::*;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use toolbridge::model::{ClaudeCodeError, HookCall, HookEvent, HookOutput};
use toolbridge::tool::RawJson;
use toolbridge::{Request, set};

use crate::call::Asker;
use crate::error;
use crate::event_loop::EventLoop;

/// A Python hook.
#[derive(FromPyObject)]
pub(crate) struct NativeHook {
    event: String,
    matcher: String,
    /// Called with a [`Call`](crate::call::Call) when the hook's event occurs.
    call: Py<PyAny>,
}

/// A hook's answer from Python.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HookAnswer {
    decision: Option<Decision>,
    input: Option<Value>,
    context: Option<String>,
    /// The raw answer, in the CLI's format.
    #[serde(default)]
    raw: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Decision {
    Allow(IgnoredAny),
    Deny(String),
    Block(String),
    Stop(String),
}

impl NativeHook {
    /// Adds the hook to a request.
    pub(crate) fn add_to(self, event_loop: EventLoop, request: Request) -> Result<Request, ClaudeCodeError> {
        let asker = Arc::new(Asker::new(event_loop, self.call));
        let event = self.event.parse()?;
        Ok(request.hook(event, self.matcher, move |call| call_hook(Arc::clone(&asker), call)))
    }
}

/// Fails if the CLI calls no hooks for this event.
#[pyfunction]
pub(crate) fn check_hook_event(event: &str) -> error::Result<()> {
    event.parse::<HookEvent>()?;
    Ok(())
}

async fn call_hook(asker: Arc<Asker>, call: HookCall) -> HookOutput {
    let event = call.event;
    let answer = asker.ask(None, event.to_string(), RawJson::from(&call.input), None, None).await;
    let failed = |why: String| HookOutput::failure(&event, format!("a hook for {event} failed: {why}"));
    match answer.map(|answer| answer.decode::<HookAnswer>()) {
        Ok(Ok(answer)) => answer.output(),
        Ok(Err(error)) => failed(format!("its answer is invalid: {error}")),
        Err(error) => failed(format!("{error} (type: {})", error.type_name())),
    }
}

impl HookAnswer {
    fn output(self) -> HookOutput {
        let mut output = match self.decision {
            None => HookOutput::raw(self.raw),
            Some(Decision::Allow(_)) => HookOutput::allow(),
            Some(Decision::Deny(reason)) => HookOutput::deny(reason),
            Some(Decision::Block(reason)) => HookOutput::block(reason),
            Some(Decision::Stop(reason)) => HookOutput::stop(reason),
        };
        set!(output: with_input = self.input, with_context = self.context);
        output
    }
}
