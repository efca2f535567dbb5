//! Errors before and while serving.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::trace::TraceError;
use crate::{Hint, show_hint};

/// Why a server could not be started, or has ended.
#[non_exhaustive]
pub enum HttpError {
    /// Other machines could call the tools without authorization.
    Unprotected {
        /// Where the server listens.
        address: SocketAddr,
    },
    /// The listener's address is unknown.
    Listen(io::Error),
    /// The token file cannot be read.
    Tokens {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The token file belongs to another user, or is not a regular file.
    TokensOwner {
        /// The file.
        path: PathBuf,
    },
    /// The token file is readable by others.
    TokensMode {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The token file has no tokens.
    NoTokens {
        /// The file.
        path: PathBuf,
    },
    /// The trace cannot be written.
    Trace(TraceError),
}

impl HttpError {
    pub(crate) fn tokens(path: &Path, error: io::Error) -> Self {
        Self::Tokens { path: path.to_owned(), error }
    }
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unprotected { address } => {
                write!(f, "`{address}` can be reached from other machines, and requests are not authorized")
            }
            Self::Listen(error) => write!(f, "cannot listen: {error}"),
            Self::Tokens { path, error } => {
                write!(f, "cannot read the tokens in `{}`: {error}", path.display())
            }
            Self::TokensOwner { path } => write!(f, "`{}` is not a file of this user", path.display()),
            Self::TokensMode { path, mode } => {
                write!(f, "`{}` is open to others: its mode is {mode:o}", path.display())
            }
            Self::NoTokens { path } => write!(f, "there is no token in `{}`", path.display()),
            Self::Trace(error) => error.fmt(f),
        }
    }
}

impl Hint for HttpError {
    fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Unprotected { .. } => {
                "listen on 127.0.0.1, or say who may call: `.bearer_tokens_from(FILE)` or `.authorize(…)`"
            }
            Self::Listen(_) => return None,
            Self::Tokens { .. } => "write one token on each line, such as `openssl rand -hex 32` generates",
            Self::TokensOwner { .. } => "name a regular file that belongs to the user who runs the server",
            Self::TokensMode { .. } => "run `chmod 600` on it",
            Self::NoTokens { .. } => "write one token on each line; lines that begin with `#` are comments",
            Self::Trace(error) => return error.hint(),
        })
    }
}

show_hint!(HttpError);
