//! Reads a range of a text's lines.

use serde_json::json;

use crate::answer::{AppliedRange, NextOffset, TruncatedReason, VaultText};
use crate::arguments::{Count, LineRange};
use crate::refusal::Refusal;
use crate::section::{cut, split_lines};

/// Returns lines of a text, up to a limit of characters.
pub(crate) fn lines(
    text: &str,
    range: Option<LineRange>,
    max_chars: usize,
    cut_reason: TruncatedReason,
) -> Result<VaultText, Refusal> {
    let start = range.and_then(|range| range.start_line).map_or(1, Count::get);
    let wanted_end = range.and_then(|range| range.end_line).map_or(usize::MAX, Count::get);
    if wanted_end < start {
        return Err(Refusal::parameter(format!(
            "`range` ends at line {wanted_end}, before it starts at line {start}"
        )));
    }
    // An empty file has one empty line.
    let lines = split_lines(text).count().max(1);
    if start > lines {
        return Err(Refusal::parameter(format!("`range` starts at line {start}, the file has {lines}"))
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
        (TruncatedReason::RangeEnd, Some(end + 1))
    } else {
        (TruncatedReason::None, None)
    };
    Ok(VaultText {
        returned_chars: kept.chars().count(),
        text: kept.to_owned(),
        truncated: reason != TruncatedReason::None,
        applied_range: AppliedRange { start_line: start, end_line: last },
        next_offset: NextOffset { start_line: next },
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
        match lines(text, range, max_chars, TruncatedReason::MaxChars) {
            Err(refusal) => refusal.message,
            Ok(got) => format!(
                "{:?} {}-{} next {:?} {:?} {}",
                got.text,
                got.applied_range.start_line,
                got.applied_range.end_line,
                got.next_offset.start_line,
                got.truncated_reason,
                got.truncated
            ),
        }
    }

    #[test]
    fn a_range_of_lines_is_inclusive_and_says_where_to_go_on() {
        let text = "1\n22\r\n333\r4444";
        for (range, max_chars, want) in [
            (None, 100, r#""1\n22\r\n333\r4444" 1-4 next None None false"#),
            (Some((2, 3)), 100, r#""22\r\n333\r" 2-3 next Some(4) RangeEnd true"#),
            (Some((4, 9)), 100, r#""4444" 4-4 next None None false"#),
            (Some((1, 4)), 3, r#""1\n2" 1-2 next Some(2) MaxChars true"#),
            (Some((1, 4)), 2, r#""1\n" 1-1 next Some(2) MaxChars true"#),
            (Some((4, 4)), 2, r#""44" 4-4 next None MaxChars true"#),
            (Some((3, 4)), 2, r#""33" 3-3 next Some(4) MaxChars true"#),
            (Some((5, 9)), 9, "`range` starts at line 5, the file has 4"),
            (Some((3, 2)), 9, "`range` ends at line 2, before it starts at line 3"),
        ] {
            assert_eq!(shown_lines(text, range, max_chars), want, "{range:?} {max_chars}");
        }
        assert_eq!(shown_lines("", Some((1, 1)), 5), r#""" 1-1 next None None false"#);
        assert_eq!(shown_lines("日本\n", None, 2), r#""日本" 1-1 next None MaxChars true"#);
    }
}
