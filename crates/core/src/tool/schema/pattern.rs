//! Regular expressions of ECMA-262, as JSON Schema uses them, matched in linear time.

use regex_lite::Regex;

/// White space in ECMA-262, and its complement; the engine only knows that of ASCII.
const SPACE: &str =
    r"\t\n\x0B\x0C\r \u{a0}\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}\u{feff}";
const NO_SPACE: &str = r"\x00-\x08\x0E-\x1F!-\u{9f}\u{a1}-\u{167f}\u{1681}-\u{1fff}\u{200b}-\u{2027}\u{202a}-\u{202e}\u{2030}-\u{205e}\u{2060}-\u{2fff}\u{3001}-\u{fefe}\u{ff00}-\u{10ffff}";
const NO_LINE_END: &str = r"[^\n\r\u{2028}\u{2029}]";

#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) text: String,
    regex: Regex,
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let regex = translated(text).and_then(|text| Regex::new(&text).map_err(|error| error.to_string()));
        let regex = regex.map_err(|reason| {
            let supported =
                r"regular expressions of ECMA-262 without look-around, backreferences and `\p` are";
            format!(": the pattern is not supported: {reason}; {supported}")
        })?;
        Ok(Self { text: text.to_owned(), regex })
    }

    pub(crate) fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }
}

/// Translates a pattern where the engine's syntax differs from ECMA-262. What is invalid in ECMA-262 is refused,
/// except for `(?i)` and `(?P<name>`.
fn translated(pattern: &str) -> Result<String, String> {
    let (mut written, mut in_class) = (String::new(), false);
    let mut chars = pattern.chars();
    while let Some(char) = chars.next() {
        match char {
            '\\' => match chars.next() {
                Some(space @ ('s' | 'S')) => {
                    let class = if space == 's' { SPACE } else { NO_SPACE };
                    written += &if in_class { class.to_owned() } else { format!("[{class}]") };
                }
                Some(known) if "dDwWbBtnvfrxu".contains(known) => written.extend(['\\', known]),
                Some(literal) if !literal.is_alphanumeric() => {
                    written += &regex_lite::escape(literal.encode_utf8(&mut [0; 4]));
                }
                Some('1'..='9' | 'k') => return Err("backreferences are not supported".into()),
                Some(other) => return Err(format!(r"`\{other}` is not supported")),
                None => return Err(r"it ends with `\`".into()),
            },
            '[' if !in_class => {
                if chars.as_str().starts_with(']') || chars.as_str().starts_with("^]") {
                    return Err("a class without characters is not supported".into());
                }
                in_class = true;
                written.push('[');
            }
            '[' | '&' | '~' if in_class => written.extend(['\\', char]),
            ']' => {
                in_class = false;
                written.push(']');
            }
            '.' if !in_class => written += NO_LINE_END,
            '(' if !in_class && chars.as_str().starts_with('?') => {
                let known = ["?:", "?<", "?P<", "?=", "?!", "?i)", "?i:"];
                if !known.iter().any(|known| chars.as_str().starts_with(known)) {
                    return Err("flags other than `i` are not supported".into());
                }
                written.push('(');
            }
            char => written.push(char),
        }
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_in_ecma_262() {
        let rows: [(&str, &[&str], &[&str]); 17] = [
            ("b", &["abc"], &["ac", "B"]),
            ("^git( |$)", &["git log", "git"], &["gitk", " git", "x\ngit"]),
            ("^a$", &["a"], &["a\n", "\na", "b\na"]),
            ("^.$", &["é", "😀", "\t"], &["\n", "\r", "\u{2028}", "\u{2029}", "ab", ""]),
            (r"^\s$", &[" ", "\u{a0}", "\u{feff}", "\u{b}", "\u{3000}"], &["x", "\u{85}", "\u{200b}"]),
            (r"^\S+$", &["aé\u{85}\u{10ffff}"], &["a b", "a\u{a0}b", "a\u{2003}", ""]),
            (r"^[^\s]$", &["x"], &["\u{2029}", " "]),
            (r"^[\S ]$", &["x", " "], &["\n", "\u{a0}"]),
            (r"^[\s\S]$", &["x", "\n", "\u{a0}"], &[""]),
            (r"^\w\d\W\D$", &["a1-x", "a1é-"], &["é1-x", "a٣-x"]),
            (r"\bfoo\b", &["a foo b", "éfoo"], &["food"]),
            (r"^[[:alpha:]]$", &["[]", "a]"], &["b", "a"]),
            (r"^[a&&b~~c]$", &["a", "&", "~"], &["d"]),
            (r"^[\]\-^.]$", &["]", "-", "^", "."], &["a", "\\"]),
            (r"^\/\<\.\u0041\x42\u{43}\_$", &["/<.ABC_"], &["/<xABC_"]),
            (
                "^(?<year>[0-9]{4})(?:-[0-9]{2}){1,2}?$",
                &["2024-01", "2024-01-02"],
                &["2024", "2024-01-02-03"],
            ),
            ("(?i)^abc(?P<x>d)$", &["ABCD"], &["abc"]),
        ];
        for (pattern, matching, others) in rows {
            let compiled = Pattern::new(pattern).unwrap();
            for text in matching.iter().chain(others) {
                assert_eq!(compiled.matches(text), matching.contains(text), "{pattern} {text:?}");
            }
        }
    }

    #[test]
    fn what_is_not_matched_as_it_is_meant_is_refused() {
        for (pattern, reason) in [
            ("a(?=b)", "look-around is not supported"),
            ("a(?!b)", "look-around is not supported"),
            ("(?<=a)b", "look-around is not supported"),
            ("(?<!a)b", "look-around is not supported"),
            (r"(a)\1", "backreferences are not supported"),
            (r"(?<a>a)\k<a>", "backreferences are not supported"),
            (r"\p{L}", r"`\p` is not supported"),
            (r"[\P{L}]", r"`\P` is not supported"),
            (r"\Aa\z", r"`\A` is not supported"),
            (r"\cJ", r"`\c` is not supported"),
            (r"\0", r"`\0` is not supported"),
            (r"[\b]", "invalid escape sequence in character class"),
            ("[]", "a class without characters is not supported"),
            ("[^]", "a class without characters is not supported"),
            ("(?s).", "flags other than `i` are not supported"),
            ("(?x) a # [", "flags other than `i` are not supported"),
            (r"\ud83d\ude00", "got invalid fixed length hexadecimal number"),
            ("(", "found open group without closing ')'"),
            ("a{9999}{9999}", "compiled regex exceeded size limit"),
            ("\\", r"it ends with `\`"),
        ] {
            let error = Pattern::new(pattern).unwrap_err();
            assert!(error.starts_with(": the pattern is not supported: "), "{error}");
            assert!(error.contains(reason), "{pattern}: {error}");
        }
    }
}
