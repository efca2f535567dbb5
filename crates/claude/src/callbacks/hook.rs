//! Functions of this process that the CLI calls on events.

use futures_core::future::BoxFuture;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio_util::task::AbortOnDropHandle;
use toolbridge_core::tool::RawJson;

use crate::callbacks::restriction::Restrictions;
use crate::names::{misspelt, names};
use crate::opaque::Opaque;

names! {
    /// An event in the CLI for which a hook is called.
    pub enum HookEvent, of "hook event" {
        /// A tool is about to be used.
        PreToolUse = "PreToolUse",
        /// A tool was used.
        PostToolUse = "PostToolUse",
        /// A tool failed.
        PostToolUseFailure = "PostToolUseFailure",
        /// All tools of a message were used.
        PostToolBatch = "PostToolBatch",
        /// A prompt was received.
        UserPromptSubmit = "UserPromptSubmit",
        /// A prompt that is a command was expanded.
        UserPromptExpansion = "UserPromptExpansion",
        /// The model has answered.
        Stop = "Stop",
        /// The API has failed, so there is no answer.
        StopFailure = "StopFailure",
        /// A text of the model is shown.
        MessageDisplay = "MessageDisplay",
        /// A subagent was started.
        SubagentStart = "SubagentStart",
        /// A subagent has answered.
        SubagentStop = "SubagentStop",
        /// The conversation is about to be compacted.
        PreCompact = "PreCompact",
        /// The conversation was compacted.
        PostCompact = "PostCompact",
        /// The CLI notifies its user.
        Notification = "Notification",
        /// The user is about to be asked whether a tool may be used.
        PermissionRequest = "PermissionRequest",
        /// The permission mode `auto` has denied a tool.
        PermissionDenied = "PermissionDenied",
        /// A server asks the user a question.
        Elicitation = "Elicitation",
        /// The question was answered.
        ElicitationResult = "ElicitationResult",
        /// A settings file has changed.
        ConfigChange = "ConfigChange",
        /// A file of instructions, such as `CLAUDE.md`, was read for a file of the project.
        InstructionsLoaded = "InstructionsLoaded",
        /// The model has added a task to its list.
        TaskCreated = "TaskCreated",
        /// The model has completed a task of its list.
        TaskCompleted = "TaskCompleted",
        /// A worktree is about to be made.
        WorktreeCreate = "WorktreeCreate",
    }
}

/// The input of a hook.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HookCall {
    /// The event.
    pub event: HookEvent,
    /// The event's data from the CLI.
    pub input: Value,
}

impl HookCall {
    /// The tool, if the event is about one.
    #[must_use]
    pub fn tool_name(&self) -> Option<&str> {
        self.input["tool_name"].as_str()
    }

    /// The tool's arguments; `null` if the event is not about a tool.
    #[must_use]
    pub fn tool_input(&self) -> &Value {
        &self.input["tool_input"]
    }
}

/// A hook's answer; the default is empty.
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use]
pub struct HookOutput(Map<String, Value>);

impl HookOutput {
    /// An answer in the CLI's own format.
    pub fn raw(answer: Map<String, Value>) -> Self {
        Self(answer)
    }

    /// Lets the tool run without asking for permission. For [`HookEvent::PreToolUse`].
    pub fn allow() -> Self {
        Self::default().specific("permissionDecision", json!("allow"))
    }

    /// Prevents the tool call; the model sees the reason. For [`HookEvent::PreToolUse`].
    pub fn deny(reason: impl Into<String>) -> Self {
        Self::default()
            .specific("permissionDecision", json!("deny"))
            .specific("permissionDecisionReason", json!(reason.into()))
    }

    /// Rejects the prompt, or makes the model continue instead of ending; it sees the reason.
    pub fn block(reason: impl Into<String>) -> Self {
        Self(Map::from_iter([("decision".into(), json!("block")), ("reason".into(), json!(reason.into()))]))
    }

    /// Ends the request after the step that the hook was called for, which still happens: after
    /// [`HookEvent::PreToolUse`] the tool runs, and its result is the last part of the answer. To prevent the
    /// call, use [`deny`](Self::deny).
    pub fn stop(reason: impl Into<String>) -> Self {
        Self(Map::from_iter([("continue".into(), json!(false)), ("stopReason".into(), json!(reason.into()))]))
    }

    /// Replaces the tool's arguments. For [`HookEvent::PreToolUse`].
    pub fn with_input(self, input: Value) -> Self {
        self.specific("updatedInput", input)
    }

    /// Adds text to the model's context.
    pub fn with_context(self, text: impl Into<String>) -> Self {
        self.specific("additionalContext", json!(text.into()))
    }

