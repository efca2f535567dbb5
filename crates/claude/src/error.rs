//! Errors of a request to the model.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use toolbridge_core::ipc::IpcError;
use toolbridge_core::tool::{Hint, RawJson, RegistrationError, show_hint};

use crate::Transport;

/// Why a request failed.
#[non_exhaustive]
pub enum ClaudeCodeError {
    /// The Claude Code CLI is not installed, or not at the given path.
    CliNotFound {
        /// Where the CLI was searched.
        reason: String,
    },
    /// The CLI could not run, or ended without a result.
    CliExecution {
        /// The kind of failure.
        kind: ExecutionKind,
        /// What happened; the CLI's own message, if there is one.
        message: String,
        /// The CLI's result, if there is one; it contains the cost and the session id.
        result: Option<RawJson>,
    },
    /// The request was interrupted, by [`interrupt`](crate::ClaudeCodeModel::interrupt) or inside the CLI.
    CliInterrupted {
        /// The CLI's result, if there is one.
        result: Option<RawJson>,
    },
    /// The CLI's output cannot be parsed.
    CliResponseParse {
        /// What is wrong with it.
        reason: String,
    },
    /// The model's answer does not match the requested schema.
    StructuredOutput {
        /// What is wrong with it.
        reason: String,
        /// The text that the model returned instead.
        text: String,
    },
    /// A request's tool filter names a tool that is not in the toolset.
    ToolNotFound {
        /// The requested name.
        name: String,
        /// The known names.
        known: Vec<String>,
    },
    /// A request filters tools, but the model has none.
    ToolsetNotRegistered,
    /// The bridge to the tools could not be started, or there is none to start.
    BridgeStartup {
        /// The server's name; empty if the executable could not start the CLI either.
        server: String,
        /// What the CLI or the bridge reported.
        reason: String,
        /// The transport used for the tools.
        transport: Transport,
    },
    /// Another MCP server of the settings is not connected, so the model would not have its tools.
    McpServer {
        /// The server's name.
        name: String,
        /// What the CLI reported.
        reason: String,
    },
    /// The request or a setting is invalid.
    InvalidRequest {
        /// What is wrong with it.
        reason: String,
    },
    /// This CLI would read the file or run the command that the prompt names.
    PromptExpansion {
        /// The text that would be expanded.
        what: String,
        /// The CLI's version.
        version: String,
    },
    /// The session for the tools could not be started.
    Ipc(IpcError),
    /// The tools cannot be registered under that name.
    Registration(RegistrationError),
}

impl fmt::Display for ClaudeCodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CliNotFound { reason } => write!(f, "cannot find the Claude Code CLI: {reason}"),
            Self::CliExecution { message, .. } => f.write_str(message),
            Self::CliInterrupted { .. } => f.write_str("the request was interrupted"),
            Self::CliResponseParse { reason } => write!(f, "cannot read the CLI's output: {reason}"),
            Self::StructuredOutput { reason, .. } => {
                write!(f, "the model gave no output that fits the schema: {reason}")
            }
            Self::ToolNotFound { name, known } => unknown_tool(name, known).fmt(f),
            Self::ToolsetNotRegistered => {
                f.write_str("the request chooses tools, but no toolset is registered")
            }
            Self::BridgeStartup { server, reason, .. } if server.is_empty() => f.write_str(reason),
            Self::BridgeStartup { server, reason, .. } => {
                write!(f, "the tools of server `{server}` are not available: {reason}")
            }
            Self::McpServer { name, reason } => {
                write!(f, "the tools of MCP server `{name}` are not available: {reason}")
            }
            Self::InvalidRequest { reason } => f.write_str(reason),
            Self::PromptExpansion { what, version } => {
                write!(
                    f,
                    "Claude Code {version} would expand `{what}` in the prompt, and has no option to prevent that"
                )
            }
            Self::Ipc(error) => error.fmt(f),
            Self::Registration(error) => error.fmt(f),
        }
    }
}

show_hint!(ClaudeCodeError);

/// What kind of failure a [`CliExecution`](ClaudeCodeError::CliExecution) is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExecutionKind {
    /// The CLI could not be started.
    Start,
    /// It ended without a result.
    Exit,
    /// It returned no result in time.
    Timeout(Duration),
    /// The CLI has no login, or the API refused it.
    Authentication,
    /// The API's rate limit was reached.
    RateLimit,
    /// The API failed.
    Api,
    /// The API refused the request.
    InvalidRequest,
    /// The maximum number of turns was reached.
    MaxTurns,
    /// The budget was used up.
    MaxBudget,
    /// There is no conversation with that session id to resume.
    NoConversation,
    /// The reader of the stream left too much of it unread.
    SlowConsumer,
    /// It could not begin: all requests that may run wait for functions of this process, perhaps for one that waits
    /// for this request.
    Blocked,
    /// Anything else that the CLI reports as an error.
    Other,
}

