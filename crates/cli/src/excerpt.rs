//! Shortens a text for display.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The start of a text on one line, at most `columns` wide on a terminal.
pub(crate) fn excerpt(text: &str, columns: usize) -> String {
    let mut start = String::new();
    let mut left = columns;
    for char in text.chars().map(|char| if char.is_control() { ' ' } else { char }) {
        let Some(rest) = left.checked_sub(char.width().unwrap_or_default()) else {
            // The mark takes the last column.
            while start.width() >= columns.max(1) {
                start.pop();
            }
            return start + "…";
        };
        start.push(char);
        left = rest;
    }
    start
}

/// The same, padded to that many columns.
pub(crate) fn fit(text: &str, columns: usize) -> String {
    let start = excerpt(text, columns);
    let padding = columns.saturating_sub(start.width());
    start + &" ".repeat(padding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_text_ends_with_a_mark_within_the_limit() {
        let rows = [
            ("", ""),
            ("grüß", "grüß"),
            ("grüße", "grü…"),
            ("a\r\nb", "a  b"),
            ("a\tb\u{1b}[m", "a b…"),
            ("入館", "入館"),
            ("入館時", "入…"),
            ("a入館", "a入…"),
        ];
        for (text, want) in rows {
            assert_eq!(excerpt(text, 4), want);
        }
    }

    #[test]
    fn padded_texts_have_the_same_width() {
        assert_eq!([fit("abcdef", 4), fit("a\nb", 4)], ["abc…", "a b "]);
        for text in ["", "a", "grüß", "入館", "入館時", "a入館時"] {
            assert_eq!(fit(text, 5).width(), 5, "{text}");
        }
    }
}
