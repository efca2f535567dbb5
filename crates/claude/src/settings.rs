//! Settings of the CLI.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

use crate::callbacks::restriction::canonical;
use crate::names::{is_plain, is_unknown, misspelt, names, tool_of, unknown};
use crate::record::display_as_serialized;
use crate::sandbox::Sandbox;
use crate::subagent::Subagent;
use crate::{ClaudeCodeError, ClaudeCodeModelBuilder};

/// The variable that makes the CLI run without hooks.
pub(crate) const NO_HOOKS_VARIABLE: &str = "CLAUDE_CODE_SIMPLE";

/// The built-in tools for subagents, which has two names, and for skills.
const AGENT_TOOL: &str = "Task";
const SKILL_TOOL: &str = "Skill";

/// What the CLI calls the settings files that it may read.
const SETTING_SOURCES: [&str; 3] = ["user", "project", "local"];

/// The default time limit of a request.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// A row for each setting: the setter's kind, the name, which is also its key in JSON, and the type. The
/// setters exist on [`Settings`] and on the model's builder.
macro_rules! settings {
    (
        $(#[$attr:meta])*
        pub struct Settings {
            $($(#[doc = $doc:literal])* $kind:ident $name:ident($arg:ident): $type:ty $(as $with:literal)?;)*
        }
    ) => {
        $(#[$attr])*
        pub struct Settings {
            $($(#[serde(with = $with)])? pub(crate) $name: Option<$type>,)*
            pub(crate) env: BTreeMap<String, String>,
            pub(crate) mcp_servers: Map<String, Value>,
            pub(crate) agents: BTreeMap<String, Subagent>,
        }

        impl Settings {
            /// These settings; unset ones are taken from `base`.
            pub(crate) fn or(self, base: &Self) -> Self {
                let mut base = base.clone();
                base.yield_conversation(&self);
                Self {
                    $($name: self.$name.or(base.$name),)*
                    env: base.env.into_iter().chain(self.env).collect(),
                    mcp_servers: base.mcp_servers.into_iter().chain(self.mcp_servers).collect(),
                    agents: base.agents.into_iter().chain(self.agents).collect(),
                }
            }
        }

        settings!(@owner Settings: $($(#[doc = $doc])* $kind $name($arg): $type;)*);
        settings!(@owner ClaudeCodeModelBuilder: $($(#[doc = $doc])* $kind $name($arg): $type;)*);

        /// Each setting: its key, its type, and what it does. From this, bindings for other languages are made.
        #[doc(hidden)]
        pub const SETTINGS: &[(&str, &str, &str)] = &[
            $((stringify!($name), stringify!($type), concat!($($doc),*)),)*
            ("env", "BTreeMap<String, String>", "Variables in the CLI's environment."),
            ("mcp_servers", "Map<String, Value>", "More MCP servers, as in the CLI's `mcpServers`."),
            (
                "agents",
                "BTreeMap<String, Subagent>",
                "Agents that the model may start, by name; it gets the tool to start them. They have only the \
                 tools that they are given.",
            ),
        ];
    };

    (@owner $owner:ty: $($(#[$doc:meta])* $kind:ident $name:ident($arg:ident): $type:ty;)*) => {
        impl $owner {
            $(settings!(@$kind $(#[$doc])* $name($arg): $type);)*

            /// Sets a variable in the CLI's environment.
            pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
                self.own_settings().env.insert(name.into(), value.into());
                self
            }

            /// Adds another MCP server: its name, and its entry as in the CLI's `mcpServers`.
            pub fn mcp_server(mut self, name: impl Into<String>, entry: Value) -> Self {
                self.own_settings().mcp_servers.insert(name.into(), entry);
                self
            }

            /// Adds a subagent that the model may start by name, and offers the tool to start it.
            pub fn agent(mut self, name: impl Into<String>, agent: Subagent) -> Self {
                self.own_settings().agents.insert(name.into(), agent);
                self
            }
        }
    };

    (@value $(#[$doc:meta])* $name:ident($arg:ident): $type:ty) => {
        $(#[$doc])*
        pub fn $name(mut self, $arg: $type) -> Self {
            self.own_settings().$name = Some($arg);
            self
        }
    };
    (@into $(#[$doc:meta])* $name:ident($arg:ident): $type:ty) => {
        $(#[$doc])*
        pub fn $name(mut self, $arg: impl Into<$type>) -> Self {
            self.own_settings().$name = Some($arg.into());
            self
        }
    };
    (@list $(#[$doc:meta])* $name:ident($arg:ident): $type:ty) => {
        $(#[$doc])*
        pub fn $name<T: Into<String>>(mut self, $arg: impl IntoIterator<Item = T>) -> Self {
            self.own_settings().$name = Some($arg.into_iter().map(Into::into).collect());
            self
        }
    };
    (@paths $(#[$doc:meta])* $name:ident($arg:ident): $type:ty) => {
        $(#[$doc])*
        pub fn $name<T: Into<PathBuf>>(mut self, $arg: impl IntoIterator<Item = T>) -> Self {
            self.own_settings().$name = Some($arg.into_iter().map(Into::into).collect());
            self
        }
    };
}

settings! {
    /// Settings of the CLI. Unset ones are taken from the model's settings, and otherwise from the
    /// defaults.
    ///
    /// The same settings exist on [`ClaudeCodeModelBuilder`](crate::ClaudeCodeModelBuilder), for all requests.
    ///
    /// They can be read from a file: the keys are the names of the setters, and the timeout is a number of
    /// seconds. An unknown key is an error.
    ///
    /// ```
    /// use std::time::Duration;
    /// # mod toolbridge { pub use toolbridge_claude::{self as model, ClaudeCodeModel, Request}; }
    /// use toolbridge::Request;
    /// use toolbridge::model::Settings;
    ///
    /// let settings = Settings::default().timeout(Duration::from_secs(600)).max_turns(3);
    /// let request = Request::new("Sum up the week").settings(settings);
    /// # let _ = request;
    ///
    /// let settings: Settings = serde_json::from_str(r#"{"model": "opus", "timeout": 600}"#)?;
    /// assert!(serde_json::from_str::<Settings>(r#"{"modell": "opus"}"#).is_err());
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    #[derive(Debug, Clone, Default, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    #[must_use]
    pub struct Settings {
        /// Enables all of Claude Code: its built-in tools and system prompt, settings files, `CLAUDE.md`,
        /// memories, skills, hooks, the MCP servers of the user and the project, and transcripts on disk.
        /// By default a model has none of these. Prompts stay plain text; see
        /// [`expand_prompts`](Self::expand_prompts).
        value claude_code(whole): bool;

        /// Whether the CLI expands prompts: it then reads files named with `@`, and treats a prompt that
        /// begins with `/` as a command. By default a prompt is plain text. Never enable this for untrusted
        /// prompts.
        value expand_prompts(expand): bool;

        /// Uses the CLI's own system prompt, which is for coding, if no
        /// [`system_prompt`](Self::system_prompt) is set.
        value coding_prompt(coding): bool;

        /// Settings for the CLI: an object as in its settings files.
        value cli_settings(settings): Value;

        /// The model to use, instead of the CLI's default.
        into model(name): String;

        /// The model to use if the first one is overloaded or unavailable; several are separated by commas.
        into fallback_model(name): String;

        /// How much effort the model spends on its answer.
        value effort(effort): Effort;

        /// Whether the model thinks before it answers.
        value thinking(thinking): Thinking;

        /// Tells the model how many tokens it has for the whole request, so that it finishes in time.
        value task_budget(tokens): u64;

        /// Names of the API's beta features. The CLI sends them only with an API key.
        list betas(names): Vec<String>;

        /// The name of your program in requests to the API, such as `shop/1.2`.
        into client_app(name): String;

        /// The CLI's working directory. By default it is an empty one, or that of this process if the CLI
        /// needs one: for built-in tools, settings files, stored conversations, or other servers.
        into working_directory(directory): PathBuf;

        /// More directories that the CLI's tools may access.
        paths add_dirs(directories): Vec<PathBuf>;

        /// The time limit of a request, [`DEFAULT_TIMEOUT`](crate::DEFAULT_TIMEOUT) by default.
        value timeout(limit): Duration as "seconds";
        /// Whether the timeout includes the time in which the CLI waits for functions of this process:
        /// tools, hooks, [`can_use_tool`](crate::ClaudeCodeModelBuilder::can_use_tool). By default it does
        /// not, so tools have no limit here.
        value timeout_counts_tools(on): bool;

        /// Allows tools by the CLI's rules, such as `Read` or `Bash(git log *)`. They run without asking
        /// for permission; other tools stay available.
        list allowed_tools(rules): Vec<String>;

        /// Denies tools by the CLI's rules.
        list disallowed_tools(rules): Vec<String>;

        /// The built-in tools offered to the model, such as `Read`; `default` means the CLI's usual ones.
        /// There are none by default.
        list builtin_tools(names): Vec<String>;

        /// The skills that the model may use; this also offers the tool for skills. They come from
        /// [`setting_sources`](Self::setting_sources), from [`plugins`](Self::plugins), and from the CLI
        /// itself.
        into skills(skills): Skills;

        /// Directories with plugins: skills, agents, hooks, commands and MCP servers, which are all
        /// enabled. With [`strict_mcp_config`](Self::strict_mcp_config) the plugins' servers are ignored.
        paths plugins(directories): Vec<PathBuf>;

        /// Runs the commands of the CLI's tool `Bash` in a sandbox.
        value sandbox(sandbox): Sandbox;

        /// Whether only the MCP servers given here exist, or also those of the user's and the project's
        /// configuration. True by default, unless [`claude_code`](Self::claude_code) is set.
        value strict_mcp_config(strict): bool;

        /// Whether the tools of this process run without asking for permission. They do by default, unless
        /// [`can_use_tool`](crate::ClaudeCodeModelBuilder::can_use_tool) is set.
        value allow_own_tools(allow): bool;

        /// Makes the CLI back up files before its tools change them, so that
        /// [`rewind_files`](crate::Conversation::rewind_files) can restore them. The conversation must be
        /// [kept](Self::keep_session).
        value enable_file_checkpointing(enable): bool;

        /// How the CLI handles tools that no rule allows.
        value permission_mode(mode): PermissionMode;

        /// Limits the number of turns, which are requests to the model.
        value max_turns(turns): u32;

        /// Limits the cost of a request, in US dollars.
        value max_budget_usd(dollars): f64;

        /// The system prompt. There is none by default.
        into system_prompt(text): String;

        /// Text appended to the system prompt.
        into append_system_prompt(text): String;

        /// Moves user-specific content, such as the directory, from the CLI's own system prompt to the
        /// first prompt, so that users can share the API's cache of the system prompt.
        value exclude_dynamic_sections(exclude): bool;

        /// Whether a conversation keeps its original system prompt even when resumed with another one; true
        /// by default in the CLI.
        value system_prompt_snapshot(keep): bool;

        /// Whether the CLI stores the conversation on disk, so that it can be resumed. By default each
        /// request is a new conversation that is not stored. A request that sets this or one of the next
        /// four settings takes none of the five from its model.
        value keep_session(keep): bool;

        /// The id, a UUID, of the new conversation, which is stored; chosen by the CLI if not set. With
        /// [`fork_session`](Self::fork_session) it is the id of the copy.
        into session_id(id): String;

        /// Continues the latest conversation of the working directory.
        value continue_conversation(on): bool;

        /// Continues the conversation with this id, the session id in a [response](crate::Metadata).
        into resume(session_id): String;

        /// Continues in a copy with a new id; the old conversation stays as it is.
        value fork_session(fork): bool;

        /// Continues after the message with this id and drops later ones, in a conversation that is
        /// [resumed](Self::resume).
        into resume_session_at(message): String;

        /// With [`resume_session_at`](Self::resume_session_at): the id of the prompt that is dropped
        /// together with its answer. It is an error if anything else would be dropped.
        into resume_drops_turn(prompt): String;

        /// The settings files that the CLI reads (`user`, `project`, `local`), with the `CLAUDE.md`,
        /// skills, agents and hooks that belong to them. By default it reads none.
        list setting_sources(sources): Vec<String>;

        /// Makes the CLI report when hooks begin and end, in its [messages](crate::Event::Other).
        value include_hook_events(include): bool;

        /// Makes the CLI report text and thinking of subagents too, not only their tool calls, in its
        /// [messages](crate::Event::Subagent).
        value forward_subagent_text(forward): bool;

        /// More command-line arguments for the CLI, after all others.
        list extra_args(args): Vec<String>;
    }
}

/// Durations in seconds.
mod seconds {
    use super::{Deserialize as _, Deserializer, Duration, Serialize as _, Serializer, de};

    #[expect(clippy::ref_option, reason = "serde's signature")]
    pub(super) fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        time.map(|time| time.as_secs_f64()).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        let time = |seconds| {
            Duration::try_from_secs_f64(seconds).map_err(|_| {
                let must = "it must be a number of seconds above 0 and below 2^64";
                de::Error::custom(format!("`timeout` is {seconds}; {must}"))
            })
        };
        Option::deserialize(from)?.map(time).transpose()
    }
}

names! {
    /// How the CLI handles tools that no rule allows.
    pub enum PermissionMode, of "permission mode" {
        /// Asks [`can_use_tool`](crate::ClaudeCodeModelBuilder::can_use_tool) if it is set, otherwise denies.
        Default = "default",
        /// Allows file edits.
        AcceptEdits = "acceptEdits",
        /// Only plans and changes nothing.
        Plan = "plan",
        /// Allows everything.
        BypassPermissions = "bypassPermissions",
        /// Denies without asking.
        DontAsk = "dontAsk",
        /// Lets a model decide.
        Auto = "auto",
    }
}

names! {
    /// How much effort a model spends on its answer.
    pub enum Effort, of "effort" {
        /// The least effort.
        Low = "low",
        /// Medium effort.
        Medium = "medium",
        /// High effort; the default of most models.
        High = "high",
        /// More than high, if the model supports it.
        Xhigh = "xhigh",
        /// The most effort.
        Max = "max",
    }
}

/// Whether a model thinks before it answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Thinking {
    /// The model decides.
    Adaptive {
        /// What is shown of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        display: Option<ThinkingDisplay>,
    },
    /// Up to a number of tokens; for older models.
    Enabled {
        /// The number of tokens, at least 1.
        budget_tokens: u32,
        /// What is shown of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        display: Option<ThinkingDisplay>,
    },
    /// No thinking.
    Disabled,
}

/// What is shown of a model's thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ThinkingDisplay {
    /// A summary.
    Summarized,
    /// Nothing.
    Omitted,
}

display_as_serialized!(ThinkingDisplay);

/// Which skills a model may use. In JSON it is `"all"` or a list of names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Skills {
    /// All skills that the CLI finds.
    All,
    /// The skills with these names; one of a plugin is `plugin:skill`.
    #[serde(untagged)]
    Only(Vec<String>),
}

impl<T: Into<String>, const N: usize> From<[T; N]> for Skills {
    fn from(names: [T; N]) -> Self {
        Self::Only(names.map(Into::into).into())
    }
}

impl From<Vec<String>> for Skills {
    fn from(names: Vec<String>) -> Self {
        Self::Only(names)
    }
}

impl Skills {
    fn has_any(&self) -> bool {
        !matches!(self, Self::Only(names) if names.is_empty())
    }

    /// The rules that allow the skills.
    pub(crate) fn rules(&self) -> Vec<String> {
        match self {
            Self::All => vec!["Skill".into()],
            Self::Only(names) => names.iter().map(|name| format!("Skill({name})")).collect(),
        }
    }

    /// A name that would be parsed as another rule.
    fn fault(&self) -> Option<String> {
        let Self::Only(names) = self else { return None };
        let is_wrong = |name: &&String| {
            name.is_empty()
                || name.trim() != *name
                || name.starts_with('/')
                || name.ends_with('*')
                || name.contains(|c: char| matches!(c, '(' | ')' | ',' | '\\' | '\u{feff}') || c.is_control())
        };
        let name = names.iter().find(is_wrong)?;
        Some(format!("`{name}` is not a valid skill name; use the name of its directory, or `plugin:skill`"))
    }
}

impl Settings {
    fn own_settings(&mut self) -> &mut Self {
        self
    }

    /// Checks the settings before anything is started.
    pub(crate) fn check(&self) -> Result<(), ClaudeCodeError> {
        let budget = self.max_budget_usd.filter(|budget| !(budget.is_finite() && *budget > 0.0));
        let is_no_source = |source: &&String| !SETTING_SOURCES.contains(&source.as_str());
        let source = self.setting_sources.iter().flatten().find(is_no_source);
        let variable = self
            .env
            .iter()
            .find(|(name, value)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0'));
        let server = self.mcp_servers.iter().find(|(_, entry)| !entry.is_object());
        let agent = self.agents.iter().find_map(|(name, agent)| {
            let fault = if name.trim().is_empty() { Some("its name is empty") } else { agent.fault() };
            fault.map(|fault| format!("agent `{name}`: {fault}"))
        });
        // Only characters that are valid in the API's headers.
        let is_unsendable = |name: &&String| name.chars().any(|c| c.is_control() || c > '\u{ff}');
        let client_app = self.client_app.as_ref().filter(is_unsendable);
        let beta = self.betas.iter().flatten().find(|name| name.is_empty() || name.contains([',', ' ']));
        let has_no_thinking_tokens =
            matches!(self.thinking, Some(Thinking::Enabled { budget_tokens: 0, .. }));
        let is_no_object = self.cli_settings.as_ref().is_some_and(|settings| !settings.is_object());
        let wrong = [
            (self.max_turns == Some(0)).then(|| "`max_turns` is 0; it must be at least 1".into()),
            budget.map(|budget| format!("`max_budget_usd` is {budget}; it must be a number above 0")),
            (self.timeout == Some(Duration::ZERO)).then(|| "`timeout` is 0; it must be above 0".into()),
            self.conversation_fault(),
            agent,
            (self.resume_session_at.is_some() && self.resume.is_none())
                .then(|| "`resume_session_at` needs a conversation that is resumed".into()),
            (self.resume_drops_turn.is_some() && self.resume_session_at.is_none())
                .then(|| "`resume_drops_turn` needs `resume_session_at`".into()),
            (self.enable_file_checkpointing == Some(true) && !self.keeps_session())
                .then(|| "`enable_file_checkpointing` needs a conversation that is stored".into()),
            self.skills.as_ref().and_then(Skills::fault),
            self.tools_named().find_map(misspelt),
            has_no_thinking_tokens
                .then(|| "`thinking` has 0 tokens; disable it, or give it at least 1".into()),
            client_app.map(|name| format!("`client_app` is `{name}`, which cannot be in an HTTP header")),
            beta.map(|name| format!("`{name}` is not a valid beta name")),
            is_no_object.then(|| "`cli_settings` is not a JSON object".into()),
            source.map(|source| unknown("setting source", source, &SETTING_SOURCES).to_string()),
            variable
                .map(|(name, _)| format!("the environment variable `{name}` has an invalid name or value")),
            server.map(|(name, _)| format!("the entry of MCP server `{name}` is not a JSON object")),
        ];
        wrong.into_iter().flatten().next().map_or(Ok(()), |reason| Err(ClaudeCodeError::invalid(reason)))
    }

    /// Forgets the conversation that requests belong to, if `other` says which one it is.
    fn yield_conversation(&mut self, other: &Self) {
        let flags = [other.keep_session, other.continue_conversation, other.fork_session];
        let ids = [&other.session_id, &other.resume];
        if flags.iter().any(Option::is_some) || ids.into_iter().any(Option::is_some) {
            (self.keep_session, self.continue_conversation, self.fork_session) = (None, None, None);
            (self.session_id, self.resume) = (None, None);
        }
    }

    fn conversation_fault(&self) -> Option<String> {
        let continues = self.continue_conversation == Some(true);
        let forks = self.fork_session == Some(true);
        let is_no_uuid = |id: &&String| uuid::Uuid::try_parse(id).is_err();
        let fault = match &self.resume {
            Some(id) if id.is_empty() => "the session id to resume is empty",
            Some(_) if continues => {
                "`continue_conversation` and `resume` exclude each other: the last conversation, or that one"
            }
            None if forks && !continues => {
                "`fork_session` needs a conversation to copy: `continue_conversation` or `resume`"
            }
            _ if self.resumes() && self.session_id.is_some() && !forks => {
                "`session_id` names a new conversation; `continue_conversation` and `resume` go on with an old one, \
                 unless `fork_session` makes a copy"
            }
            _ => {
                let id = self.session_id.as_ref().filter(is_no_uuid)?;
                return Some(format!("the session id `{id}` is not a UUID"));
            }
        };
        Some(fault.into())
    }

    /// The tools in the lists of tools and of rules.
    fn tools_named(&self) -> impl Iterator<Item = &str> {
        let rules = self.allowed_tools.iter().chain(&self.disallowed_tools).flatten();
        self.builtin_tools.iter().flatten().map(String::as_str).chain(rules.map(|rule| tool_of(rule)))
    }

    /// The built-in tools that only the CLI may know.
    pub(crate) fn unknown_builtins(&self) -> impl Iterator<Item = &str> {
        self.builtin_tools.iter().flatten().map(String::as_str).filter(|name| is_unknown(name))
    }

    /// The first tool of a subagent whose name is almost that of a built-in tool, and what is wrong with it. `own`
    /// says whether this process has a tool of that name.
    pub(crate) fn misspelt_for_agent(&self, own: impl Fn(&str) -> bool) -> Option<String> {
        self.agents.iter().find_map(|(name, agent)| {
            let tools = agent.tools.iter().chain(&agent.disallowed_tools).flatten();
            let fault = tools.filter(|tool| !own(tool)).find_map(|tool| misspelt(tool_of(tool)))?;
            Some(format!("agent `{name}`: {fault}"))
        })
    }

    /// The rules that allow a tool that nothing offers. `own` says whether a server of this process has a tool, or, for
    /// `*`, whether it exists.
    pub(crate) fn allowed_in_vain(&self, strict: bool, own: impl Fn(&str, &str) -> bool) -> Vec<&str> {
        let builtins = self.offered_builtins();
        let is_offered = |rule: &&str| {
            let tool = tool_of(rule);
            if let Some(tool) = tool.strip_prefix("mcp__") {
                let (server, tool) = tool.split_once("__").unwrap_or((tool, "*"));
                let is_unknown = !strict || self.plugins.is_some() || server.contains('*');
                return is_unknown || self.mcp_servers.contains_key(server) || own(server, tool);
            }
            let is_builtin = |names: &Vec<&str>| names.iter().any(|name| canonical(name) == canonical(tool));
            !is_plain(tool) || builtins.as_ref().is_none_or(is_builtin)
        };
        self.allowed_tools.iter().flatten().map(String::as_str).filter(|rule| !is_offered(rule)).collect()
    }

    /// Whether the defaults are those of Claude Code.
    pub(crate) fn is_claude_code(&self) -> bool {
        self.claude_code == Some(true)
    }

    /// The built-in tools; `None` means the CLI's usual ones.
    pub(crate) fn offered_builtins(&self) -> Option<Vec<&str>> {
        let mut names: Vec<_> = match &self.builtin_tools {
            Some(names) if names.iter().any(|name| name == "default") => return None,
            Some(names) => names.iter().map(String::as_str).collect(),
            None if self.is_claude_code() => return None,
            None => Vec::new(),
        };
        let starts_agents = names.iter().any(|name| canonical(name) == canonical(AGENT_TOOL));
        names.extend((!self.agents.is_empty() && !starts_agents).then_some(AGENT_TOOL));
        let uses_skills = !names.contains(&SKILL_TOOL) && self.skills.as_ref().is_some_and(Skills::has_any);
        names.extend(uses_skills.then_some(SKILL_TOOL));
        Some(names)
    }

    /// Whether the model is offered that built-in tool.
    pub(crate) fn offers_builtin(&self, tool: &str) -> bool {
        self.offered_builtins().is_none_or(|names| names.contains(&tool))
    }

    /// The settings files; `None` means the CLI's usual ones.
    pub(crate) fn read_sources(&self) -> Option<&[String]> {
        self.setting_sources.as_deref().or((!self.is_claude_code()).then_some(&[]))
    }

    /// Whether the CLI stores the conversation on disk.
    pub(crate) fn keeps_session(&self) -> bool {
        self.is_claude_code()
            || self.keep_session == Some(true)
            || self.session_id.is_some()
            || self.resumes()
    }

    /// Whether only the tools of this process are offered.
    pub(crate) fn brings_no_tools(&self, strict: bool) -> bool {
        strict
            && self.offered_builtins().is_some_and(|names| names.is_empty())
            && self.read_sources().is_some_and(<[String]>::is_empty)
            && self.plugins.is_none()
            && self.mcp_servers.is_empty()
    }

    /// Whether the CLI needs no working directory.
    pub(crate) fn needs_no_directory(&self, strict: bool) -> bool {
        self.brings_no_tools(strict) && !self.keeps_session()
    }

    /// Whether it continues a stored conversation.
    pub(crate) fn resumes(&self) -> bool {
        self.continue_conversation == Some(true) || self.resume.is_some()
    }

    /// Whether the model receives the answers of its subagents before it answers.
    pub(crate) fn waits_for_agents(&self) -> bool {
        !self.agents.is_empty() && self.agents.values().all(|agent| agent.background != Some(true))
    }

    /// Whether the extra arguments contain this flag.
    pub(crate) fn has_argument(&self, flag: &str) -> bool {
        let has = |arg: &String| {
            arg.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        };
        self.extra_args.iter().flatten().any(has)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_requests_settings_override_and_maps_are_merged() {
        let base = Settings::default().model("a").max_turns(3).env("X", "1").env("Y", "1");
        let own = Settings::default().model("b").env("Y", "2").mcp_server("s", json!({}));
        let both = own.or(&base);
        assert_eq!(both.model.as_deref(), Some("b"));
        assert_eq!(both.max_turns, Some(3));
        assert_eq!(both.env["X"], "1");
        assert_eq!(both.env["Y"], "2");
        assert!(both.mcp_servers.contains_key("s"));
    }

    #[test]
    fn a_requests_conversation_replaces_that_of_its_model() {
        let base = Settings::default().resume("a").fork_session(true).model("m");
        let own = Settings::default().keep_session(true).or(&base);
        assert_eq!((own.resume, own.fork_session, own.model.as_deref()), (None, None, Some("m")));
        let inherited = Settings::default().max_turns(1).or(&base);
        assert_eq!((inherited.resume.as_deref(), inherited.fork_session), (Some("a"), Some(true)));
    }

    #[test]
    fn invalid_settings_are_reported() {
        let rows = [
            (Settings::default().max_turns(0), "`max_turns` is 0; it must be at least 1"),
            (Settings::default().max_budget_usd(-1.0), "`max_budget_usd` is -1; it must be a number above 0"),
            (
                Settings::default().max_budget_usd(f64::NAN),
                "`max_budget_usd` is NaN; it must be a number above 0",
            ),
            (Settings::default().timeout(Duration::ZERO), "`timeout` is 0; it must be above 0"),
            (
                Settings::default().env("A=B", ""),
                "the environment variable `A=B` has an invalid name or value",
            ),
            (
                Settings::default().mcp_server("s", json!(1)),
                "the entry of MCP server `s` is not a JSON object",
            ),
            (
                Settings::default().agent("a", Subagent::default()),
                "agent `a`: `description` is missing; it tells the model when to use it",
            ),
            (
                Settings::default().agent("a", Subagent::new("x", " ")),
                "agent `a`: `prompt` is missing; it is its system prompt",
            ),
            (
                Settings::default().skills(["pdf", "a),Bash"]),
                "`a),Bash` is not a valid skill name; use the name of its directory, or `plugin:skill`",
            ),
            (
                Settings::default().thinking(Thinking::Enabled { budget_tokens: 0, display: None }),
                "`thinking` has 0 tokens; disable it, or give it at least 1",
            ),
            (
                Settings::default().client_app("a\nb"),
                "`client_app` is `a\nb`, which cannot be in an HTTP header",
            ),
            (
                Settings::default().enable_file_checkpointing(true),
                "`enable_file_checkpointing` needs a conversation that is stored",
            ),
            (Settings::default().betas(["a,b"]), "`a,b` is not a valid beta name"),
        ];
        for (settings, want) in rows {
            assert_eq!(settings.check().unwrap_err().to_string(), want);
        }
        assert!(Settings::default().check().is_ok());
    }

    #[test]
    fn a_conversation_begins_in_one_way() {
        let rows = [
            (Settings::default().resume(""), "the session id to resume is empty"),
            (
                Settings::default().resume("s").continue_conversation(true),
                "`continue_conversation` and `resume` exclude each other: the last conversation, or that one",
            ),
            (
                Settings::default().resume("s").session_id("0b0e8b1e-6c1d-4d8e-9f0a-2b8c1d3e4f50"),
                "`session_id` names a new conversation; `continue_conversation` and `resume` go on with an old one, \
                 unless `fork_session` makes a copy",
            ),
            (
                Settings::default().resume_session_at("m"),
                "`resume_session_at` needs a conversation that is resumed",
            ),
            (Settings::default().resume_drops_turn("m"), "`resume_drops_turn` needs `resume_session_at`"),
            (
                Settings::default().fork_session(true),
                "`fork_session` needs a conversation to copy: `continue_conversation` or `resume`",
            ),
            (Settings::default().session_id("x"), "the session id `x` is not a UUID"),
        ];
        for (settings, want) in rows {
            assert_eq!(settings.check().unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn misspelt_names_are_reported() {
        let rows = [
            (
                Settings::default().builtin_tools(["Bash", "Raed"]),
                "there is no built-in tool `Raed`; did you mean `Read`?",
            ),
            (
                Settings::default().allowed_tools(["mcp__a__b", "Bahs(git *)"]),
                "there is no built-in tool `Bahs`; did you mean `Bash`?",
            ),
            (
                Settings::default().disallowed_tools(["bash"]),
                "there is no built-in tool `bash`; did you mean `Bash`?",
            ),
            (
                Settings::default().setting_sources(["project", "usr"]),
                "there is no setting source `usr`; did you mean `user`?",
            ),
            (
                Settings::default().setting_sources(["--x"]),
                "there is no setting source `--x`; there are: user, project, local",
            ),
        ];
        for (settings, want) in rows {
            assert_eq!(settings.check().unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn rules_for_tools_that_nothing_offers_are_found() {
        let rules = [
            "Read",
            "Bash(ls *)",
            "mcp__tools",
            "mcp__tools__add",
            "mcp__tools__sub",
            "mcp__x__a",
            "mcp__o__a",
        ];
        let settings =
            Settings::default().builtin_tools(["Bash"]).allowed_tools(rules).mcp_server("o", json!({}));
        let own = |server: &str, tool: &str| server == "tools" && ["add", "*"].contains(&tool);
        assert_eq!(settings.allowed_in_vain(true, own), ["Read", "mcp__tools__sub", "mcp__x__a"]);
        assert_eq!(settings.allowed_in_vain(false, own), ["Read"]);
        let all = Settings::default().claude_code(true).allowed_tools(rules);
        assert_eq!(all.allowed_in_vain(false, own), [""; 0]);
    }

    #[test]
    fn settings_can_be_serialized() {
        let own = Settings::default()
            .timeout(Duration::from_millis(1500))
            .permission_mode(PermissionMode::AcceptEdits)
            .resume("s")
            .fork_session(true)
            .env("X", "1");
        let written = serde_json::to_value(&own).unwrap();
        assert_eq!(written["timeout"], 1.5);
        assert_eq!(written["permission_mode"], "acceptEdits");
        assert_eq!(written["resume"], "s");
        let read: Settings = serde_json::from_value(written).unwrap();
        assert_eq!(format!("{read:?}"), format!("{own:?}"));

        let options = json!({
            "effort": "max",
            "thinking": { "type": "enabled", "budget_tokens": 2048, "display": "summarized" },
            "skills": "all",
            "agents": { "a": { "description": "d", "prompt": "p", "tools": null, "maxTurns": 2 } },
            "sandbox": { "enabled": true, "network": { "allowLocalBinding": true } },
        });
        let own = Settings::default()
            .effort(Effort::Max)
            .thinking(Thinking::Enabled { budget_tokens: 2048, display: Some(ThinkingDisplay::Summarized) })
            .skills(Skills::All)
            .agent("a", Subagent::new("d", "p").max_turns(2))
            .sandbox(
                Sandbox::default()
                    .enabled(true)
                    .network(crate::SandboxNetwork::default().allow_local_binding(true)),
            );
        let read: Settings = serde_json::from_value(options).unwrap();
        assert_eq!(format!("{read:?}"), format!("{own:?}"));
        let only: Settings = serde_json::from_value(json!({ "skills": ["pdf"] })).unwrap();
        assert_eq!(only.skills, Some(Skills::from(["pdf"])));

        let error = |text: Value| serde_json::from_value::<Settings>(text).unwrap_err().to_string();
        assert_eq!(
            error(json!({ "permission_mode": "acceptEdit" })),
            "there is no permission mode `acceptEdit`; did you mean `acceptEdits`?"
        );
        assert!(error(json!({ "max_turn": 1 })).starts_with("unknown field `max_turn`, expected one of "));
        let must = "it must be a number of seconds above 0 and below 2^64";
        assert_eq!(error(json!({ "timeout": -1 })), format!("`timeout` is -1; {must}"));
    }
}
