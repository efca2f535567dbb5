//! Translates settings for the CLI: its command line, environment, files, and first message.
//!
//! Every user of the machine can read a command line. Possible secrets are therefore not on it: prompts are
//! in the first message or in files that only this user can read; servers and settings are in such files
//! too.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::ClaudeCodeError;
use crate::callbacks::restriction::RESTRICTIONS;
use crate::error::ExecutionKind;
use crate::process::scratch::ScratchDir;
use crate::process::version::Version;
use crate::settings::{NO_HOOKS_VARIABLE, Settings, Skills, Thinking};
use crate::start::CliSpec;
use crate::subagent::Subagent;

/// The built-in tools of CLI versions without an option to select them.
const OLD_BUILTINS: &str = "Task,Bash,BashOutput,KillShell,Glob,Grep,LS,Read,Edit,MultiEdit,Write,NotebookRead,\
    NotebookEdit,WebFetch,WebSearch,TodoWrite,ExitPlanMode,EnterPlanMode,SlashCommand,Skill,AskUserQuestion,\
    AgentOutputTool";

/// The variable that holds the name of the client program.
const CLIENT_APP: &str = "CLAUDE_AGENT_SDK_CLIENT_APP";

/// What a launch depends on besides the [`CliSpec`].
#[derive(Debug)]
pub(crate) struct LaunchContext<'a> {
    pub(crate) scratch: &'a ScratchDir,
    /// The entry of the toolset's server among the MCP servers.
    pub(crate) entry: Option<Value>,
    /// Whether the toolset's tools run without asking for permission.
    pub(crate) allow_own: bool,
    /// Whether parameters of tools are restricted.
    pub(crate) restricted: bool,
    /// The earlier messages, as a session of the CLI.
    pub(crate) history: Option<&'a str>,
}

/// How the CLI is started.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) arguments: Vec<OsString>,
    /// Additional environment variables; variables from the settings override these.
    pub(crate) env: Vec<(&'static str, OsString)>,
    pub(crate) directory: Option<PathBuf>,
    /// The `initialize` request.
    pub(crate) initialize: Value,
}

impl Launch {
    /// # Errors
    ///
    /// When a file cannot be written, or the settings require a feature that this CLI lacks.
    pub(crate) fn new(spec: &CliSpec, context: &LaunchContext<'_>) -> Result<Self, ClaudeCodeError> {
        let settings = &spec.settings;
        let frame = ["--output-format=stream-json", "--input-format=stream-json", "--verbose"];
        let mut launch = Self {
            arguments: frame.map(Into::into).into(),
            env: Vec::new(),
            directory: settings.working_directory.clone(),
            initialize: json!({ "subtype": "initialize", "hooks": null }),
        };
        launch.surroundings(spec, context).map_err(write_error)?;
        launch.flag("model", settings.model.as_ref());
        launch.thinking(settings);
        launch.prompts(spec, context)?;
        launch.tools(spec, context)?;
        launch.conversation(spec, context)?;
        launch.flag("max-turns", settings.max_turns.map(|turns| turns.to_string()));
        launch.flag("max-budget-usd", settings.max_budget_usd.map(|dollars| dollars.to_string()));
        launch.servers_and_settings(spec, context)?;
        launch.arguments.extend(settings.extra_args.iter().flatten().map(Into::into));
        Ok(launch)
    }

    fn flag(&mut self, name: &str, value: Option<impl Into<OsString>>) {
        // With `=`, because a value may begin with `-`.
        self.arguments.extend(value.map(|value| {
            let mut argument = OsString::from(format!("--{name}="));
            argument.push(value.into());
            argument
        }));
    }

    /// A flag and its value as two arguments, as older versions require for these two flags. The values
    /// never begin with `-`.
    fn flag_as_two(&mut self, name: &str, value: impl Into<OsString>) {
        self.arguments.extend([name.into(), value.into()]);
    }

    fn thinking(&mut self, settings: &Settings) {
        self.flag("fallback-model", settings.fallback_model.as_ref());
        self.flag("effort", settings.effort.as_ref().map(ToString::to_string));
        let display = match &settings.thinking {
            None => None,
            Some(Thinking::Disabled) => {
                self.flag("thinking", Some("disabled"));
                None
            }
            Some(Thinking::Adaptive { display }) => {
                self.flag("thinking", Some("adaptive"));
                *display
            }
            Some(Thinking::Enabled { budget_tokens, display }) => {
                self.flag("max-thinking-tokens", Some(budget_tokens.to_string()));
                *display
            }
        };
        self.flag("thinking-display", display.map(|display| display.to_string()));
        self.flag("task-budget", settings.task_budget.map(|tokens| tokens.to_string()));
        self.flag(
            "betas",
            settings.betas.as_ref().filter(|names| !names.is_empty()).map(|names| names.join(",")),
        );
    }

