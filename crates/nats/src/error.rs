//! What can go wrong before tools are served or called.

use std::fmt;
use std::path::PathBuf;

use toolbridge_core::{Hint, show_hint};

/// Why tools cannot be offered over NATS, or cannot be had. No secret is ever in it.
#[non_exhaustive]
pub enum NatsError {
    /// The name cannot be that of a NATS service.
    Name {
        /// The name.
        name: String,
    },
    /// This is not the address of a NATS server.
    Url {
        /// What is wrong with it.
        reason: String,
    },
    /// No server answers.
    Connect {
        /// The server, without what may be secret.
        url: String,
        /// What happened.
        reason: String,
    },
    /// The server does not let this client in.
    Refused {
        /// The server, without what may be secret.
        url: String,
        /// What it said.
        reason: String,
    },
    /// The connection is not safe, or cannot be made so.
    Tls {
        /// The server, without what may be secret.
        url: String,
        /// What went wrong.
        reason: String,
    },
    /// A file with a key or a certificate cannot be used.
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The server lets this client in, but not onto the subjects that are needed.
    Forbidden {
        /// What it said.
        reason: String,
    },
    /// There are more tools than the answer of a NATS service has room for.
    TooManyTools {
        /// How many there are.
        tools: usize,
        /// How many bytes the answer has.
        bytes: usize,
        /// The server's `max_payload`.
        limit: usize,
    },
    /// No host of that name is there.
    NoHost {
        /// The name, perhaps with a host.
        name: String,
    },
    /// A host did not say what tools it has.
    Silent {
        /// The name.
        name: String,
    },
    /// The connection has ended.
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
                write!(f, "the NATS server at `{url}` does not let this client in: {reason}")
            }
            Self::Tls { url, reason } => write!(f, "no safe connection to `{url}`: {reason}"),
            Self::File { path, reason } => write!(f, "cannot use `{}`: {reason}", path.display()),
            Self::Forbidden { reason } => {
                write!(f, "the NATS server does not allow what is needed: {reason}")
            }
            Self::TooManyTools { tools, bytes, limit } => write!(
                f,
                "{tools} tools are too many for one name: the service's answer has {bytes} bytes, the server takes {limit}"
            ),
            Self::NoHost { name } => write!(f, "no host offers `{name}` at the moment"),
            Self::Silent { name } => write!(f, "the hosts of `{name}` do not say which tools they have"),
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
            Self::Refused { .. } => {
                "give a credentials file, an nkey, a token, or a user and a password, whichever the server wants"
            }
            Self::Tls { .. } => {
                "name the file of the authority that signed the server's certificate, and your own certificate if it wants one"
            }
            Self::File { .. } => "check the path, and that the file is what it is given for",
            Self::Forbidden { .. } => "docs/NATS.md lists the permissions that hosts and callers need",
            Self::TooManyTools { .. } => {
                "offer them under several names, or raise the server's `max_payload`"
            }
            Self::NoHost { .. } => "start one, such as `toolbridge serve --demo --nats URL --name NAME`",
            Self::Silent { .. } => "look into the logs of the hosts",
            Self::Ended => return None,
        })
    }
}

show_hint!(NatsError);
