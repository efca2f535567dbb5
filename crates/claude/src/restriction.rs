//! What the arguments of tools may be, whoever allows the tools.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use toolbridge_core::{CallContext, CallFuture, Changes, RawJson, ToolCall, ToolError, ToolList, ToolSource};

use crate::ClaudeCodeError;

/// What parameters of tools may be: for each tool a schema of its arguments.
#[derive(Debug, Clone, Default)]
pub(crate) struct Restrictions(Arc<BTreeMap<String, jsonschema::Validator>>);

/// The CLI's two names of one tool.
const ALIASES: [&str; 2] = ["Task", "Agent"];

/// The CLI's tool that runs commands.
const SHELL: &str = "Bash";

pub(crate) fn canonical(tool: &str) -> &str {
    if tool == ALIASES[0] { ALIASES[1] } else { tool }
}

/// A tool of our own server, without the server's name.
fn bare<'a>(tool: &'a str, server: Option<&str>) -> Option<&'a str> {
    tool.strip_prefix("mcp__")?.strip_prefix(server?)?.strip_prefix("__")
}

/// Whether a restricted tool, as it was named, is one of those tools, as the CLI names them.
pub(crate) fn is_among(restricted: &str, tools: &[String], server: Option<&str>) -> bool {
    tools.iter().any(|tool| canonical(tool) == restricted || bare(tool, server) == Some(restricted))
}

/// A restriction of a tool that does not exist restricts nothing: most likely its name is wrong.
pub(crate) fn no_such_tool(restricted: &str) -> ClaudeCodeError {
    ClaudeCodeError::invalid(format!(
        "parameters of `{restricted}` are restricted, but the request has no such tool; \
         offer it (`builtin_tools` for the CLI's own), or mend its name"
    ))
}

impl Restrictions {
    /// # Errors
    ///
    /// When a schema is none, or a name is a pattern.
    pub(crate) fn new(
        rules: impl IntoIterator<Item = (String, String, Value)>,
    ) -> Result<Self, ClaudeCodeError> {
        let mut tools: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
        for (tool, parameter, schema) in rules {
            if tool.is_empty() || !tool.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
            {
                let hint = "restrictions are for one tool each, such as `Bash` or `mcp__tools__add`";
                return Err(ClaudeCodeError::invalid(format!("`{tool}` is not the name of a tool; {hint}")));
            }
            // Each by itself, so that the error names the one that is wrong.
            jsonschema::validator_for(&schema).map_err(|error| {
                let what = format!("the restriction of `{parameter}` of tool `{tool}` is not a JSON Schema");
                ClaudeCodeError::invalid(format!("{what}: {error}"))
            })?;
            let tool = canonical(&tool).to_owned();
            // Several rules for a parameter hold together.
            let all = tools.entry(tool).or_default().entry(parameter).or_insert(json!({ "allOf": [] }));
            all["allOf"].as_array_mut().into_iter().for_each(|all| all.push(schema.clone()));
        }
        let compiled = tools.into_iter().map(|(tool, parameters)| {
            // A parameter that is left out has a value all the same: the tool's own choice.
            let required: Vec<_> = parameters.keys().cloned().collect();
            let schema = json!({ "type": "object", "properties": parameters, "required": required });
            let schema = jsonschema::validator_for(&schema).map_err(|error| {
                let what = format!("the restrictions of tool `{tool}` do not fit together");
                ClaudeCodeError::invalid(format!("{what}: {error}"))
            })?;
            Ok((tool, schema))
        });
        Ok(Self(Arc::new(compiled.collect::<Result<_, ClaudeCodeError>>()?)))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those for a tool. Our own server's tools may be named without the server.
    fn of(&self, tool: &str, server: Option<&str>) -> impl Iterator<Item = &jsonschema::Validator> {
        let names = [Some(canonical(tool)), bare(tool, server)];
        names.into_iter().flatten().filter_map(|name| self.0.get(name))
    }

    /// The tools that are restricted, as they were named.
    pub(crate) fn tools(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Whether there are any for a tool.
    pub(crate) fn cover(&self, tool: &str, server: Option<&str>) -> bool {
        self.of(tool, server).next().is_some()
    }

    /// Why the tool may not be used with these arguments.
    pub(crate) fn objection(&self, tool: &str, server: Option<&str>, input: &Value) -> Option<String> {
        // Others of the CLI's tools run commands too, `Monitor` for one: what holds for the shell holds for them.
        let is_shell =
            !tool.starts_with("mcp__") && input.get("command").is_some() && !self.cover(tool, server);
        let shell = self.0.get(SHELL).filter(|_| is_shell);
        let error = self.of(tool, server).chain(shell).find_map(|schema| schema.validate(input).err())?;
        let path = match error.instance_path().to_string() {
            path if path.is_empty() => "/".into(),
            path => path,
        };
        let reason = error.masked_with("the value").to_string();
        Some(format!("the arguments of `{tool}` are restricted: at `{path}`: {reason}"))
    }

    /// The answer to the CLI's question before a tool is used, and the id of the call that it was about.
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
        let answer = match objection {
            None => json!({}),
            Some(reason) => json!({ "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": reason,
            } }),
        };
        (id, answer)
    }
}

