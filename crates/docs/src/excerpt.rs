//! What is taken out of a file of a manual.

use std::ops::Range;

use serde_json::json;

use crate::answer::FileType;
use crate::arguments::Line;
use crate::limit::MaxChars;
use crate::manual::{Reading, Source};
use crate::refusal::{Refusal, shown};
use crate::section::{BOM, Outline, cut};

/// What was taken out of a source.
#[derive(Debug)]
pub(crate) struct Excerpt {
    pub(crate) text: String,
    pub(crate) truncated: bool,
    /// Whether the file begins with a byte order mark.
    pub(crate) has_bom: bool,
}

/// How much of a source to take; a number is of headings, at most so many.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Take {
    /// A section's text up to its first subsection.
    Own,
    /// A section with its subsections.
    Section(Option<usize>),
    /// From a section on, whatever the levels.
    Sections(usize),
    File(Option<usize>),
}

/// Which bytes of a source to take, and whether there would be more of the same.
pub(crate) fn pick(
    outline: &Outline,
    source: &Source,
    start_line: Option<Line>,
    take: Take,
) -> Result<(Range<usize>, bool), Refusal> {
    let Some(place) = outline.place(start_line.map(Line::get)) else {
        return Err(Refusal::not_found(format!(
            "no section of `{}` starts at line {}; `manual_toc` and `manual_find` give references that fit",
            shown(source.path.below_first()),
            start_line.map_or(1, Line::get),
        )));
    };
    let section = &outline[place];
    Ok(match take {
        Take::Own => (section.own(), false),
        Take::Sections(count) => outline.run(place, count),
        Take::Section(Some(count)) => match outline.run(place, count) {
            (run, true) if run.end < section.range.end => (run, true),
            _ => (section.range.clone(), false),
        },
        Take::Section(None) | Take::File(_) => (section.range.clone(), false),
    })
}

impl Excerpt {
    /// Of a text behind which there may be more.
    pub(crate) fn of(text: &str, more: bool, max_chars: MaxChars) -> Self {
        let (text, is_cut) = cut(text, max_chars.chars);
        Self { text: text.to_owned(), truncated: is_cut || more, has_bom: false }
    }

    /// Of a whole file, or of its text up to `end`.
    pub(crate) fn whole(reading: Reading, end: Option<usize>, max_chars: MaxChars) -> Result<Self, Refusal> {
        let Reading { source, mut text, .. } = reading;
        if let Some(end) = end {
            text.truncate(end);
        }
        let has_bom = text.starts_with(BOM);
        if has_bom {
            text.drain(..BOM.len());
        }
        let is_json = source.file_type == FileType::Json;
        // A `.json` is copied as it is: its mark is one of its characters.
        let mark = usize::from(has_bom && is_json);
        let (kept, truncated) = cut(&text, max_chars.chars - mark);
        if truncated && is_json && !max_chars.is_asked_for {
            let size = text.chars().count() + mark;
            let limit = max_chars.chars;
            let raise = "set HARD_MAX_CHARS on the server, or accept a part with `limits.max_chars`";
            return Err(Refusal::forbidden(format!(
                "`{}` has {size} characters, the limit is {limit}, and half a `.json` is no JSON; {raise}",
                shown(source.path.below_first())
            ))
            .with(json!({ "size_chars": size, "limit_chars": limit, "raise": raise })));
        }
        text.truncate(kept.len());
        Ok(Self { text, truncated: truncated || end.is_some(), has_bom })
    }
}

/// The characters that are whole, of text that was cut at some byte.
pub(crate) fn valid_prefix(bytes: &[u8]) -> &str {
    bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}
