//! Decisions about whether a tool may be used.

use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;
use toolbridge_core::tool::RawJson;

use crate::callbacks::CanUseTool;
use crate::callbacks::permission_update::PermissionUpdate;
use crate::callbacks::restriction::Restrictions;
use crate::opaque::Opaque;

/// A tool call that no rule has allowed yet.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PermissionRequest {
    /// The tool, such as `Bash` or `mcp__tools__add`.
    pub tool_name: String,
    /// Its arguments.
    pub input: Value,
    /// The model's id for the call, if the CLI provides it.
    pub tool_use_id: Option<String>,
    /// Updates that would allow this and similar calls from now on; for [`Permission::AllowAnd`].
    pub suggestions: Vec<PermissionUpdate>,
    /// Why permission is needed, as reported by the CLI.
    pub reason: Option<String>,
    /// The path that the tool has no access to yet, if that is the reason.
    pub blocked_path: Option<String>,
    /// The subagent that makes the call, if it is one.
    pub agent_id: Option<String>,
}

impl PermissionRequest {
    /// Reads the CLI's request. The optional details are for display, so unreadable ones are left out.
    pub(crate) fn new(asked: &RawPermissionRequest) -> Result<Self, String> {
        // Arguments that cannot be read cannot be allowed.
        let unread = |error| format!("the arguments of `{}` cannot be read: {error}", asked.tool);
        let input = asked.input.decode().map_err(unread)?;
        let about = asked.whole.decode::<Value>().unwrap_or_default();
        let text = |name: &str| about[name].as_str().map(str::to_owned);
        let suggestions = about["permission_suggestions"].as_array().into_iter().flatten();
        Ok(Self {
            tool_name: asked.tool.clone(),
            input,
            tool_use_id: text("tool_use_id"),
            suggestions: suggestions.filter_map(|one| serde_json::from_value(one.clone()).ok()).collect(),
            reason: text("decision_reason"),
            blocked_path: text("blocked_path"),
            agent_id: text("agent_id"),
        })
    }
}

/// A permission request of the CLI.
#[derive(Debug)]
pub(crate) struct RawPermissionRequest {
    pub(crate) tool: String,
    pub(crate) input: RawJson,
    /// The whole request.
    pub(crate) whole: RawJson,
}

/// The decision about a tool call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Permission {
    /// Allow it with its arguments.
    Allow,
    /// Allow it with these arguments instead.
    AllowWith(Value),
    /// Allow it, and apply these updates from now on.
    AllowAnd {
        /// New arguments, if they change.
        input: Option<Value>,
        /// The updates to apply.
        updates: Vec<PermissionUpdate>,
    },
    /// Deny it; the model sees the reason.
    Deny {
        /// The reason.
        message: String,
        /// Whether to end the whole request.
        interrupt: bool,
    },
}

impl Permission {
    /// Denies the call; the model sees the message and continues.
    pub fn deny(message: impl Into<String>) -> Self {
        Self::Deny { message: message.into(), interrupt: false }
    }

    /// Allows this call and applies the updates from now on.
    pub fn allow_and(updates: impl IntoIterator<Item = PermissionUpdate>) -> Self {
        Self::AllowAnd { input: None, updates: updates.into_iter().collect() }
    }

    /// The replaced arguments, if any.
    fn changed_input(&self) -> Option<&Value> {
        match self {
            Self::AllowWith(input) | Self::AllowAnd { input: Some(input), .. } => Some(input),
            Self::Allow | Self::AllowAnd { input: None, .. } | Self::Deny { .. } => None,
        }
    }

    /// The decision as the CLI reads it.
    pub(crate) fn to_response(&self, input: &RawJson) -> Value {
        match self {
            Self::Allow | Self::AllowWith(_) | Self::AllowAnd { .. } => {
                let input = self.changed_input().map_or_else(|| json!(input), Clone::clone);
                let mut response = json!({ "behavior": "allow", "updatedInput": input });
                if let Self::AllowAnd { updates, .. } = self {
                    response["updatedPermissions"] = json!(updates);
                }
                response
            }
            Self::Deny { message, interrupt } => {
                json!({ "behavior": "deny", "message": message, "interrupt": interrupt })
            }
        }
    }
}

