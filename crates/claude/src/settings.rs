//! How the CLI is to run.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::ClaudeCodeError;

/// The variable with which the CLI runs without hooks.
pub(crate) const HOOKLESS: &str = "CLAUDE_CODE_SIMPLE";

/// How long a request may take when nothing is said about it.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// How the CLI is to run. What is not set is left to the model's settings, and there to the defaults.
///
/// The same settings exist on [`ClaudeCodeModelBuilder`](crate::ClaudeCodeModelBuilder), for all requests.
///
/// ```
/// use std::time::Duration;
/// use toolbridge_claude::{Request, Settings};
///
/// let settings = Settings::default().timeout(Duration::from_secs(600)).max_turns(3);
/// let request = Request::new("Sum up the week").settings(settings);
/// # let _ = request;
/// ```
#[expect(clippy::struct_field_names, reason = "`cli_settings` is what users call it")]
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Settings {
    pub(crate) claude_code: Option<bool>,
    pub(crate) expand_prompts: Option<bool>,
    pub(crate) coding_prompt: Option<bool>,
    pub(crate) cli_settings: Option<Value>,
    pub(crate) model: Option<String>,
    pub(crate) working_directory: Option<PathBuf>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) allowed_tools: Option<Vec<String>>,
    pub(crate) disallowed_tools: Option<Vec<String>>,
    pub(crate) builtin_tools: Option<Vec<String>>,
    pub(crate) permission_mode: Option<PermissionMode>,
    pub(crate) max_turns: Option<u32>,
    pub(crate) max_budget_usd: Option<f64>,
    pub(crate) system_prompt: Option<String>,
    pub(crate) append_system_prompt: Option<String>,
    pub(crate) conversation: Option<Conversation>,
    pub(crate) setting_sources: Option<Vec<String>>,
    pub(crate) extra_args: Option<Vec<String>>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) mcp_servers: Map<String, Value>,
}

/// Which conversation a request belongs to. All but [`New`](Self::New) are kept by the CLI on disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
    /// Another one that the CLI knows.
    Other(String),
}

impl fmt::Display for PermissionMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::AcceptEdits => "acceptEdits",
            Self::Plan => "plan",
            Self::BypassPermissions => "bypassPermissions",
            Self::DontAsk => "dontAsk",
            Self::Other(mode) => mode,
        })
    }
}

impl FromStr for PermissionMode {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "default" => Self::Default,
            "acceptEdits" => Self::AcceptEdits,
            "plan" => Self::Plan,
            "bypassPermissions" => Self::BypassPermissions,
            "dontAsk" => Self::DontAsk,
            other => Self::Other(other.into()),
        })
    }
}

