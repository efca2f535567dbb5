//! Why a call is refused, as shown to the model.

use std::io;

use rustix::io::Errno;
use serde::Serialize;
use serde_json::{Value, json};

use crate::path::is_deceptive;
use crate::write::NotDurable;

/// The kind of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Code {
    /// An argument is missing, of the wrong type or out of its range.
    InvalidParameter,
    /// A path or name whose form is not allowed.
    InvalidPath,
    /// A path that would leave its root.
    OutOfScope,
    /// There is no such manual, file or section.
    NotFound,
    /// It may exist, but access is not allowed.
    Forbidden,
    /// The scope or the reference does not fit the kind of file.
    InvalidScope,
    /// The target exists but must not, or does not exist but must.
    Conflict,
    /// Disk errors, and files that are not text.
    IoError,
}

/// A refused call: `{"code","message","details"?}`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Refusal {
    pub(crate) code: Code,
    pub(crate) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) details: Option<Value>,
    /// Retrying fails until the file changes.
    #[serde(skip)]
    pub(crate) is_lasting: bool,
}

impl Refusal {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None, is_lasting: false }
    }

    pub(crate) fn parameter(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidParameter, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(Code::Forbidden, message)
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(Code::Conflict, message)
    }

    pub(crate) fn with(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    pub(crate) fn lasting(mut self) -> Self {
        self.is_lasting = true;
        self
    }

    /// The refusal for a system error about `path`.
    pub(crate) fn system(path: &str, error: &io::Error) -> Self {
        let shown = shown(path);
        if let Some(source) = NotDurable::of(error) {
            return Self::new(
                Code::IoError,
                format!("`{shown}` was changed, but that may not survive a crash: {source}; check the file before you try again"),
            )
            .with(json!({ "os_error": source.raw_os_error(), "is_written": true }));
        }
        let is = |code, what: &str| Self::new(code, format!("`{shown}` {what}"));
        match Errno::from_io_error(error) {
            Some(Errno::NOENT) => Self::not_found(format!(
                "there is no `{shown}`; `manual_list`, `manual_ls` and `vault_ls` list what there is"
            )),
            Some(Errno::NOTDIR) => is(
                Code::InvalidPath,
                "is a file, or a path through one, and not a folder; name a folder, or only the file",
            ),
            Some(Errno::LOOP) => is(
                Code::OutOfScope,
                "is or passes a symbolic link, and links are not followed; name the file itself",
            ),
            Some(Errno::XDEV) => is(Code::OutOfScope, "leads out of its root; use a path inside"),
            Some(Errno::NAMETOOLONG) => is(Code::InvalidPath, "is too long; use shorter names"),
            // A directory, a pipe or a device.
            Some(Errno::ISDIR | Errno::NXIO) => is(Code::Forbidden, "is not a regular file; name a file"),
            _ => Self::new(Code::IoError, format!("`{shown}`: {error}"))
                .with(json!({ "os_error": error.raw_os_error() })),
        }
    }

    pub(crate) fn not_utf8(path: &str, position: usize) -> Self {
        Self::new(
            Code::IoError,
            format!("`{}` is not UTF-8: byte {position} is invalid; only text in UTF-8 is read", shown(path)),
        )
        .with(json!({ "byte_position": position }))
        .lasting()
    }
}

/// A path as messages show it: escaped to one line and shortened.
pub(crate) fn shown(path: &str) -> String {
    const SHOWN_CHARS: usize = 120;
    let mut shown = String::new();
    for char in path.chars().take(SHOWN_CHARS) {
        if is_deceptive(char) {
            shown.extend(char.escape_unicode());
        } else {
            shown.push(char);
        }
    }
    if path.chars().nth(SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_has_a_code() {
        let rows = [
            (Errno::NOENT, Code::NotFound),
            (Errno::NOTDIR, Code::InvalidPath),
            (Errno::LOOP, Code::OutOfScope),
            (Errno::XDEV, Code::OutOfScope),
            (Errno::NAMETOOLONG, Code::InvalidPath),
            (Errno::ISDIR, Code::Forbidden),
            (Errno::NXIO, Code::Forbidden),
            (Errno::NOSPC, Code::IoError),
            (Errno::IO, Code::IoError),
            (Errno::ACCESS, Code::IoError),
        ];
        for (errno, want) in rows {
            assert_eq!(Refusal::system("a.md", &errno.into()).code, want, "{errno:?}");
        }
    }

    #[test]
    fn what_is_shown_is_one_short_line() {
        assert_eq!(shown("a b/日本.md"), "a b/日本.md");
        assert_eq!(shown("a\n\u{1b}[2J\u{202e}b"), r"a\u{a}\u{1b}[2J\u{202e}b");
        assert_eq!(shown(&"é".repeat(120)), "é".repeat(120));
        assert_eq!(shown(&"é".repeat(121)), "é".repeat(120) + "…");
    }

    #[test]
    fn what_is_written_but_not_durable_says_so() {
        let error = NotDurable::from(io::Error::from(Errno::IO)).into();
        let refusal = Refusal::system("a.md", &error);
        assert_eq!(refusal.code, Code::IoError);
        assert!(refusal.message.contains("`a.md` was changed"), "{}", refusal.message);
        assert_eq!(refusal.details, Some(json!({ "os_error": 5, "is_written": true })));
    }

    #[test]
    fn a_refusal_is_written_in_the_documents_words() {
        let written = |refusal: &Refusal| serde_json::to_string(refusal).unwrap();
        let refusal = Refusal::new(Code::OutOfScope, "no");
        assert_eq!(written(&refusal), r#"{"code":"out_of_scope","message":"no"}"#);
        let refusal = refusal.with(json!({ "a": 1 }));
        assert_eq!(written(&refusal), r#"{"code":"out_of_scope","message":"no","details":{"a":1}}"#);
    }
}
