//! What hosts and callers send: subjects, headers, and the JSON in them.

use async_nats::{HeaderMap, Message};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use toolbridge_core::ToolError;
use toolbridge_core::tool::{CallMeta, Caller, RawJson};
use toolbridge_core::trace::Outcome;

use crate::NatsError;

/// The queue group in which hosts share calls.
pub(crate) const QUEUE: &str = "toolbridge";

/// What a message is; messages that are not from toolbridge have none.
pub(crate) const KIND: &str = "Toolbridge";
/// A call's metadata, as JSON.
const META: &str = "Toolbridge-Meta";
/// The client that calls, as JSON.
const CLIENT: &str = "Toolbridge-Client";
/// An error, as JSON.
const ERROR: &str = "Toolbridge-Error";
/// W3C trace context.
const TRACEPARENT: &str = "traceparent";

/// The bytes of a token of a subject that are written as `%` and two hexadecimal digits.
const NOT_PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// The subjects of a name.
#[derive(Debug, Clone)]
pub(crate) struct Subjects {
    pub(crate) name: String,
}

impl Subjects {
    /// The subjects of a name, which is also that of a NATS service.
    pub(crate) fn new(name: &str) -> Result<Self, NatsError> {
        if name.is_empty() || token(name) != name {
            return Err(NatsError::Name { name: name.into() });
        }
        Ok(Self { name: name.into() })
    }

    /// Calls of a tool on any host.
    pub(crate) fn any(&self, tool: &str) -> String {
        format!("toolbridge.{}.call.{}", self.name, token(tool))
    }

    /// Calls of a tool on one host: its name, or the id of its process.
    pub(crate) fn at(&self, host: &str, tool: &str) -> String {
        format!("toolbridge.{}.at.{}.{}", self.name, token(host), token(tool))
    }

    /// Calls of all tools on one host.
    pub(crate) fn all_at(&self, host: &str) -> String {
        format!("toolbridge.{}.at.{}.*", self.name, token(host))
    }

    /// Asks which hosts there are.
    pub(crate) fn hosts(&self) -> String {
        format!("toolbridge.{}.hosts", self.name)
    }

    /// Asks a process for its tools.
    pub(crate) fn tools(&self, instance: &str) -> String {
        format!("toolbridge.{}.hosts.{instance}", self.name)
    }

    /// What hosts announce to all callers.
    pub(crate) fn news(&self) -> String {
        format!("toolbridge.{}.news", self.name)
    }
}

/// Encodes any text as one token of a subject.
fn token(text: &str) -> String {
    utf8_percent_encode(text, NOT_PLAIN).to_string()
}

/// The kinds of messages.
pub(crate) mod kind {
    /// A call of a caller that expects more than one message.
    pub(crate) const CALL: &str = "call";
    /// Cancels the call whose reply subject is the payload.
    pub(crate) const CANCEL: &str = "cancel";
    /// The call's result.
    pub(crate) const ANSWER: &str = "answer";
    /// The call failed.
    pub(crate) const ERROR: &str = "error";
    /// The call is running.
    pub(crate) const BEAT: &str = "beat";
    /// Progress of the call.
    pub(crate) const PROGRESS: &str = "progress";
    /// The host is full; the call did not run.
    pub(crate) const BUSY: &str = "busy";
    /// The host is ending, or does not have the tool; the call did not run.
    pub(crate) const GONE: &str = "gone";
    /// The host has ended while the call was running.
    pub(crate) const ENDED: &str = "ended";
}

/// The headers of a message of that kind.
pub(crate) fn headers(kind: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(KIND, kind);
    headers
}

/// A header of a message.
pub(crate) fn header<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    Some(message.headers.as_ref()?.get(name)?.as_str())
}

/// What a host says of itself, when it is asked and when something has changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// A unique id of its process.
    pub(crate) instance: String,
    /// Its name.
    pub(crate) host: String,
    pub(crate) version: String,
    /// When it was started, in milliseconds since 1970.
    pub(crate) started: u64,
    /// Increases with each change of its tools.
    pub(crate) revision: u64,
    /// It takes no more calls.
    pub(crate) is_leaving: bool,
}

/// The headers of a call.
pub(crate) fn call_headers(meta: &CallMeta) -> HeaderMap {
    let mut headers = headers(kind::CALL);
    // Between the parts of a JSON text, a space means the same as the end of a line, which a header cannot have.
    let text = serde_json::to_string(meta).unwrap_or_default().replace(['\r', '\n'], " ");
    headers.insert(META, text);
    if let Some(client) = &meta.caller {
        headers.insert(CLIENT, serde_json::to_string(&**client).unwrap_or_default());
    }
    headers
}

