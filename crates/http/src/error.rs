//! What can go wrong before and while serving.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use toolbridge_core::{Hint, show_hint};

/// Why a server could not be made, or has ended.
#[non_exhaustive]
pub enum HttpError {
    /// Others on the network could call the tools.
    Unprotected {
        /// Where the server listens.
        address: SocketAddr,
    },
    /// The listener does not say where it listens.
    Listen(io::Error),
    /// The file of tokens cannot be read.
    Tokens {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file of tokens is somebody else's, or no file.
    TokensOwner {
        /// The file.
        path: PathBuf,
    },
    /// Others can read the file of tokens.
    TokensMode {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The file of tokens has none.
    NoTokens {
        /// The file.
        path: PathBuf,
    },
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
                write!(f, "`{address}` can be reached from other machines, and nobody is asked who they are")
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
            Self::Tokens { .. } => "write one token on each line, such as `openssl rand -hex 32` makes",
            Self::TokensOwner { .. } => "name a regular file that belongs to the user who runs the server",
            Self::TokensMode { .. } => "run `chmod 600` on it",
            Self::NoTokens { .. } => "write one token on each line; lines that begin with `#` are comments",
        })
    }
}

show_hint!(HttpError);
