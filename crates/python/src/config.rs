//! What Python says about a model and its requests, as JSON.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pyo3::PyResult;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use toolbridge::claude::{
    ClaudeCodeModelBuilder, Conversation, Input, Message, PermissionMode, Settings, find_cli,
};
use toolbridge::{ClaudeCodeError, ClaudeCodeModel, Part, RawJson, Request};

use crate::error::invalid;

/// What is the same for all requests of a model.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelConfig {
    settings: SettingsConfig,
    bridge: PathBuf,
    guard: PathBuf,
    cli: Option<PathBuf>,
    /// The CLI in a package of this Python's, for when there is no other.
    bundled_cli: Option<PathBuf>,
    session_dir: Option<PathBuf>,
    inherit_env: bool,
    strict_mcp_config: Option<bool>,
    allow_own_tools: Option<bool>,
    max_concurrent_requests: Option<usize>,
    #[serde(default)]
    restrictions: Vec<(String, String, Value)>,
}

/// What may be different in each request.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SettingsConfig {
    claude_code: Option<bool>,
    expand_prompts: Option<bool>,
    coding_prompt: Option<bool>,
    cli_settings: Option<Value>,
    model: Option<String>,
    working_directory: Option<PathBuf>,
    timeout: Option<f64>,
    allowed_tools: Option<Vec<String>>,
    disallowed_tools: Option<Vec<String>>,
    builtin_tools: Option<Vec<String>>,
    permission_mode: Option<String>,
    max_turns: Option<u32>,
    max_budget_usd: Option<f64>,
    system_prompt: Option<String>,
    append_system_prompt: Option<String>,
    keep_session: Option<bool>,
    session_id: Option<String>,
    continue_conversation: bool,
    resume: Option<String>,
    fork_session: bool,
    setting_sources: Option<Vec<String>>,
    extra_args: Option<Vec<String>>,
    env: BTreeMap<String, String>,
    mcp_servers: Map<String, Value>,
}