/// Calls the user's function and applies the restrictions.
pub(crate) async fn decide(
    can_use_tool: Option<CanUseTool>,
    restrictions: &Restrictions,
    server: Option<&str>,
    asked: &RawPermissionRequest,
) -> Permission {
    let Some(Opaque(decide)) = can_use_tool else {
        return Permission::deny("the request has no `can_use_tool` that could allow it");
    };
    let request = match PermissionRequest::new(asked) {
        Ok(request) => request,
        Err(reason) => return Permission::deny(reason),
    };
    let tool = asked.tool.clone();
    // In a separate task, so that a panic becomes a denial.
    let deciding = tokio::spawn(async move { decide(request).await });
    let permission = match AbortOnDropHandle::new(deciding).await {
        Ok(permission) => permission,
        Err(error) => {
            tracing::error!(%error, tool, "`can_use_tool` failed");
            return Permission::deny("`can_use_tool` failed, so the tool is denied");
        }
    };
    let objection = permission.changed_input().and_then(|input| restrictions.objection(&tool, server, input));
    objection.map_or(permission, Permission::deny)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PermissionMode;

    #[tokio::test]
    async fn arguments_that_cannot_be_parsed_are_denied() {
        let input = |depth: usize| {
            let text = format!(r#"{{"command":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
            RawJson::parse(text).unwrap()
        };
        let allow = CanUseTool::function(|_| async { Permission::Allow });
        let ask = async |input: RawJson| {
            let asked = RawPermissionRequest { tool: "Bash".into(), input, whole: RawJson::empty_object() };
            decide(Some(allow.clone()), &Restrictions::default(), None, &asked).await
        };
        assert_eq!(ask(input(10)).await, Permission::Allow);
        let Permission::Deny { message, .. } = ask(input(1000)).await else { panic!("allowed unseen") };
        assert!(message.starts_with("the arguments of `Bash` cannot be read: recursion limit"), "{message}");
    }

    #[test]
    fn unreadable_details_of_a_permission_request_are_left_out() {
        let asked = |about: Value| {
            let whole = RawJson::from(about);
            PermissionRequest::new(&RawPermissionRequest {
                tool: "Bash".into(),
                input: RawJson::empty_object(),
                whole,
            })
            .unwrap()
        };
        let mode = json!({ "type": "setMode", "mode": "plan", "destination": "session" });
        let read = asked(json!({
            "tool_use_id": "t", "decision_reason": "outside", "blocked_path": "/x", "agent_id": "a",
            "permission_suggestions": [mode, 7],
        }));
        assert_eq!(read.suggestions[0], PermissionUpdate::mode(PermissionMode::Plan));
        let texts = [&read.tool_use_id, &read.reason, &read.blocked_path, &read.agent_id];
        assert_eq!(texts.map(|text| text.as_deref().unwrap()), ["t", "outside", "/x", "a"]);
        let read = asked(json!({ "decision_reason": { "type": "rule" }, "permission_suggestions": {} }));
        assert_eq!((read.reason, read.suggestions.len()), (None, 0));
    }

    #[test]
    fn decisions_are_serialized_for_the_cli() {
        let input = RawJson::from(&json!({ "a": 1 }));
        let rows = [
            (Permission::Allow, json!({ "behavior": "allow", "updatedInput": { "a": 1 } })),
            (
                Permission::AllowWith(json!({ "a": 2 })),
                json!({ "behavior": "allow", "updatedInput": { "a": 2 } }),
            ),
            (
                Permission::allow_and([PermissionUpdate::mode(PermissionMode::Plan)]),
                json!({
                    "behavior": "allow", "updatedInput": { "a": 1 },
                    "updatedPermissions": [{ "type": "setMode", "mode": "plan", "destination": "session" }],
                }),
            ),
            (
                Permission::AllowAnd { input: Some(json!({ "a": 3 })), updates: vec![] },
                json!({ "behavior": "allow", "updatedInput": { "a": 3 }, "updatedPermissions": [] }),
            ),
            (Permission::deny("no"), json!({ "behavior": "deny", "message": "no", "interrupt": false })),
        ];
        for (permission, want) in rows {
            assert_eq!(permission.to_response(&input), want);
        }
    }
}