    /// Sets the CLI's working directory and where it writes other files: in the scratch directory, unless they must be
    /// kept.
    fn surroundings(&mut self, spec: &CliSpec, context: &LaunchContext<'_>) -> io::Result<()> {
        let settings = &spec.settings;
        if !settings.is_claude_code() {
            self.env.push(("CLAUDE_CODE_DISABLE_AUTO_MEMORY", "1".into()));
        }
        if !settings.offers_builtin("ToolSearch") {
            // Otherwise tools would be hidden behind a search tool that the model does not have.
            self.env.push(("ENABLE_TOOL_SEARCH", "false".into()));
        }
        if !settings.keeps_session() {
            self.env.push(("CLAUDE_CODE_TMPDIR", context.scratch.dir("tmp")?.into()));
        }
        self.env.extend(settings.client_app.as_ref().map(|name| (CLIENT_APP, name.into())));
        if settings.enable_file_checkpointing == Some(true) {
            self.env.push(("CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING", "true".into()));
            // A prompt has an id only if the CLI repeats it.
            self.arguments.push("--replay-user-messages".into());
        }
        if !spec.stays_open || settings.waits_for_agents() {
            // A request ends with its answer, and what runs in the background would be lost.
            self.env.push(("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1".into()));
        }
        for directory in settings.add_dirs.iter().flatten() {
            self.flag("add-dir", Some(directory));
        }
        for directory in settings.plugins.iter().flatten() {
            self.flag("plugin-dir", Some(directory));
        }
        if settings.needs_no_directory(spec.strict) {
            // For the logs of its servers. Not with other servers or tools, whose caches would be lost.
            self.env.push(("XDG_CACHE_HOME", context.scratch.dir("cache")?.into()));
            self.directory.get_or_insert_with(|| context.scratch.home().into());
        }
        Ok(())
    }

    fn prompts(&mut self, spec: &CliSpec, context: &LaunchContext<'_>) -> Result<(), ClaudeCodeError> {
        let settings = &spec.settings;
        let version = spec.version;
        let is_coding = settings.coding_prompt.unwrap_or(settings.is_claude_code());
        let system = settings.system_prompt.clone().or((!is_coding).then(String::new));
        let append = settings.append_system_prompt.clone();
        if settings.exclude_dynamic_sections == Some(true) {
            self.arguments.push("--exclude-dynamic-system-prompt-sections".into());
        }
        let snapshot = settings.system_prompt_snapshot.map(|keep| if keep { "on" } else { "off" });
        self.flag("system-prompt-snapshot", snapshot);
        if version >= Version::WITH_EARLY_PROMPTS {
            let members = [
                ("systemPrompt", system.map(Value::from)),
                ("appendSystemPrompt", append.map(Value::from)),
                ("jsonSchema", spec.output_schema.clone().map(without_draft)),
            ];
            for (name, value) in members.into_iter().filter_map(|(name, value)| Some((name, value?))) {
                self.initialize[name] = value;
            }
            return Ok(());
        }
        if spec.output_schema.is_some() {
            let reason = format!("Claude Code {version} does not support output schemas; update it");
            return Err(ClaudeCodeError::invalid(reason));
        }
        let Some(system) = system else {
            return append.map_or(Ok(()), |_| {
                Err(ClaudeCodeError::invalid(format!(
                    "Claude Code {version} accepts `append_system_prompt` only on the command line, where every \
                     user can read it; update it, or set `system_prompt`"
                )))
            });
        };
        let parts = [Some(system), append].into_iter().flatten().filter(|part| !part.is_empty());
        let text = parts.collect::<Vec<_>>().join("\n\n");
        if text.is_empty() {
            self.flag("system-prompt", Some(""));
        } else {
            let file = context.scratch.file("system-prompt.txt", &text).map_err(write_error)?;
            self.flag("system-prompt-file", Some(file));
        }
        Ok(())
    }

