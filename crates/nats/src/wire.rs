//! The headers of messages.

use async_nats::HeaderMap;
use serde::{Deserialize, Serialize};
use toolbridge_core::trace::Outcome;
use toolbridge_core::{Client, RawJson, ToolError};

/// The kind of the message, with numbers if it has any.
const KIND: &str = "Toolbridge";
/// The inbox for everything but the first answer; it also identifies the call.
const INBOX: &str = "Toolbridge-Inbox";
/// The sending host: the unique id of its process, and its name.
const HOST: &str = "Toolbridge-Host";
/// The call's metadata, as JSON.
const META: &str = "Toolbridge-Meta";
/// An error, as JSON.
const ERROR: &str = "Toolbridge-Error";
/// W3C trace context.
const TRACEPARENT: &str = "traceparent";

/// The limit of metadata in a header.
const MAX_META_BYTES: usize = 4096;

/// The limit of an inbox. A server closes the connection of a host that sends a longer line than it takes, which is
/// 4,096 bytes by default.
const MAX_INBOX_BYTES: usize = 1024;

/// Checks that messages can be sent to an inbox; an error says what is wrong with it.
pub(crate) fn check_inbox(inbox: &str) -> Result<(), String> {
    let is_token = |token: &str| {
        !matches!(token, "" | "*" | ">")
            && !token.contains(|char: char| char.is_whitespace() || char.is_control())
    };
    if inbox.len() > MAX_INBOX_BYTES {
        return Err(format!("the inbox of a call has {} bytes, the limit is {MAX_INBOX_BYTES}", inbox.len()));
    }
    if !inbox.split('.').all(is_token) {
        return Err(
            "the inbox of a call is not a subject: words with dots between them, without `*` and `>`".into(),
        );
    }
    Ok(())
}

/// A message from a caller to hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// A call whose arguments have that many bytes; those that are not in this message follow in parts.
    Call(usize),
    /// The next part of the arguments.
    Part(u32),
    /// The number of received parts of the answer.
    Ack(u32),
    /// Cancels the call.
    Cancel,
    /// Asks for a call that was made that many milliseconds ago.
    Where(u32),
    /// Asks for the list of tools.
    Tools,
    /// Asks whether this process is live.
    Ping,
}

/// A message from a host to a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// The answer.
    Answer,
    /// The call failed.
    Error,
    /// A part of an answer of that many bytes.
    Part(u32, usize),
    /// The number of received parts of the arguments.
    Ack(u32),
    /// The call is running.
    Beat,
    /// Progress of the call.
    Progress,
    /// The host is full; the call did not run.
    Busy(Lane),
    /// The host is leaving, or no longer has the tool; the call did not run.
    Gone,
    /// The call is not here, and will not run here.
    Absent,
    /// The call has ended, or may have; its answer is no longer kept.
    Over,
}

/// The kinds of calls that have separate limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lane {
    /// Calls that run in parallel.
    Parallel,
    /// Calls that run one at a time.
    Exclusive,
}

impl Asked {
    pub(crate) fn headers(self, inbox: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        match self {
            Self::Call(bytes) => headers.insert(KIND, format!("call {bytes}")),
            Self::Part(place) => headers.insert(KIND, format!("part {place}")),
            Self::Ack(count) => headers.insert(KIND, format!("ack {count}")),
            Self::Cancel => headers.insert(KIND, "cancel"),
            Self::Where(age) => headers.insert(KIND, format!("where {age}")),
            Self::Tools => headers.insert(KIND, "tools"),
            Self::Ping => headers.insert(KIND, "ping"),
        }
        headers.insert(INBOX, inbox);
        headers
    }

    /// Parses a message's kind and the caller's inbox; `None` if it is not from a caller of ours.
    pub(crate) fn read(headers: &HeaderMap) -> Option<(Self, &str)> {
        let mut words = headers.get(KIND)?.as_str().split(' ');
        let kind = words.next()?;
        let mut number = || words.next()?.parse::<u32>().ok();
        let asked = match kind {
            "call" => Self::Call(usize::try_from(number()?).ok()?),
            "part" => Self::Part(number()?),
            "ack" => Self::Ack(number()?),
            "cancel" => Self::Cancel,
            "where" => Self::Where(number()?),
            "tools" => Self::Tools,
            "ping" => Self::Ping,
            _ => return None,
        };
        Some((asked, headers.get(INBOX)?.as_str()))
    }
}

