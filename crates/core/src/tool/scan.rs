//! Finds where JSON values end, and whether they are valid JSON.
//!
//! Nothing is decoded, and the text is known to be UTF-8.

/// Where the value that begins at `at` ends; `None` when it is not valid JSON.
pub(crate) fn value_end(text: &[u8], at: usize) -> Option<usize> {
    value_extent(text, at).map(|(end, _)| end)
}

/// Where the value that begins at `at` ends, and how many levels of objects and lists it has; `None` when it is not
/// valid JSON.
pub(crate) fn value_extent(text: &[u8], at: usize) -> Option<(usize, usize)> {
    let mut at = skip_space(text, at);
    // For each enclosing level but the innermost, whether it is an object. A stack on the heap and no recursion:
    // the peer chooses how deep values are nested.
    let mut around = Vec::new();
    let (mut depth, mut in_object) = (0_usize, false);
    let mut deepest = 0;
    loop {
        // A value begins here.
        match *text.get(at)? {
            b'"' => at = string_end(text, at)?,
            b'-' | b'0'..=b'9' => at = number_end(text, at)?,
            b't' => at = literal_end(text, at, *b"true")?,
            b'f' => at = literal_end(text, at + 1, *b"alse")?,
            b'n' => at = literal_end(text, at, *b"null")?,
            open @ (b'{' | b'[') => {
                let object = open == b'{';
                deepest = deepest.max(depth + 1);
                at = skip_space(text, at + 1);
                if text.get(at) == Some(if object { &b'}' } else { &b']' }) {
                    at += 1;
                } else {
                    around.push(in_object);
                    (depth, in_object) = (depth + 1, object);
                    at = item_begin(text, at, object)?;
                    continue;
                }
            }
            _ => return None,
        }
        // It has ended, and enclosing objects and lists may end with it.
        while depth > 0 {
            at = skip_space(text, at);
            match (*text.get(at)?, in_object) {
                (b',', _) => {
                    at = item_begin(text, skip_space(text, at + 1), in_object)?;
                    break;
                }
                (b'}', true) | (b']', false) => {
                    at += 1;
                    (depth, in_object) = (depth - 1, around.pop()?);
                }
                _ => return None,
            }
        }
        if depth == 0 {
            return Some((at, deepest));
        }
    }
}

/// Where an item's value begins: in an object, after its key.
#[inline]
fn item_begin(text: &[u8], at: usize, in_object: bool) -> Option<usize> {
    if !in_object {
        return Some(at);
    }
    let at = skip_space(text, string_end(text, at)?);
    (text.get(at) == Some(&b':')).then(|| skip_space(text, at + 1))
}

/// Where white space ends.
#[inline]
pub(crate) fn skip_space(text: &[u8], mut at: usize) -> usize {
    // Usually there is none.
    if text.get(at).is_some_and(|byte| *byte > b' ') {
        return at;
    }
    while let Some(b' ' | b'\n' | b'\t' | b'\r') = text.get(at) {
        at += 1;
    }
    at
}

/// Four letters are compared at once.
#[inline]
fn literal_end(text: &[u8], at: usize, letters: [u8; 4]) -> Option<usize> {
    (*text.get(at..)?.first_chunk::<4>()? == letters).then_some(at + 4)
}

#[inline]
fn number_end(text: &[u8], mut at: usize) -> Option<usize> {
    if text[at] == b'-' {
        at += 1;
    }
    at = match text.get(at)? {
        b'0' => at + 1,
        b'1'..=b'9' => digits_end(text, at + 1),
        _ => return None,
    };
    fraction_end(text, at)
}

/// Where a number ends whose integer part ends at `at`.
#[inline]
fn fraction_end(text: &[u8], mut at: usize) -> Option<usize> {
    if text.get(at) == Some(&b'.') {
        at = some_digits_end(text, at + 1)?;
    }
    if let Some(b'e' | b'E') = text.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = text.get(at) {
            at += 1;
        }
        at = some_digits_end(text, at)?;
    }
    Some(at)
}

#[inline]
fn digits_end(text: &[u8], mut at: usize) -> usize {
    while text.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    at
}

#[inline]
fn some_digits_end(text: &[u8], at: usize) -> Option<usize> {
    let end = digits_end(text, at);
    (end > at).then_some(end)
}

