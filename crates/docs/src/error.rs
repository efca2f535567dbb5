//! Why the document tools cannot start.

use std::fmt;
use std::io;
use std::path::PathBuf;

use toolbridge_core::tool::{Hint, show_hint};

/// Why the document tools cannot start.
#[non_exhaustive]
pub enum DocsError {
    /// A root does not exist.
    MissingRoot {
        /// `manuals`, or `notes` for a single folder.
        root: &'static str,
        /// The path that was tried.
        path: PathBuf,
    },
    /// A root exists but cannot be used.
    OpenRoot {
        /// `manuals`, `vault`, or `notes` for a single folder.
        root: &'static str,
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// One root contains the other, so writing to the vault could change the manuals.
    OverlappingRoots {
        /// The manuals.
        manuals: PathBuf,
        /// The vault.
        vault: PathBuf,
    },
    /// A setting has an invalid value.
    InvalidSetting {
        /// The environment variable or the builder method.
        name: &'static str,
        /// The value.
        value: String,
        /// The values that are allowed.
        expected: &'static str,
    },
    /// The folders or the example manual could not be created.
    Init {
        /// The path that could not be created.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl fmt::Display for DocsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingRoot { root, path } => {
                write!(f, "the {root} folder `{}` does not exist", path.display())
            }
            Self::OpenRoot { root, path, source } => {
                write!(f, "the {root} folder `{}` cannot be opened: {source}", path.display())
            }
            Self::OverlappingRoots { manuals, vault } => write!(
                f,
                "the manuals folder `{}` and the vault folder `{}` overlap",
                manuals.display(),
                vault.display()
            ),
            Self::InvalidSetting { name, value, expected } => {
                write!(f, "`{name}` is `{value}`, which is not {expected}")
            }
            Self::Init { path, source } => write!(f, "cannot create `{}`: {source}", path.display()),
        }
    }
}

show_hint!(DocsError);

impl Hint for DocsError {
    fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::MissingRoot { .. } => {
                "name an existing folder of notes, as in `toolbridge docs ~/notes`, or create one with an example (`--init`)"
            }
            Self::OpenRoot { .. } => "name a folder that you can read",
            Self::OverlappingRoots { .. } => "choose two folders, neither inside the other",
            Self::InvalidSetting { .. } => "correct the value, or leave it out for the default",
            Self::Init { .. } => "choose a workspace that you can write to",
        })
    }
}
