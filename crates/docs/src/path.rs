//! Paths given by callers.

use std::cmp::Ordering;
use std::fmt;

use crate::fold::is_ignorable;
use crate::refusal::{Code, Refusal, shown};

/// The longest name that common filesystems support.
pub(crate) const MAX_NAME_BYTES: usize = 255;

/// `\` counts too: callers on other systems use it.
const SEPARATORS: [char; 2] = ['/', '\\'];

/// A relative path of plain names, in normal form: no empty part, no `.`, no `..`, `/` between names. A
/// [`Root`](crate::root::Root) accepts nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct RelPath(String);

/// Compares name by name: the files of a folder are adjacent, and manuals are in the order of their ids.
impl Ord for RelPath {
    fn cmp(&self, other: &Self) -> Ordering {
        self.names().cmp(other.names())
    }
}

impl PartialOrd for RelPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The path as messages show it.
impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.0))
    }
}

impl From<RelPath> for String {
    fn from(path: RelPath) -> Self {
        path.0
    }
}

impl RelPath {
    /// Checks a path from a caller. `\` counts as a separator. `.` parts are dropped except at the end,
    /// because `a/.` is a folder.
    pub(crate) fn parse(text: &str) -> Result<Self, Refusal> {
        let mut names: Vec<_> = text.split(SEPARATORS).collect();
        let ends_in_dot = names.len() > 1 && names.last() == Some(&".");
        names.retain(|name| *name != ".");
        let fault = text_fault(text)
            .or_else(|| names.is_empty().then_some("it names no file"))
            .or_else(|| names.iter().find_map(|name| name_fault(name)))
            .or_else(|| ends_in_dot.then_some("it ends in `.` and names a folder"));
        fault.map_or_else(
            || Ok(Self(names.join("/"))),
            |fault| Err(unusable("path", text, fault, "guide/setup.md")),
        )
    }

    /// Checks that a text is a single plain name, such as a manual's id.
    pub(crate) fn parse_name(what: &str, text: &str) -> Result<Self, Refusal> {
        let fault = text_fault(text)
            .or_else(|| text.contains(SEPARATORS).then_some("it is more than one name"))
            .or_else(|| (text == ".").then_some("`.` is not a name"))
            .or_else(|| name_fault(text));
        fault.map_or_else(|| Ok(Self(text.to_owned())), |fault| Err(unusable(what, text, fault, "handbook")))
    }

    /// A path of the server's own, which callers cannot use.
    pub(crate) fn reserved(path: &'static str) -> Self {
        Self(path.to_owned())
    }

