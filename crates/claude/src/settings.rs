//! How the CLI is to run.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Map, Value};

use crate::restriction::canonical;
use crate::sandbox::Sandbox;
use crate::subagent::Subagent;
use crate::{ClaudeCodeError, ClaudeCodeModelBuilder};

/// The variable with which the CLI runs without hooks.
pub(crate) const HOOKLESS: &str = "CLAUDE_CODE_SIMPLE";

/// The CLI's tools for agents, which has two names, and for skills.
const STARTS_AGENTS: &str = "Task";
const USES_SKILLS: &str = "Skill";

/// How long a request may take when nothing is said about it.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// A row for each setting: how its setters take it, its name, which is its key in JSON too, and its type. Setters are on
/// [`Settings`] and on the builder of a model.
macro_rules! settings {
    (
        $(#[$attr:meta])*
        pub struct Settings {
            $($(#[$doc:meta])* $kind:ident $name:ident($arg:ident): $type:ty $(as $with:literal)?;)*
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
            /// These settings, and where they say nothing those of `base`.
            pub(crate) fn or(self, base: &Self) -> Self {
                let base = base.clone();
                Self {
                    $($name: self.$name.or(base.$name),)*
                    env: base.env.into_iter().chain(self.env).collect(),
                    mcp_servers: base.mcp_servers.into_iter().chain(self.mcp_servers).collect(),
                    agents: base.agents.into_iter().chain(self.agents).collect(),
                }
            }
        }

        settings!(@owner Settings: $($(#[$doc])* $kind $name($arg): $type;)*);
        settings!(@owner ClaudeCodeModelBuilder: $($(#[$doc])* $kind $name($arg): $type;)*);
    };

    (@owner $owner:ty: $($(#[$doc:meta])* $kind:ident $name:ident($arg:ident): $type:ty;)*) => {
        impl $owner {
            $(settings!(@$kind $(#[$doc])* $name($arg): $type);)*

            /// Sets a variable in the CLI's environment.
            pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
                self.own_settings().env.insert(name.into(), value.into());
                self
            }

            /// Offers another MCP server to the CLI: its name, and its entry as in the CLI's `mcpServers`.
            pub fn mcp_server(mut self, name: impl Into<String>, entry: Value) -> Self {
                self.own_settings().mcp_servers.insert(name.into(), entry);
                self
            }

            /// Gives the model an agent that it may start, by its name, and the tool to start it with.
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
    /// How the CLI is to run. What is not set is left to the model's settings, and there to the defaults.
    ///
    /// The same settings exist on [`ClaudeCodeModelBuilder`](crate::ClaudeCodeModelBuilder), for all requests.
    ///
    /// They can be read from a file: each has its name here as its key, and the time-out is a number of seconds. A key that is
    /// none of them is an error.
    ///
    /// ```
    /// use std::time::Duration;
    /// # use toolbridge_claude as toolbridge;
    /// use toolbridge::{Request, Settings};
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
        /// Brings the whole of Claude Code: its own tools and system prompt, settings files, `CLAUDE.md`, memories,
        /// skills, hooks, the MCP servers of the user and the project, and transcripts on disk. By default a
        /// model has none of these. Prompts stay plain text; see [`expand_prompts`](Self::expand_prompts).
        value claude_code(whole): bool;

        /// Whether the CLI looks into prompts: it then reads the files that they name with `@`, and takes one that
        /// begins with `/` for a command of its own. By default a prompt is text. Never do this with the
        /// words of somebody else.
        value expand_prompts(expand): bool;

        /// Gives the model the CLI's own system prompt, which is for coding, where there is no
        /// [`system_prompt`](Self::system_prompt).
        value coding_prompt(coding): bool;

        /// Gives the CLI settings, an object such as its settings files hold.
        value cli_settings(settings): Value;

        /// Names the model to ask, instead of the CLI's own choice.
        into model(name): String;

        /// Names the model to ask where the first is overloaded or not there; several with commas between them.
        into fallback_model(name): String;

        /// How much the model is to think about its answer.
        value effort(effort): Effort;

        /// Whether the model thinks before it answers.
        value thinking(thinking): Thinking;

        /// Tells the model how many tokens it has for the whole of a request, so that it comes to an end in time.
        value task_budget(tokens): u64;

        /// Names features of the API that are being tried out. The CLI sends them with an API key alone.
        list betas(names): Vec<String>;

        /// How your program calls itself towards the API, such as `shop/1.2`.
        into client_app(name): String;

        /// Lets the CLI work in that directory. By default it works in an empty one, or in this process's where
        /// something of the CLI's needs one: built-in tools, settings files, kept conversations, other servers.
        into working_directory(directory): PathBuf;

        /// Names further directories that the CLI's tools may reach.
        paths add_dirs(directories): Vec<PathBuf>;

        /// Limits a request's time, [`DEFAULT_TIMEOUT`](crate::DEFAULT_TIMEOUT) by default.
        value timeout(limit): Duration as "seconds";
        /// Whether the time-out also counts the time in which the CLI waits for functions of this process: tools, hooks,
        /// [`can_use_tool`](crate::ClaudeCodeModelBuilder::can_use_tool). By default it does not, and a tool may take as long as it takes.
        value timeout_counts_tools(on): bool;

        /// Allows tools by the CLI's rules, such as `Read` or `Bash(git log *)`. They run without
        /// anybody being asked; other tools are not taken away by this.
        list allowed_tools(rules): Vec<String>;

        /// Forbids tools by the CLI's rules.
        list disallowed_tools(rules): Vec<String>;

        /// Names the built-in tools that the CLI offers to the model, such as `Read`; `default` is all that it
        /// usually has. There are none by default.
        list builtin_tools(names): Vec<String>;

        /// Names the skills that the model may use, and gives it the tool to use them with. They are those of
        /// [`setting_sources`](Self::setting_sources) and [`plugins`](Self::plugins), and the CLI's own.
        into skills(skills): Skills;

        /// Names directories with plugins: skills, agents, hooks, commands and MCP servers, all of which the CLI gets. With only the
        /// [servers given here](crate::ClaudeCodeModelBuilder::strict_mcp_config), theirs are left out.
        paths plugins(directories): Vec<PathBuf>;

        /// Runs the commands of the CLI's tool `Bash` in a sandbox.
        value sandbox(sandbox): Sandbox;

        /// Has the CLI keep copies of files before its tools change them, so that
        /// [`Chat::rewind_files`](crate::Chat::rewind_files) can bring them back. The conversation must be [kept](Conversation::Keep).
        value enable_file_checkpointing(enable): bool;

        /// Says what the CLI does about tools that no rule allows.
        value permission_mode(mode): PermissionMode;

        /// Limits how often the model is asked in a request.
        value max_turns(turns): u32;

        /// Limits what a request may cost, in US dollars.
        value max_budget_usd(dollars): f64;

        /// Gives the model this system prompt. By default it has none.
        into system_prompt(text): String;

        /// Adds this to the system prompt.
        into append_system_prompt(text): String;

        /// Puts what is of one user alone, such as the directory, into the first prompt instead of the CLI's own system prompt, so
        /// that the API's cache of it serves several users.
        value exclude_dynamic_sections(exclude): bool;

        /// Whether a conversation keeps the system prompt that it began with, also when it is resumed with another; the CLI's default is
        /// that it does.
        value system_prompt_snapshot(keep): bool;

        /// Says which conversation requests belong to; each is a new one by default.
        value conversation(conversation): Conversation;

        /// Goes on after that message, and leaves out what came later: its id, in a conversation that is
        /// [resumed](Conversation::Resume).
        into resume_session_at(message): String;

        /// With [`resume_session_at`](Self::resume_session_at): the id of the prompt that is to be left out with all that came of it. If anything
        /// else would be left out, that is an error.
        into resume_drops_turn(prompt): String;

        /// The id, a UUID, of the copy with which a conversation goes on.
        into fork_session_id(id): String;

        /// Names the settings files that the CLI reads (`user`, `project`, `local`), with the `CLAUDE.md`, skills,
        /// agents and hooks that belong to them. By default it reads none.
        list setting_sources(sources): Vec<String>;

        /// Has the CLI say when hooks begin and end, as [`Event::Other`](crate::Event::Other).
        value include_hook_events(include): bool;

        /// Passes on what agents say and think, as [`Event::Subagent`](crate::Event::Subagent), and not only which tools they call.
        value forward_subagent_text(forward): bool;

        /// Gives the CLI further arguments, after all others.
        list extra_args(args): Vec<String>;
    }
}

/// A time in seconds.
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

/// Which conversation a request belongs to. All but [`New`](Self::New) are kept by the CLI on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Conversation {
    /// A new one, of which nothing is kept.
    #[default]
    New,
    /// A new one that the CLI keeps on disk, so that it can be resumed.
    Keep {
        /// Its id, a UUID; the CLI chooses one if there is none.
        session_id: Option<String>,
    },
    /// The last one in the working directory.
    Continue {
        /// Whether it goes on as a copy, with a session id of its own.
        fork: bool,
    },
    /// The one with that session id.
    Resume {
        /// The id, as [`Metadata`](crate::Metadata) has it.
        session_id: String,
        /// Whether it goes on as a copy, with a session id of its own.
        fork: bool,
    },
}

/// What the CLI does about tools that no rule allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum PermissionMode {
    /// Asks: [`can_use_tool`](crate::ClaudeCodeModelBuilder::can_use_tool) if there is one, else denies.
    Default,
    /// Allows edits of files.
    AcceptEdits,
    /// Plans, and changes nothing.
    Plan,
    /// Allows everything.
    BypassPermissions,
    /// Denies without asking.
    DontAsk,
    /// Has a model decide.
    Auto,
    /// Another one that the CLI knows.
    #[serde(untagged)]
    Other(String),
}

impl fmt::Display for PermissionMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// How much a model is to think about its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Effort {
    /// As little as it can.
    Low,
    /// Some.
    Medium,
    /// Much; the default of most models.
    High,
    /// More, where the model can.
    Xhigh,
    /// As much as it can.
    Max,
    /// Another one that the CLI knows.
    #[serde(untagged)]
    Other(String),
}

impl fmt::Display for Effort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Whether a model thinks before it answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Thinking {
    /// As it sees fit.
    Adaptive {
        /// What is seen of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        display: Option<ThinkingDisplay>,
    },
    /// Up to so many tokens; for older models.
    Enabled {
        /// How many, at least 1.
        budget_tokens: u32,
        /// What is seen of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        display: Option<ThinkingDisplay>,
    },
    /// Not.
    Disabled,
}

/// What is seen of a model's thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ThinkingDisplay {
    /// A summary.
    Summarized,
    /// Nothing.
    Omitted,
}

impl fmt::Display for ThinkingDisplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Which skills a model may use. In JSON it is `"all"` or a list of names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Skills {
    /// All that the CLI finds.
    All,
    /// Those with these names; one of a plugin is `plugin:skill`.
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

    /// The rules that allow them.
    pub(crate) fn rules(&self) -> Vec<String> {
        match self {
            Self::All => vec!["Skill".into()],
            Self::Only(names) => names.iter().map(|name| format!("Skill({name})")).collect(),
        }
    }

    /// A name that would be another rule.
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
        Some(format!("`{name}` is not the name of a skill; it is that of its directory, or `plugin:skill`"))
    }
}

impl Settings {
    fn own_settings(&mut self) -> &mut Self {
        self
    }

    /// What makes no sense, before anything is started.
    pub(crate) fn check(&self) -> Result<(), ClaudeCodeError> {
        let budget = self.max_budget_usd.filter(|budget| !(budget.is_finite() && *budget > 0.0));
        let source = self.setting_sources.iter().flatten().find(|source| source.starts_with('-'));
        let variable = self
            .env
            .iter()
            .find(|(name, value)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0'));
        let server = self.mcp_servers.iter().find(|(_, entry)| !entry.is_object());
        let session = match &self.conversation {
            Some(Conversation::Resume { session_id, .. }) if session_id.is_empty() => {
                Some("the session id to resume is empty".into())
            }
            Some(Conversation::Keep { session_id: Some(id) }) if uuid::Uuid::try_parse(id).is_err() => {
                Some(format!("the session id `{id}` is not a UUID"))
            }
            _ => None,
        };
        let agent = self.agents.iter().find_map(|(name, agent)| {
            let fault = if name.trim().is_empty() { Some("its name is empty") } else { agent.fault() };
            fault.map(|fault| format!("agent `{name}`: {fault}"))
        });
        let is_resumed = matches!(self.conversation, Some(Conversation::Resume { .. }));
        let is_forked = matches!(
            self.conversation,
            Some(Conversation::Resume { fork: true, .. } | Conversation::Continue { fork: true })
        );
        let fork_id = self.fork_session_id.as_ref().and_then(|id| match uuid::Uuid::try_parse(id) {
            Ok(_) if is_forked => None,
            Ok(_) => Some("`fork_session_id` names a copy; the conversation must be forked".into()),
            Err(_) => Some(format!("the session id `{id}` is not a UUID")),
        });
        // What the API's headers take.
        let is_unsendable = |name: &&String| name.chars().any(|c| c.is_control() || c > '\u{ff}');
        let client_app = self.client_app.as_ref().filter(is_unsendable);
        let beta = self.betas.iter().flatten().find(|name| name.is_empty() || name.contains([',', ' ']));
        let is_thoughtless = matches!(self.thinking, Some(Thinking::Enabled { budget_tokens: 0, .. }));
        let is_other = self.cli_settings.as_ref().is_some_and(|settings| !settings.is_object());
        let wrong = [
            (self.max_turns == Some(0)).then(|| "`max_turns` is 0; it must be at least 1".into()),
            budget.map(|budget| format!("`max_budget_usd` is {budget}; it must be a number above 0")),
            (self.timeout == Some(Duration::ZERO)).then(|| "`timeout` is 0; it must be above 0".into()),
            session,
            agent,
            fork_id,
            (self.resume_session_at.is_some() && !is_resumed).then(|| {
                "`resume_session_at` is a message of a conversation that is resumed; name that, too".into()
            }),
            (self.resume_drops_turn.is_some() && self.resume_session_at.is_none())
                .then(|| "`resume_drops_turn` needs `resume_session_at`, which says where to go on".into()),
            (self.enable_file_checkpointing == Some(true) && !self.keeps_session()).then(|| {
                "`enable_file_checkpointing` needs a conversation that is kept; the CLI has copies for no other".into()
            }),
            self.skills.as_ref().and_then(Skills::fault),
            is_thoughtless.then(|| "`thinking` has 0 tokens; disable it, or give it at least 1".into()),
            client_app.map(|name| format!("`client_app` is `{name}`, which cannot be in an HTTP header")),
            beta.map(|name| format!("`{name}` is not the name of a beta")),
            is_other.then(|| "`cli_settings` is not a JSON object".into()),
            source.map(|source| {
                format!("`{source}` is not a source of settings; there are `user`, `project` and `local`")
            }),
            variable.map(|(name, _)| format!("`{name}` cannot be an environment variable with that value")),
            server.map(|(name, _)| format!("the entry of MCP server `{name}` is not a JSON object")),
        ];
        wrong.into_iter().flatten().next().map_or(Ok(()), |reason| Err(ClaudeCodeError::invalid(reason)))
    }

    /// Whether everything is as in Claude Code, where nothing else is said.
    pub(crate) fn is_claude_code(&self) -> bool {
        self.claude_code == Some(true)
    }

    /// The built-in tools; `None` means those that the CLI usually has.
    pub(crate) fn offered_builtins(&self) -> Option<Vec<&str>> {
        let mut names: Vec<_> = match &self.builtin_tools {
            Some(names) if names.iter().any(|name| name == "default") => return None,
            Some(names) => names.iter().map(String::as_str).collect(),
            None if self.is_claude_code() => return None,
            None => Vec::new(),
        };
        let starts_agents = names.iter().any(|name| canonical(name) == canonical(STARTS_AGENTS));
        names.extend((!self.agents.is_empty() && !starts_agents).then_some(STARTS_AGENTS));
        let uses_skills = !names.contains(&USES_SKILLS) && self.skills.as_ref().is_some_and(Skills::has_any);
        names.extend(uses_skills.then_some(USES_SKILLS));
        Some(names)
    }

    /// Whether the model is offered that built-in tool.
    pub(crate) fn offers_builtin(&self, tool: &str) -> bool {
        self.offered_builtins().is_none_or(|names| names.contains(&tool))
    }

    /// The settings files; `None` means those that the CLI usually reads.
    pub(crate) fn read_sources(&self) -> Option<&[String]> {
        self.setting_sources.as_deref().or((!self.is_claude_code()).then_some(&[]))
    }

    /// Whether the CLI keeps the conversation on disk.
    pub(crate) fn keeps_session(&self) -> bool {
        self.is_claude_code() || self.conversation.as_ref().is_some_and(|one| *one != Conversation::New)
    }

    /// Whether nothing but the tools of this process is offered.
    pub(crate) fn brings_no_tools(&self, strict: bool) -> bool {
        strict
            && self.offered_builtins().is_some_and(|names| names.is_empty())
            && self.read_sources().is_some_and(<[String]>::is_empty)
            && self.plugins.is_none()
            && self.mcp_servers.is_empty()
    }

    /// Whether the CLI needs no directory of its own.
    pub(crate) fn is_alone(&self, strict: bool) -> bool {
        self.brings_no_tools(strict) && !self.keeps_session()
    }

    /// Whether it goes on with a conversation that the CLI has.
    pub(crate) fn resumes(&self) -> bool {
        matches!(self.conversation, Some(Conversation::Continue { .. } | Conversation::Resume { .. }))
    }

    /// Whether the model gets the answers of its agents before it answers.
    pub(crate) fn waits_for_agents(&self) -> bool {
        !self.agents.is_empty() && self.agents.values().all(|agent| agent.background != Some(true))
    }

    /// Whether further arguments have that flag.
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
    fn a_requests_settings_win_and_maps_are_merged() {
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
    fn what_makes_no_sense_is_said() {
        let rows = [
            (Settings::default().max_turns(0), "`max_turns` is 0; it must be at least 1"),
            (Settings::default().max_budget_usd(-1.0), "`max_budget_usd` is -1; it must be a number above 0"),
            (
                Settings::default().max_budget_usd(f64::NAN),
                "`max_budget_usd` is NaN; it must be a number above 0",
            ),
            (Settings::default().timeout(Duration::ZERO), "`timeout` is 0; it must be above 0"),
            (Settings::default().env("A=B", ""), "`A=B` cannot be an environment variable with that value"),
            (
                Settings::default().mcp_server("s", json!(1)),
                "the entry of MCP server `s` is not a JSON object",
            ),
            (
                Settings::default()
                    .conversation(Conversation::Resume { session_id: String::new(), fork: false }),
                "the session id to resume is empty",
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
                "`a),Bash` is not the name of a skill; it is that of its directory, or `plugin:skill`",
            ),
            (
                Settings::default().resume_session_at("m"),
                "`resume_session_at` is a message of a conversation that is resumed; name that, too",
            ),
            (
                Settings::default().resume_drops_turn("m"),
                "`resume_drops_turn` needs `resume_session_at`, which says where to go on",
            ),
            (
                Settings::default().fork_session_id("0b0e8b1e-6c1d-4d8e-9f0a-2b8c1d3e4f50"),
                "`fork_session_id` names a copy; the conversation must be forked",
            ),
            (Settings::default().fork_session_id("x"), "the session id `x` is not a UUID"),
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
                "`enable_file_checkpointing` needs a conversation that is kept; the CLI has copies for no other",
            ),
            (Settings::default().betas(["a,b"]), "`a,b` is not the name of a beta"),
        ];
        for (settings, want) in rows {
            assert_eq!(settings.check().unwrap_err().to_string(), want);
        }
        assert!(Settings::default().check().is_ok());
    }

    #[test]
    fn settings_are_data() {
        let own = Settings::default()
            .timeout(Duration::from_millis(1500))
            .permission_mode(PermissionMode::AcceptEdits)
            .conversation(Conversation::Resume { session_id: "s".into(), fork: true })
            .env("X", "1");
        let written = serde_json::to_value(&own).unwrap();
        assert_eq!(written["timeout"], 1.5);
        assert_eq!(written["permission_mode"], "acceptEdits");
        assert_eq!(written["conversation"], json!({ "resume": { "session_id": "s", "fork": true } }));
        let read: Settings = serde_json::from_value(written).unwrap();
        assert_eq!(format!("{read:?}"), format!("{own:?}"));

        let mode = |mode: &str| serde_json::from_value::<PermissionMode>(json!(mode)).unwrap();
        assert_eq!(mode("dontAsk"), PermissionMode::DontAsk);
        assert_eq!(mode("of_tomorrow"), PermissionMode::Other("of_tomorrow".into()));
        assert_eq!(json!(mode("of_tomorrow")), "of_tomorrow");
        assert_eq!(
            ["acceptEdits", "of_tomorrow"].map(|name| mode(name).to_string()),
            ["acceptEdits", "of_tomorrow"]
        );

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
        assert!(error(json!({ "max_turn": 1 })).starts_with("unknown field `max_turn`, expected one of "));
        let must = "it must be a number of seconds above 0 and below 2^64";
        assert_eq!(error(json!({ "timeout": -1 })), format!("`timeout` is -1; {must}"));
    }
}