/// One list of settings, for those of the model and those of a request.
macro_rules! setters {
    ($owner:ty, $($settings:ident).*) => {
        impl $owner {
            /// Brings the whole of Claude Code: its own tools and system prompt, settings files, `CLAUDE.md`, memories,
            /// skills, hooks, the MCP servers of the user and the project, and transcripts on disk. By default a
            /// model has none of these. Prompts stay plain text; see [`expand_prompts`](Self::expand_prompts).
            pub fn claude_code(mut self, whole: bool) -> Self {
                self.$($settings.)*claude_code = Some(whole);
                self
            }

            /// Whether the CLI looks into prompts: it then reads the files that they name with `@`, and takes one that
            /// begins with `/` for a command of its own. By default a prompt is text. Never do this with the
            /// words of somebody else.
            pub fn expand_prompts(mut self, expand: bool) -> Self {
                self.$($settings.)*expand_prompts = Some(expand);
                self
            }

            /// Gives the model the CLI's own system prompt, which is for coding, where there is no
            /// [`system_prompt`](Self::system_prompt).
            pub fn coding_prompt(mut self, coding: bool) -> Self {
                self.$($settings.)*coding_prompt = Some(coding);
                self
            }

            /// Gives the CLI settings, an object such as its settings files hold.
            pub fn cli_settings(mut self, settings: serde_json::Value) -> Self {
                self.$($settings.)*cli_settings = Some(settings);
                self
            }

            /// Names the model to ask, instead of the CLI's own choice.
            pub fn model(mut self, name: impl Into<String>) -> Self {
                self.$($settings.)*model = Some(name.into());
                self
            }

            /// Lets the CLI work in that directory. By default it works in an empty one, or in this process's where
            /// something of the CLI's needs one: built-in tools, settings files, kept conversations, other servers.
            pub fn working_directory(mut self, directory: impl Into<std::path::PathBuf>) -> Self {
                self.$($settings.)*working_directory = Some(directory.into());
                self
            }

            /// Limits a request's time, [`DEFAULT_TIMEOUT`](crate::DEFAULT_TIMEOUT) by default.
            pub fn timeout(mut self, limit: std::time::Duration) -> Self {
                self.$($settings.)*timeout = Some(limit);
                self
            }

            /// Allows tools by the CLI's rules, such as `Read` or `Bash(git log *)`. They run without
            /// anybody being asked; other tools are not taken away by this.
            pub fn allowed_tools<T: Into<String>>(mut self, rules: impl IntoIterator<Item = T>) -> Self {
                self.$($settings.)*allowed_tools = Some(rules.into_iter().map(Into::into).collect());
                self
            }

            /// Forbids tools by the CLI's rules.
            pub fn disallowed_tools<T: Into<String>>(mut self, rules: impl IntoIterator<Item = T>) -> Self {
                self.$($settings.)*disallowed_tools = Some(rules.into_iter().map(Into::into).collect());
                self
            }

            /// Names the built-in tools that the CLI offers to the model, such as `Read`; `default` is all that it
            /// usually has. There are none by default.
            pub fn builtin_tools<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
                self.$($settings.)*builtin_tools = Some(names.into_iter().map(Into::into).collect());
                self
            }

            /// Says what the CLI does about tools that no rule allows.
            pub fn permission_mode(mut self, mode: $crate::PermissionMode) -> Self {
                self.$($settings.)*permission_mode = Some(mode);
                self
            }

            /// Limits how often the model is asked in a request.
            pub fn max_turns(mut self, turns: u32) -> Self {
                self.$($settings.)*max_turns = Some(turns);
                self
            }

            /// Limits what a request may cost, in US dollars.
            pub fn max_budget_usd(mut self, dollars: f64) -> Self {
                self.$($settings.)*max_budget_usd = Some(dollars);
                self
            }

            /// Gives the model this system prompt. By default it has none.
            pub fn system_prompt(mut self, text: impl Into<String>) -> Self {
                self.$($settings.)*system_prompt = Some(text.into());
                self
            }

            /// Adds this to the system prompt.
            pub fn append_system_prompt(mut self, text: impl Into<String>) -> Self {
                self.$($settings.)*append_system_prompt = Some(text.into());
                self
            }

            /// Says which conversation requests belong to; each is a new one by default.
            pub fn conversation(mut self, conversation: $crate::Conversation) -> Self {
                self.$($settings.)*conversation = Some(conversation);
                self
            }

            /// Names the settings files that the CLI reads (`user`, `project`, `local`), with the `CLAUDE.md`, skills,
            /// agents and hooks that belong to them. By default it reads none.
            pub fn setting_sources<T: Into<String>>(mut self, sources: impl IntoIterator<Item = T>) -> Self {
                self.$($settings.)*setting_sources = Some(sources.into_iter().map(Into::into).collect());
                self
            }

            /// Gives the CLI further arguments, after all others.
            pub fn extra_args<T: Into<String>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
                self.$($settings.)*extra_args = Some(args.into_iter().map(Into::into).collect());
                self
            }

            /// Sets a variable in the CLI's environment.
            pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
                self.$($settings.)*env.insert(name.into(), value.into());
                self
            }

            /// Offers another MCP server to the CLI: its name, and its entry as in the CLI's `mcpServers`.
            pub fn mcp_server(mut self, name: impl Into<String>, entry: serde_json::Value) -> Self {
                self.$($settings.)*mcp_servers.insert(name.into(), entry);
                self
            }
        }
    };
}
pub(crate) use setters;

setters!(Settings,);

