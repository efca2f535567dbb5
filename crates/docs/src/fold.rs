//! Normal forms of text for comparing and searching.

use std::borrow::Cow;

use caseless::Caseless as _;
use unicode_normalization::{IsNormalized, UnicodeNormalization as _, is_nfkc_quick};

/// Text for comparing and searching: compatibility forms composed (NFKC), case folded.
pub(crate) fn fold(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    let folded = fold_case(&normal(text));
    // Folded text may need normalising again, and that result may need folding again.
    match normal(&folded) {
        Cow::Borrowed(_) => folded,
        Cow::Owned(text) => fold_case(&text),
    }
}

/// Unicode's `Default_Ignorable_Code_Point`.
pub(crate) fn is_ignorable(char: char) -> bool {
    matches!(
        char,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fff8}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

fn normal(text: &str) -> Cow<'_, str> {
    match is_nfkc_quick(text.chars()) {
        IsNormalized::Yes => Cow::Borrowed(text),
        IsNormalized::No | IsNormalized::Maybe => Cow::Owned(text.nfkc().collect()),
    }
}

/// Full case folding; characters in ranges without case skip the table.
fn fold_case(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\0'..='\x7f' => folded.push(char.to_ascii_lowercase()),
            // From the radicals to the Yi syllables, and Hangul.
            '\u{2e80}'..='\u{a4cf}' | '\u{ac00}'..='\u{d7a3}' => folded.push(char),
            _ => folded.extend(std::iter::once(char).default_case_fold()),
        }
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_by_ranges_is_folding_by_the_table() {
        for char in '\0'..=char::MAX {
            let text = char.to_string();
            assert_eq!(fold_case(&text), caseless::default_case_fold_str(&text), "{char:?}");
        }
    }

    #[test]
    fn folding_sees_through_case_width_and_composition() {
        for (text, want) in [
            ("Daily", "daily"),
            ("ＤＡＩＬＹ", "daily"),
            ("d\u{0061}i\u{006c}y", "daily"),
            ("․SYSTEM", ".system"),
            ("ﬁle", "file"),
            ("Straße", "strasse"),
            ("ｶﾞｲﾄﾞ", "ガイド"),
            ("か\u{3099}", "が"),
            ("\u{212a}ey", "key"),
        ] {
            assert_eq!(fold(text), want, "{text}");
        }
    }
}
