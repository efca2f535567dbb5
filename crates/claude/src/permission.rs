//! Who decides whether a tool may be used.

use std::sync::Arc;

use futures_core::future::BoxFuture;
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;
use toolbridge_core::RawJson;

use crate::opaque::Opaque;
use crate::restriction::Restrictions;

/// A tool that the model wants to use, and nobody has allowed yet.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PermissionRequest {
    /// The tool, such as `Bash` or `mcp__tools__add`.
    pub tool_name: String,
    /// Its arguments.
    pub input: Value,
    /// The model's id for the call, where the CLI gives it.
    pub tool_use_id: Option<String>,
}

/// Whether a tool may be used.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Permission {
    /// With the arguments it has.
    Allow,
    /// With these arguments instead.
    AllowWith(Value),
    /// Not; the model reads why.
    Deny {
        /// Why.
        message: String,
        /// Whether the whole request is to end.
        interrupt: bool,
    },
}

impl Permission {
    /// A refusal; the model reads the message and goes on.
    pub fn deny(message: impl Into<String>) -> Self {
        Self::Deny { message: message.into(), interrupt: false }
    }

    /// What the CLI reads.
    pub(crate) fn to_answer(&self, input: &RawJson) -> Value {
        match self {
            Self::Allow => json!({ "behavior": "allow", "updatedInput": input }),
            Self::AllowWith(input) => json!({ "behavior": "allow", "updatedInput": input }),
            Self::Deny { message, interrupt } => {
                json!({ "behavior": "deny", "message": message, "interrupt": interrupt })
            }
        }
    }
}

/// A function of the user's that decides.
pub(crate) type Decider = Opaque<dyn Fn(PermissionRequest) -> BoxFuture<'static, Permission> + Send + Sync>;

pub(crate) fn decider<F, D>(decide: F) -> Decider
where
    F: Fn(PermissionRequest) -> D + Send + Sync + 'static,
    D: Future<Output = Permission> + Send + 'static,
{
    Opaque(Arc::new(move |request| Box::pin(decide(request))))
}

/// Asks the user's function, within the restrictions.
pub(crate) async fn decide(
    decider: Option<Decider>,
    restrictions: &Restrictions,
    server: Option<&str>,
    tool: String,
    input: &RawJson,
    tool_use_id: Option<String>,
) -> Permission {
    let Some(Opaque(decide)) = decider else { return Permission::deny("nobody is there to allow it") };
    // What nobody can look at, nobody can allow.
    let input = match input.decode() {
        Ok(input) => input,
        Err(error) => return Permission::deny(format!("the arguments of `{tool}` cannot be read: {error}")),
    };
    let request = PermissionRequest { tool_name: tool.clone(), input, tool_use_id };
    // In a task of its own, so that its panic is a refusal.
    let deciding = tokio::spawn(async move { decide(request).await });
    let permission = match AbortOnDropHandle::new(deciding).await {
        Ok(permission) => permission,
        Err(error) => {
            tracing::error!(%error, tool, "the permission hook failed");
            return Permission::deny("the permission hook failed, so the tool is not allowed");
        }
    };
    match &permission {
        Permission::AllowWith(input) => {
            restrictions.objection(&tool, server, input).map_or(permission, Permission::deny)
        }
        _ => permission,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn arguments_that_cannot_be_looked_at_are_not_allowed() {
        let input = |depth: usize| {
            let text = format!(r#"{{"command":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
            RawJson::parse(text).unwrap()
        };
        let allow = decider(|_| async { Permission::Allow });
        let ask = async |input: RawJson| {
            decide(Some(allow.clone()), &Restrictions::default(), None, "Bash".into(), &input, None).await
        };
        assert_eq!(ask(input(10)).await, Permission::Allow);
        let Permission::Deny { message, .. } = ask(input(1000)).await else { panic!("allowed unseen") };
        assert!(message.starts_with("the arguments of `Bash` cannot be read: recursion limit"), "{message}");
    }

    #[test]
    fn answers_are_what_the_cli_reads() {
        let input = RawJson::from(&json!({ "a": 1 }));
        let rows = [
            (Permission::Allow, json!({ "behavior": "allow", "updatedInput": { "a": 1 } })),
            (
                Permission::AllowWith(json!({ "a": 2 })),
                json!({ "behavior": "allow", "updatedInput": { "a": 2 } }),
            ),
            (Permission::deny("no"), json!({ "behavior": "deny", "message": "no", "interrupt": false })),
        ];
        for (permission, want) in rows {
            assert_eq!(permission.to_answer(&input), want);
        }
    }
}