    fn tools(&mut self, spec: &CliSpec, context: &LaunchContext<'_>) -> Result<(), ClaudeCodeError> {
        let settings = &spec.settings;
        self.agents(spec)?;
        let rules = |rules: Vec<String>| (!rules.is_empty()).then(|| rules.join(","));
        let mut allowed = settings.allowed_tools.clone().unwrap_or_default();
        allowed.extend(settings.skills.iter().flat_map(Skills::rules));
        let own = spec.tools.as_ref().filter(|_| context.allow_own);
        allowed.extend(own.map(|tools| format!("mcp__{}", tools.server)));
        self.flag("allowedTools", rules(allowed));
        let mut disallowed = settings.disallowed_tools.clone().unwrap_or_default();
        match settings.offered_builtins() {
            Some(names) if spec.version >= Version::WITH_TOOLS => self.flag("tools", Some(names.join(","))),
            Some(_) => {
                let others = OLD_BUILTINS.split(',').filter(|name| !settings.offers_builtin(name));
                disallowed.extend(others.map(Into::into));
            }
            None => {}
        }
        self.flag("disallowedTools", rules(disallowed));
        self.flag("permission-mode", settings.permission_mode.as_ref().map(ToString::to_string));
        self.flag("permission-prompt-tool", spec.asks.then_some("stdio"));
        let mut hooks: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        if context.restricted {
            // Without a matcher: the tools are selected here, by their exact names.
            hooks.insert("PreToolUse".into(), vec![json!({ "hookCallbackIds": [RESTRICTIONS] })]);
        }
        for (place, hook) in spec.hooks.iter().enumerate() {
            hooks.entry(hook.event.to_string()).or_default().push(hook.to_cli(place));
        }
        if !hooks.is_empty() {
            self.initialize["hooks"] = json!(hooks);
        }
        Ok(())
    }

    /// Options that an older CLI would silently ignore.
    fn agents(&mut self, spec: &CliSpec) -> Result<(), ClaudeCodeError> {
        let settings = &spec.settings;
        let known = [
            ("agents", !settings.agents.is_empty(), Version::WITH_AGENTS),
            ("skills", settings.skills.is_some(), Version::WITH_SKILLS),
            ("sandbox", settings.sandbox.is_some(), Version::WITH_STRICT_SANDBOX),
        ];
        if let Some((name, _, since)) =
            known.iter().find(|(_, is_set, since)| *is_set && spec.version < *since)
        {
            let reason =
                format!("Claude Code {} does not support `{name}`; update it to {since}", spec.version);
            return Err(ClaudeCodeError::invalid(reason));
        }
        if let Some(Skills::Only(names)) = &settings.skills {
            self.initialize["skills"] = json!(names);
        }
        if !settings.agents.is_empty() {
            let entry = |agent: &Subagent| agent.to_cli(|tool| spec.full_name(tool));
            let agents = settings.agents.iter().map(|(name, agent)| (name.clone(), entry(agent)));
            self.initialize["agents"] = agents.collect();
        }
        Ok(())
    }

    fn conversation(&mut self, spec: &CliSpec, context: &LaunchContext<'_>) -> Result<(), ClaudeCodeError> {
        let settings = &spec.settings;
        let is_on = |setting| setting == Some(true);
        self.arguments.extend(is_on(settings.continue_conversation).then(|| "--continue".into()));
        self.flag("resume", settings.resume.as_ref());
        if let Some(history) = context.history {
            // As a fork; otherwise a kept conversation would be stored next to this file.
            self.flag("resume", Some(context.scratch.file("history.jsonl", history).map_err(write_error)?));
        }
        let forks = is_on(settings.fork_session) || context.history.is_some();
        self.arguments.extend(forks.then(|| "--fork-session".into()));
        self.flag("session-id", settings.session_id.as_ref());
        self.flag("resume-session-at", settings.resume_session_at.as_ref());
        self.flag("resume-drops-turn", settings.resume_drops_turn.as_ref());
        if settings.keeps_session() {
            tracing::info!("the CLI keeps this conversation on disk");
        } else if spec.version >= Version::WITHOUT_TRANSCRIPT {
            self.arguments.push("--no-session-persistence".into());
        } else {
            tracing::warn!(version = %spec.version, "this Claude Code keeps a transcript of every request; a newer one does not");
        }
        Ok(())
    }

