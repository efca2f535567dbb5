//! Kinds of files, by their names.

use schemars::JsonSchema;
use serde::Serialize;

use crate::answer::FileType;
use crate::path::RelPath;
use crate::refusal::{Refusal, shown};
use crate::section::Outline;

/// What a file's name says it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
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
            "`{}` is none of `.md`, `.markdown`, `.mdx`, `.json`, `.txt`, and manuals have no other files",
            shown(path.below_first())
        ))
    }

    /// Which rules apply: those for files with sections, or those for files taken as a whole.
    pub(crate) fn file_type(self) -> FileType {
        if self == Self::Json { FileType::Json } else { FileType::Md }
    }

    pub(crate) fn outline(self, text: &str) -> Outline {
        match self {
            Self::Md => Outline::of(text),
            Self::Txt | Self::Json => Outline::without_headings(text),
        }
    }
}
