//! Errors of the socket, of sessions and of finding the bridge executable.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::trace::{Outcome, TraceError};
use crate::{Hint, RegistrationError, ToolError, show_hint};

use crate::ipc::user::strangeness;

/// Why something between bridge and parent failed.
#[non_exhaustive]
pub enum IpcError {
    /// The parent's socket cannot be reached.
    Connect {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The connection was lost in the middle of a request.
    Lost {
        /// How that was noticed.
        reason: String,
    },
    /// The connection was closed before a byte of the message was sent.
    Unsent {
        /// The system's error.
        error: io::Error,
    },
    /// The connection was closed in the middle of a message.
    Torn {
        /// How many bytes had arrived, including the length prefix.
        bytes: usize,
    },
    /// The other end belongs to another user.
    ForeignPeer {
        /// The peer's user id.
        uid: u32,
        /// Our user id.
        own: u32,
    },
    /// A message is larger than the protocol allows.
    MessageSize {
        /// Its size.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// Bytes that are not a message of the protocol.
    Invalid {
        /// What is wrong with it.
        reason: String,
    },
    /// Reading or writing failed.
    Io {
        /// The system's error.
        error: io::Error,
    },
    /// A schema file cannot be used.
    SchemaFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A socket path is longer than the system allows.
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// The limit.
        limit: usize,
    },
    /// The file at a socket path is not a socket.
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// A session's files cannot be created.
    Start {
        /// The directory.
        dir: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// Not a valid name for a session.
    Name {
        /// The name.
        name: String,
        /// How many characters it may have.
        limit: usize,
    },
    /// The CLI would not accept a tool or server of that name.
    Registration(RegistrationError),
    /// The trace cannot be written.
    Trace(TraceError),
    /// There is no bridge executable for the CLI to start.
    NoBridge {
        /// Where it was searched for.
        reason: String,
    },
}

impl fmt::Display for IpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect { path, error } => {
                write!(f, "cannot reach the parent process at `{}`: {error}", path.display())
            }
            Self::Lost { reason } => {
                write!(f, "the connection to the parent process was lost in the middle of a call: {reason}")
            }
            Self::Unsent { error } => {
                write!(f, "the connection was closed before anything could be sent: {error}")
            }
            Self::Torn { bytes } => {
                write!(f, "the connection closed after {bytes} bytes of an unfinished message")
            }
            Self::ForeignPeer { uid, own } => {
                write!(f, "refused a peer that runs as user {uid}, {}", strangeness(*uid, *own))
            }
            Self::MessageSize { size, limit } => {
                write!(f, "message of {size} bytes is over the limit of {limit} bytes")
            }
            Self::Invalid { reason } => write!(f, "invalid message: {reason}"),
            Self::Io { error } => write!(f, "socket failed: {error}"),
            Self::SchemaFile { path, reason } => write!(f, "schema file `{}` {reason}", path.display()),
            Self::PathTooLong { path, limit } => write!(
                f,
                "socket path `{}` has {} bytes, the limit is {limit}",
                path.display(),
                path.as_os_str().len()
            ),
            Self::NotASocket { path } => write!(f, "`{}` is not a socket", path.display()),
            Self::Start { dir, what, error } => {
                write!(f, "cannot start a session in `{}`: {what}: {error}", dir.display())
            }
            Self::Name { name, limit } => write!(
                f,
                "`{name}` cannot be a session's name: it has 1 to {limit} characters, each of `A-Z a-z 0-9 _ -`, \
                 without `__` and without `_` at its end"
            ),
            Self::Registration(error) => error.fmt(f),
            Self::Trace(error) => error.fmt(f),
            Self::NoBridge { reason } => write!(f, "no bridge executable: {reason}"),
        }
    }
}

show_hint!(IpcError);

impl IpcError {
    /// The error's class name, as the wire and the model see it.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Connect { .. }
            | Self::Lost { .. }
            | Self::Torn { .. }
            | Self::Unsent { .. }
            | Self::ForeignPeer { .. }
            | Self::NotASocket { .. } => "IPCConnectionError",
            Self::MessageSize { .. } => "IPCMessageSizeError",
            Self::SchemaFile { .. } | Self::NoBridge { .. } => "BridgeStartupError",
            _ => "IPCError",
        }
    }
}

impl Hint for IpcError {
    fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Connect { .. } => {
                "is the process that opened the session still running? `toolbridge sessions` lists the live ones"
            }
            Self::NotASocket { .. } => "give the path of a session's socket, `…/claudecode_ipc_….sock`",
            Self::MessageSize { .. } => "pass a path or an id instead of the data itself",
            Self::SchemaFile { .. } => {
                "the file is a JSON array of objects with `name`, `description` and `input_schema`; it is this user's \
                 own, and its mode is 0600"
            }
            Self::Registration(error) => return error.hint(),
            Self::Trace(error) => return error.hint(),
            Self::PathTooLong { .. } => "set TMPDIR to a shorter directory",
            Self::Start { .. } => "set TMPDIR to a directory that exists, can be written and has space",
            Self::NoBridge { .. } => {
                "call `toolbridge::run_bridge_if_asked()` first in `main`, or install the `toolbridge` executable, \
                 or set TOOLBRIDGE_BRIDGE to its path"
            }
            _ => return None,
        })
    }
}

impl From<io::Error> for IpcError {
    fn from(error: io::Error) -> Self {
        Self::Io { error }
    }
}

impl From<RegistrationError> for IpcError {
    fn from(error: RegistrationError) -> Self {
        Self::Registration(error)
    }
}

impl From<TraceError> for IpcError {
    fn from(error: TraceError) -> Self {
        Self::Trace(error)
    }
}

impl From<IpcError> for ToolError {
    fn from(error: IpcError) -> Self {
        Self::new(error.type_name(), error.to_string()).called(Outcome::TransportError)
    }
}
