//! How a server can fail to start, and a configuration to be read.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use toolbridge_core::{Hint, RegistrationError, show_hint};

/// Why a server could not be started. Neither headers nor variables are ever in it.
#[non_exhaustive]
pub enum ServerError {
    /// The command is nowhere.
    NotFound {
        /// The server.
        server: String,
        /// The command.
        command: String,
        /// Where it was looked for: the PATH, or nothing if the command is a path.
        path: Option<String>,
    },
    /// The system refused to start the command.
    Start {
        /// The server.
        server: String,
        /// The command.
        command: String,
        /// What the system said.
        error: io::Error,
    },
    /// It ended before it had answered.
    Ended {
        /// The server.
        server: String,
        /// How it ended, with the last thing it said.
        how: String,
    },
    /// It did not answer in time.
    Silent {
        /// The server.
        server: String,
        /// How long it was waited for.
        limit: Duration,
        /// The last thing it said on stderr, if there was anything.
        said: Option<String>,
    },
    /// It answered something else than MCP, or refused.
    Protocol {
        /// The server.
        server: String,
        /// What was wrong.
        reason: String,
    },
    /// This is not a URL of a server.
    Url {
        /// The server.
        server: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A header cannot be sent; its value is not told.
    Header {
        /// The server.
        server: String,
        /// The header's name.
        name: String,
    },
    /// Nothing answers at the URL.
    Connect {
        /// The server.
        server: String,
        /// The URL, without what may be secret in it.
        url: String,
        /// What went wrong.
        reason: String,
    },
    /// The connection is not safe, or cannot be made so.
    Tls {
        /// The server.
        server: String,
        /// The URL, without what may be secret in it.
        url: String,
        /// What went wrong.
        reason: String,
    },
    /// The URL answered with an error of HTTP.
    Status {
        /// The server.
        server: String,
        /// The URL, without what may be secret in it.
        url: String,
        /// Its number.
        status: u16,
    },
    /// There is something else than an MCP server at the URL.
    NotMcp {
        /// The server.
        server: String,
        /// The URL, without what may be secret in it.
        url: String,
        /// What it sent.
        content_type: String,
    },
    /// A configuration cannot be read.
    Config {
        /// The file.
        path: PathBuf,
        /// What the system said, or what is no JSON in it.
        reason: String,
    },
    /// An entry of a configuration is wrong.
    Entry {
        /// The file.
        path: PathBuf,
        /// Where in it.
        place: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// The tools of several servers cannot be joined.
    Registration(RegistrationError),
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { server, command, path: Some(path) } => {
                write!(
                    f,
                    "MCP server `{server}`: there is no command `{command}` on the PATH, which is `{path}`"
                )
            }
            Self::NotFound { server, command, path: None } => {
                write!(f, "MCP server `{server}`: there is no file `{command}`")
            }
            Self::Start { server, command, error } => {
                write!(f, "MCP server `{server}`: cannot start `{command}`: {error}")
            }
            Self::Ended { server, how } => {
                write!(f, "MCP server `{server}` ended before it had answered: {how}")
            }
            Self::Silent { server, limit, said } => {
                write!(f, "MCP server `{server}` did not answer within {} s", limit.as_secs_f64())?;
                said.as_ref().map_or(Ok(()), |said| write!(f, "; the last it said on stderr was `{said}`"))
            }
            Self::Protocol { server, reason } => {
                write!(f, "MCP server `{server}` did not begin as MCP servers do: {reason}")
            }
            Self::Url { server, reason } => {
                write!(f, "MCP server `{server}`: the URL cannot be used: {reason}")
            }
            Self::Header { server, name } => {
                write!(f, "MCP server `{server}`: the header `{name}` cannot be sent")
            }
            Self::Connect { server, url, reason } => {
                write!(f, "MCP server `{server}`: cannot connect to `{url}`: {reason}")
            }
            Self::Tls { server, url, reason } => {
                write!(f, "MCP server `{server}`: no safe connection to `{url}`: {reason}")
            }
            Self::Status { server, url, status } => {
                write!(f, "MCP server `{server}`: `{url}` answered with HTTP status {status}")
            }
            Self::NotMcp { server, url, content_type } => {
                write!(f, "MCP server `{server}`: `{url}` is no MCP server, it sent {content_type}")
            }
            Self::Config { path, reason } => write!(f, "cannot read `{}`: {reason}", path.display()),
            Self::Entry { path, place, reason } => {
                write!(f, "`{}`, at `{place}`: {reason}", path.display())
            }
            Self::Registration(error) => error.fmt(f),
        }
    }
}

show_hint!(ServerError);

impl Hint for ServerError {
    fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NotFound { path: Some(_), .. } => "install it, or give its path",
            Self::NotFound { path: None, .. } => "check the path; it is relative to the server's directory",
            Self::Start { .. } => "try the command in a shell, in the same directory",
            Self::Ended { .. } => {
                "try the command in a shell: it should wait for input and say nothing on stdout"
            }
            Self::Silent { .. } => {
                "if it has to download something first, run it once by hand, or set a longer `start_timeout`"
            }
            Self::Protocol { .. } => "check that this command or URL is an MCP server, and its version",
            Self::Url { .. } => "give a URL such as `https://example.com/mcp`",
            Self::Header { .. } => {
                "a header's value is visible ASCII in one line; MCP's own headers are set here"
            }
            Self::Connect { .. } => "check that the server runs, and the host and port of the URL",
            Self::Tls { .. } => {
                "check the certificate, and that the URL begins with `https` only if the server has one"
            }
            Self::Status { status: 401 | 403, .. } => {
                "give a token with `bearer`, or what the server wants with `header`"
            }
            Self::Status { status: 404, .. } | Self::NotMcp { .. } => {
                "check the path of the URL; many servers are at `/mcp`"
            }
            Self::Status { status: 405, .. } => {
                "check the path of the URL; a server that only speaks the old HTTP+SSE cannot be used"
            }
            Self::Status { .. } => "look into the server's own log",
            Self::Config { .. } => {
                "give a file as the CLI has it: `{\"mcpServers\": {\"time\": {\"command\": \"uvx\"}}}`"
            }
            Self::Entry { .. } => return None,
            Self::Registration(error) => return error.hint(),
        })
    }
}

impl From<RegistrationError> for ServerError {
    fn from(error: RegistrationError) -> Self {
        Self::Registration(error)
    }
}