    fn servers_and_settings(
        &mut self,
        spec: &CliSpec,
        context: &LaunchContext<'_>,
    ) -> Result<(), ClaudeCodeError> {
        let settings = &spec.settings;
        if let Some(sources) = settings.read_sources() {
            self.flag_as_two("--setting-sources", sources.join(","));
        }
        let has_others = settings.read_sources().is_none_or(|sources| !sources.is_empty());
        let decides = context.restricted || spec.asks;
        if decides && has_others && spec.version < Version::WITH_SAFE_HOOKS {
            return Err(ClaudeCodeError::invalid(format!(
                "Claude Code {} lets hooks and skills of settings files bypass restrictions and `can_use_tool`; \
                 update it, or remove `setting_sources`",
                spec.version
            )));
        }
        if let Some(whole) = cli_settings(spec, context) {
            if settings.has_argument("--settings") {
                return Err(ClaudeCodeError::invalid(
                    "`--settings` in `extra_args` would replace settings that this request needs; \
                     use `cli_settings` instead",
                ));
            }
            self.flag_as_two(
                "--settings",
                context.scratch.file("settings.json", &whole.to_string()).map_err(write_error)?,
            );
        }
        let mut servers = settings.mcp_servers.clone();
        servers.extend(spec.tools.as_ref().map(|tools| tools.server.clone()).zip(context.entry.clone()));
        if !servers.is_empty() {
            let config = json!({ "mcpServers": servers }).to_string();
            self.flag("mcp-config", Some(context.scratch.file("mcp.json", &config).map_err(write_error)?));
        }
        self.arguments.extend(spec.strict.then(|| "--strict-mcp-config".into()));
        let more = [
            (spec.partial, "--include-partial-messages"),
            (settings.include_hook_events == Some(true), "--include-hook-events"),
            (settings.forward_subagent_text == Some(true), "--forward-subagent-text"),
        ];
        self.arguments.extend(more.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag.into()));
        Ok(())
    }
}

