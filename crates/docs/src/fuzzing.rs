//! Entry points for the fuzz targets; not stable.

use crate::fold;
use crate::path::RelPath;
use crate::section::Outline;
pub use crate::section::Section;

/// The sections of a text.
#[must_use]
pub fn outline(text: &str) -> Vec<Section> {
    Outline::of(text).to_vec()
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

/// A text folded for searching.
#[must_use]
pub fn folded(text: &str) -> String {
    fold::fold(text)
}
