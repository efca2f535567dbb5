//! Errors when hosting or connecting starts.

use std::fmt;
use std::path::PathBuf;

use toolbridge_core::tool::{Hint, show_hint};
use toolbridge_core::trace::TraceError;

/// Why tools cannot be offered or used over NATS. It never contains secrets.
#[non_exhaustive]
pub enum NatsError {
    /// The name is not valid for a NATS service.
    Name {
        /// The name.
        name: String,
    },
    /// The address of the NATS server is not valid.
    Url {
        /// What is wrong.
        reason: String,
    },
    /// The server cannot be reached.
    Connect {
        /// The server, without secrets.
        url: String,
        /// The cause.
        reason: String,
    },
    /// The server rejected the credentials.
    Refused {
        /// The server, without secrets.
        url: String,
        /// The server's message.
        reason: String,
    },
    /// The TLS connection failed.
    Tls {
        /// The server, without secrets.
        url: String,
        /// The cause.
        reason: String,
    },
    /// The trace cannot be written.
    Trace(TraceError),
    /// A file with a key or a certificate cannot be used.
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The client lacks permission for the needed subjects.
    Forbidden {
        /// The server's message.
        reason: String,
    },
    /// The list of tools does not fit into one message.
    TooManyTools {
        /// The number of tools.
        tools: usize,
        /// The size of the list.
        bytes: usize,
        /// The server's `max_payload`.
        limit: usize,
    },
    /// No host of that name is live.
    NoHost {
        /// The name, perhaps with a host.
        name: String,
    },
    /// The connection was closed.
    Ended,
}

impl fmt::Display for NatsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { name } => {
                write!(f, "name `{name}` is empty or has characters other than `A-Z a-z 0-9 _ -`")
            }
            Self::Url { reason } => write!(f, "this is not the address of a NATS server: {reason}"),
            Self::Connect { url, reason } => write!(f, "cannot reach a NATS server at `{url}`: {reason}"),
            Self::Refused { url, reason } => {
                write!(f, "the NATS server at `{url}` rejects this client: {reason}")
            }
            Self::Tls { url, reason } => write!(f, "no secure connection to `{url}`: {reason}"),
            Self::File { path, reason } => write!(f, "cannot use `{}`: {reason}", path.display()),
            Self::Forbidden { reason } => {
                write!(f, "the NATS server does not allow what is needed: {reason}")
            }
            Self::TooManyTools { tools, bytes, limit } => write!(
                f,
                "{tools} tools are too many for one name: their list has {bytes} bytes, the limit of the server's messages is {limit}"
            ),
            Self::NoHost { name } => write!(f, "no host offers `{name}` at the moment"),
            Self::Trace(error) => error.fmt(f),
            Self::Ended => f.write_str("the connection to NATS has ended"),
        }
    }
}

impl Hint for NatsError {
    fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Name { .. } => "use letters, digits, `_` and `-`, such as `gpu`",
            Self::Url { .. } => {
                "give an address such as nats://127.0.0.1:4222, or several with commas in between"
            }
            Self::Connect { .. } => "start `nats-server`, or check host and port",
            Self::Refused { .. } => "give a credentials file, an nkey, a token, or a user and a password",
            Self::Tls { .. } => {
                "name the file of the authority that signed the server's certificate, and your own certificate if it requires one"
            }
            Self::File { .. } => "check the path, and the content of the file",
            Self::Forbidden { .. } => "docs/NATS.md lists the permissions that hosts and callers need",
            Self::TooManyTools { .. } => {
                "offer them under several names, or raise the server's `max_payload`"
            }
            Self::NoHost { .. } => "start one, such as `toolbridge serve --demo --nats URL --name NAME`",
            Self::Trace(error) => return error.hint(),
            Self::Ended => return None,
        })
    }
}

show_hint!(NatsError);
