//! What a CLI is started with: its command line, environment, files, and first message.
//!
//! Every user of the machine can read a command line. Possible secrets are therefore not on it: prompts are
//! in the first message or in files that only this user can read; servers and settings are in such files
//! too.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::ClaudeCodeError;
use crate::callbacks::hook::HookShape;
use crate::callbacks::restriction::{RESTRICTIONS, Restrictions};
use crate::error::ExecutionKind;
use crate::process::scratch::ScratchDir;
use crate::process::version::Version;
use crate::prompt::Message;
use crate::protocol::history::{HistoryTools, session};
use crate::settings::{NO_HOOKS_VARIABLE, Settings, Skills, Thinking};
use crate::subagent::Subagent;
use crate::tools::ServerTools;

/// The built-in tools of CLI versions without an option to select them.
const OLD_BUILTINS: &str = "Task,Bash,BashOutput,KillShell,Glob,Grep,LS,Read,Edit,MultiEdit,Write,NotebookRead,\
    NotebookEdit,WebFetch,WebSearch,TodoWrite,ExitPlanMode,EnterPlanMode,SlashCommand,Skill,AskUserQuestion,\
    AgentOutputTool";

/// The variable that holds the name of the client program.
const CLIENT_APP: &str = "CLAUDE_AGENT_SDK_CLIENT_APP";

/// Everything that a CLI depends on, except its prompts.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "they do not depend on each other")]
pub(crate) struct Launch {
    pub(crate) cli: PathBuf,
    pub(crate) version: Version,
    pub(crate) settings: Settings,
    /// Whether only the MCP servers given here exist.
    pub(crate) strict: bool,
    /// Whether text is streamed as it arrives.
    pub(crate) partial: bool,
    /// Whether it takes more than one prompt.
    pub(crate) stays_open: bool,
    /// Whether there is a function that decides about tools.
    pub(crate) asks: bool,
    /// Whether the toolset's tools run without asking for permission.
    pub(crate) allow_own: bool,
    pub(crate) hooks: Vec<HookShape>,
    pub(crate) restrictions: Restrictions,
    pub(crate) output_schema: Option<Value>,
    pub(crate) tools: Option<ServerTools>,
    /// Restricted or built-in tools whose existence only the CLI can confirm.
    pub(crate) unconfirmed_tools: Vec<String>,
}

impl Launch {
    /// The history as a file that the CLI resumes; `None` if it is empty, or if the CLI resumes another one.
    pub(crate) fn history(&self, messages: &[Message]) -> Option<String> {
        if self.settings.resumes() {
            return None;
        }
        let any = self.tools.is_some()
            || self.output_schema.is_some()
            || !self.settings.brings_no_tools(self.strict);
        session(messages, &HistoryTools { any, name: &|name| self.full_name(name) })
    }

    /// The CLI's name for a tool: a tool of this process has the name of its server before its own.
    fn full_name(&self, tool: &str) -> String {
        match &self.tools {
            Some(own) if own.list.get(tool).is_some() => own.full_name(tool),
            _ => tool.to_owned(),
        }
    }

    /// Adds arguments, environment and directory to the command that starts the CLI, and writes the files that it
    /// reads. `entry` is that of the toolset's server among the MCP servers, `history` the earlier messages as a
    /// session of the CLI. Returns the `initialize` request.
    ///
    /// # Errors
    ///
    /// When a file cannot be written, or the settings require a feature that this CLI lacks.
    pub(crate) fn prepare(
        &self,
        command: &mut Command,
        scratch: &ScratchDir,
        entry: Option<Value>,
        history: Option<&str>,
    ) -> Result<Value, ClaudeCodeError> {
        self.check_version(history.is_some())?;
        let settings = &self.settings;
        let mut initialize = json!({ "subtype": "initialize", "hooks": null });
        command.args(["--output-format=stream-json", "--input-format=stream-json", "--verbose"]);
        self.surroundings(command, scratch).map_err(write_error)?;
        flag(command, "model", settings.model.as_ref());
        self.thinking(command);
        self.prompts(command, scratch, &mut initialize).map_err(write_error)?;
        self.tools(command, &mut initialize);
        self.conversation(command, scratch, history).map_err(write_error)?;
        flag(command, "max-turns", settings.max_turns.map(|turns| turns.to_string()));
        flag(command, "max-budget-usd", settings.max_budget_usd.map(|dollars| dollars.to_string()));
        self.servers_and_settings(command, scratch, entry)?;
        command.args(settings.extra_args.iter().flatten());
        command.envs(&settings.env);
        Ok(initialize)
    }

