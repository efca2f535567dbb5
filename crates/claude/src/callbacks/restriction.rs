//! Restrictions of tool arguments, which apply even if a tool is allowed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use toolbridge_core::tool::{Fault, RawJson, Schema, did_you_mean};

use crate::ClaudeCodeError;
use crate::names::BUILTIN_TOOLS;

/// Restrictions by tool and parameter; all schemas of a parameter must match.
#[derive(Debug, Clone, Default)]
pub(crate) struct Restrictions(Arc<BTreeMap<String, Parameters>>);

type Parameters = BTreeMap<String, Vec<Schema>>;

/// The callback id of the hook that enforces the restrictions.
pub(crate) const RESTRICTIONS: &str = "restrictions";

/// The CLI's two names for the same tool.
const ALIASES: [&str; 2] = ["Task", "Agent"];

/// The built-in tool that runs commands.
const SHELL: &str = "Bash";

pub(crate) fn canonical(tool: &str) -> &str {
    if tool == ALIASES[0] { ALIASES[1] } else { tool }
}

/// The name of a tool of our own server without the server's prefix.
fn bare<'a>(tool: &'a str, server: Option<&str>) -> Option<&'a str> {
    tool.strip_prefix("mcp__")?.strip_prefix(server?)?.strip_prefix("__")
}

/// Whether a restricted tool, as named by the user, is among these tools, as named by the CLI.
pub(crate) fn is_among(restricted: &str, tools: &[String], server: Option<&str>) -> bool {
    tools.iter().any(|tool| canonical(tool) == restricted || bare(tool, server) == Some(restricted))
}

/// A restriction of a missing tool has no effect: most likely the name is wrong. `tools` are those that there are, as
/// named by the CLI.
pub(crate) fn no_such_tool(restricted: &str, tools: &[String], server: Option<&str>) -> ClaudeCodeError {
    let own = tools.iter().flat_map(|tool| [Some(tool.as_str()), bare(tool, server)]).flatten();
    let is_builtin = BUILTIN_TOOLS.contains(&restricted);
    let mut near = did_you_mean(restricted, own.chain(BUILTIN_TOOLS.iter().copied()));
    if near.is_empty() || is_builtin {
        near = "; offer it (`builtin_tools` for the CLI's own), or correct its name".into();
    }
    ClaudeCodeError::invalid(format!(
        "parameters of `{restricted}` are restricted, but the request has no such tool{near}"
    ))
}

