//! What the fuzz targets reach; not for anybody else, and not kept stable.

use std::ops::Range;

use crate::path::{self, RelPath};
use crate::section::Outline;

/// A section, as positions in its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// 1 to 6; 0 for what has no heading.
    pub level: u8,
    /// The heading's text.
    pub title: String,
    /// The line it starts at, from 1.
    pub line: usize,
    /// The last line of it.
    pub last_line: usize,
    /// Its bytes.
    pub range: Range<usize>,
    /// Where its first subsection begins.
    pub own_end: usize,
    /// The section it lies in.
    pub parent: Option<usize>,
}

/// The sections of a text.
#[must_use]
pub fn outline(text: &str) -> Vec<Part> {
    let outline = Outline::of(text);
    let part = |one: &crate::section::Section| Part {
        level: one.level,
        title: one.title.clone(),
        line: one.line,
        last_line: one.last_line,
        range: one.range.clone(),
        own_end: one.own_end,
        parent: one.parent,
    };
    outline.iter().map(part).collect()
}

/// A relative path in normal form, if it is one.
#[must_use]
pub fn relative_path(text: &str) -> Option<String> {
    RelPath::parse(text).ok().map(|path| path.as_str().to_owned())
}

/// A plain name, if it is one.
#[must_use]
pub fn plain_name(text: &str) -> Option<String> {
    RelPath::parse_name("name", text).ok().map(|path| path.as_str().to_owned())
}

/// A text as it is searched, and as a guard compares it.
#[must_use]
pub fn folded(text: &str) -> [String; 2] {
    [path::fold(text), path::fold_name(text)]
}
