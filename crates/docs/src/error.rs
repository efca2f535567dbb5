//! Why the document tools cannot start.

use std::fmt;
use std::io;
use std::path::PathBuf;

use toolbridge_core::{Hint, show_hint};

/// Why the document tools cannot start.
#[non_exhaustive]
pub enum DocsError {
    /// A root does not exist.
    MissingRoot {
        /// `manuals` or `vault`.
        root: &'static str,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A root is there, but cannot be used.
    OpenRoot {
        /// `manuals` or `vault`.
        root: &'static str,
        /// Where it is.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// One root lies in the other, so that writing to the vault could change the manuals.
    OverlappingRoots {
        /// The manuals.
        manuals: PathBuf,
        /// The vault.
        vault: PathBuf,
    },
    /// A setting has a value that it cannot have.
    InvalidSetting {
        /// The environment variable or the builder's method.
        name: &'static str,
        /// What it was set to.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
    /// The folders or the example manual could not be made.
    Init {
        /// What was to be made.
        path: PathBuf,
        /// What the system said.
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
                "the manuals folder `{}` and the vault folder `{}` are not apart",
                manuals.display(),
                vault.display()
            ),
            Self::InvalidSetting { name, value, expected } => {
                write!(f, "`{name}` is `{value}`, which is not {expected}")
            }
            Self::Init { path, source } => write!(f, "cannot make `{}`: {source}", path.display()),
        }
    }
}

show_hint!(DocsError);

impl Hint for DocsError {
    fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::MissingRoot { .. } => {
                "make the folder, name another one, or have both made with an example manual (`--init`)"
            }
            Self::OpenRoot { .. } => "name a folder that you may read",
            Self::OverlappingRoots { .. } => "choose two folders of which neither lies in the other",
            Self::InvalidSetting { .. } => "correct the value, or leave it out for the default",
            Self::Init { .. } => "choose a workspace that you may write to",
        })
    }
}