impl Restrictions {
    /// # Errors
    ///
    /// When a schema is invalid, or a name is a pattern.
    pub(crate) fn new(
        rules: impl IntoIterator<Item = (String, String, Value)>,
    ) -> Result<Self, ClaudeCodeError> {
        let mut tools: BTreeMap<String, Parameters> = BTreeMap::new();
        for (tool, parameter, schema) in rules {
            if tool.is_empty() || !tool.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
            {
                let hint = "restrictions are for one tool each, such as `Bash` or `mcp__tools__add`";
                return Err(ClaudeCodeError::invalid(format!("`{tool}` is not the name of a tool; {hint}")));
            }
            let schema = Schema::compile(&schema).map_err(|error| {
                let what = format!("the restriction of `{parameter}` of tool `{tool}` is not a JSON Schema");
                ClaudeCodeError::invalid(format!("{what}: {error}"))
            })?;
            let parameters = tools.entry(canonical(&tool).to_owned()).or_default();
            parameters.entry(parameter).or_default().push(schema);
        }
        Ok(Self(Arc::new(tools)))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The restrictions of a tool. Tools of our own server may be named without the server.
    fn of(&self, tool: &str, server: Option<&str>) -> impl Iterator<Item = &Parameters> {
        let names = [Some(canonical(tool)), bare(tool, server)];
        names.into_iter().flatten().filter_map(|name| self.0.get(name))
    }

    /// The names of the restricted tools, as given.
    pub(crate) fn tools(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Whether a tool has restrictions.
    pub(crate) fn restrict(&self, tool: &str, server: Option<&str>) -> bool {
        self.of(tool, server).next().is_some()
    }

    /// Why the tool may not be used with these arguments.
    pub(crate) fn objection(&self, tool: &str, server: Option<&str>, input: &Value) -> Option<String> {
        // Other built-in tools run commands too, for example `Monitor`: the shell's restrictions apply to
        // them.
        let is_shell =
            !tool.starts_with("mcp__") && input.get("command").is_some() && !self.restrict(tool, server);
        let shell = self.0.get(SHELL).filter(|_| is_shell);
        let parameters = self.of(tool, server).chain(shell).flatten();
        let (path, reason) = parameters.into_iter().find_map(|(name, schemas)| {
            // A missing parameter would get the tool's default value.
            let Some(value) = input.get(name) else {
                return Some(("/".into(), format!("{} is a required property", Value::from(name.as_str()))));
            };
            let Fault { path, reason } = schemas.iter().find_map(|schema| schema.fault(value))?;
            let name = name.replace('~', "~0").replace('/', "~1");
            let inside = if path == "/" { "" } else { &path };
            Some((format!("/{name}{inside}"), reason))
        })?;
        Some(format!("the arguments of `{tool}` are restricted: at `{path}`: {reason}"))
    }

    /// The response to the CLI's request before a tool is used, and the id of the call.
    pub(crate) fn before_use(&self, input: &RawJson, server: Option<&str>) -> (Option<String>, Value) {
        #[derive(Deserialize)]
        struct Use {
            #[serde(rename = "tool_name")]
            tool: String,
            #[serde(rename = "tool_input", default)]
            input: Value,
            #[serde(rename = "tool_use_id")]
            id: Option<String>,
        }
        let (id, objection) = match input.decode::<Use>() {
            Ok(used) => (used.id, self.objection(&used.tool, server, &used.input)),
            Err(error) => (None, Some(format!("the CLI does not say what is to be used: {error}"))),
        };
        let response = match objection {
            None => json!({}),
            Some(reason) => json!({ "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": reason,
            } }),
        };
        (id, response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(rules: &[(&str, &str, Value)]) -> Result<Restrictions, ClaudeCodeError> {
        Restrictions::new(
            rules.iter().map(|(tool, name, schema)| ((*tool).into(), (*name).into(), schema.clone())),
        )
    }

    #[test]
    fn restricted_parameters_must_be_present_and_match() {
        let rules = rules(&[
            ("Bash", "command", json!({ "pattern": "^git " })),
            ("Bash", "command", json!({ "maxLength": 9 })),
            ("Read", "path", json!({ "enum": ["a", "b"] })),
        ])
        .unwrap();
        let objection = |tool: &str, input: Value| rules.objection(tool, None, &input);
        assert_eq!(objection("Bash", json!({ "command": "git log", "x": 1 })), None);
        assert_eq!(objection("Read", json!({ "path": "b" })), None);
        assert_eq!(objection("Write", json!({})), None);
        let reason = objection("Bash", json!({ "command": "rm secret" })).unwrap();
        assert!(reason.starts_with("the arguments of `Bash` are restricted: at `/command`: "), "{reason}");
        assert!(!reason.contains("secret"), "{reason}");
        assert!(objection("Bash", json!({ "command": "git log --all" })).is_some());
        let reason = objection("Read", json!({})).unwrap();
        assert!(reason.contains("\"path\" is a required property"), "{reason}");
    }

    #[test]
    fn a_restriction_may_be_any_schema() {
        let tree = json!({ "$ref": "#/$defs/t", "$defs": { "t": { "type": "array", "items": { "$ref": "#/$defs/t" } } } });
        let rules = rules(&[("sort", "a/b", tree), ("sort", "c", json!(true))]).unwrap();
        let objection = |input: Value| rules.objection("sort", None, &input);
        assert_eq!(objection(json!({ "a/b": [[], [[]]], "c": 1 })), None);
        let reason = objection(json!({ "a/b": [[], [5]], "c": 1 })).unwrap();
        assert!(reason.ends_with("at `/a~1b/1/0`: want array, but got number"), "{reason}");
        assert!(objection(json!({ "a/b": [] })).unwrap().ends_with("at `/`: \"c\" is a required property"));
        assert!(objection(json!([])).is_some() && objection(Value::Null).is_some());
    }

    #[test]
    fn restrictions_know_own_tools_and_the_clis_aliases() {
        let rules =
            rules(&[("add", "a", json!({ "maximum": 1 })), ("Task", "prompt", json!(false))]).unwrap();
        let input = json!({ "a": 2, "prompt": "x" });
        assert!(rules.objection("mcp__tools__add", Some("tools"), &input).is_some());
        assert!(rules.objection("mcp__other__add", Some("tools"), &input).is_none());
        assert!(rules.objection("mcp__tools__add", None, &input).is_none());
        for name in ALIASES {
            assert!(rules.restrict(name, None) && rules.objection(name, None, &input).is_some(), "{name}");
        }
    }

    #[test]
    fn restrictions_of_the_shell_apply_to_other_tools_with_commands() {
        let only_git = rules(&[("Bash", "command", json!({ "pattern": "^git " }))]).unwrap();
        let objection =
            |tool: &str, command: &str| only_git.objection(tool, None, &json!({ "command": command }));
        assert!(objection("Monitor", "rm -r x").is_some());
        assert!(objection("Monitor", "git log").is_none());
        // In a tool of another server, `command` may mean anything.
        assert!(objection("mcp__shop__order", "cancel").is_none());
        assert!(only_git.objection("Read", None, &json!({ "file_path": "x" })).is_none());
        let own = rules(&[("Bash", "command", json!(false)), ("Monitor", "command", json!(true))]).unwrap();
        assert!(own.objection("Monitor", None, &json!({ "command": "rm" })).is_none());
    }

    #[test]
    fn a_restricted_tool_is_found_by_all_its_names() {
        let tools = ["Task", "Read", "mcp__tools__add"].map(String::from);
        for name in ["Agent", "Read", "add", "mcp__tools__add"] {
            assert!(is_among(name, &tools, Some("tools")), "{name}");
        }
        for name in ["read", "Bash", "mcp__tools__sub", "mcp__other__add"] {
            assert!(!is_among(name, &tools, Some("tools")), "{name}");
        }
        assert!(!is_among("add", &tools, None));
    }

    #[test]
    fn a_restriction_must_be_a_schema_of_one_tool() {
        let error = rules(&[("Bash", "command", json!({ "pattern": "(" }))]).unwrap_err().to_string();
        assert!(
            error.starts_with("the restriction of `command` of tool `Bash` is not a JSON Schema"),
            "{error}"
        );
        let error = rules(&[("Bash", "command", json!({ "pattern": "^(?!rm)" }))]).unwrap_err().to_string();
        assert!(error.contains("JSON Schema: ") && error.contains("look-around"), "{error}");
        let error = rules(&[("mcp__tools__*", "a", json!({}))]).unwrap_err().to_string();
        assert!(error.starts_with("`mcp__tools__*` is not the name of a tool; "), "{error}");
    }
}