/// The metadata in a call's headers.
pub(crate) fn read_meta(message: &Message) -> CallMeta {
    let meta = header(message, META).and_then(|text| serde_json::from_str(text).ok());
    let meta: CallMeta = meta.unwrap_or_default();
    let client = header(message, CLIENT).and_then(|text| serde_json::from_str::<Caller>(text).ok());
    CallMeta {
        // Plain clients have it where W3C says.
        traceparent: meta.traceparent.or_else(|| header(message, TRACEPARENT)?.parse().ok()),
        caller: client.map(Into::into),
        // A caller on another machine has nobody here.
        can_ask: false,
        ..meta
    }
}

/// The error of a call, as sent in a header.
#[derive(Debug, Serialize, Deserialize)]
struct Failure {
    message: String,
    #[serde(rename = "type")]
    type_name: String,
    outcome: Outcome,
}

/// The headers of an error. A text that would not fit into a message is cut.
pub(crate) fn error_headers(error: &ToolError, max_payload: usize) -> HeaderMap {
    let mut message = error.to_string();
    // One character may take six bytes in JSON.
    let end = (0..=max_payload / 8).rev().find(|end| message.is_char_boundary(*end));
    message.truncate(end.unwrap_or(0));
    let failure = Failure { message, type_name: error.type_name().into(), outcome: error.outcome() };
    let mut headers = headers(kind::ERROR);
    headers.insert(ERROR, serde_json::to_string(&failure).unwrap_or_default());
    headers
}

pub(crate) fn read_error(message: &Message) -> ToolError {
    match header(message, ERROR).and_then(|text| serde_json::from_str::<Failure>(text).ok()) {
        Some(failure) => ToolError::new(failure.type_name, failure.message).called(failure.outcome),
        None => failed("the host answered with an error that it did not explain".into()),
    }
}

/// The start of an error's first line, for clients that only know the services API.
pub(crate) fn status(error: &ToolError) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().chars().filter(|char| !char.is_control()).take(200).collect()
}

/// The error of a call that did not reach its tool, or whose answer was lost.
pub(crate) fn failed(message: String) -> ToolError {
    ToolError::new("NatsError", message).called(Outcome::TransportError)
}

/// The error of arguments or a result that do not fit into a message.
pub(crate) fn too_large(what: &str, tool: &str, json: &RawJson, limit: usize) -> ToolError {
    let bytes = json.as_bytes().len();
    let text = format!(
        "the {what} of tool `{tool}` with {bytes} bytes and headers are larger than a message of this NATS server, \
         whose limit is {limit} bytes: raise its `max_payload`, or keep long results at the host (`--park`, `Parked`)"
    );
    ToolError::new("NatsMessageSizeError", text).called(Outcome::TransportError)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(headers: HeaderMap) -> Message {
        let (subject, payload) = ("a".into(), bytes::Bytes::new());
        let (reply, status, description, length) = (None, None, None, 0);
        Message { subject, reply, payload, headers: Some(headers), status, description, length }
    }

    #[test]
    fn every_name_is_one_token_of_a_subject_and_no_two_are_the_same() {
        let subjects = Subjects::new("shop").unwrap();
        let names = ["gpu-1", "gpu.lan", "*", ">", "a b", "%", "%2E", "größe", "\u{0}\r\n", "a.*.>"];
        for name in names {
            let subject = subjects.at(name, "tool");
            assert!(subject.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_%.".contains(&byte)));
            assert_eq!(subject.matches('.').count(), 4, "{subject}");
        }
        assert_ne!(subjects.at("a.b", "c"), subjects.at("a", "b.c"));
        assert_ne!(subjects.any("a%2E"), subjects.any("a."));
        assert_eq!(subjects.at("gpu.lan", "look_up"), "toolbridge.shop.at.gpu%2Elan.look_up");
    }

    #[test]
    fn a_name_is_that_of_a_service() {
        for bad in ["", "a.b", "a b", "*", "größe", "a@b"] {
            assert!(Subjects::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_error_passes_with_its_lines_its_letters_and_its_kind() {
        let error = ToolError::new("QuotaError", "zu groß:\r\n🙂 \"x\"").called(Outcome::Refused);
        let read = read_error(&message(error_headers(&error, 1 << 20)));
        assert_eq!(read.to_string(), error.to_string());
        assert_eq!((read.type_name(), read.outcome()), ("QuotaError", Outcome::Refused));
        assert_eq!(status(&error), "zu groß:");
        let cut = read_error(&message(error_headers(&ToolError::new("E", "ö".repeat(1000)), 1001)));
        assert_eq!(cut.to_string(), "ö".repeat(62));
    }

    #[test]
    fn the_meta_of_a_call_passes() {
        let mut client = Caller::default();
        client.name = Some("größe\n".into());
        let meta = CallMeta {
            tool_use_id: Some("toolu_1".into()),
            progress_token: Some(RawJson::parse("7\n").unwrap()),
            caller: Some(client.clone().into()),
            ..CallMeta::default()
        };
        let read = read_meta(&message(call_headers(&meta)));
        assert_eq!(read.tool_use_id.as_deref(), Some("toolu_1"));
        assert_eq!(read.progress_token.unwrap().as_str(), "7");
        assert_eq!(read.caller.as_deref(), Some(&client));
    }
}