impl ExecutionKind {
    /// A short name, such as `rate_limit`.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        self.name_and_hint().0
    }

    fn name_and_hint(&self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Start => ("start", Some("check the path and the working directory")),
            Self::Exit => ("exit", Some("`toolbridge doctor` says whether the CLI works")),
            Self::Timeout(_) => ("timeout", Some("give the request a longer time-out, or ask for less")),
            Self::Authentication => (
                "authentication",
                Some("log in: run `claude` once, or set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN"),
            ),
            Self::RateLimit => ("rate_limit", Some("try again in a while")),
            Self::Api => ("api", Some("try again in a while")),
            Self::InvalidRequest => ("invalid_request", None),
            Self::MaxTurns => ("max_turns", Some("allow more turns, or ask for less")),
            Self::MaxBudget => ("max_budget", Some("allow a larger budget, or ask for less")),
            Self::NoConversation => (
                "no_conversation",
                Some(
                    "keep a conversation when it begins (`keep_session`), and resume it in the same working \
                     directory",
                ),
            ),
            Self::SlowConsumer => ("slow_consumer", Some("read the stream as it comes, or use `request`")),
            Self::Blocked => (
                "blocked",
                Some("make the request in the function's own task, or raise `max_concurrent_requests`"),
            ),
            Self::Other => ("other", None),
        }
    }

    /// Whether a retry of the same request may succeed.
    #[must_use]
    pub fn is_recoverable(&self) -> bool {
        matches!(self, Self::Timeout(_) | Self::RateLimit | Self::Api)
    }
}

impl fmt::Display for ExecutionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl ClaudeCodeError {
    pub(crate) fn execution(kind: ExecutionKind, message: impl Into<String>) -> Self {
        Self::CliExecution { kind, message: message.into(), result: None }
    }

    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        Self::InvalidRequest { reason: reason.into() }
    }

    pub(crate) fn bridge(server: &str, reason: impl Into<String>) -> Self {
        Self::BridgeStartup { server: server.into(), reason: reason.into(), transport: Transport::Stdio }
    }

    /// An error of the bridge executable in its other role, between this process and the CLI.
    pub(crate) fn guardian(reason: impl std::fmt::Display) -> Self {
        Self::bridge("", format!("the bridge executable, which also starts the CLI, does not work: {reason}"))
    }

    /// Converts a session's error to an error of its server.
    pub(crate) fn session(server: &str, error: IpcError) -> Self {
        match error {
            error @ (IpcError::NoBridge { .. } | IpcError::SchemaFile { .. }) => {
                Self::bridge(server, error.to_string())
            }
            error => Self::Ipc(error),
        }
    }

    /// The error's class name, as in the specification and the Python package.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::CliNotFound { .. } => "CLINotFoundError",
            Self::CliExecution { .. } => "CLIExecutionError",
            Self::CliInterrupted { .. } => "CLIInterruptedError",
            Self::CliResponseParse { .. } => "CLIResponseParseError",
            Self::StructuredOutput { .. } => "StructuredOutputError",
            Self::ToolNotFound { .. } => "ToolNotFoundError",
            Self::ToolsetNotRegistered => "ToolsetNotRegisteredError",
            Self::BridgeStartup { .. } => "BridgeStartupError",
            Self::McpServer { .. } => "McpServerError",
            Self::Ipc(error) => error.type_name(),
            Self::InvalidRequest { .. } | Self::PromptExpansion { .. } | Self::Registration(_) => {
                "ClaudeCodeError"
            }
        }
    }

    /// Whether a retry of the same request may succeed.
    #[must_use]
    pub fn is_recoverable(&self) -> bool {
        matches!(self, Self::CliExecution { kind, .. } if kind.is_recoverable())
    }

    /// The CLI's result, if it returned one before it failed.
    #[must_use]
    pub fn result(&self) -> Option<&RawJson> {
        match self {
            Self::CliExecution { result, .. } | Self::CliInterrupted { result } => result.as_ref(),
            _ => None,
        }
    }
}