    /// Only a request with a prompt and tools works with every CLI: what an older one would ignore, or do in another
    /// way, is an error.
    fn check_version(&self, has_history: bool) -> Result<(), ClaudeCodeError> {
        let settings = &self.settings;
        let is_over_sdk = self.tools.as_ref().is_some_and(|tools| tools.transport == crate::Transport::Sdk);
        let appends = settings.append_system_prompt.is_some() && self.system_prompt().is_none();
        let needs = [
            ("agents", !settings.agents.is_empty(), Version::COMPLETE),
            ("skills", settings.skills.is_some(), Version::WITH_SKILLS),
            ("sandbox", settings.sandbox.is_some(), Version::COMPLETE),
            ("append_system_prompt", appends, Version::COMPLETE),
            ("output_schema", self.output_schema.is_some(), Version::COMPLETE),
            ("history", has_history, Version::COMPLETE),
            ("hook", !self.hooks.is_empty(), Version::COMPLETE),
            ("can_use_tool", self.asks, Version::COMPLETE),
            ("tool_parameter_restrictions", !self.restrictions.is_empty(), Version::COMPLETE),
            ("transport sdk", is_over_sdk, Version::COMPLETE),
        ];
        let missing = needs.iter().find(|(_, is_used, since)| *is_used && self.version < *since);
        missing.map_or(Ok(()), |(name, _, since)| {
            let version = self.version;
            let reason = format!("Claude Code {version} does not support `{name}`; update it to {since}");
            Err(ClaudeCodeError::invalid(reason))
        })
    }

    fn thinking(&self, command: &mut Command) {
        let settings = &self.settings;
        flag(command, "fallback-model", settings.fallback_model.as_ref());
        flag(command, "effort", settings.effort.as_ref().map(ToString::to_string));
        let display = match &settings.thinking {
            None => None,
            Some(Thinking::Disabled) => {
                flag(command, "thinking", Some("disabled"));
                None
            }
            Some(Thinking::Adaptive { display }) => {
                flag(command, "thinking", Some("adaptive"));
                *display
            }
            Some(Thinking::Enabled { budget_tokens, display }) => {
                flag(command, "max-thinking-tokens", Some(budget_tokens.to_string()));
                *display
            }
        };
        flag(command, "thinking-display", display.map(|display| display.to_string()));
        flag(command, "task-budget", settings.task_budget.map(|tokens| tokens.to_string()));
        flag(command, "betas", settings.betas.as_deref().and_then(joined));
    }

    /// Sets the CLI's working directory and where it writes other files: in the scratch directory, unless they must
    /// be kept.
    fn surroundings(&self, command: &mut Command, scratch: &ScratchDir) -> io::Result<()> {
        let settings = &self.settings;
        // Otherwise a CLI started from a CLI's tool would consider itself part of that one.
        command.env_remove("CLAUDECODE");
        if !self.restrictions.is_empty() {
            command.env_remove(NO_HOOKS_VARIABLE);
        }
        if !settings.is_claude_code() {
            command.env("CLAUDE_CODE_DISABLE_AUTO_MEMORY", "1");
        }
        if !settings.offers_builtin("ToolSearch") {
            // Otherwise tools would be hidden behind a search tool that the model does not have.
            command.env("ENABLE_TOOL_SEARCH", "false");
        }
        if !settings.keeps_session() {
            command.env("CLAUDE_CODE_TMPDIR", scratch.dir("tmp")?);
        }
        settings.client_app.as_ref().map(|name| command.env(CLIENT_APP, name));
        if settings.enable_file_checkpointing == Some(true) {
            command.env("CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING", "true");
            // A prompt has an id only if the CLI repeats it.
            command.arg("--replay-user-messages");
        }
        if !self.stays_open || settings.waits_for_agents() {
            // A request ends with its answer, and what runs in the background would be lost.
            command.env("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1");
        }
        for directory in settings.add_dirs.iter().flatten() {
            flag(command, "add-dir", Some(directory));
        }
        for directory in settings.plugins.iter().flatten() {
            flag(command, "plugin-dir", Some(directory));
        }
        if settings.needs_no_directory(self.strict) {
            // For the logs of its servers. Not with other servers or tools, whose caches would be lost.
            command.env("XDG_CACHE_HOME", scratch.dir("cache")?).current_dir(scratch.home());
        }
        settings.working_directory.as_ref().map(|directory| command.current_dir(directory));
        Ok(())
    }

    /// The system prompt; `None` is the CLI's own.
    fn system_prompt(&self) -> Option<&str> {
        let is_coding = self.settings.coding_prompt.unwrap_or(self.settings.is_claude_code());
        self.settings.system_prompt.as_deref().or((!is_coding).then_some(""))
    }

