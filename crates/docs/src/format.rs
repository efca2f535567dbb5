//! Kinds of files, by their names.

use serde::Serialize;

use crate::path::RelPath;
use crate::refusal::{Refusal, shown};
use crate::section::Outline;

/// What a file's name says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    Md,
    Json,
    /// Plain text: one section.
    Txt,
}

impl Format {
    pub(crate) fn of(path: &RelPath) -> Option<Self> {
        const KNOWN: [(&str, Format); 5] = [
            ("md", Format::Md),
            ("markdown", Format::Md),
            ("mdx", Format::Md),
            ("json", Format::Json),
            ("txt", Format::Txt),
        ];
        let (_, ending) = path.name().rsplit_once('.')?;
        KNOWN.into_iter().find_map(|(known, format)| ending.eq_ignore_ascii_case(known).then_some(format))
    }

    /// Says that a file of a manual is not read because of its ending.
    pub(crate) fn unknown(path: &RelPath) -> Refusal {
        Refusal::parameter(format!(
            "`{}` is none of `.md`, `.markdown`, `.mdx`, `.json`, `.txt`, and manuals have no other files; name one of these",
            shown(path.below_first())
        ))
    }

    /// Whether it is taken as a whole, and has no sections.
    pub(crate) fn is_json(self) -> bool {
        self == Self::Json
    }

    pub(crate) fn outline(self, text: &str) -> Outline {
        match self {
            Self::Md => Outline::of(text),
            Self::Txt | Self::Json => Outline::without_headings(text),
        }
    }
}
