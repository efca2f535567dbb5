//! Errors when a server is started or a configuration is read.

use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, io};

use crate::{Hint, show_hint};

/// Why servers could not be started. It never contains headers or variables.
#[non_exhaustive]
pub enum ServerError {
    /// One of them failed.
    Start {
        /// The server.
        server: String,
        /// What is wrong with it.
        fault: ServerFault,
    },
    /// A configuration cannot be used.
    Config {
        /// The file.
        path: PathBuf,
        /// The system's error; or what is wrong, and where.
        reason: String,
    },
}

/// What is wrong with a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerFault {
    /// The command does not exist.
    #[error("there is no {} `{command}`{}", if path.is_some() { "command" } else { "file" }, searched(path.as_deref()))]
    NotFound {
        /// The command.
        command: String,
        /// The PATH that was searched, or `None` if the command is a path.
        path: Option<String>,
    },
    /// The system refused to start the command.
    #[error("cannot start `{command}`: {error}")]
    Start {
        /// The command.
        command: String,
        /// The system's error.
        error: io::Error,
    },
    /// It ended before it answered: how, with its last line on stderr.
    #[error("it ended before it had answered: {0}")]
    Ended(String),
    /// It did not answer in time.
    #[error("it did not answer within {} s{}", limit.as_secs_f64(), shown_line(last_line.as_deref()))]
    Silent {
        /// The timeout.
        limit: Duration,
        /// The last line on stderr, if there was any.
        last_line: Option<String>,
    },
    /// Its answer was not valid MCP, or an error.
    #[error("the MCP handshake failed: {0}")]
    Protocol(String),
    /// The URL is not valid, or a header cannot be sent.
    #[error("{0}")]
    Url(String),
    /// The URL cannot be reached, or is not that of an MCP server.
    #[error("`{url}` cannot be used: {error}")]
    Connect {
        /// The URL, without parts that may be secret.
        url: String,
        /// What went wrong.
        error: ConnectError,
    },
}

/// Why a request over HTTP failed. It contains neither URLs nor headers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The connection failed.
    #[error("{0}")]
    Failed(String),
    /// The server answered with an HTTP error: its status code.
    #[error("it answered with HTTP status {0}")]
    Status(u16),
    /// It is not an MCP server: what it sent instead.
    #[error("it is not an MCP server, it sent {0}")]
    NotMcp(String),
}

fn searched(path: Option<&str>) -> String {
    path.map_or_else(String::new, |path| format!(" on the PATH, which is `{path}`"))
}

fn shown_line(line: Option<&str>) -> String {
    line.map_or_else(String::new, |line| format!("; its last line on stderr was `{line}`"))
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start { server, fault } => write!(f, "MCP server `{server}`: {fault}"),
            Self::Config { path, reason } => write!(f, "cannot use `{}`: {reason}", path.display()),
        }
    }
}

show_hint!(ServerError);

impl Hint for ServerError {
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Start { fault, .. } => Some(fault.hint()),
            Self::Config { .. } => {
                Some("give a file as the CLI has it: `{\"mcpServers\": {\"time\": {\"command\": \"uvx\"}}}`")
            }
        }
    }
}

impl ServerFault {
    fn hint(&self) -> &'static str {
        match self {
            Self::NotFound { path: Some(_), .. } => "install it, or give its path",
            Self::NotFound { path: None, .. } => "check the path; it is relative to the server's directory",
            Self::Start { .. } => "try the command in a shell, in the same directory",
            Self::Ended(_) => {
                "try the command in a shell: it should wait for input and say nothing on stdout"
            }
            Self::Silent { .. } => {
                "if it has to download something first, run it once by hand, or set a longer `start_timeout`; for \
                 `toolbridge serve` that is `--start-timeout`"
            }
            Self::Protocol(_) => "check that this command or URL is an MCP server, and its version",
            Self::Url(_) => {
                "give a URL such as `https://example.com/mcp`; a header's value is visible ASCII in one line"
            }
            Self::Connect { error: ConnectError::Failed(_), .. } => {
                "check that the server is running, the host and port of the URL, and its certificate if it has one"
            }
            Self::Connect { error: ConnectError::Status(401 | 403), .. } => {
                "give a token with `bearer`, or the header that the server requires"
            }
            Self::Connect { error: ConnectError::Status(404 | 405) | ConnectError::NotMcp(_), .. } => {
                "check the path of the URL; many servers are at `/mcp`, and the old HTTP+SSE cannot be used"
            }
            Self::Connect { error: ConnectError::Status(_), .. } => "look at the server's own log",
        }
    }
}