    fn prompts(&self, command: &mut Command, scratch: &ScratchDir, initialize: &mut Value) -> io::Result<()> {
        let settings = &self.settings;
        let (system, append) = (self.system_prompt(), settings.append_system_prompt.as_deref());
        if settings.exclude_dynamic_sections == Some(true) {
            command.arg("--exclude-dynamic-system-prompt-sections");
        }
        let snapshot = settings.system_prompt_snapshot.map(|keep| if keep { "on" } else { "off" });
        flag(command, "system-prompt-snapshot", snapshot);
        if self.version < Version::COMPLETE {
            let Some(system) = system else { return Ok(()) };
            let text = [system, append.unwrap_or_default()].join("\n\n");
            match text.trim() {
                "" => flag(command, "system-prompt", Some("")),
                text => flag(command, "system-prompt-file", Some(scratch.file("system-prompt.txt", text)?)),
            }
            return Ok(());
        }
        let members = [
            ("systemPrompt", system.map(Value::from)),
            ("appendSystemPrompt", append.map(Value::from)),
            ("jsonSchema", self.output_schema.clone().map(without_draft)),
        ];
        for (name, value) in members.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            initialize[name] = value;
        }
        Ok(())
    }

    fn tools(&self, command: &mut Command, initialize: &mut Value) {
        let settings = &self.settings;
        if let Some(Skills::Only(names)) = &settings.skills {
            initialize["skills"] = json!(names);
        }
        if !settings.agents.is_empty() {
            let entry = |agent: &Subagent| agent.to_cli(|tool| self.full_name(tool));
            let agents = settings.agents.iter().map(|(name, agent)| (name.clone(), entry(agent)));
            initialize["agents"] = agents.collect();
        }
        let mut allowed = settings.allowed_tools.clone().unwrap_or_default();
        allowed.extend(settings.skills.iter().flat_map(Skills::rules));
        let own = self.tools.as_ref().filter(|_| self.allow_own);
        allowed.extend(own.map(|tools| format!("mcp__{}", tools.server)));
        flag(command, "allowedTools", joined(&allowed));
        let mut disallowed = settings.disallowed_tools.clone().unwrap_or_default();
        match settings.offered_builtins() {
            Some(names) if self.version >= Version::WITH_TOOLS => {
                flag(command, "tools", Some(names.join(",")));
            }
            Some(_) => {
                let others = OLD_BUILTINS.split(',').filter(|name| !settings.offers_builtin(name));
                disallowed.extend(others.map(Into::into));
            }
            None => {}
        }
        flag(command, "disallowedTools", joined(&disallowed));
        flag(command, "permission-mode", settings.permission_mode.as_ref().map(ToString::to_string));
        flag(command, "permission-prompt-tool", self.asks.then_some("stdio"));
        let mut hooks: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        if !self.restrictions.is_empty() {
            // Without a matcher: the tools are selected here, by their exact names.
            hooks.insert("PreToolUse".into(), vec![json!({ "hookCallbackIds": [RESTRICTIONS] })]);
        }
        for (place, hook) in self.hooks.iter().enumerate() {
            hooks.entry(hook.event.to_string()).or_default().push(hook.to_cli(place));
        }
        if !hooks.is_empty() {
            initialize["hooks"] = json!(hooks);
        }
    }

    fn conversation(
        &self,
        command: &mut Command,
        scratch: &ScratchDir,
        history: Option<&str>,
    ) -> io::Result<()> {
        let settings = &self.settings;
        if settings.continue_conversation == Some(true) {
            command.arg("--continue");
        }
        flag(command, "resume", settings.resume.as_ref());
        if let Some(history) = history {
            flag(command, "resume", Some(scratch.file("history.jsonl", history)?));
        }
        // A history too: otherwise a kept conversation would be stored next to its file.
        if settings.fork_session == Some(true) || history.is_some() {
            command.arg("--fork-session");
        }
        flag(command, "session-id", settings.session_id.as_ref());
        flag(command, "resume-session-at", settings.resume_session_at.as_ref());
        flag(command, "resume-drops-turn", settings.resume_drops_turn.as_ref());
        if !settings.keeps_session() && self.version >= Version::WITHOUT_TRANSCRIPT {
            command.arg("--no-session-persistence");
        }
        Ok(())
    }

    fn servers_and_settings(
        &self,
        command: &mut Command,
        scratch: &ScratchDir,
        entry: Option<Value>,
    ) -> Result<(), ClaudeCodeError> {
        let settings = &self.settings;
        // These two flags and their values are two arguments each, as older versions require. The values never begin
        // with `-`.
        if let Some(sources) = settings.read_sources() {
            command.args(["--setting-sources", &sources.join(",")]);
        }
        if let Some(whole) = self.cli_settings() {
            if settings.has_argument("--settings") {
                return Err(ClaudeCodeError::invalid(
                    "`--settings` in `extra_args` would replace settings that this request needs; \
                     use `cli_settings` instead",
                ));
            }
            let file = scratch.file("settings.json", &whole.to_string()).map_err(write_error)?;
            command.arg("--settings").arg(file);
        }
        let mut servers = settings.mcp_servers.clone();
        servers.extend(self.tools.as_ref().map(|tools| tools.server.clone()).zip(entry));
        if !servers.is_empty() {
            let config = json!({ "mcpServers": servers }).to_string();
            flag(command, "mcp-config", Some(scratch.file("mcp.json", &config).map_err(write_error)?));
        }
        let more = [
            (self.strict, "--strict-mcp-config"),
            (self.partial, "--include-partial-messages"),
            (settings.include_hook_events == Some(true), "--include-hook-events"),
            (settings.forward_subagent_text == Some(true), "--forward-subagent-text"),
        ];
        command.args(more.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag));
        Ok(())
    }

    /// The user's settings, plus overrides that prevent bypassing decisions made here.
    fn cli_settings(&self) -> Option<Value> {
        let mut whole = self.settings.cli_settings.clone().unwrap_or_else(|| json!({}));
        if let Some(sandbox) = &self.settings.sandbox {
            let mut sandbox = sandbox.clone();
            // Otherwise the CLI would continue without a sandbox and only print a warning.
            sandbox.fail_if_unavailable.get_or_insert(true);
            whole["sandbox"] = json!(sandbox);
        }
        let restricted = !self.restrictions.is_empty();
        if restricted || self.asks {
            // A skill's shell lines run without a permission request and without hooks.
            whole["disableSkillShellExecution"] = json!(true);
        }
        if restricted {
            // Another hook may change the arguments after our check. Ours still runs.
            whole["disableAllHooks"] = json!(true);
            // In this mode no hook runs at all, and settings files can enable it.
            match whole.get_mut("env").and_then(Value::as_object_mut) {
                Some(env) => _ = env.insert(NO_HOOKS_VARIABLE.into(), json!("0")),
                None => whole["env"] = json!({ NO_HOOKS_VARIABLE: "0" }),
            }
        }
        whole.as_object().is_some_and(|all| !all.is_empty()).then_some(whole)
    }
}