impl Hint for ClaudeCodeError {
    fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::CliNotFound { .. } => {
                "install it with `npm install -g @anthropic-ai/claude-code` or `pip install claude-agent-sdk`, \
                 or give its path"
            }
            Self::CliExecution { kind, .. } => return kind.name_and_hint().1,
            Self::CliResponseParse { .. } => {
                "is that the Claude Code CLI, and a recent version? `toolbridge doctor` says which one it is"
            }
            Self::StructuredOutput { .. } => "make the schema simpler, or say in the prompt what is wanted",
            Self::ToolNotFound { name, known } => return unknown_tool(name, known).hint(),
            Self::ToolsetNotRegistered => "call `set_agent_toolsets` first",
            Self::BridgeStartup { transport: Transport::Sdk, .. } => {
                "update the Claude Code CLI, or use transport `stdio`"
            }
            Self::BridgeStartup { .. } => {
                "call `toolbridge::run_bridge_if_asked()` first in `main`, or install the `toolbridge` executable; \
                 `toolbridge doctor` tries it"
            }
            Self::McpServer { .. } => "check its entry in `mcp_servers`: does its command or URL work?",
            Self::PromptExpansion { .. } => {
                "update Claude Code to 2.1.248 or newer, or allow it with `expand_prompts(true)`"
            }
            Self::Ipc(error) => return error.hint(),
            Self::Registration(error) => return error.hint(),
            Self::CliInterrupted { .. } | Self::InvalidRequest { .. } => return None,
        })
    }
}

/// Reuses the message of `toolbridge-core` for the same error.
fn unknown_tool(name: &str, known: &[String]) -> RegistrationError {
    RegistrationError::UnknownTool { name: name.to_owned(), known: known.to_owned() }
}

impl From<RegistrationError> for ClaudeCodeError {
    fn from(error: RegistrationError) -> Self {
        match error {
            RegistrationError::UnknownTool { name, known } => Self::ToolNotFound { name, known },
            error => Self::Registration(error),
        }
    }
}

/// Why the CLI at `path`, or its guardian there, could not be started.
pub(crate) fn start_error(
    path: &Path,
    missing_cwd: Option<&Path>,
    is_guarded: bool,
    error: &std::io::Error,
) -> ClaudeCodeError {
    // The system reports the same error for a missing program and a missing directory.
    if let Some(dir) = missing_cwd {
        let message =
            format!("the working directory `{}` does not exist or is not a directory", dir.display());
        return ClaudeCodeError::execution(ExecutionKind::Start, message);
    }
    if error.kind() == std::io::ErrorKind::ArgumentListTooLong {
        // Not a start failure, whose hint is about paths: the request itself is too large.
        return ClaudeCodeError::invalid(
            "the rules for tools and the further arguments are too long for a command line",
        );
    }
    let message = format!("cannot start `{}`: {error}", path.display());
    if is_guarded {
        return ClaudeCodeError::guardian(message);
    }
    ClaudeCodeError::execution(ExecutionKind::Start, message)
}

#[cfg(test)]
mod tests {
    use toolbridge_core::tool::{hint_of, with_causes};

    use super::*;

    #[test]
    fn a_hint_is_shown_by_main_by_anyhow_and_by_eyre() {
        type Make = fn() -> ClaudeCodeError;
        let rows: [(Make, &str, &str); 4] = [
            (
                || ClaudeCodeError::execution(ExecutionKind::Authentication, "no login"),
                "no login",
                "log in: run `claude` once, or set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN",
            ),
            (
                || RegistrationError::EmptyName.into(),
                "a tool has an empty name",
                "give every tool a name, such as `search_orders`",
            ),
            (
                || ClaudeCodeError::Ipc(IpcError::MessageSize { size: 2, limit: 1 }),
                "message of 2 bytes is over the limit of 1 bytes",
                "pass a path or an id instead of the data itself",
            ),
            (
                || unknown_tool("ad", &["add".into()]).into(),
                "there is no tool `ad` to choose; did you mean `add`? there are: add",
                "choose from the names above",
            ),
        ];
        for (error, fact, hint) in rows {
            assert_eq!(error().to_string(), fact);
            assert_eq!(format!("{:?}", error()), format!("{fact}\nhint: {hint}"), "what `main` prints");
            let caused = format!("{fact}\n\nCaused by:\n    hint: {hint}");
            let shown = format!("{:?}", anyhow::Error::from(error()));
            assert!(shown.starts_with(&caused), "{shown}");
            let shown = format!("{:?}", eyre::Report::from(error()));
            assert!(shown.starts_with(&caused), "{shown}");
            let wrapped = anyhow::Error::from(error()).context("cannot ask");
            let shown = format!("{wrapped:?}");
            assert!(shown.contains(&format!("0: {fact}\n    1: hint: {hint}")), "{shown}");
            assert_eq!(hint_of(wrapped.as_ref()), Some(hint));
            assert_eq!(with_causes(wrapped.as_ref()), format!("cannot ask: {fact}"));
        }
        let no_hint = || ClaudeCodeError::invalid("the prompt is empty");
        assert!(format!("{:?}", anyhow::Error::from(no_hint())).starts_with("the prompt is empty"));
        assert!(std::error::Error::source(&no_hint()).is_none());
    }
}