/// Where the string that begins at `at` ends.
#[inline]
pub(crate) fn string_end(text: &[u8], at: usize) -> Option<usize> {
    if text.get(at) != Some(&b'"') {
        return None;
    }
    let mut at = at + 1;
    loop {
        at = special(text, at);
        match *text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at = escape_end(text, at)?,
            // A control character.
            _ => return None,
        }
    }
}

/// Where the escape that begins at `at` ends.
#[inline]
fn escape_end(text: &[u8], at: usize) -> Option<usize> {
    match *text.get(at + 1)? {
        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(at + 2),
        b'u' => text.get(at + 2..at + 6)?.iter().all(u8::is_ascii_hexdigit).then_some(at + 6),
        _ => None,
    }
}

/// The next quote, backslash or control character.
pub(crate) fn special(text: &[u8], mut at: usize) -> usize {
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    // The compiler checks a whole block at once.
    while let Some(block) = text[at..].first_chunk::<32>()
        && !block.iter().fold(false, |found, byte| found | is_special(byte))
    {
        at += block.len();
    }
    at + text[at..].iter().position(is_special).unwrap_or(text.len() - at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::de::IgnoredAny;

    use super::*;

    /// The scanner and `serde_json` must accept the same texts.
    #[track_caller]
    fn check(text: &str) {
        let end = value_end(text.as_bytes(), 0).map(|end| skip_space(text.as_bytes(), end));
        let want = serde_json::from_str::<IgnoredAny>(text).is_ok();
        assert_eq!(end == Some(text.len()), want, "{text}");
    }

    #[test]
    fn it_accepts_what_serde_json_accepts() {
        let values = [
            "null",
            "true",
            "false",
            "nul",
            "tru",
            "truex",
            "0",
            "-0",
            "00",
            "01",
            "-",
            "1.",
            "1.5",
            ".5",
            "1e5",
            "1E+5",
            "1e",
            "1e-",
            "-1.5e-10",
            "123456789012345678901234567890",
            "+1",
            "NaN",
            "Infinity",
            "\"\"",
            "\"a\"",
            "\"",
            "\"\\\"",
            "\"\\\\\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\u12aF\"",
            "\"\\ud800\"",
            "\"\n\"",
            "\"\t\"",
            "\"\u{7f}\"",
            "\"grüß dich\"",
            "\"sixteen bytes..\"",
            "\"sixteen bytes...\"",
            "\"seventeen bytes..\\n\"",
            "{}",
            "[]",
            "{ }",
            "[ ]",
            "[1]",
            "[1,]",
            "[,1]",
            "[1 2]",
            "[1}",
            "{1}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1}",
            "{\"a\":1,}",
            "{,}",
            "{\"a\":1 \"b\":2}",
            "{\"a\":1]",
            "{\"a\" : 1 , \"b\" : [ ] }",
            "[[[]]]",
            "[[[]]",
            "[]]",
            "{\"a\":{\"b\":[{}]}}",
            "[{\"a\":1},{\"b\":2}]",
            "",
            " ",
            "1 1",
            "{} {}",
            " [1] ",
            "\u{a0}1",
        ];
        for value in values {
            check(value);
            check(&format!("[{value}]"));
            check(&format!("{{\"k\": {value} , \"l\":{value}}}"));
        }
    }

    #[test]
    fn nesting_may_be_deep() {
        let deep = "[{\"a\":".repeat(100_000) + "1" + &"}]".repeat(100_000);
        assert_eq!(value_extent(deep.as_bytes(), 0), Some((deep.len(), 200_000)));
    }

    #[test]
    fn the_deepest_level_is_counted() {
        for (text, depth) in [
            ("1", 0),
            ("\"[[\"", 0),
            ("[]", 1),
            ("{}", 1),
            ("[[],[[]],1]", 3),
            (r#"{"a":[{"b":{}}],"c":[]}"#, 4),
        ] {
            assert_eq!(value_extent(text.as_bytes(), 0), Some((text.len(), depth)), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_judged_as_serde_json_does(
            text in r#"([\[\]{},:" \\0-9a-f+.truensl-]|"[a-z\\"]{0,20}"|\\u[0-9a-f]{4}){0,24}"#,
        ) {
            check(&text);
        }

        #[test]
        fn a_special_byte_is_found_at_every_position(before in 0_usize..40, byte in prop::sample::select(vec![b'"', b'\\', 0, 0x1f])) {
            let text = [&vec![b'x'; before][..], &[byte], &[b'x'; 20]].concat();
            prop_assert_eq!(special(&text, 0), before);
        }
    }
}