fn flag(command: &mut Command, name: &str, value: Option<impl Into<OsString>>) {
    // With `=`, because a value may begin with `-`.
    command.args(value.map(|value| {
        let mut argument = OsString::from(format!("--{name}="));
        argument.push(value.into());
        argument
    }));
}

fn joined(names: &[String]) -> Option<String> {
    (!names.is_empty()).then(|| names.join(","))
}

#[expect(clippy::needless_pass_by_value, reason = "it is the end of a `map_err`")]
fn write_error(error: io::Error) -> ClaudeCodeError {
    let message = format!("cannot write the files for the CLI: {error}");
    ClaudeCodeError::execution(ExecutionKind::Start, message)
}

/// The CLI supports one draft of JSON Schema and ignores a schema that names another one.
fn without_draft(mut schema: Value) -> Value {
    schema.as_object_mut().map(|root| root.remove("$schema"));
    schema
}

#[cfg(test)]
mod tests {
    use toolbridge_core::tool::{RawJson, ToolList, ToolSpec};

    use super::*;
    use crate::callbacks::hook::HookEvent;
    use crate::{Effort, PermissionMode, Sandbox, SandboxNetwork, ThinkingDisplay, Transport};

    const FRAME: [&str; 3] = ["--output-format=stream-json", "--input-format=stream-json", "--verbose"];

    /// The content of a launch, with `SCRATCH` for the scratch directory's path.
    struct Launched {
        arguments: Vec<String>,
        initialize: Value,
        env: Vec<(String, String)>,
        directory: Option<PathBuf>,
        files: Vec<(String, String)>,
    }

