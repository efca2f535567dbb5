//! Errors when a server is started or a configuration is read.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::{Hint, RegistrationError, show_hint};

/// Why a server could not be started. It never contains headers or variables.
#[non_exhaustive]
pub enum ServerError {
    /// The command does not exist.
    NotFound {
        /// The server.
        server: String,
        /// The command.
        command: String,
        /// The PATH that was searched, or `None` if the command is a path.
        path: Option<String>,
    },
    /// The system refused to start the command.
    Start {
        /// The server.
        server: String,
        /// The command.
        command: String,
        /// The system's error.
        error: io::Error,
    },
    /// It ended before it answered.
    Ended {
        /// The server.
        server: String,
        /// How it ended, with its last line on stderr.
        how: String,
    },
    /// It did not answer in time.
    Silent {
        /// The server.
        server: String,
        /// The timeout.
        limit: Duration,
        /// The last line on stderr, if there was any.
        said: Option<String>,
    },
    /// Its answer was not valid MCP, or an error.
    Protocol {
        /// The server.
        server: String,
        /// What is wrong.
        reason: String,
    },
    /// The URL is not valid.
    Url {
        /// The server.
        server: String,
        /// What is wrong.
        reason: String,
    },
    /// A header cannot be sent; its value is left out.
    Header {
        /// The server.
        server: String,
        /// The header's name.
        name: String,
    },
    /// The connection to the URL failed.
    Connect {
        /// The server.
        server: String,
        /// The URL, without parts that may be secret.
        url: String,
        /// What went wrong.
        reason: String,
    },
    /// The TLS connection failed.
    Tls {
        /// The server.
        server: String,
        /// The URL, without parts that may be secret.
        url: String,
        /// What went wrong.
        reason: String,
    },
    /// The server answered with an HTTP error.
    Status {
        /// The server.
        server: String,
        /// The URL, without parts that may be secret.
        url: String,
        /// The status code.
        status: u16,
    },
    /// The server at the URL is not an MCP server.
    NotMcp {
        /// The server.
        server: String,
        /// The URL, without parts that may be secret.
        url: String,
        /// The content type of its answer.
        content_type: String,
    },
    /// A configuration cannot be read.
    Config {
        /// The file.
        path: PathBuf,
        /// The system's error, or the JSON error.
        reason: String,
    },
    /// An entry of a configuration is wrong.
    Entry {
        /// The file.
        path: PathBuf,
        /// The position in the file.
        place: String,
        /// What is wrong, and what would be valid.
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
                said.as_ref().map_or(Ok(()), |said| write!(f, "; its last line on stderr was `{said}`"))
            }
            Self::Protocol { server, reason } => {
                write!(f, "MCP server `{server}` failed the MCP handshake: {reason}")
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
                write!(f, "MCP server `{server}`: no secure connection to `{url}`: {reason}")
            }
            Self::Status { server, url, status } => {
                write!(f, "MCP server `{server}`: `{url}` answered with HTTP status {status}")
            }
            Self::NotMcp { server, url, content_type } => {
                write!(f, "MCP server `{server}`: `{url}` is not an MCP server, it sent {content_type}")
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
                "if it has to download something first, run it once by hand, or set a longer `start_timeout`; for \
                 `toolbridge serve` that is `--start-timeout`"
            }
            Self::Protocol { .. } => "check that this command or URL is an MCP server, and its version",
            Self::Url { .. } => "give a URL such as `https://example.com/mcp`",
            Self::Header { .. } => {
                "a header's value is visible ASCII in one line; MCP's own headers are set here"
            }
            Self::Connect { .. } => "check that the server is running, and the host and port of the URL",
            Self::Tls { .. } => {
                "check the certificate, and that the URL begins with `https` only if the server has one"
            }
            Self::Status { status: 401 | 403, .. } => {
                "give a token with `bearer`, or the header that the server requires"
            }
            Self::Status { status: 404, .. } | Self::NotMcp { .. } => {
                "check the path of the URL; many servers are at `/mcp`"
            }
            Self::Status { status: 405, .. } => {
                "check the path of the URL; a server that only speaks the old HTTP+SSE cannot be used"
            }
            Self::Status { .. } => "look at the server's own log",
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
