//! `vault_read`: lines of a note, or its headings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Call, Tool};
use crate::arguments::{Count, Limits};
use crate::excerpt::shown_title;
use crate::format::Format;
use crate::limit::MAX_PAGE;
use crate::path::RelPath;
use crate::refusal::Refusal;
use crate::section::{Section, cut, split_lines};
use crate::snapshot;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// File in the vault.
    path: String,
    /// Lines from 1, both ends included.
    range: Option<LineRange>,
    /// All the server allows.
    full: Option<bool>,
    /// Its headings instead: `#L98 2 Title`.
    outline: Option<bool>,
    /// Up to `max_chars` (8000); `max_sections`, `allow_file` change nothing here.
    limits: Option<Limits>,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LineRange {
    start_line: Option<Count>,
    end_line: Option<Count>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Answer {
    Text(Lines),
    Outline {
        /// One for each heading: its line, its level, its title.
        sections: Vec<String>,
        /// Whether there are more.
        truncated: bool,
    },
}

#[derive(Serialize)]
struct Lines {
    text: String,
    /// Whether the file has more than was returned.
    truncated: bool,
    returned_chars: usize,
    /// The lines returned; the last one may be cut.
    applied_range: Value,
    /// Where to go on; null when there is nothing left.
    next_offset: Value,
    /// `max_chars` if the call's limit, or its default, cut the text, `hard_limit` if the server's did, `range_end` if
    /// the file continues after the range, or `none`.
    truncated_reason: &'static str,
}

pub(super) fn tool() -> Tool {
    let description = "Reads a note, or lines of it. If `truncated`, continue at `next_offset.start_line`.";
    super::tool("vault_read", "Read a note", description, run).read_only()
}

fn run(call: &Call<'_>, arguments: &Arguments) -> Result<Answer, Refusal> {
    let Arguments { path, range, full, outline, limits } = arguments;
    let vault = &call.shared.vault;
    let path = vault.admit(path, None)?;
    let (full, outline) = (*full == Some(true), *outline == Some(true));
    if outline && (range.is_some() || full) {
        return Err(Refusal::parameter("`outline` covers the whole note; leave `range` and `full` out"));
    }
    if full && range.is_some() {
        return Err(Refusal::parameter("`full` and `range` exclude each other; leave one out"));
    }
    let text = snapshot::read(path.as_str(), || vault.root.read(&path))?.text;
    let format = Format::of(&path).unwrap_or(Format::Md);
    // With `full`, for headings and for a `.json`, the default is the server's maximum.
    let max_chars = vault.hard.chars(*limits, full || outline || format.is_json());
    if outline {
        return Ok(headings(&path, format, &text, max_chars.chars));
    }
    let reason = if max_chars.is_hard { "hard_limit" } else { "max_chars" };
    lines(&text, *range, max_chars.chars, reason).map(Answer::Text)
}

fn headings(path: &RelPath, format: Format, text: &str, max_chars: usize) -> Answer {
    let outline = format.outline(text);
    let line = |section: &Section| {
        format!("#L{} {} {}", section.line, section.level, shown_title(path.name(), section))
    };
    let mut left = max_chars;
    let fits = |line: &String| {
        // Each line ends with a character too.
        let size = line.chars().count() + 1;
        let fits = size <= left;
        left -= size.min(left);
        fits
    };
    let sections: Vec<_> = outline.iter().map(line).take(MAX_PAGE).take_while(fits).collect();
    Answer::Outline { truncated: sections.len() < outline.len(), sections }
}

/// Returns lines of a text, up to a limit of characters.
fn lines(
    text: &str,
    range: Option<LineRange>,
    max_chars: usize,
    cut_reason: &'static str,
) -> Result<Lines, Refusal> {
    let start = range.and_then(|range| range.start_line).map_or(1, Count::get);
    let wanted_end = range.and_then(|range| range.end_line).map_or(usize::MAX, Count::get);
    if wanted_end < start {
        return Err(Refusal::parameter(format!(
            "`range` ends at line {wanted_end}, before it starts at line {start}; give an end from there on"
        )));
    }
    // An empty file has one empty line.
    let lines = split_lines(text).count().max(1);
    if start > lines {
        return Err(Refusal::parameter(format!(
            "`range` starts at line {start}, the file has {lines}; start before"
        ))
        .with(json!({ "lines": lines })));
    }
    let end = wanted_end.min(lines);
    let before: usize = split_lines(text).take(start - 1).map(str::len).sum();
    let length: usize = split_lines(&text[before..]).take(end + 1 - start).map(str::len).sum();
    let (kept, is_cut) = cut(&text[before..before + length], max_chars);
    let kept_lines = split_lines(kept).count().max(1);
    let last = start + kept_lines - 1;
    let (reason, next) = if is_cut {
        let whole: usize = split_lines(&text[before..]).take(kept_lines).map(str::len).sum();
        // A partly returned line is read again from its start, unless it was the only one: that would never
        // advance.
        let next = if whole == kept.len() || kept_lines == 1 { last + 1 } else { last };
        (cut_reason, (next <= lines).then_some(next))
    } else if end < lines {
        ("range_end", Some(end + 1))
    } else {
        ("none", None)
    };
    Ok(Lines {
        returned_chars: kept.chars().count(),
        text: kept.to_owned(),
        truncated: reason != "none",
        applied_range: json!({ "start_line": start, "end_line": last }),
        next_offset: json!({ "start_line": next }),
        truncated_reason: reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(number: usize) -> Count {
        serde_json::from_value(number.into()).unwrap()
    }

    fn shown_lines(text: &str, range: Option<(usize, usize)>, max_chars: usize) -> String {
        let range = range
            .map(|(start, end)| LineRange { start_line: Some(count(start)), end_line: Some(count(end)) });
        match lines(text, range, max_chars, "max_chars") {
            Err(refusal) => refusal.message,
            Ok(got) => format!(
                "{:?} {}-{} next {} {} {}",
                got.text,
                got.applied_range["start_line"],
                got.applied_range["end_line"],
                got.next_offset["start_line"],
                got.truncated_reason,
                got.truncated
            ),
        }
    }

    #[test]
    fn a_range_of_lines_is_inclusive_and_says_where_to_go_on() {
        let text = "1\n22\r\n333\r4444";
        for (range, max_chars, want) in [
            (None, 100, r#""1\n22\r\n333\r4444" 1-4 next null none false"#),
            (Some((2, 3)), 100, r#""22\r\n333\r" 2-3 next 4 range_end true"#),
            (Some((4, 9)), 100, r#""4444" 4-4 next null none false"#),
            (Some((1, 4)), 3, r#""1\n2" 1-2 next 2 max_chars true"#),
            (Some((1, 4)), 2, r#""1\n" 1-1 next 2 max_chars true"#),
            (Some((4, 4)), 2, r#""44" 4-4 next null max_chars true"#),
            (Some((3, 4)), 2, r#""33" 3-3 next 4 max_chars true"#),
            (Some((5, 9)), 9, "`range` starts at line 5, the file has 4; start before"),
            (
                Some((3, 2)),
                9,
                "`range` ends at line 2, before it starts at line 3; give an end from there on",
            ),
        ] {
            assert_eq!(shown_lines(text, range, max_chars), want, "{range:?} {max_chars}");
        }
        assert_eq!(shown_lines("", Some((1, 1)), 5), r#""" 1-1 next null none false"#);
        assert_eq!(shown_lines("日本\n", None, 2), r#""日本" 1-1 next null max_chars true"#);
    }
}
