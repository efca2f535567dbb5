//! Names and their subjects.

use std::fmt::Write as _;

use crate::NatsError;

/// The first token of all subjects.
const ROOT: &str = "toolbridge";

/// The queue group in which hosts share calls.
pub(crate) const QUEUE: &str = "toolbridge";

/// The subjects of a name.
#[derive(Debug, Clone)]
pub(crate) struct Subjects {
    pub(crate) name: String,
    root: String,
}

impl Subjects {
    /// The subjects of a name, which is also that of a NATS service.
    pub(crate) fn new(name: &str) -> Result<Self, NatsError> {
        if name.is_empty() || !name.bytes().all(is_plain) {
            return Err(NatsError::Name { name: name.into() });
        }
        Ok(Self { name: name.into(), root: format!("{ROOT}.{name}") })
    }

    /// Calls of a tool on any host.
    pub(crate) fn any(&self, tool: &str) -> String {
        format!("{}.call.{}", self.root, token(tool))
    }

    /// Calls of a tool on one host.
    pub(crate) fn at(&self, host: &str, tool: &str) -> String {
        format!("{}.at.{}.{}", self.root, token(host), token(tool))
    }

    /// Calls of all tools on one host.
    pub(crate) fn all_at(&self, host: &str) -> String {
        format!("{}.at.{}.*", self.root, token(host))
    }

    /// Messages to one process.
    pub(crate) fn to(&self, instance: &str) -> String {
        format!("{}.to.{}", self.root, token(instance))
    }

    /// Questions to all hosts.
    pub(crate) fn ask(&self) -> String {
        format!("{}.ask", self.root)
    }

    /// Announcements to all callers.
    pub(crate) fn news(&self) -> String {
        format!("{}.news", self.root)
    }

    /// Asks for the live hosts, through the services API.
    pub(crate) fn ping(&self) -> String {
        format!("$SRV.PING.{}", self.name)
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// Encodes any text as one token of a subject: all but `A-Z a-z 0-9 - _` is written as `%` and two
/// hexadecimal digits.
pub(crate) fn token(text: &str) -> String {
    let mut token = String::with_capacity(text.len());
    for byte in text.bytes() {
        if is_plain(byte) {
            token.push(char::from(byte));
        } else {
            _ = write!(token, "%{byte:02X}");
        }
    }
    // Tokens cannot be empty.
    if token.is_empty() { "%".into() } else { token }
}

/// Decodes a token.
pub(crate) fn text(token: &str) -> Option<String> {
    if token == "%" {
        return Some(String::new());
    }
    let mut bytes = Vec::with_capacity(token.len());
    let mut rest = token.as_bytes();
    while let [first, after @ ..] = rest {
        if *first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &after[2..];
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

/// The hosts that are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// Any host with room.
    Any,
    /// The host of that name.
    One(String),
    /// Every host.
    All,
}

/// `shop`, `shop@host-7` and `shop@*`.
pub(crate) fn address(name: &str) -> (&str, Address) {
    match name.split_once('@') {
        None => (name, Address::Any),
        Some((name, "*")) => (name, Address::All),
        Some((name, host)) => (name, Address::One(host.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_one_token_and_comes_back() {
        for name in ["gpu-1", "gpu.lan", "*", ">", "a b", "", "%", "%2E", "größe", "\u{0}\r\n", "a.*.>"] {
            let made = token(name);
            assert!(made.bytes().all(|byte| is_plain(byte) || byte == b'%') && !made.is_empty(), "{made}");
            assert_eq!(text(&made).as_deref(), Some(name));
        }
        assert_eq!(token("gpu.lan"), "gpu%2Elan");
        for no_token in ["%4", "%zz", "%", "%FF"] {
            assert!(text(no_token).is_none_or(|text| text.is_empty()), "{no_token}");
        }
    }

    #[test]
    fn two_names_are_never_one_subject() {
        let subjects = Subjects::new("shop").unwrap();
        assert_ne!(subjects.at("a.b", "c"), subjects.at("a", "b.c"));
        assert_ne!(subjects.any("a%2E"), subjects.any("a."));
        assert_eq!(subjects.at("host-7", "look_up"), "toolbridge.shop.at.host-7.look_up");
    }

    #[test]
    fn a_name_is_that_of_a_service() {
        for bad in ["", "a.b", "a b", "*", "größe", "a@b"] {
            assert!(Subjects::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_may_say_which_host() {
        assert_eq!(address("shop"), ("shop", Address::Any));
        assert_eq!(address("shop@host-7"), ("shop", Address::One("host-7".into())));
        assert_eq!(address("shop@*"), ("shop", Address::All));
    }
}