    /// The answer of a failed hook: it denies the action that it was called for.
    pub fn failure(event: &HookEvent, reason: impl Into<String>) -> Self {
        match event {
            HookEvent::PreToolUse => Self::deny(reason),
            HookEvent::UserPromptSubmit => Self::block(reason),
            HookEvent::PermissionRequest => {
                let decision = json!({ "behavior": "deny", "message": reason.into() });
                Self::default().specific("decision", decision)
            }
            _ => Self::default(),
        }
    }

    fn specific(mut self, name: &str, value: Value) -> Self {
        let specific = self.0.entry("hookSpecificOutput").or_insert_with(|| json!({}));
        if let Some(specific) = specific.as_object_mut() {
            specific.insert(name.into(), value);
        }
        self
    }

    /// The arguments that replace those of the tool call.
    fn changed_input(&self) -> Option<&Value> {
        let specific = self.0.get("hookSpecificOutput")?;
        specific.get("updatedInput").or_else(|| specific.get("decision")?.get("updatedInput"))
    }

    /// The response as the CLI reads it.
    fn into_response(mut self, event: &HookEvent) -> Value {
        if let Some(Value::Object(specific)) = self.0.get_mut("hookSpecificOutput") {
            specific.entry("hookEventName").or_insert_with(|| json!(event));
        }
        Value::Object(self.0)
    }
}

/// A user's function and the event that it is called for.
#[derive(Debug, Clone)]
pub(crate) struct Hook {
    pub(crate) shape: HookShape,
    function: Opaque<dyn Fn(HookCall) -> BoxFuture<'static, HookOutput> + Send + Sync>,
}

/// The part of a hook that is sent to the CLI.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct HookShape {
    pub(crate) event: HookEvent,
    pub(crate) matcher: String,
}

impl HookShape {
    /// What is wrong with the matcher, if it names a tool that is almost a built-in one: the hook would never be called.
    pub(crate) fn misspelt(&self) -> Option<String> {
        let is_about_tool = matches!(
            self.event,
            HookEvent::PreToolUse
                | HookEvent::PostToolUse
                | HookEvent::PostToolUseFailure
                | HookEvent::PermissionRequest
                | HookEvent::PermissionDenied
        );
        let fault = self.matcher.split('|').filter(|_| is_about_tool).find_map(misspelt)?;
        Some(format!("a hook for `{}`: {fault}", self.event))
    }

    /// Its entry in `initialize`.
    pub(crate) fn to_cli(&self, place: usize) -> Value {
        let mut entry = json!({ "hookCallbackIds": [format!("{HOOK}{place}")] });
        if !matches!(self.matcher.as_str(), "" | "*") {
            entry["matcher"] = json!(self.matcher);
        }
        // A hook that times out has failed, and must not be ignored.
        if HookOutput::failure(&self.event, "") != HookOutput::default() {
            entry["onFailure"] = json!("block");
        }
        entry
    }
}

const HOOK: &str = "hook_";

/// The index of the hook with this callback id.
pub(crate) fn place_of(callback_id: &str) -> Option<usize> {
    callback_id.strip_prefix(HOOK)?.parse().ok()
}

impl Hook {
    pub(crate) fn new<F, O>(event: HookEvent, matcher: String, function: F) -> Self
    where
        F: Fn(HookCall) -> O + Send + Sync + 'static,
        O: Future<Output = HookOutput> + Send + 'static,
    {
        Self { shape: HookShape { event, matcher }, function: Opaque::function(function) }
    }

    /// Calls the hook and applies the restrictions.
    pub(crate) async fn call(
        self,
        input: &RawJson,
        restrictions: &Restrictions,
        server: Option<&str>,
    ) -> Value {
        let event = self.shape.event;
        let input: Value = match input.decode() {
            Ok(input) => input,
            Err(error) => {
                return HookOutput::failure(&event, format!("its input cannot be read: {error}"))
                    .into_response(&event);
            }
        };
        let tool = input["tool_name"].as_str().unwrap_or_default().to_owned();
        let call = HookCall { event: event.clone(), input };
        // In a separate task, so that a panic becomes a denial.
        let calling = tokio::spawn(async move { (self.function.0)(call).await });
        let output = AbortOnDropHandle::new(calling).await.unwrap_or_else(|error| {
            tracing::error!(%error, %event, "a hook failed");
            HookOutput::failure(&event, format!("a hook for {event} failed"))
        });
        // The restrictions were only checked against the original arguments.
        let objection = output.changed_input().and_then(|input| restrictions.objection(&tool, server, input));
        objection.map_or(output, |reason| HookOutput::failure(&event, reason)).into_response(&event)
    }
}
