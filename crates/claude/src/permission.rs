//! Who decides whether a tool may be used.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use toolbridge_core::RawJson;

use crate::ClaudeCodeError;

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

type Deciding = Pin<Box<dyn Future<Output = Permission> + Send>>;

/// A function of the user's that decides.
#[derive(Clone)]
pub(crate) struct Decider(Arc<dyn Fn(PermissionRequest) -> Deciding + Send + Sync>);

impl Decider {
    pub(crate) fn new<F, D>(decide: F) -> Self
    where
        F: Fn(PermissionRequest) -> D + Send + Sync + 'static,
        D: Future<Output = Permission> + Send + 'static,
    {
        Self(Arc::new(move |request| Box::pin(decide(request))))
    }

    pub(crate) fn decide(&self, request: PermissionRequest) -> Deciding {
        (self.0)(request)
    }
}

impl fmt::Debug for Decider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decider")
    }
}

/// What parameters of tools may be: for each tool a schema of its arguments.
#[derive(Debug, Clone, Default)]
pub(crate) struct Restrictions(Arc<BTreeMap<String, Restriction>>);

#[derive(Debug)]
struct Restriction {
    schema: jsonschema::Validator,
}

impl Restrictions {
    /// # Errors
    ///
    /// When a schema is none.
    pub(crate) fn new(
        rules: impl IntoIterator<Item = (String, String, Value)>,
    ) -> Result<Self, ClaudeCodeError> {
        let mut tools: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
        for (tool, parameter, schema) in rules {
            // Each by itself, so that the error names the one that is wrong.
            jsonschema::validator_for(&schema).map_err(|error| {
                let what = format!("the restriction of `{parameter}` of tool `{tool}` is not a JSON Schema");
                ClaudeCodeError::invalid(format!("{what}: {error}"))
            })?;
            tools.entry(tool).or_default().insert(parameter, schema);
        }
        let compiled = tools.into_iter().map(|(tool, parameters)| {
            // A parameter that is left out has a value all the same: the tool's own choice.
            let required: Vec<_> = parameters.keys().cloned().collect();
            let schema = json!({ "type": "object", "properties": parameters, "required": required });
            let schema = jsonschema::validator_for(&schema).map_err(|error| {
                ClaudeCodeError::invalid(format!(
                    "the restrictions of tool `{tool}` do not fit together: {error}"
                ))
            })?;
            Ok((tool, Restriction { schema }))
        });
        Ok(Self(Arc::new(compiled.collect::<Result<_, ClaudeCodeError>>()?)))
    }

    pub(crate) fn tools(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Why the tool may not be used with these arguments.
    pub(crate) fn objection(&self, tool: &str, input: &Value) -> Option<String> {
        let error = self.0.get(tool)?.schema.validate(input).err()?;
        let path = match error.instance_path().to_string() {
            path if path.is_empty() => "/".into(),
            path => path,
        };
        let reason = error.masked_with("the value").to_string();
        Some(format!("the arguments of `{tool}` are restricted: at `{path}`: {reason}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Restrictions {
        Restrictions::new([
            ("Bash".to_owned(), "command".to_owned(), json!({ "pattern": "^git " })),
            ("Read".to_owned(), "path".to_owned(), json!({ "enum": ["a", "b"] })),
        ])
        .unwrap()
    }

    #[test]
    fn restricted_parameters_must_fit_and_must_be_there() {
        let rules = rules();
        assert_eq!(rules.objection("Bash", &json!({ "command": "git log", "x": 1 })), None);
        assert_eq!(rules.objection("Read", &json!({ "path": "b" })), None);
        assert_eq!(rules.objection("Write", &json!({})), None);
        let said = rules.objection("Bash", &json!({ "command": "rm secret" })).unwrap();
        assert!(said.starts_with("the arguments of `Bash` are restricted: at `/command`: "), "{said}");
        assert!(!said.contains("secret"), "{said}");
        let said = rules.objection("Read", &json!({})).unwrap();
        assert!(said.contains("\"path\" is a required property"), "{said}");
        assert_eq!(rules.tools().collect::<Vec<_>>(), ["Bash", "Read"]);
    }

    #[test]
    fn a_restriction_that_is_no_schema_is_named() {
        let rule = ("Bash".to_owned(), "command".to_owned(), json!({ "pattern": "(" }));
        let error = Restrictions::new([rule]).unwrap_err().to_string();
        assert!(
            error.starts_with("the restriction of `command` of tool `Bash` is not a JSON Schema"),
            "{error}"
        );
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