/// One request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestConfig {
    messages: Vec<MessageConfig>,
    settings: SettingsConfig,
    tools: Option<Vec<String>>,
    output_schema: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum MessageConfig {
    User(Vec<InputConfig>),
    Assistant(Vec<PartConfig>),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum InputConfig {
    Text(String),
    /// Bytes in base64, and their media type.
    Image(String, String),
    Document(String, String),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum PartConfig {
    Text(String),
    ToolCall { id: String, name: String, input: Box<RawValue> },
    ToolResult { id: String, name: Option<String>, content: Box<RawValue>, is_error: bool },
}

/// Each setting that was given.
macro_rules! set {
    ($target:ident, $said:ident: $($name:ident),*) => {
        $(if let Some(value) = $said.$name {
            $target = $target.$name(value);
        })*
    };
}

/// The same setters exist on the builder of a model and on the settings of a request.
macro_rules! apply {
    ($target:ident, $settings:expr) => {{
        let said: SettingsConfig = $settings;
        let conversation = said.conversation()?;
        let timeout = said.timeout()?;
        let permission_mode = said.permission_mode.map(|mode| {
            let Ok(mode) = mode.parse::<PermissionMode>();
            mode
        });
        let mut target = $target;
        set!(target, said: claude_code, expand_prompts, coding_prompt, cli_settings);
        set!(target, said: model, working_directory, allowed_tools, disallowed_tools, builtin_tools);
        set!(target, said: max_turns, max_budget_usd, system_prompt, append_system_prompt);
        set!(target, said: setting_sources, extra_args);
        if let Some(mode) = permission_mode {
            target = target.permission_mode(mode);
        }
        if let Some(limit) = timeout {
            target = target.timeout(limit);
        }
        if let Some(conversation) = conversation {
            target = target.conversation(conversation);
        }
        for (name, value) in said.env {
            target = target.env(name, value);
        }
        for (name, entry) in said.mcp_servers {
            target = target.mcp_server(name, entry);
        }
        Ok(target)
    }};
}

impl ModelConfig {
    pub(crate) fn parse(json: &[u8]) -> PyResult<Self> {
        serde_json::from_slice(json).map_err(|error| invalid(format!("a setting is not understood: {error}")))
    }

    pub(crate) fn build(self) -> Result<ClaudeCodeModel, ClaudeCodeError> {
        self.builder()?.build()
    }

    fn builder(self) -> Result<ClaudeCodeModelBuilder, ClaudeCodeError> {
        let mut builder = ClaudeCodeModel::builder()
            .bridge(self.bridge)
            .guard(self.guard)
            .inherit_env(self.inherit_env)
            .tool_parameter_restrictions(self.restrictions);
        let bundled = || self.bundled_cli.filter(|_| find_cli(None).is_err());
        if let Some(cli) = self.cli.or_else(bundled) {
            builder = builder.cli(cli);
        }
        set!(builder, self: strict_mcp_config, allow_own_tools, max_concurrent_requests, session_dir);
        apply!(builder, self.settings)
    }
}

impl SettingsConfig {
    fn settings(self) -> Result<Settings, ClaudeCodeError> {
        let settings = Settings::default();
        apply!(settings, self)
    }

    fn timeout(&self) -> Result<Option<Duration>, ClaudeCodeError> {
        let limit = |seconds: f64| {
            Duration::try_from_secs_f64(seconds).map_err(|_| ClaudeCodeError::InvalidRequest {
                reason: format!(
                    "`timeout` is {seconds}; it must be a number of seconds above 0 and below 2^64"
                ),
            })
        };
        self.timeout.map(limit).transpose()
    }

    fn conversation(&self) -> Result<Option<Conversation>, ClaudeCodeError> {
        let fork = self.fork_session;
        let wrong = |reason: &str| Err(ClaudeCodeError::InvalidRequest { reason: reason.into() });
        let session_id = self.session_id.clone();
        match (self.continue_conversation, &self.resume) {
            (true, Some(_)) => wrong(
                "`continue_conversation` and `resume` exclude each other: the last conversation, or that one",
            ),
            (true, None) | (false, Some(_)) if session_id.is_some() => wrong(
                "`session_id` names a new conversation; `continue_conversation` and `resume` go on with an old one",
            ),
            (true, None) => Ok(Some(Conversation::Continue { fork })),
            (false, Some(id)) => Ok(Some(Conversation::Resume { session_id: id.clone(), fork })),
            (false, None) if fork => {
                wrong("`fork_session` needs a conversation to copy: `continue_conversation` or `resume`")
            }
            (false, None) => Ok(match (session_id, self.keep_session) {
                (None, None) => None,
                (None, Some(false)) => Some(Conversation::New),
                (session_id, _) => Some(Conversation::Keep { session_id }),
            }),
        }
    }
}

/// Reads a request.
pub(crate) fn request(json: &[u8]) -> Result<Request, ClaudeCodeError> {
    let wrong = |reason: String| ClaudeCodeError::InvalidRequest { reason };
    let said: RequestConfig = serde_json::from_slice(json)
        .map_err(|error| wrong(format!("the request is not understood: {error}")))?;
    let messages = said.messages.into_iter().map(message).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    let mut request = Request::from_messages(messages)?.settings(said.settings.settings()?);
    if let Some(names) = said.tools {
        request = request.only(names);
    }
    if let Some(schema) = said.output_schema {
        request = request.output_schema(schema);
    }
    Ok(request)
}

fn message(said: MessageConfig) -> Result<Message, String> {
    Ok(match said {
        MessageConfig::User(inputs) => {
            Message::User(inputs.into_iter().map(input).collect::<Result<_, String>>()?)
        }
        MessageConfig::Assistant(parts) => Message::Assistant(parts.into_iter().map(part).collect()),
    })
}

fn input(said: InputConfig) -> Result<Input, String> {
    let bytes = |data: String| {
        STANDARD.decode(data).map_err(|error| format!("a file of the prompt is not base64: {error}"))
    };
    Ok(match said {
        InputConfig::Text(text) => Input::text(text),
        InputConfig::Image(data, media_type) => Input::image(&bytes(data)?, media_type),
        InputConfig::Document(data, media_type) => Input::document(&bytes(data)?, media_type),
    })
}

fn part(said: PartConfig) -> Part {
    let raw = |json: Box<RawValue>| RawJson::written(Box::<str>::from(json).into_string().into_bytes());
    match said {
        PartConfig::Text(text) => Part::Text { text },
        PartConfig::ToolCall { id, name, input } => Part::ToolCall { id, name, input: raw(input) },
        PartConfig::ToolResult { id, name, content, is_error } => {
            Part::ToolResult { id, name, content: raw(content), is_error }
        }
    }
}
