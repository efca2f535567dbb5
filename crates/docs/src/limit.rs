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

/// How long a page of a list is, if the call does not say, and at most.
const DEFAULT_PAGE: usize = 200;
pub(crate) const MAX_PAGE: usize = 1000;

/// How many lines of a list one answer has.
pub(crate) fn page(asked: Option<Count>) -> usize {
    asked.map_or(DEFAULT_PAGE, Count::get).min(MAX_PAGE)
}

/// What no call exceeds, whatever it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "each is the most of something")]
pub(crate) struct HardLimits {
    pub(crate) max_sections: usize,
    pub(crate) max_chars: usize,
    /// For copies, which no model reads; the same as for reading if it is not set.
    pub(crate) max_copy_chars: Option<usize>,
}

impl Default for HardLimits {
    fn default() -> Self {
        Self { max_sections: 20, max_chars: 20_000, max_copy_chars: None }
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

    /// How many characters are copied. A limit for copies alone is the default too: it is there to have them whole.
    pub(crate) fn copied_chars(self, asked: Option<Limits>, file_type: FileType) -> MaxChars {
        let Some(most) = self.max_copy_chars else { return self.chars(asked, file_type) };
        let asked = asked.and_then(|limits| limits.max_chars).map(Count::get);
        let chars = asked.unwrap_or(most).min(most);
        MaxChars { chars, is_asked_for: asked.is_some(), is_hard: chars == most && asked != Some(most) }
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