impl Settings {
    /// These settings, and where they say nothing those of `base`.
    pub(crate) fn or(self, base: &Self) -> Self {
        let base = base.clone();
        Self {
            claude_code: self.claude_code.or(base.claude_code),
            expand_prompts: self.expand_prompts.or(base.expand_prompts),
            coding_prompt: self.coding_prompt.or(base.coding_prompt),
            cli_settings: self.cli_settings.or(base.cli_settings),
            model: self.model.or(base.model),
            working_directory: self.working_directory.or(base.working_directory),
            timeout: self.timeout.or(base.timeout),
            allowed_tools: self.allowed_tools.or(base.allowed_tools),
            disallowed_tools: self.disallowed_tools.or(base.disallowed_tools),
            builtin_tools: self.builtin_tools.or(base.builtin_tools),
            permission_mode: self.permission_mode.or(base.permission_mode),
            max_turns: self.max_turns.or(base.max_turns),
            max_budget_usd: self.max_budget_usd.or(base.max_budget_usd),
            system_prompt: self.system_prompt.or(base.system_prompt),
            append_system_prompt: self.append_system_prompt.or(base.append_system_prompt),
            conversation: self.conversation.or(base.conversation),
            setting_sources: self.setting_sources.or(base.setting_sources),
            extra_args: self.extra_args.or(base.extra_args),
            env: base.env.into_iter().chain(self.env).collect(),
            mcp_servers: base.mcp_servers.into_iter().chain(self.mcp_servers).collect(),
        }
    }

    /// What makes no sense, before anything is started.
    pub(crate) fn check(&self) -> Result<(), ClaudeCodeError> {
        let invalid = |reason: String| Err(ClaudeCodeError::invalid(reason));
        if self.max_turns == Some(0) {
            return invalid("`max_turns` is 0; it must be at least 1".into());
        }
        if let Some(budget) = self.max_budget_usd
            && !(budget.is_finite() && budget > 0.0)
        {
            return invalid(format!("`max_budget_usd` is {budget}; it must be a number above 0"));
        }
        if self.timeout == Some(Duration::ZERO) {
            return invalid("`timeout` is 0; it must be above 0".into());
        }
        if let Some(Conversation::Resume { session_id, .. }) = &self.conversation
            && session_id.is_empty()
        {
            return invalid("the session id to resume is empty".into());
        }
        if let Some(Conversation::Keep { session_id: Some(id) }) = &self.conversation
            && uuid::Uuid::try_parse(id).is_err()
        {
            return invalid(format!("the session id `{id}` is not a UUID"));
        }
        if self.cli_settings.as_ref().is_some_and(|settings| !settings.is_object()) {
            return invalid("`cli_settings` is not a JSON object".into());
        }
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return invalid(format!("`{name}` cannot be an environment variable with that value"));
            }
        }
        for (name, entry) in &self.mcp_servers {
            if !entry.is_object() {
                return invalid(format!("the entry of MCP server `{name}` is not a JSON object"));
            }
        }
        Ok(())
    }

    /// Whether everything is as in Claude Code, where nothing else is said.
    pub(crate) fn is_claude_code(&self) -> bool {
        self.claude_code == Some(true)
    }

    /// The built-in tools; `None` means those that the CLI usually has.
    pub(crate) fn offered_builtins(&self) -> Option<&[String]> {
        match &self.builtin_tools {
            Some(names) if names.iter().any(|name| name == "default") => None,
            Some(names) => Some(names),
            None => (!self.is_claude_code()).then_some(&[]),
        }
    }

    /// The settings files; `None` means those that the CLI usually reads.
    pub(crate) fn read_sources(&self) -> Option<&[String]> {
        self.setting_sources.as_deref().or((!self.is_claude_code()).then_some(&[]))
    }

    /// Whether the CLI keeps the conversation on disk.
    pub(crate) fn keeps_session(&self) -> bool {
        self.is_claude_code() || self.conversation.as_ref().is_some_and(|one| *one != Conversation::New)
    }

    /// Whether nothing but the tools of this process is offered: then the CLI needs no directory of its own.
    pub(crate) fn is_alone(&self, strict: bool) -> bool {
        let nothing = |list: Option<&[String]>| list.is_some_and(<[String]>::is_empty);
        strict
            && nothing(self.offered_builtins())
            && nothing(self.read_sources())
            && !self.keeps_session()
            && self.mcp_servers.is_empty()
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
        ];
        for (settings, want) in rows {
            assert_eq!(settings.check().unwrap_err().to_string(), want);
        }
        assert!(Settings::default().check().is_ok());
    }
}
