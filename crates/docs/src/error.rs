//! Why the document tools cannot start.

use std::io;
use std::path::PathBuf;

/// Why the document tools cannot start.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DocsError {
    /// A root does not exist.
    #[error("the {root} folder `{}` does not exist", path.display())]
    MissingRoot {
        /// `manuals` or `vault`.
        root: &'static str,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// A root is there, but cannot be used.
    #[error("the {root} folder `{}` cannot be opened: {source}", path.display())]
    OpenRoot {
        /// `manuals` or `vault`.
        root: &'static str,
        /// Where it is.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// One root lies in the other, so that writing to the vault could change the manuals.
    #[error("the manuals folder `{}` and the vault folder `{}` are not apart", manuals.display(), vault.display())]
    OverlappingRoots {
        /// The manuals.
        manuals: PathBuf,
        /// The vault.
        vault: PathBuf,
    },
    /// A setting has a value that it cannot have.
    #[error("`{name}` is `{value}`, which is not {expected}")]
    InvalidSetting {
        /// The environment variable or the builder's method.
        name: &'static str,
        /// What it was set to.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
    /// The folders or the example manual could not be made.
    #[error("cannot make `{}`: {reason}", path.display())]
    Init {
        /// What was to be made.
        path: PathBuf,
        /// Why it was not.
        reason: String,
    },
}

impl DocsError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::MissingRoot { .. } => {
                "make the folder, name another one, or have both made with an example manual (`--init`)"
            }
            Self::OpenRoot { .. } => "name a folder that you may read",
            Self::OverlappingRoots { .. } => "choose two folders of which neither lies in the other",
            Self::InvalidSetting { .. } => "correct the value, or leave it out for the default",
            Self::Init { .. } => "choose a workspace that you may write to",
        }
    }
}

/// What `main() -> Result<…>` prints: the fact, then what to do.
impl std::fmt::Debug for DocsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}\nhint: {}", self.hint())
    }
}
