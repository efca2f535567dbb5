//! Limits on how much one call may read or copy.

use crate::arguments::{Count, Limits};

/// Larger sources are refused before they are read.
pub(crate) const MAX_SOURCE_BYTES: u64 = 64 * 1024 * 1024;

/// The maximum number of replacements per call of `vault_replace`.
pub(crate) const HARD_MAX_REPLACEMENTS: usize = 10_000;

const DEFAULT_MAX_CHARS: usize = 8000;
const DEFAULT_MAX_SECTIONS: usize = 20;
const DEFAULT_FOUND: usize = 10;

/// The default and the maximum length of a page of a list.
const DEFAULT_PAGE: usize = 200;
pub(crate) const MAX_PAGE: usize = 1000;

/// How many entries of a list one answer has.
pub(crate) fn page(asked: Option<Count>) -> usize {
    asked.map_or(DEFAULT_PAGE, Count::get).min(MAX_PAGE)
}

/// The limits of text that no call can exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_field_names, reason = "each is the most of something")]
pub(crate) struct HardLimits {
    /// Headings of manuals, and hits of a search.
    pub(crate) max_sections: usize,
    pub(crate) max_chars: usize,
    /// For copies, which no model reads; if unset, the limit for reading.
    pub(crate) max_copy_chars: Option<usize>,
}

impl Default for HardLimits {
    fn default() -> Self {
        Self { max_sections: 20, max_chars: 20_000, max_copy_chars: None }
    }
}

/// A number of characters, and whether the call or the server set it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MaxChars {
    pub(crate) chars: usize,
    /// The call set this limit.
    pub(crate) is_asked_for: bool,
    /// The server's limit applies, not the call's.
    pub(crate) is_hard: bool,
}

impl HardLimits {
    /// The limit for reading. Half a `.json` is no use, so its default is the most.
    pub(crate) fn chars(self, asked: Option<Limits>, is_json: bool) -> MaxChars {
        Self::lowered(asked, if is_json { self.max_chars } else { DEFAULT_MAX_CHARS }, self.max_chars)
    }

    /// The limit for a copy. A separate limit for copies is also the default, because it is set to get them
    /// whole.
    pub(crate) fn copied_chars(self, asked: Option<Limits>, is_json: bool) -> MaxChars {
        match self.max_copy_chars {
            Some(most) => Self::lowered(asked, most, most),
            None => self.chars(asked, is_json),
        }
    }

    fn lowered(asked: Option<Limits>, default: usize, most: usize) -> MaxChars {
        let asked = asked.and_then(|limits| limits.max_chars).map(Count::get);
        let wanted = asked.unwrap_or(default);
        MaxChars {
            chars: wanted.min(most),
            is_asked_for: asked.is_some(),
            is_hard: wanted >= most && asked != Some(most),
        }
    }

    pub(crate) fn sections(self, asked: Option<Limits>) -> usize {
        let asked = asked.and_then(|limits| limits.max_sections).map_or(DEFAULT_MAX_SECTIONS, Count::get);
        asked.min(self.max_sections)
    }

    /// The limit for sections also applies to found sections.
    pub(crate) fn found(self, asked: Option<Count>) -> usize {
        asked.map_or(DEFAULT_FOUND, Count::get).min(self.max_sections)
    }
}