/// The user's settings, plus overrides that prevent bypassing decisions made here.
fn cli_settings(spec: &CliSpec, context: &LaunchContext<'_>) -> Option<Value> {
    let mut whole = spec.settings.cli_settings.clone().unwrap_or_else(|| json!({}));
    if let Some(sandbox) = &spec.settings.sandbox {
        let mut sandbox = sandbox.clone();
        // Otherwise the CLI would continue without a sandbox and only print a warning.
        sandbox.fail_if_unavailable.get_or_insert(true);
        whole["sandbox"] = json!(sandbox);
    }
    if context.restricted || spec.asks {
        // A skill's shell lines run without a permission request and without hooks.
        whole["disableSkillShellExecution"] = json!(true);
    }
    if context.restricted {
        // Another hook may change the arguments after our check. Our hook still runs if the CLI can
        // distinguish it.
        if spec.version >= Version::WITH_SAFE_HOOKS {
            whole["disableAllHooks"] = json!(true);
        }
        // In this mode no hook runs at all, and settings files can enable it.
        match whole.get_mut("env").and_then(Value::as_object_mut) {
            Some(env) => _ = env.insert(NO_HOOKS_VARIABLE.into(), json!("0")),
            None => whole["env"] = json!({ NO_HOOKS_VARIABLE: "0" }),
        }
    }
    whole.as_object().is_some_and(|all| !all.is_empty()).then_some(whole)
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
    use crate::callbacks::hook::{HookEvent, HookShape};
    use crate::offer::Described;
    use crate::{Effort, PermissionMode, Sandbox, SandboxNetwork, ThinkingDisplay, Transport};

    const FRAME: [&str; 3] = ["--output-format=stream-json", "--input-format=stream-json", "--verbose"];

    /// The content of a launch, with `SCRATCH` for the scratch directory's path.
    struct Launched {
        arguments: Vec<String>,
        initialize: Value,
        env: Vec<(&'static str, String)>,
        directory: Option<PathBuf>,
        files: Vec<(String, String)>,
    }

    fn launch_of(
        version: &str,
        settings: &Settings,
        change: impl FnOnce(&mut CliSpec, &mut LaunchContext<'_>),
    ) -> Result<Launched, String> {
        let base = tempfile::tempdir().unwrap();
        let scratch = ScratchDir::new(base.path()).unwrap();
        let mut spec = CliSpec {
            cli: PathBuf::new(),
            version: version.parse().unwrap(),
            settings: settings.clone(),
            strict: true,
            partial: false,
            stays_open: true,
            asks: false,
            hooks: Vec::new(),
            output_schema: None,
            tools: None,
            unconfirmed_tools: Vec::new(),
        };
        let mut context = LaunchContext {
            scratch: &scratch,
            entry: None,
            allow_own: true,
            restricted: false,
            history: None,
        };
        change(&mut spec, &mut context);
        let launch = Launch::new(&spec, &context).map_err(|error| error.to_string())?;
        let inside = scratch.file("x", "").unwrap().parent().unwrap().to_owned();
        let prefix = inside.display().to_string();
        let text = |value: &OsString| value.to_str().unwrap().replace(&prefix, "SCRATCH");
        let mut files: Vec<_> = std::fs::read_dir(&inside)
            .unwrap()
            .map(|entry| entry.unwrap())
            .filter(|entry| entry.file_type().unwrap().is_file() && entry.file_name() != "x")
            .map(|entry| {
                (entry.file_name().into_string().unwrap(), std::fs::read_to_string(entry.path()).unwrap())
            })
            .collect();
        files.sort();
        let arguments: Vec<_> = launch.arguments.iter().map(text).collect();
        assert_eq!(arguments[..3], FRAME);
        Ok(Launched {
            arguments: arguments[3..].to_vec(),
            initialize: launch.initialize,
            env: launch.env.iter().map(|(name, value)| (*name, text(value))).collect(),
            directory: launch
                .directory
                .map(|path| path.strip_prefix(scratch.home()).unwrap_or(&path).to_owned()),
            files,
        })
    }

    fn described(tools: &[ToolSpec]) -> Described {
        let list = ToolList::of(tools.iter());
        Described { server: "tools".into(), transport: Transport::Stdio, list, may_change: false }
    }

    /// A JSON file written by a launch.
    fn file(name: &str, content: &Value) -> (String, String) {
        (name.into(), content.to_string())
    }

    fn variables(want: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
        want.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
    }

    fn launch(settings: &Settings) -> Launched {
        launch_of("2.1.325", settings, |_, _| ()).unwrap()
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
            launch_of("2.1.325", &Settings::default().claude_code(true), |spec, _| spec.strict = false)
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
            launch_of("2.1.325", &set(), |spec, _| (spec.asks, spec.partial) = (true, true)).unwrap();
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
        let launched = launch_of("2.1.325", &Settings::default(), |spec, context| {
            (context.restricted, spec.hooks) = (true, hooks.into());
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
            launch_of(version, &settings, |spec, context| {
                (spec.tools, context.entry) = (Some(described(&own)), Some(json!({})));
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
        assert_eq!(refused, "Claude Code 2.0.76 does not support `agents`; update it to 2.0.77");
        let named = settings.builtin_tools(["Agent"]);
        assert_eq!(launch_of("2.1.325", &named, |_, _| ()).unwrap().arguments[0], "--tools=Agent");
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
        let refused = launch_of("2.1.50", &Settings::default().skills(["pdf"]), |_, _| ()).err().unwrap();
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
        let refused = launch_of("2.1.50", &settings, |_, _| ()).err().unwrap();
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
        let launch = |settings: &Settings| {
            launch_of("2.1.325", settings, |_, context| context.history = Some("{}\n")).unwrap()
        };
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
            launch_of(version, &settings, |spec, context| {
                (spec.tools, context.entry) = (Some(described(&[])), Some(own.clone()));
                spec.output_schema = output_schema;
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
        let refused = launch_of(
            "2.0.0",
            &Settings::default().claude_code(true).append_system_prompt("secret"),
            |_, _| (),
        );
        assert!(refused.is_err_and(|error| {
            error.contains("accepts `append_system_prompt` only on the command line")
        }));
    }

    #[test]
    fn builtin_tools_of_an_old_cli_are_denied_by_name() {
        let launched = launch_of("2.0.0", &Settings::default().builtin_tools(["Read"]), |_, _| ()).unwrap();
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
        let launched = launch_of("2.1.325", &own, |_, context| context.restricted = true).unwrap();
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
        // This version would disable our hook along with the others, so the setting must be absent.
        let launched =
            launch_of("2.0.0", &Settings::default(), |_, context| context.restricted = true).unwrap();
        let want = json!({ "disableSkillShellExecution": true, "env": { "CLAUDE_CODE_SIMPLE": "0" } });
        assert_eq!(parsed(&launched), want);
        assert_eq!(launched.initialize, json!({ "subtype": "initialize", "hooks": hooks }));
        let others = Settings::default().setting_sources(["user"]);
        let refused = launch_of("2.0.0", &others, |_, context| context.restricted = true);
        assert!(refused.is_err_and(|error| error.contains("remove `setting_sources`")));
        for extra in ["--settings", "--settings={}"] {
            let theirs = Settings::default().extra_args([extra]);
            let refused = launch_of("2.1.325", &theirs, |spec, _| spec.asks = true);
            assert!(refused.is_err_and(|error| error.contains("use `cli_settings` instead")));
            assert!(launch_of("2.1.325", &theirs, |_, _| ()).is_ok());
        }
    }
}