/// Our own tools, which keep their restrictions themselves, whatever the CLI does.
pub(crate) struct Restricted {
    pub(crate) source: Arc<dyn ToolSource>,
    pub(crate) server: String,
    pub(crate) restrictions: Restrictions,
}

impl ToolSource for Restricted {
    fn tools(&self) -> ToolList {
        self.source.tools()
    }

    fn changes(&self) -> Changes {
        self.source.changes()
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        let name = format!("mcp__{}__{}", self.server, call.name);
        if self.restrictions.cover(&name, Some(&self.server)) {
            let input = call.arguments.decode().unwrap_or_default();
            if let Some(reason) = self.restrictions.objection(&name, Some(&self.server), &input) {
                return Box::pin(async { Err(ToolError::new("ToolRestrictedError", reason)) });
            }
        }
        self.source.call(call, context)
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
    fn restricted_parameters_must_fit_and_must_be_there() {
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
        let said = objection("Bash", json!({ "command": "rm secret" })).unwrap();
        assert!(said.starts_with("the arguments of `Bash` are restricted: at `/command`: "), "{said}");
        assert!(!said.contains("secret"), "{said}");
        assert!(objection("Bash", json!({ "command": "git log --all" })).is_some());
        let said = objection("Read", json!({})).unwrap();
        assert!(said.contains("\"path\" is a required property"), "{said}");
    }

    #[test]
    fn own_tools_and_the_clis_two_names_are_known() {
        let rules =
            rules(&[("add", "a", json!({ "maximum": 1 })), ("Task", "prompt", json!(false))]).unwrap();
        let input = json!({ "a": 2, "prompt": "x" });
        assert!(rules.objection("mcp__tools__add", Some("tools"), &input).is_some());
        assert!(rules.objection("mcp__other__add", Some("tools"), &input).is_none());
        assert!(rules.objection("mcp__tools__add", None, &input).is_none());
        for name in ALIASES {
            assert!(rules.cover(name, None) && rules.objection(name, None, &input).is_some(), "{name}");
        }
    }

    #[test]
    fn what_holds_for_the_shell_holds_for_others_that_run_commands() {
        let only_git = rules(&[("Bash", "command", json!({ "pattern": "^git " }))]).unwrap();
        let objection =
            |tool: &str, command: &str| only_git.objection(tool, None, &json!({ "command": command }));
        assert!(objection("Monitor", "rm -r x").is_some());
        assert!(objection("Monitor", "git log").is_none());
        // Somebody else's `command` may be anything.
        assert!(objection("mcp__shop__order", "cancel").is_none());
        assert!(only_git.objection("Read", None, &json!({ "file_path": "x" })).is_none());
        let own = rules(&[("Bash", "command", json!(false)), ("Monitor", "command", json!(true))]).unwrap();
        assert!(own.objection("Monitor", None, &json!({ "command": "rm" })).is_none());
    }

    #[test]
    fn a_restricted_tool_is_known_by_all_its_names() {
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
        let error = rules(&[("mcp__tools__*", "a", json!({}))]).unwrap_err().to_string();
        assert!(error.starts_with("`mcp__tools__*` is not the name of a tool; "), "{error}");
    }
}