    /// A launch with the entry of our server, and a history.
    struct Asked(Launch, Option<Value>, Option<&'static str>);

    fn launch_of(
        version: &str,
        settings: &Settings,
        change: impl FnOnce(&mut Asked),
    ) -> Result<Launched, String> {
        let base = tempfile::tempdir().unwrap();
        let scratch = ScratchDir::new(base.path()).unwrap();
        let launch = Launch {
            version: version.parse().unwrap(),
            settings: settings.clone(),
            strict: true,
            stays_open: true,
            allow_own: true,
            ..Launch::default()
        };
        let mut asked = Asked(launch, None, None);
        change(&mut asked);
        let mut command = Command::new("claude");
        let Asked(launch, entry, history) = asked;
        let prepared = launch.prepare(&mut command, &scratch, entry, history);
        let initialize = prepared.map_err(|error| error.to_string())?;
        let inside = scratch.file("x", "").unwrap().parent().unwrap().to_owned();
        let prefix = inside.display().to_string();
        let text = |value: &std::ffi::OsStr| value.to_str().unwrap().replace(&prefix, "SCRATCH");
        let mut files: Vec<_> = std::fs::read_dir(&inside)
            .unwrap()
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.file_type().unwrap().is_file() && entry.file_name() != "x")
            .map(|entry| {
                (entry.file_name().into_string().unwrap(), std::fs::read_to_string(entry.path()).unwrap())
            })
            .collect();
        files.sort();
        let arguments: Vec<_> = command.get_args().map(text).collect();
        assert_eq!(arguments[..3], FRAME);
        let directory = command.get_current_dir();
        Ok(Launched {
            arguments: arguments[3..].to_vec(),
            initialize,
            env: command.get_envs().filter_map(|(name, value)| Some((text(name), text(value?)))).collect(),
            directory: directory.map(|path| path.strip_prefix(scratch.home()).unwrap_or(path).to_owned()),
            files,
        })
    }

    fn described(tools: &[ToolSpec]) -> ServerTools {
        let list = ToolList::of(tools.iter());
        ServerTools { server: "tools".into(), transport: Transport::Stdio, list, may_change: false }
    }

    fn restricted() -> Restrictions {
        Restrictions::new([("Bash".into(), "command".into(), json!({}))]).unwrap()
    }

    /// A JSON file written by a launch.
    fn file(name: &str, content: &Value) -> (String, String) {
        (name.into(), content.to_string())
    }

    fn variables(want: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut all: Vec<_> =
            want.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        all.sort();
        all
    }

    fn launch(settings: &Settings) -> Launched {
        launch_of("2.1.325", settings, |_| ()).unwrap()
    }

    #[track_caller]
    fn check(settings: &Settings, want: &[&str]) {
        assert_eq!(launch(settings).arguments, want);
    }

    #[test]
    fn by_default_no_feature_of_the_cli_is_enabled() {
        let launched = launch(&Settings::default());
        assert_eq!(
            launched.arguments,
            ["--tools=", "--no-session-persistence", "--setting-sources", "", "--strict-mcp-config"]
        );
        assert_eq!(
            launched.initialize,
            json!({ "subtype": "initialize", "hooks": null, "systemPrompt": "" })
        );
        assert_eq!(
            launched.env,
            variables(&[
                ("CLAUDE_CODE_DISABLE_AUTO_MEMORY", "1"),
                ("ENABLE_TOOL_SEARCH", "false"),
                ("CLAUDE_CODE_TMPDIR", "SCRATCH/tmp"),
                ("XDG_CACHE_HOME", "SCRATCH/cache"),
            ])
        );
        assert_eq!(launched.directory.as_deref(), Some(std::path::Path::new("")));
        assert_eq!(launched.files, []);
    }

    #[test]
    fn claude_code_enables_everything() {
        let launched =
            launch_of("2.1.325", &Settings::default().claude_code(true), |asked| asked.0.strict = false)
                .unwrap();
        assert_eq!(launched.arguments, [""; 0]);
        assert_eq!((launched.env, launched.directory, launched.files), (vec![], None, vec![]));
        assert_eq!(launched.initialize, json!({ "subtype": "initialize", "hooks": null }));
    }

    #[test]
    fn every_setting_has_its_argument() {
        let set = || Settings::default().claude_code(true);
        let strict = "--strict-mcp-config";
        check(&set().model("-x"), &["--model=-x", strict]);
        check(
            &set().allowed_tools(["Read", "Bash(git *)"]).disallowed_tools(["Write"]),
            &["--allowedTools=Read,Bash(git *)", "--disallowedTools=Write", strict],
        );
        check(&set().builtin_tools([""; 0]), &["--tools=", strict]);
        check(&set().builtin_tools(["Read", "Grep"]), &["--tools=Read,Grep", strict]);
        check(&set().builtin_tools(["default"]), &[strict]);
        check(
            &set().permission_mode(PermissionMode::AcceptEdits).max_turns(2).max_budget_usd(0.5),
            &["--permission-mode=acceptEdits", "--max-turns=2", "--max-budget-usd=0.5", strict],
        );
        check(&set().continue_conversation(true), &["--continue", strict]);
        check(&set().resume("s").fork_session(true), &["--resume=s", "--fork-session", strict]);
        check(
            &set().setting_sources(["user"]).extra_args(["--debug"]),
            &["--setting-sources", "user", strict, "--debug"],
        );
        let launched =
            launch_of("2.1.325", &set(), |asked| (asked.0.asks, asked.0.partial) = (true, true)).unwrap();
        assert_eq!(
            launched.arguments,
            [
                "--permission-prompt-tool=stdio",
                "--settings",
                "SCRATCH/settings.json",
                strict,
                "--include-partial-messages"
            ]
        );
        assert_eq!(launched.files, [file("settings.json", &json!({ "disableSkillShellExecution": true }))]);
        assert_eq!(launched.initialize, json!({ "subtype": "initialize", "hooks": null }));
    }

