//! Settings, as the CLI's command line.

use serde_json::{Map, Value, json};

use crate::settings::{Conversation, DEFAULT_MODEL, Settings};

/// What the command line says besides the settings.
#[expect(clippy::struct_excessive_bools, reason = "each is one flag of the command line")]
#[derive(Debug, Default)]
pub(crate) struct Extras<'a> {
    /// The toolset's server: its name, and its entry among the MCP servers.
    pub(crate) server: Option<(&'a str, Value)>,
    /// Whether the server's own tools run without anybody being asked.
    pub(crate) allow_own: bool,
    /// Whether only the servers given here exist.
    pub(crate) strict: bool,
    /// Whether somebody here answers when the CLI asks for a permission.
    pub(crate) asks: bool,
    /// Whether text is wanted as it comes.
    pub(crate) partial: bool,
    /// The schema that the model's output is to fit.
    pub(crate) output_schema: Option<&'a Value>,
}

/// The CLI's arguments. The prompt is not among them: it has no limit on stdin, and nobody sees it there.
///
/// Values stand behind a `=`, because they may begin with a `-`.
pub(crate) fn arguments(settings: &Settings, extras: Extras<'_>) -> Vec<String> {
    let mut args: Vec<String> =
        ["--output-format=stream-json", "--input-format=stream-json", "--verbose"].map(Into::into).into();
    let mut flag = |name: &str, value: &str| args.push(format!("--{name}={value}"));

    flag("model", settings.model.as_deref().unwrap_or(DEFAULT_MODEL));
    if let Some(text) = &settings.system_prompt {
        flag("system-prompt", text);
    }
    if let Some(text) = &settings.append_system_prompt {
        flag("append-system-prompt", text);
    }
    let own_rule =
        extras.server.as_ref().filter(|_| extras.allow_own).map(|(name, _)| format!("mcp__{name}"));
    let allowed: Vec<_> = settings.allowed_tools.iter().flatten().cloned().chain(own_rule).collect();
    if !allowed.is_empty() {
        flag("allowedTools", &allowed.join(","));
    }
    if let Some(rules) = settings.disallowed_tools.as_ref().filter(|rules| !rules.is_empty()) {
        flag("disallowedTools", &rules.join(","));
    }
    if let Some(names) = &settings.builtin_tools {
        flag("tools", &names.join(","));
    }
    if let Some(mode) = &settings.permission_mode {
        flag("permission-mode", &mode.to_string());
    }
    if extras.asks {
        flag("permission-prompt-tool", "stdio");
    }
    if let Some(turns) = settings.max_turns {
        flag("max-turns", &turns.to_string());
    }
    if let Some(dollars) = settings.max_budget_usd {
        flag("max-budget-usd", &dollars.to_string());
    }
    let mut servers: Map<String, Value> = settings.mcp_servers.clone();
    servers.extend(extras.server.map(|(name, entry)| (name.to_owned(), entry)));
    if !servers.is_empty() {
        flag("mcp-config", &json!({ "mcpServers": servers }).to_string());
    }
    if let Some(schema) = extras.output_schema {
        flag("json-schema", &schema.to_string());
    }
    if let Some(sources) = &settings.setting_sources {
        flag("setting-sources", &sources.join(","));
    }
    let fork = match settings.conversation.clone().unwrap_or_default() {
        Conversation::New => false,
        Conversation::Continue { fork } => {
            args.push("--continue".into());
            fork
        }
        Conversation::Resume { session_id, fork } => {
            args.push(format!("--resume={session_id}"));
            fork
        }
    };
    let bare = [(fork, "--fork-session"), (extras.strict, "--strict-mcp-config")];
    args.extend(bare.into_iter().filter(|(wanted, _)| *wanted).map(|(_, name)| name.to_owned()));
    if extras.partial {
        args.push("--include-partial-messages".into());
    }
    args.extend(settings.extra_args.iter().flatten().cloned());
    args
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PermissionMode;

    #[track_caller]
    fn check(settings: &Settings, extras: Extras<'_>, want: &[&str]) {
        let args = arguments(settings, extras);
        assert_eq!(
            args[..3],
            ["--output-format=stream-json", "--input-format=stream-json", "--verbose"],
            "the frame"
        );
        assert_eq!(args[3..], want[..]);
    }

    #[test]
    fn every_setting_has_its_argument() {
        let model = "--model=claude-sonnet-4-5";
        let set = Settings::default;
        check(&set(), Extras::default(), &[model]);
        check(&set().model("-x"), Extras::default(), &["--model=-x"]);
        check(&set().system_prompt("-p"), Extras::default(), &[model, "--system-prompt=-p"]);
        check(
            &set().append_system_prompt("more"),
            Extras::default(),
            &[model, "--append-system-prompt=more"],
        );
        check(
            &set().allowed_tools(["Read", "Bash(git *)"]).disallowed_tools(["Write"]),
            Extras::default(),
            &[model, "--allowedTools=Read,Bash(git *)", "--disallowedTools=Write"],
        );
        check(&set().builtin_tools([""; 0]), Extras::default(), &[model, "--tools="]);
        check(
            &set().permission_mode(PermissionMode::AcceptEdits).max_turns(2).max_budget_usd(0.5),
            Extras::default(),
            &[model, "--permission-mode=acceptEdits", "--max-turns=2", "--max-budget-usd=0.5"],
        );
        check(
            &set().conversation(Conversation::Continue { fork: false }),
            Extras::default(),
            &[model, "--continue"],
        );
        check(
            &set().conversation(Conversation::Resume { session_id: "s".into(), fork: true }),
            Extras::default(),
            &[model, "--resume=s", "--fork-session"],
        );
        check(
            &set().setting_sources(["user"]).extra_args(["--debug"]),
            Extras { strict: true, asks: true, partial: true, ..Extras::default() },
            &[
                model,
                "--permission-prompt-tool=stdio",
                "--setting-sources=user",
                "--strict-mcp-config",
                "--include-partial-messages",
                "--debug",
            ],
        );
    }

    #[test]
    fn the_own_server_comes_with_its_rule() {
        let entry = json!({ "type": "sdk", "name": "tools" });
        let extras =
            |allow_own| Extras { server: Some(("tools", entry.clone())), allow_own, ..Extras::default() };
        let config = r#"--mcp-config={"mcpServers":{"other":{"a":1},"tools":{"name":"tools","type":"sdk"}}}"#;
        let settings = || Settings::default().mcp_server("other", json!({ "a": 1 })).allowed_tools(["Read"]);
        let model = "--model=claude-sonnet-4-5";
        check(&settings(), extras(true), &[model, "--allowedTools=Read,mcp__tools", config]);
        check(&settings(), extras(false), &[model, "--allowedTools=Read", config]);
    }

    #[test]
    fn a_schema_is_passed_as_it_is() {
        let schema = json!({ "type": "object" });
        let extras = Extras { output_schema: Some(&schema), ..Extras::default() };
        check(
            &Settings::default(),
            extras,
            &["--model=claude-sonnet-4-5", r#"--json-schema={"type":"object"}"#],
        );
    }
}