    /// A name found on disk; `None` if callers could not use it.
    pub(crate) fn child(parent: Option<&Self>, name: &str) -> Option<Self> {
        let path = match parent {
            Some(parent) => format!("{}/{name}", parent.0),
            None => name.to_owned(),
        };
        let is_plain = name != "." && !name.contains('\\') && text_fault(&path).is_none();
        (is_plain && name_fault(name).is_none()).then_some(Self(path))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    pub(crate) fn first(&self) -> &str {
        self.names().next().unwrap_or_default()
    }

    /// The folder, unless it is the root itself, and the last name.
    pub(crate) fn split(&self) -> (Option<Self>, &str) {
        match self.0.rsplit_once('/') {
            Some((folder, name)) => (Some(Self(folder.to_owned())), name),
            None => (None, &self.0),
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// Appends `other` to this path.
    pub(crate) fn join(&self, other: &Self) -> Self {
        Self(format!("{}/{}", self.0, other.0))
    }

    pub(crate) fn is_at_or_below(&self, folder: &Self) -> bool {
        self.0.strip_prefix(&folder.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// The path without its first name.
    pub(crate) fn below_first(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, rest)| rest)
    }
}

/// Other programs run what they find in `.git` or `.obsidian`.
const HIDDEN: &str = "names that begin with a dot are not listed, read or written";

fn text_fault(text: &str) -> Option<&'static str> {
    if text.contains('\0') {
        return Some("it has a NUL character");
    }
    let control = text.contains(is_deceptive).then_some("it has a control character");
    control.or_else(|| is_absolute(text).then_some("it is absolute"))
}

/// Characters that make a name look like another one or break the line that shows it: control characters,
/// line and paragraph separators, and bidirectional controls. Joiners are allowed: Persian and emoji need
/// them.
pub(crate) fn is_deceptive(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{2028}'..='\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn is_absolute(text: &str) -> bool {
    let mut names = text.split(SEPARATORS).skip_while(|name| *name == ".");
    text.starts_with(SEPARATORS) || names.next().is_some_and(is_drive)
}

fn name_fault(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("it has an empty part"),
        ".." => Some("it has a `..`"),
        _ if name.ends_with(['.', ' ']) => Some("a name in it ends in a dot or a space"),
        _ if name.len() > MAX_NAME_BYTES => Some("a name in it is over 255 bytes"),
        // Some file systems do not see the characters that are ignored here.
        _ => name.trim_start_matches(is_ignorable).starts_with('.').then_some(HIDDEN),
    }
}

/// `C:`, which starts an absolute path on other systems.
fn is_drive(name: &str) -> bool {
    matches!(name.as_bytes(), [letter, b':', ..] if letter.is_ascii_alphabetic() && name.len() == 2)
}

fn unusable(what: &str, text: &str, fault: &'static str, example: &str) -> Refusal {
    let code = if fault == HIDDEN { Code::Forbidden } else { Code::InvalidPath };
    let shown = shown(text);
    Refusal::new(
        code,
        format!("{what} `{shown}` cannot be used: {fault}; use plain names, as in `{example}`"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_relative_and_of_plain_names() {
        for (text, want) in [
            ("a.md", "a.md"),
            ("a/b/c.md", "a/b/c.md"),
            ("a\\b\\c.md", "a/b/c.md"),
            ("./a/./b.md", "a/b.md"),
            ("日本/設定.md", "日本/設定.md"),
            ("a b/c..d/e.f.g", "a b/c..d/e.f.g"),
            ("می\u{200c}خواهم.md", "می\u{200c}خواهم.md"),
            ("👩\u{200d}🔬.md", "👩\u{200d}🔬.md"),
        ] {
            assert_eq!(RelPath::parse(text).unwrap().as_str(), want);
        }
    }

    #[test]
    fn any_other_path_is_refused_and_the_refusal_says_why() {
        use Code::{Forbidden, InvalidPath};
        let long = format!("{}.md", "x".repeat(300));
        let rows: [(Code, &str, &[&str]); 11] = [
            (InvalidPath, "it is absolute", &["/etc/passwd", "//host/a", "\\etc", "C:\\a.md", "./C:/a.md"]),
            (InvalidPath, "it has a `..`", &["..", "../a.md", "./../a.md", "a/../../b", "a\\..\\..\\b"]),
            (InvalidPath, "it has a `..`", &["a/..", "a/../b", "a\\..\\b"]),
            (Forbidden, "names that begin with a dot", &[".a", "a/.b/c", "..a", "./.git/x", "\u{200b}.git"]),
            (InvalidPath, "it has an empty part", &["", "./", "a//b", "a/"]),
            (InvalidPath, "it names no file", &[".", "./."]),
            (InvalidPath, "it ends in `.` and names a folder", &["a/.", "a.md/.", "a\\.", "a/./."]),
            (InvalidPath, "it has a NUL character", &["a\0.md"]),
            (
                InvalidPath,
                "it has a control character",
                &[
                    "a\n.md",
                    "a\t/b.md",
                    "../a\n",
                    "\u{1b}[31ma.md",
                    "a\u{7f}.md",
                    "a\u{85}.md",
                    "a\u{9b}.md",
                    "a\u{2028}.md",
                    "a\u{2029}.md",
                    "a\u{202e}dm.exe",
                    "a\u{2066}.md",
                ],
            ),
            (InvalidPath, "a name in it ends in a dot or a space", &["a./b", "a.md.", "a.md ", "..."]),
            (InvalidPath, "a name in it is over 255 bytes", &[&long]),
        ];
        for (code, want, texts) in rows {
            for text in texts {
                let Refusal { code: found, message, .. } = RelPath::parse(text).unwrap_err();
                assert_eq!(found, code, "{text:?}");
                assert!(message.contains(want), "{text:?}: {message}");
                assert!(message.len() < 600, "{text:?}");
                assert!(!message.contains(is_deceptive), "{text:?}: {message:?}");
            }
        }
    }

    #[test]
    fn a_manual_id_is_one_plain_name() {
        assert_eq!(RelPath::parse_name("manual_id", "handbook").unwrap().as_str(), "handbook");
        let long = "x".repeat(256);
        for (code, texts) in [
            (Code::InvalidPath, &["", ".", "a/b", "a\\b", "a/../a", "a\0", "a\r", "a.", "a ", &long][..]),
            (Code::InvalidPath, &["..", "../m", "a/../..", "/etc", "\\etc", "C:"]),
            (Code::Forbidden, &[".m"]),
        ] {
            for bad in texts {
                assert_eq!(RelPath::parse_name("manual_id", bad).unwrap_err().code, code, "{bad:?}");
            }
        }
    }

    /// Files with such names are not shown to a model, because it could not ask for them.
    #[test]
    fn a_name_that_callers_cannot_use_is_left_out() {
        let names = ["a.md", "a\n.md", "a\u{202e}.md", "a\\b.md", "a.", "C:", ".a.md"];
        for (name, want) in names.into_iter().zip([true].into_iter().chain([false; 6])) {
            let child = RelPath::child(None, name);
            assert_eq!(child.is_some(), want, "{name:?}");
            assert_eq!(RelPath::parse(name).ok().filter(|path| path.as_str() == name), child, "{name:?}");
        }
    }

    #[test]
    fn paths_are_sorted_name_by_name() {
        let mut paths =
            ["m-ja/a", "m/b/x", "m/b.md", "m/b-c.md", "m/a", "m"].map(|one| RelPath::parse(one).unwrap());
        paths.sort();
        assert_eq!(
            paths.each_ref().map(RelPath::as_str),
            ["m", "m/a", "m/b/x", "m/b-c.md", "m/b.md", "m-ja/a"]
        );
    }
}