    #[test]
    fn every_option_of_the_sdk_has_its_argument() {
        let set = || Settings::default().claude_code(true);
        let strict = "--strict-mcp-config";
        check(&set().fallback_model("sonnet,haiku"), &["--fallback-model=sonnet,haiku", strict]);
        check(&set().effort(Effort::Xhigh), &["--effort=xhigh", strict]);
        check(&set().effort(Effort::Other("unknown_level".into())), &["--effort=unknown_level", strict]);
        let adaptive = Thinking::Adaptive { display: Some(ThinkingDisplay::Omitted) };
        check(&set().thinking(adaptive), &["--thinking=adaptive", "--thinking-display=omitted", strict]);
        let enabled = Thinking::Enabled { budget_tokens: 2048, display: None };
        check(&set().thinking(enabled), &["--max-thinking-tokens=2048", strict]);
        check(&set().thinking(Thinking::Disabled), &["--thinking=disabled", strict]);
        check(&set().task_budget(40_000), &["--task-budget=40000", strict]);
        check(&set().betas(["a", "b"]), &["--betas=a,b", strict]);
        check(&set().betas([""; 0]), &[strict]);
        check(&set().add_dirs(["-a", "/b c"]), &["--add-dir=-a", "--add-dir=/b c", strict]);
        check(&set().plugins(["/p", "/q"]), &["--plugin-dir=/p", "--plugin-dir=/q", strict]);
        check(
            &set().exclude_dynamic_sections(true).system_prompt_snapshot(false),
            &["--exclude-dynamic-system-prompt-sections", "--system-prompt-snapshot=off", strict],
        );
        check(
            &set().include_hook_events(true).forward_subagent_text(true),
            &[strict, "--include-hook-events", "--forward-subagent-text"],
        );
        let at = set()
            .resume("s")
            .fork_session(true)
            .session_id("f")
            .resume_session_at("m")
            .resume_drops_turn("p");
        check(
            &at,
            &[
                "--resume=s",
                "--fork-session",
                "--session-id=f",
                "--resume-session-at=m",
                "--resume-drops-turn=p",
                strict,
            ],
        );
        let launched = launch(&set().enable_file_checkpointing(true).client_app("shop/1.2"));
        assert_eq!(launched.arguments, ["--replay-user-messages", strict]);
        let checkpoints = ("CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING", "true");
        assert_eq!(launched.env, variables(&[("CLAUDE_AGENT_SDK_CLIENT_APP", "shop/1.2"), checkpoints]));
        check(&set().permission_mode(PermissionMode::Auto), &["--permission-mode=auto", strict]);
    }

    #[test]
    fn hooks_follow_the_restrictions_hook() {
        let shape = |event: &str, matcher: &str| HookShape {
            event: event.parse().unwrap_or_else(|_| HookEvent::Other(event.into())),
            matcher: matcher.into(),
        };
        let hooks = [shape("PreToolUse", "Bash|Write"), shape("Stop", "*"), shape("UnknownEvent", "")];
        let launched = launch_of("2.1.325", &Settings::default(), |asked| {
            (asked.0.restrictions, asked.0.hooks) = (restricted(), hooks.into());
        });
        let want = json!({
            "PreToolUse": [
                { "hookCallbackIds": ["restrictions"] },
                { "hookCallbackIds": ["hook_0"], "matcher": "Bash|Write", "onFailure": "block" },
            ],
            "Stop": [{ "hookCallbackIds": ["hook_1"] }],
            "UnknownEvent": [{ "hookCallbackIds": ["hook_2"] }],
        });
        assert_eq!(launched.unwrap().initialize["hooks"], want);
    }