impl Told {
    pub(crate) fn headers(self, host: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        match self {
            Self::Answer => headers.insert(KIND, "answer"),
            Self::Error => headers.insert(KIND, "error"),
            Self::Part(place, bytes) => headers.insert(KIND, format!("part {place} {bytes}")),
            Self::Ack(count) => headers.insert(KIND, format!("ack {count}")),
            Self::Beat => headers.insert(KIND, "beat"),
            Self::Progress => headers.insert(KIND, "progress"),
            Self::Busy(Lane::Parallel) => headers.insert(KIND, "busy"),
            Self::Busy(Lane::Exclusive) => headers.insert(KIND, "busy exclusive"),
            Self::Gone => headers.insert(KIND, "gone"),
            Self::Absent => headers.insert(KIND, "absent"),
            Self::Over => headers.insert(KIND, "over"),
        }
        headers.insert(HOST, host);
        headers
    }

    pub(crate) fn read(headers: &HeaderMap) -> Option<Self> {
        let mut words = headers.get(KIND)?.as_str().split(' ');
        let kind = words.next()?;
        let mut number = || words.next()?.parse::<u32>().ok();
        Some(match kind {
            "answer" => Self::Answer,
            "error" => Self::Error,
            "part" => Self::Part(number()?, usize::try_from(number()?).ok()?),
            "ack" => Self::Ack(number()?),
            "beat" => Self::Beat,
            "progress" => Self::Progress,
            "busy" => Self::Busy(match words.next() {
                Some("exclusive") => Lane::Exclusive,
                _ => Lane::Parallel,
            }),
            "gone" => Self::Gone,
            "absent" => Self::Absent,
            "over" => Self::Over,
            _ => return None,
        })
    }
}

/// The process that sent a message, and its host's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Speaker {
    pub(crate) instance: String,
    pub(crate) host: String,
}

impl Speaker {
    /// As written in a header.
    pub(crate) fn written(instance: &str, host: &str) -> String {
        format!("{instance} {}", crate::subject::token(host))
    }

    pub(crate) fn read(headers: &HeaderMap) -> Option<Self> {
        let (instance, host) = headers.get(HOST)?.as_str().split_once(' ')?;
        Some(Self { instance: instance.into(), host: crate::subject::text(host)? })
    }
}

/// The metadata of a call.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Meta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool_use_id: Option<String>,
    /// A string or a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) progress_token: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client: Option<Client>,
}

impl Meta {
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        if *self == Self::default() {
            return;
        }
        // ASCII on one line: other characters are not safe in headers everywhere.
        let text = serde_json::to_string(self).map(|text| ascii(&text)).unwrap_or_default();
        if text.len() <= MAX_META_BYTES {
            headers.insert(META, text);
        } else if self.tool_use_id.is_some() || self.client.is_some() {
            Self { progress_token: self.progress_token.clone(), ..Self::default() }.write(headers);
        }
    }

    pub(crate) fn read(headers: &HeaderMap) -> Self {
        let text = headers.get(META).map(async_nats::HeaderValue::as_str);
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }
}

/// JSON text with all non-ASCII characters escaped.
fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for char in json.chars() {
        if char.is_ascii() {
            text.push(char);
        } else {
            for unit in char.encode_utf16(&mut [0; 2]) {
                text += &format!("\\u{unit:04x}");
            }
        }
    }
    text
}

pub(crate) fn set_traceparent(headers: &mut HeaderMap, parent: String) {
    headers.insert(TRACEPARENT, parent);
}

pub(crate) fn traceparent(headers: &HeaderMap) -> Option<&str> {
    headers.get(TRACEPARENT).map(async_nats::HeaderValue::as_str)
}

/// The error of a call, as sent in a header.
#[derive(Debug, Serialize, Deserialize)]
struct Failure {
    message: String,
    #[serde(rename = "type")]
    type_name: String,
    outcome: Outcome,
}

/// The limit of an error's text in bytes, given the server's `max_payload`.
fn max_error_bytes(max_payload: usize) -> usize {
    // One character may take six bytes when escaped.
    (max_payload / 8).max(512)
}

