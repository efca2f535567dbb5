//! User functions that answer the CLI: permissions, questions and hooks.

use std::sync::Arc;

use pyo3::prelude::*;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use toolbridge::call::Answer;
use toolbridge::model::{
    AskRequest, HookCall, HookEvent, HookOutput, Permission, PermissionRequest, PermissionUpdate,
};
use toolbridge::set;
use toolbridge::tool::RawJson;

use crate::call::Asker;
use crate::error;

type Function = Arc<Py<PyAny>>;

/// A permission decision from Python.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Decision {
    Allow { tool_input: Option<Value>, updates: Vec<PermissionUpdate> },
    Deny { message: String, interrupt: bool },
}

pub(crate) async fn decide(asker: Arc<Asker>, function: Function, request: PermissionRequest) -> Permission {
    // One that Python has no type for, or an invalid one.
    let is_unknown = |update: &PermissionUpdate| matches!(update, PermissionUpdate::Other(_));
    let suggestions: Vec<_> = request.suggestions.iter().filter(|one| !is_unknown(one)).collect();
    let input = RawJson::from(json!({
        "tool_input": request.input,
        "suggestions": suggestions,
        "reason": request.reason,
        "blocked_path": request.blocked_path,
        "agent_id": request.agent_id,
    }));
    let decision = asker.ask(function, request.tool_name, input, request.tool_use_id).await;
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

/// An answer of a user from Python.
#[derive(Deserialize)]
struct Answered {
    action: String,
    content: Option<Value>,
}

pub(crate) async fn answer_question(
    asker: Arc<Asker>,
    function: Function,
    request: AskRequest,
) -> Answer<Value> {
    let AskRequest { server_name, message, schema, url, .. } = request;
    let question = RawJson::from(&json!({ "message": message, "schema": schema, "url": url }));
    let answer = asker.ask(function, server_name, question, None).await;
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

/// A hook's answer from Python.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HookAnswer {
    decision: Option<HookDecision>,
    input: Option<Value>,
    context: Option<String>,
    /// The raw answer, in the CLI's format.
    #[serde(default)]
    raw: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum HookDecision {
    Allow(IgnoredAny),
    Deny(String),
    Block(String),
    Stop(String),
}

/// Fails if the CLI calls no hooks for this event.
#[pyfunction]
pub(crate) fn check_hook_event(event: &str) -> error::Result<()> {
    event.parse::<HookEvent>()?;
    Ok(())
}

pub(crate) async fn call_hook(asker: Arc<Asker>, function: Function, call: HookCall) -> HookOutput {
    let event = call.event;
    let answer = asker.ask(function, event.to_string(), RawJson::from(&call.input), None).await;
    let failed = |why: String| HookOutput::failure(&event, format!("a hook for {event} failed: {why}"));
    match answer.map(|answer| answer.decode::<HookAnswer>()) {
        Ok(Ok(answer)) => {
            let mut output = match answer.decision {
                None => HookOutput::raw(answer.raw),
                Some(HookDecision::Allow(_)) => HookOutput::allow(),
                Some(HookDecision::Deny(reason)) => HookOutput::deny(reason),
                Some(HookDecision::Block(reason)) => HookOutput::block(reason),
                Some(HookDecision::Stop(reason)) => HookOutput::stop(reason),
            };
            set!(output: with_input = answer.input, with_context = answer.context);
            output
        }
        Ok(Err(error)) => failed(format!("its answer is invalid: {error}")),
        Err(error) => failed(format!("{error} (type: {})", error.type_name())),
    }
}