    #[test]
    fn agents_are_sent_in_initialize_with_only_their_tools() {
        let none = Subagent::new("Thinks", "You think.");
        let some = Subagent::new("Adds", "You add.").tools(["add", "Read"]).max_turns(3).effort(Effort::Low);
        let all = Subagent::new("Does all", "You do.").tools(["*"]).disallowed_tools(["add"]);
        let settings = Settings::default().agent("none", none).agent("some", some).agent("all", all);
        let own = [ToolSpec::new("add", "Adds", RawJson::empty_object())];
        let launch = |version: &str| {
            launch_of(version, &settings, |asked| {
                (asked.0.tools, asked.1) = (Some(described(&own)), Some(json!({})));
            })
        };
        let launched = launch("2.1.325").unwrap();
        assert_eq!(launched.arguments[..2], ["--allowedTools=mcp__tools", "--tools=Task"]);
        let want = json!({
            "all": { "description": "Does all", "prompt": "You do.", "disallowedTools": ["mcp__tools__add"] },
            "none": { "description": "Thinks", "prompt": "You think.", "tools": [] },
            "some": {
                "description": "Adds", "prompt": "You add.", "tools": ["mcp__tools__add", "Read"],
                "maxTurns": 3, "effort": "low",
            },
        });
        assert_eq!(launched.initialize["agents"], want);
        let refused = launch("2.0.76").err().unwrap();
        assert_eq!(refused, "Claude Code 2.0.76 does not support `agents`; update it to 2.1.248");
        let named = settings.builtin_tools(["Agent"]);
        assert_eq!(launch_of("2.1.325", &named, |_| ()).unwrap().arguments[0], "--tools=Agent");
    }

    #[test]
    fn skills_enable_their_tool_and_the_rules_that_allow_them() {
        let launched = launch(&Settings::default().skills(["pdf", "shop:orders"]).plugins(["/p"]));
        let want = ["--plugin-dir=/p", "--allowedTools=Skill(pdf),Skill(shop:orders)", "--tools=Skill"];
        assert_eq!(launched.arguments[..3], want);
        assert_eq!(launched.initialize["skills"], json!(["pdf", "shop:orders"]));
        let launched = launch(&Settings::default().skills(Skills::All));
        assert_eq!(launched.arguments[..2], ["--allowedTools=Skill", "--tools=Skill"]);
        assert_eq!(launched.initialize.get("skills"), None);
        let launched = launch(&Settings::default().skills([""; 0]));
        assert_eq!((&launched.arguments[0][..], &launched.initialize["skills"]), ("--tools=", &json!([])));
        let refused = launch_of("2.1.50", &Settings::default().skills(["pdf"]), |_| ()).err().unwrap();
        assert!(
            refused.starts_with("Claude Code 2.1.50 does not support `skills`; update it to "),
            "{refused}"
        );
    }

