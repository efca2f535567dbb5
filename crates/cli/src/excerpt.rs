//! Shortens a text for display.

/// The start of a text on one line, at most `chars` characters of it.
pub(crate) fn excerpt(text: &str, chars: usize) -> String {
    let mut line = text.chars().map(|char| if char.is_control() { ' ' } else { char });
    let mut start: String = line.by_ref().take(chars).collect();
    if line.next().is_some() {
        start.pop();
        start.push('…');
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_text_ends_with_a_mark_within_the_limit() {
        let rows =
            [("", ""), ("grüß", "grüß"), ("grüße", "grü…"), ("a\r\nb", "a  b"), ("a\tb\u{1b}[m", "a b…")];
        for (text, want) in rows {
            assert_eq!(excerpt(text, 4), want);
        }
    }
}