pub(crate) fn write_error(headers: &mut HeaderMap, error: &ToolError, max_payload: usize) {
    let mut message = error.to_string();
    let limit = max_error_bytes(max_payload);
    if message.len() > limit {
        let bytes = message.len();
        message.truncate((0..=limit).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0));
        message += &format!("… ({bytes} bytes in all)");
    }
    let failure = Failure { message, type_name: error.type_name().into(), outcome: error.outcome() };
    headers.insert(ERROR, serde_json::to_string(&failure).map(|text| ascii(&text)).unwrap_or_default());
}

pub(crate) fn read_error(headers: &HeaderMap) -> ToolError {
    let text = headers.get(ERROR).map(async_nats::HeaderValue::as_str);
    match text.and_then(|text| serde_json::from_str::<Failure>(text).ok()) {
        Some(failure) => ToolError::new(failure.type_name, failure.message).called(failure.outcome),
        None => ToolError::new("NatsError", "the host answered with an error that it did not explain"),
    }
}

/// The first line of an error, for clients that only know the services API.
pub(crate) fn short(error: &ToolError) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.chars().filter(char::is_ascii).filter(|char| !char.is_ascii_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_written() {
        let asked = [
            Asked::Call(12),
            Asked::Part(3),
            Asked::Ack(4),
            Asked::Cancel,
            Asked::Where(900),
            Asked::Tools,
            Asked::Ping,
        ];
        for asked in asked {
            assert_eq!(Asked::read(&asked.headers("_INBOX.a.1")), Some((asked, "_INBOX.a.1")));
        }
        let told = [
            Told::Answer,
            Told::Error,
            Told::Part(1, 2),
            Told::Ack(1),
            Told::Beat,
            Told::Progress,
            Told::Busy(Lane::Parallel),
            Told::Busy(Lane::Exclusive),
            Told::Gone,
            Told::Absent,
            Told::Over,
        ];
        for told in told {
            let headers = told.headers(&Speaker::written("i", "gpu.lan"));
            assert_eq!(Told::read(&headers), Some(told));
            let speaker = Speaker { instance: "i".into(), host: "gpu.lan".into() };
            assert_eq!(Speaker::read(&headers), Some(speaker));
        }
    }

    #[test]
    fn headers_of_others_are_not_read() {
        for kind in ["", "call", "call x", "part", "unknown", "call 99999999999999999999"] {
            let mut headers = HeaderMap::new();
            headers.insert(INBOX, "_INBOX.a.1");
            headers.insert(KIND, kind);
            assert_eq!(Asked::read(&headers), None, "{kind}");
        }
        assert_eq!(Told::read(&HeaderMap::new()), None);
    }

    #[test]
    fn an_error_passes_with_its_lines_its_letters_and_its_kind() {
        let error = ToolError::new("QuotaError", "zu groß:\r\n🙂 \"x\"").called(Outcome::Refused);
        let mut headers = HeaderMap::new();
        write_error(&mut headers, &error, 1 << 20);
        let read = read_error(&headers);
        assert_eq!(read.to_string(), error.to_string());
        assert_eq!((read.type_name(), read.outcome()), ("QuotaError", Outcome::Refused));
        assert_eq!(short(&error), "zu gro:");
    }

    #[test]
    fn the_meta_of_a_call_passes() {
        let mut client = Client::default();
        client.name = Some("größe\n".into());
        let meta = Meta {
            tool_use_id: Some("toolu_1".into()),
            progress_token: Some(RawJson::parse("7").unwrap()),
            client: Some(client),
        };
        let mut headers = HeaderMap::new();
        meta.write(&mut headers);
        assert_eq!(Meta::read(&headers), meta);
        let progress_token = meta.progress_token.clone();
        let mut long = Meta { tool_use_id: Some("x".repeat(5000)), ..meta };
        let mut headers = HeaderMap::new();
        long.write(&mut headers);
        assert_eq!(Meta::read(&headers), Meta { progress_token, ..Meta::default() });
        long.progress_token = Some(RawJson::parse(format!("\"{}\"", "x".repeat(5000))).unwrap());
        let mut headers = HeaderMap::new();
        long.write(&mut headers);
        assert_eq!(Meta::read(&headers), Meta::default());
    }
}