    #[test]
    fn an_unavailable_sandbox_is_an_error() {
        let network = SandboxNetwork::default().allowed_domains(["example.com"]);
        let sandbox = Sandbox::default().enabled(true).excluded_commands(["git"]).network(network);
        let settings = Settings::default().cli_settings(json!({ "a": 1 })).sandbox(sandbox.clone());
        let want = json!({ "a": 1, "sandbox": {
            "enabled": true,
            "failIfUnavailable": true,
            "excludedCommands": ["git"],
            "network": { "allowedDomains": ["example.com"] },
        } });
        assert_eq!(launch(&settings).files, [file("settings.json", &want)]);
        let weaker = Settings::default().sandbox(sandbox.fail_if_unavailable(false));
        assert!(launch(&weaker).files[0].1.contains(r#""failIfUnavailable":false"#));
        let refused = launch_of("2.1.50", &settings, |_| ()).err().unwrap();
        assert!(
            refused.starts_with("Claude Code 2.1.50 does not support `sandbox`; update it to "),
            "{refused}"
        );
    }

    #[test]
    fn a_stored_conversation_uses_the_usual_directories() {
        let id = "0b0e8b1e-6c1d-4d8e-9f0a-2b8c1d3e4f50";
        let launched = launch(&Settings::default().session_id(id));
        assert_eq!(
            launched.arguments,
            ["--tools=", &format!("--session-id={id}"), "--setting-sources", "", "--strict-mcp-config"]
        );
        assert_eq!(
            (launched.env, launched.directory),
            (variables(&[("CLAUDE_CODE_DISABLE_AUTO_MEMORY", "1"), ("ENABLE_TOOL_SEARCH", "false")]), None)
        );
        assert_eq!(launched.files, []);
    }

    #[test]
    fn history_is_a_file_that_is_resumed_as_a_fork() {
        let copied = ["--resume=SCRATCH/history.jsonl", "--fork-session"];
        let launch =
            |settings: &Settings| launch_of("2.1.325", settings, |asked| asked.2 = Some("{}\n")).unwrap();
        let launched = launch(&Settings::default());
        assert_eq!(launched.arguments[1..4], [copied[0], copied[1], "--no-session-persistence"]);
        assert_eq!(launched.files, [("history.jsonl".into(), "{}\n".into())]);
        let launched = launch(&Settings::default().session_id("s"));
        assert_eq!(launched.arguments[1..4], [copied[0], copied[1], "--session-id=s"]);
        assert!(!launched.arguments.contains(&"--no-session-persistence".to_owned()));
    }

    #[test]
    fn secrets_are_in_files_and_the_first_message() {
        let entry =
            json!({ "type": "http", "url": "https://x", "headers": { "Authorization": "Bearer secret" } });
        let settings = Settings::default()
            .mcp_server("other", entry.clone())
            .cli_settings(json!({ "apiKeyHelper": "secret" }))
            .system_prompt("secret one")
            .append_system_prompt("secret two");
        let own = json!({ "type": "sdk", "name": "tools" });
        let schema = json!({ "type": "object" });
        let launch = |version: &str, output_schema| {
            launch_of(version, &settings, |asked| {
                (asked.0.tools, asked.1) = (Some(described(&[])), Some(own.clone()));
                asked.0.output_schema = output_schema;
            })
            .unwrap()
        };
        let servers = file("mcp.json", &json!({ "mcpServers": { "other": entry, "tools": own } }));
        let theirs = file("settings.json", &json!({ "apiKeyHelper": "secret" }));
        let files =
            ["--settings", "SCRATCH/settings.json", "--mcp-config=SCRATCH/mcp.json", "--strict-mcp-config"];

        let launched = launch("2.1.325", Some(schema.clone()));
        let before =
            ["--allowedTools=mcp__tools", "--tools=", "--no-session-persistence", "--setting-sources", ""];
        assert_eq!(launched.arguments, [&before[..], &files[..]].concat());
        assert_eq!(launched.files, [servers.clone(), theirs.clone()]);
        assert_eq!(
            launched.initialize,
            json!({
                "subtype": "initialize",
                "hooks": null,
                "systemPrompt": "secret one",
                "appendSystemPrompt": "secret two",
                "jsonSchema": schema,
            })
        );

        let launched = launch("2.0.0", None);
        let others = format!("--disallowedTools={OLD_BUILTINS}");
        let before = ["--system-prompt-file=SCRATCH/system-prompt.txt", "--allowedTools=mcp__tools", &others];
        assert_eq!(launched.arguments, [&before[..], &["--setting-sources", ""], &files[..]].concat());
        let prompts = ("system-prompt.txt".to_owned(), "secret one\n\nsecret two".to_owned());
        assert_eq!(launched.files, [servers, theirs, prompts]);
        assert_eq!(launched.initialize, json!({ "subtype": "initialize", "hooks": null }));
        let refused =
            launch_of("2.0.0", &Settings::default().claude_code(true).append_system_prompt("secret"), |_| ());
        assert!(refused.is_err_and(|error| error.contains("does not support `append_system_prompt`")));
    }

    #[test]
    fn builtin_tools_of_an_old_cli_are_denied_by_name() {
        let launched = launch_of("2.0.0", &Settings::default().builtin_tools(["Read"]), |_| ()).unwrap();
        let others = OLD_BUILTINS.split(',').filter(|name| *name != "Read").collect::<Vec<_>>().join(",");
        assert!(others.starts_with("Task,Bash,"), "{others}");
        let rule = format!("--disallowedTools={others}");
        assert_eq!(
            launched.arguments,
            ["--system-prompt=", &rule, "--setting-sources", "", "--strict-mcp-config"]
        );
    }

    #[test]
    fn settings_cannot_bypass_decisions_of_this_process() {
        let own = Settings::default().cli_settings(json!({ "env": { "A": "1" }, "disableAllHooks": false }));
        let launched = launch_of("2.1.325", &own, |asked| asked.0.restrictions = restricted()).unwrap();
        let want = json!({
            "env": { "A": "1", "CLAUDE_CODE_SIMPLE": "0" },
            "disableAllHooks": true,
            "disableSkillShellExecution": true,
        });
        let parsed = |launched: &Launched| {
            let [(name, text)] = &launched.files[..] else { panic!("{:?}", launched.files) };
            assert_eq!(name, "settings.json");
            serde_json::from_str::<Value>(text).unwrap()
        };
        assert_eq!(parsed(&launched), want);
        let hooks = json!({ "PreToolUse": [{ "hookCallbackIds": ["restrictions"] }] });
        assert_eq!(
            launched.initialize,
            json!({ "subtype": "initialize", "hooks": hooks, "systemPrompt": "" })
        );
        let refused = launch_of("2.1.247", &own, |asked| asked.0.restrictions = restricted());
        let needs = "does not support `tool_parameter_restrictions`; update it to 2.1.248";
        assert!(refused.is_err_and(|error| error.contains(needs)));
        for extra in ["--settings", "--settings={}"] {
            let theirs = Settings::default().extra_args([extra]);
            let refused = launch_of("2.1.325", &theirs, |asked| asked.0.asks = true);
            assert!(refused.is_err_and(|error| error.contains("use `cli_settings` instead")));
            assert!(launch_of("2.1.325", &theirs, |_| ()).is_ok());
        }
    }
}
