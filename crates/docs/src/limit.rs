//! How much one call may move.

use crate::answer::FileType;
use crate::arguments::{Count, Limits};

/// Sources above this are refused before they are read.
pub(crate) const MAX_SOURCE_BYTES: u64 = 64 * 1024 * 1024;

/// What no call of `vault_replace` exceeds.
pub(crate) const HARD_MAX_REPLACEMENTS: usize = 10_000;

const DEFAULT_MAX_CHARS: usize = 8000;
const DEFAULT_MAX_SECTIONS: usize = 20;
const DEFAULT_FOUND: usize = 10;

/// What no call exceeds, whatever it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HardLimits {
    pub(crate) max_sections: usize,
    pub(crate) max_chars: usize,
}

impl Default for HardLimits {
    fn default() -> Self {
        Self { max_sections: 20, max_chars: 20_000 }
    }
}

/// A number of characters, and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MaxChars {
    pub(crate) chars: usize,
    /// The call said it wants no more.
    pub(crate) is_asked_for: bool,
    /// It is the server's limit and not the call's.
    pub(crate) is_hard: bool,
}

impl HardLimits {
    pub(crate) fn chars(self, asked: Option<Limits>, file_type: FileType) -> MaxChars {
        let asked = asked.and_then(|limits| limits.max_chars).map(Count::get);
        let wanted = asked.unwrap_or(match file_type {
            FileType::Md => DEFAULT_MAX_CHARS,
            FileType::Json => self.max_chars,
        });
        MaxChars {
            chars: wanted.min(self.max_chars),
            is_asked_for: asked.is_some(),
            is_hard: wanted >= self.max_chars && asked != Some(self.max_chars),
        }
    }

    pub(crate) fn sections(self, asked: Option<Limits>) -> usize {
        let asked = asked.and_then(|limits| limits.max_sections).map_or(DEFAULT_MAX_SECTIONS, Count::get);
        asked.min(self.max_sections)
    }

    /// How many headings of what is copied; all of them if the call does not say.
    pub(crate) fn copied_sections(self, asked: Option<Limits>) -> Option<usize> {
        let asked = asked.and_then(|limits| limits.max_sections)?;
        Some(asked.get().min(self.max_sections))
    }

    /// A found section is a section: the same limit holds.
    pub(crate) fn found(self, asked: Option<Count>) -> usize {
        asked.map_or(DEFAULT_FOUND, Count::get).min(self.max_sections)
    }
}
