//! The line of a section that shows why it matched.

use crate::fold::fold;

use crate::section::split_lines;
use crate::term::terms_in;

/// The maximum length. A snippet is also at most half of the section, because it must not replace reading it.
pub(crate) const MAX_CHARS: usize = 100;
/// At most one in this many characters of a snippet precedes the match.
const LEAD: usize = 4;

/// The line with most of the terms, cut around the first of them.
pub(crate) fn snippet(text: &str, terms: &[String], most: usize) -> String {
    let lines = || split_lines(text).map(str::trim).filter(|line| !line.is_empty());
    // Fences, thematic breaks and table borders are shown only if there is nothing else.
    let says_something = |line: &&str| {
        !line.starts_with("```") && !line.starts_with("~~~") && line.contains(char::is_alphanumeric)
    };
    let telling: Vec<_> = lines().filter(says_something).collect();
    let shown = if telling.is_empty() { lines().collect() } else { telling };
    // The first line with most of the terms.
    let best = shown.into_iter().rev().max_by_key(|line| terms_in(&fold(line), terms).1);
    let most = most.min(MAX_CHARS).min(text.trim().chars().count() / 2);
    best.map(|line| window(line, terms, most)).unwrap_or_default()
}

/// The text around the first term, at most `most` characters.
fn window(line: &str, terms: &[String], most: usize) -> String {
    let chars: Vec<char> = line.chars().collect();
    if chars.len() <= most {
        return line.to_owned();
    }
    // Folded one character at a time, to map positions back to the line.
    let mut folded = String::new();
    let mut places = Vec::new();
    for (place, char) in chars.iter().enumerate() {
        let one = fold(char.encode_utf8(&mut [0; 4]));
        places.extend(std::iter::repeat_n(place, one.len()));
        folded.push_str(&one);
    }
    let first = terms_in(&folded, terms).0.map_or(0, |at| places[at]);
    let start = first.saturating_sub(most / LEAD).min(chars.len() - most);
    let end = start + most;
    let mark = |cut: bool| if cut { "…" } else { "" };
    format!("{}{}{}", mark(start > 0), String::from_iter(&chars[start..end]), mark(end < chars.len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::term::query_terms;

    #[test]
    fn a_snippet_is_the_line_that_shows_why() {
        let terms = query_terms("restart server");
        assert_eq!(
            snippet("First of all:\n\n  Restart the Server.\nrestart", &terms, MAX_CHARS),
            "Restart the Server."
        );
        assert_eq!(snippet("nothing here\nand nothing there", &terms, MAX_CHARS), "nothing here");
        // Never the whole of a short section.
        assert_eq!(snippet("Restart the server.", &terms, MAX_CHARS), "Restart t…");
        assert_eq!(snippet("", &terms, MAX_CHARS), "");
        // A fence is used only if there is no other line.
        assert_eq!(snippet("```sh\nmake all\n```\n| --- |", &terms, MAX_CHARS), "make all");
        assert_eq!(snippet("-----", &terms, MAX_CHARS), "--…");
        let long = format!("{}再起動{}", "あ".repeat(300), "い".repeat(300));
        let got = snippet(&long, &query_terms("再起動"), MAX_CHARS);
        assert!(got.starts_with("…あ") && got.contains("再起動い") && got.ends_with("い…"), "{got}");
        assert_eq!(got.chars().count(), MAX_CHARS + 2);
    }
}
