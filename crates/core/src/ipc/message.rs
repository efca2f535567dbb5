//! Converts frames to messages: requests and their answers.
//!
//! Payloads (`arguments`, `result`) are passed as slices of the frame they arrived in.

use crate::json::{Answer, CutError, Inner, Span, answer, envelope};
use crate::trace::{Outcome, TraceParent};
use crate::{Answer as Answered, CallMeta, Client, Progress, Question, RawJson, ToolCall, ToolError};
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::ipc::IpcError;
use crate::ipc::frame::check_size;
use crate::ipc::watch::WATCH_TOOLS;

/// The only method of the base protocol.
const CALL_TOOL: &str = "call_tool";

/// A message in three parts: the text before the payload, the payload, and the text after it.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) head: Vec<u8>,
    pub(crate) payload: RawJson,
    pub(crate) tail: Vec<u8>,
}

impl Parts {
    pub(crate) fn size(&self) -> usize {
        self.head.len() + self.payload.as_bytes().len() + self.tail.len()
    }
}

/// Why a frame is not a request that can be run. A refused request leaves the connection usable, an invalid one
/// does not.
#[derive(Debug)]
pub(crate) enum BadRequest {
    /// It is not a valid message.
    Invalid(IpcError),
    /// It is valid, but asks for something that cannot be done.
    Refused(ToolError),
}

/// A call's metadata on the wire; left out if empty.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, expecting = "an object")]
struct Meta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_use_id: Option<String>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    progress_token: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "text_or_nothing")]
    traceparent: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not", deserialize_with = "true_or_not")]
    can_ask: bool,
}

/// Only the literal `true` announces support for questions.
fn true_or_not<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(<&RawValue>::deserialize(deserializer)?.get() == "true")
}

/// As the standard requires, an unreadable `traceparent` is ignored.
fn text_or_nothing<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let raw = <&RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str(raw.get()).ok())
}

fn text(frame: &Bytes) -> Result<&str, IpcError> {
    std::str::from_utf8(frame).map_err(|error| IpcError::Invalid { reason: format!("not UTF-8: {error}") })
}

fn fault(message: &str, error: &CutError) -> String {
    match error {
        CutError::NotJson(error) => format!("{message} is not JSON: {error}"),
        CutError::Twice { key } => format!("{message} has a duplicate member `{key}`"),
    }
}

/// A request from a bridge.
#[expect(clippy::large_enum_variant, reason = "nearly all are calls, and none is kept")]
#[derive(Debug)]
pub(crate) enum Request {
    /// `call_tool`; the first request of a connection may carry the client.
    Call(ToolCall, Option<Client>),
    /// `watch_tools`, with the revision that the bridge knows.
    Watch(Option<u64>),
    /// Not a request: the answer to a question whose call has already ended.
    Answer,
}

/// Reads a request.
pub(crate) fn read_request(frame: &Bytes) -> Result<Request, BadRequest> {
    let invalid = |reason: String| BadRequest::Invalid(IpcError::Invalid { reason });
    let refuse = |type_name, reason: &str| {
        Err(BadRequest::Refused(ToolError::new(type_name, reason).called(Outcome::Refused)))
    };
    let text = text(frame).map_err(BadRequest::Invalid)?;
    let found =
        envelope(text, &["method", "answer"], "params", &["name", "arguments", "meta", "client", "revision"])
            .map_err(|error| invalid(fault("the request", &error)))?
            .ok_or_else(|| invalid("a request is a JSON object".into()))?;

    let method = found.outer[0].map(Span::decode::<String>);
    match method {
        Some(Ok(method)) if method == CALL_TOOL => {}
        Some(Ok(method)) if method == WATCH_TOOLS => {
            let known = match found.inner {
                Inner::Object([.., Some(revision)]) => revision.decode().ok(),
                _ => None,
            };
            return Ok(Request::Watch(known));
        }
        Some(Ok(method)) => {
            return refuse(
                "UnknownMethodError",
                &format!("unknown method `{method}`; the methods are `{CALL_TOOL}` and `{WATCH_TOOLS}`"),
            );
        }
        None if found.outer[1].is_some() => return Ok(Request::Answer),
        _ => return refuse("UnknownMethodError", &format!("a request needs `\"method\": \"{CALL_TOOL}\"`")),
    }
    let Inner::Object([name, arguments, meta, client, _]) = found.inner else {
        return refuse("InvalidParamsError", "`params` must be an object with `name` and `arguments`");
    };
    let Some(Ok(name)) = name.map(Span::decode::<String>) else {
        return refuse("InvalidParamsError", "`params.name` must be a string");
    };
    let arguments = match arguments {
        Some(arguments) => RawJson::span(frame, arguments),
        None => RawJson::empty_object(),
    };
    if !arguments.is_object() {
        return refuse("InvalidParamsError", "`params.arguments` must be an object");
    }
    // serde would accept a list and assign its items to the members in order.
    if meta.is_some_and(|meta| meta.get().starts_with('[')) {
        return refuse("InvalidParamsError", "`params.meta` must be an object");
    }
    let meta = match meta.map(Span::decode::<Option<Meta<'_>>>) {
        None | Some(Ok(None)) => CallMeta::default(),
        Some(Ok(Some(meta))) => CallMeta {
            tool_use_id: meta.tool_use_id,
            progress_token: meta.progress_token.map(|token| RawJson::span(frame, token)),
            traceparent: meta.traceparent.and_then(|text| text.parse().ok()),
            client: None,
            can_ask: meta.can_ask,
        },
        Some(Err(error)) => {
            return refuse("InvalidParamsError", &format!("`params.meta` cannot be read: {error}"));
        }
    };
    // The client is informational, so an unreadable one is ignored.
    let client =
        client.filter(|client| client.get().starts_with('{')).and_then(|client| client.decode().ok());
    Ok(Request::Call(ToolCall { name, arguments, meta }, client))
}

/// Adds the client to a request, if the parent does not know it yet. A request that could not be sent on one
/// connection may already have it, for the next one.
pub(crate) fn introduce(request: &mut Parts, client: &Client) {
    let client = serde_json::to_string(client).expect("strings can always be written");
    let client = format!(r#","client":{client}"#);
    if request.tail.starts_with(client.as_bytes()) {
        return;
    }
    // Left out if the request would become too large.
    if check_size(request.size() + client.len()).is_ok() {
        request.tail.splice(0..0, client.into_bytes());
    }
}

/// Writes a request.
pub(crate) fn write_request(call: ToolCall) -> Parts {
    let name = serde_json::Value::from(call.name);
    let head = format!(r#"{{"method":"{CALL_TOOL}","params":{{"name":{name},"arguments":"#).into_bytes();
    let token = call.meta.progress_token.as_ref().map(|token| {
        serde_json::from_str::<&RawValue>(token.as_str()).expect("raw JSON is JSON by construction")
    });
    let traceparent = call.meta.traceparent.map(|parent: TraceParent| parent.to_string());
    let can_ask = call.meta.can_ask;
    let meta = Meta { tool_use_id: call.meta.tool_use_id, progress_token: token, traceparent, can_ask };
    let says_nothing =
        meta.tool_use_id.is_none() && meta.progress_token.is_none() && meta.traceparent.is_none();
    let tail = if says_nothing && !can_ask {
        "}}".into()
    } else {
        let meta = serde_json::to_string(&meta).expect("strings and raw JSON can always be written");
        format!(r#","meta":{meta}}}}}"#)
    };
    Parts { head, payload: call.arguments, tail: tail.into_bytes() }
}

/// A message from a parent: any number of progress reports and questions, then a result or an error.
#[derive(Debug)]
pub(crate) enum Reply {
    /// The tool ran; `isError` inside says whether it failed.
    Result(RawJson),
    /// The tool could not be run, or failed.
    Error(ToolError),
    /// The call's progress, if it could be read.
    Progress(Option<Progress>),
    /// A question to the user of the bridge's client.
    Ask(Ask),
}

/// A question on the wire, for a bridge that has announced support for questions.
#[derive(Debug, Serialize, Deserialize)]
#[serde(expecting = "an object")]
pub(crate) struct Ask {
    /// The question's number within the call.
    pub(crate) id: u64,
    /// The question's text; `None` cancels the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// The schema of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    schema: Option<Box<RawValue>>,
}

impl Ask {
    pub(crate) fn new(id: u64, question: &Question) -> Self {
        let schema = RawValue::from_string(question.schema.to_string());
        Self { id, message: Some(question.message.clone()), schema: schema.ok() }
    }

    pub(crate) fn taken_back(id: u64) -> Self {
        Self { id, message: None, schema: None }
    }

    /// The question; `None` if this cancels it.
    pub(crate) fn question(self) -> Option<Question> {
        let schema = self.schema.map_or_else(RawJson::empty_object, |schema| {
            RawJson::written(String::from(Box::<str>::from(schema)).into_bytes())
        });
        Some(Question { message: self.message?, schema })
    }
}

/// An answer on the wire.
#[derive(Debug, Serialize, Deserialize)]
#[serde(expecting = "an object")]
struct AnswerPayload {
    id: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    action: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Writes the answer to a question.
pub(crate) fn write_answer(id: u64, answer: Result<Answered, ToolError>) -> Parts {
    let (mut content, mut error) = (None, None);
    let action = match answer {
        Ok(Answered::Accepted(accepted)) => {
            content = RawValue::from_string(accepted.to_string()).ok();
            Some("accept")
        }
        Ok(Answered::Declined) => Some("decline"),
        Ok(Answered::Cancelled) => Some("cancel"),
        Ok(Answered::Nobody) => Some("nobody"),
        Err(failed) => {
            error = Some(failed.to_string());
            None
        }
    };
    let payload = AnswerPayload { id, action: action.map(str::to_owned), content, error };
    Parts { head: br#"{"answer":"#.to_vec(), payload: written(&payload), tail: b"}".to_vec() }
}

/// Reads the answer to a question: its number, and the answer or the error.
pub(crate) fn read_answer(frame: &Bytes) -> Result<(u64, Result<Answered, String>), IpcError> {
    #[derive(Deserialize)]
    struct Message {
        answer: AnswerPayload,
    }
    let invalid = |reason: String| IpcError::Invalid { reason };
    let read = serde_json::from_slice::<Message>(frame);
    let AnswerPayload { id, action, content, error } = read
        .map_err(|error| invalid(format!("while a tool asks, only an `answer` can follow: {error}")))?
        .answer;
    let answer = match (action.as_deref(), content) {
        (Some("accept"), Some(content)) => {
            Ok(Answered::Accepted(RawJson::written(String::from(Box::<str>::from(content)).into_bytes())))
        }
        (Some("accept"), None) => Ok(Answered::Accepted(RawJson::empty_object())),
        (Some("decline"), _) => Ok(Answered::Declined),
        (Some("cancel"), _) => Ok(Answered::Cancelled),
        (Some("nobody"), _) => Ok(Answered::Nobody),
        (Some(other), _) => return Err(invalid(format!("an answer has the unknown action `{other}`"))),
        (None, _) => Err(error.unwrap_or_else(|| "the bridge does not say why there is no answer".into())),
    };
    Ok((id, answer))
}

/// An error on the wire.
#[derive(Debug, Serialize, Deserialize)]
#[serde(expecting = "an object")]
struct ErrorPayload {
    message: String,
    #[serde(rename = "type", default = "ErrorPayload::unknown")]
    type_name: String,
}

impl ErrorPayload {
    fn unknown() -> String {
        "IPCToolExecutionError".into()
    }
}

/// Reads a parent's answer.
pub(crate) fn read_reply(frame: &Bytes) -> Result<Reply, IpcError> {
    let invalid = |reason: String| IpcError::Invalid { reason };
    let found = answer(text(frame)?, &["error", "progress", "ask"], "result")
        .map_err(|error| invalid(fault("the parent's answer", &error)))?
        .unwrap_or(Answer { outer: [None; 3], result: None });
    let [error, progress, ask] = found.outer;
    if let (Some(ask), None, None, None) = (ask, &found.result, error, progress) {
        let unread = |error| invalid(format!("the parent's `ask` cannot be read: {error}"));
        return ask.decode().map(Reply::Ask).map_err(unread);
    }
    // Next to another member, `ask` is ignored like an unknown one.
    match (found.result, [error, progress]) {
        (Some(Ok(result)), [None, None]) => Ok(Reply::Result(RawJson::result_span(frame, result))),
        (Some(Err(flaw)), [None, None]) => Err(invalid(format!("the parent's `result` is unusable: {flaw}"))),
        (Some(_), [Some(error), _]) => {
            let said = said(error);
            Err(invalid(format!("the parent's answer has both `result` and `error`, which says: {said}")))
        }
        // serde would accept a list and assign its items to the members in order.
        (None, [Some(error), None]) if error.get().starts_with('[') => {
            Err(invalid("the parent's `error` is not an object".into()))
        }
        (None, [Some(error), None]) => {
            let payload: ErrorPayload = error
                .decode()
                .map_err(|error| invalid(format!("the parent's `error` cannot be read: {error}")))?;
            let outcome = outcome_of(&payload.type_name);
            Ok(Reply::Error(ToolError::new(payload.type_name, payload.message).called(outcome)))
        }
        (None, [None, Some(progress)]) => Ok(Reply::Progress(progress.decode().ok())),
        _ => Err(invalid("the parent's answer must have one of `result`, `error` and `progress`".into())),
    }
}

/// How an error is classified in a trace. The wire only has the name of its class.
fn outcome_of(type_name: &str) -> Outcome {
    match type_name {
        "ToolTimeoutError" => Outcome::TimedOut,
        "ToolNotFoundError" | "ToolArgumentsError" | "ToolBusyError" | "InvalidParamsError"
        | "UnknownMethodError" => Outcome::Refused,
        "IPCConnectionError" | "IPCMessageSizeError" | "IPCError" => Outcome::TransportError,
        "ToolCancelledError" => Outcome::Cancelled,
        _ => Outcome::ToolError,
    }
}

/// The text of an error, even if it is malformed.
fn said(error: Span<'_>) -> String {
    const SHOWN_CHARS: usize = 2_000;
    match error.decode::<ErrorPayload>() {
        Ok(payload) => format!("{} ({})", payload.message, payload.type_name),
        Err(_) => error.get().chars().take(SHOWN_CHARS).collect(),
    }
}

/// Writes an answer.
pub(crate) fn write_reply(reply: Reply) -> Parts {
    let (head, payload) = match reply {
        Reply::Result(result) => (r#"{"result":"#, result),
        Reply::Error(error) => {
            let payload = ErrorPayload { type_name: error.type_name().into(), message: error.to_string() };
            (r#"{"error":"#, written(&payload))
        }
        Reply::Progress(progress) => (r#"{"progress":"#, written(&progress)),
        Reply::Ask(ask) => (r#"{"ask":"#, written(&ask)),
    };
    Parts { head: head.into(), payload, tail: b"}".to_vec() }
}

fn written(value: &impl Serialize) -> RawJson {
    RawJson::of(value).expect("strings and numbers can always be written")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(parts: &Parts) -> Bytes {
        [&parts.head, parts.payload.as_bytes(), &parts.tail].concat().into()
    }

    fn read_call(frame: &Bytes) -> ToolCall {
        let Request::Call(call, _) = read_request(frame).unwrap() else { panic!("no call: {frame:?}") };
        call
    }

    #[test]
    fn the_client_is_sent_once_and_an_unreadable_one_is_ignored() {
        let mut client = Client::default();
        (client.name, client.session_id) = (Some("c".into()), Some("s".into()));
        let mut call = ToolCall::new("a", RawJson::empty_object());
        call.meta.tool_use_id = Some("t".into());
        let mut request = write_request(call);
        introduce(&mut request, &client);
        introduce(&mut request, &client);
        let text = r#"{"method":"call_tool","params":{"name":"a","arguments":{},"client":CLIENT,"meta":{"toolUseId":"t"}}}"#;
        assert_eq!(whole(&request), text.replace("CLIENT", r#"{"name":"c","sessionId":"s"}"#));
        let read = |text: String| match read_request(&Bytes::from(text)).unwrap() {
            Request::Call(call, client) => (call.meta.tool_use_id.unwrap(), client),
            Request::Watch(_) | Request::Answer => panic!("no call"),
        };
        assert_eq!(
            read(text.replace("CLIENT", r#"{"name":"c","sessionId":"s","new":1}"#)),
            ("t".into(), Some(client))
        );
        for odd in ["null", "5", "[]", r#"["c"]"#, r#"{"name":5}"#] {
            assert_eq!(read(text.replace("CLIENT", odd)), ("t".into(), None), "{odd}");
        }
    }

    #[test]
    fn watching_asks_for_another_revision_or_for_any() {
        for known in [None, Some(0), Some(u64::MAX)] {
            let request = whole(&crate::ipc::watch::write_watch(known));
            assert!(
                matches!(read_request(&request), Ok(Request::Watch(read)) if read == known),
                "{request:?}"
            );
        }
        for text in [r#"{"method":"watch_tools"}"#, r#"{"method":"watch_tools","params":{"revision":"x"}}"#] {
            assert!(matches!(read_request(&text.into()), Ok(Request::Watch(None))), "{text}");
        }
    }

    #[test]
    fn requests_are_written_as_the_protocol_says() {
        let mut call = ToolCall::new("a\"b", RawJson::parse(r#"{"x": 1e400}"#).unwrap());
        assert_eq!(
            whole(&write_request(call.clone())),
            r#"{"method":"call_tool","params":{"name":"a\"b","arguments":{"x": 1e400}}}"#
        );
        call.meta.tool_use_id = Some("toolu_1".into());
        call.meta.progress_token = Some(RawJson::parse("7").unwrap());
        let frame = whole(&write_request(call));
        assert_eq!(
            frame,
            r#"{"method":"call_tool","params":{"name":"a\"b","arguments":{"x": 1e400},"meta":{"toolUseId":"toolu_1","progressToken":7}}}"#
        );
        let read = read_call(&frame);
        assert_eq!((read.name.as_str(), read.arguments.as_str()), ("a\"b", r#"{"x": 1e400}"#));
        assert_eq!(read.meta.tool_use_id.as_deref(), Some("toolu_1"));
        assert_eq!(read.meta.progress_token.unwrap().as_str(), "7");
    }

    #[test]
    fn a_traceparent_is_passed_on_and_a_bad_one_is_ignored() {
        let mut call = ToolCall::new("a", RawJson::empty_object());
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        call.meta.traceparent = parent.parse().ok();
        let frame = whole(&write_request(call));
        let text =
            r#"{"method":"call_tool","params":{"name":"a","arguments":{},"meta":{"traceparent":"PARENT"}}}"#;
        assert_eq!(frame, text.replace("PARENT", parent));
        assert_eq!(read_call(&frame).meta.traceparent.unwrap().to_string(), parent);
        for bad in [r#""00-0-0-0""#, "5", "null", "[]"] {
            let frame = Bytes::from(text.replace(r#""PARENT""#, bad));
            assert_eq!(read_call(&frame).meta.traceparent, None, "{bad}");
        }
    }

    #[test]
    fn bad_requests_say_what_would_be_right() {
        let rows: [(&'static [u8], &str); 13] = [
            (b"\xff", "closed: invalid message: not UTF-8: invalid utf-8 sequence of 1 bytes from index 0"),
            (
                b"{",
                "closed: invalid message: the request is not JSON: EOF while parsing an object at line 1 column 1",
            ),
            (b"NaN", "closed: invalid message: the request is not JSON: expected value at line 1 column 1"),
            (b"[]", "closed: invalid message: a request is a JSON object"),
            (b"{}", "UnknownMethodError: a request needs `\"method\": \"call_tool\"`"),
            (br#"{"method":5}"#, "UnknownMethodError: a request needs `\"method\": \"call_tool\"`"),
            (
                br#"{"method":"list","params":7}"#,
                "UnknownMethodError: unknown method `list`; the methods are `call_tool` and `watch_tools`",
            ),
            (
                br#"{"method":"call_tool"}"#,
                "InvalidParamsError: `params` must be an object with `name` and `arguments`",
            ),
            (
                br#"{"method":"call_tool","params":[]}"#,
                "InvalidParamsError: `params` must be an object with `name` and `arguments`",
            ),
            (br#"{"method":"call_tool","params":{}}"#, "InvalidParamsError: `params.name` must be a string"),
            (
                br#"{"method":"call_tool","params":{"name":"a","arguments":[]}}"#,
                "InvalidParamsError: `params.arguments` must be an object",
            ),
            (
                br#"{"method":"call_tool","params":{"name":"a","arguments":{},"meta":1}}"#,
                "InvalidParamsError: `params.meta` cannot be read: invalid type: integer `1`, expected an object at line 1 column 1",
            ),
            (
                br#"{"method":"call_tool","params":{"name":"a","name":"b"}}"#,
                "closed: invalid message: the request has a duplicate member `name`",
            ),
        ];
        for (frame, want) in rows {
            let got = match read_request(&Bytes::from_static(frame)).unwrap_err() {
                BadRequest::Invalid(error) => format!("closed: {error}"),
                BadRequest::Refused(error) => format!("{}: {error}", error.type_name()),
            };
            assert_eq!(got, want);
        }
    }

    #[test]
    fn unknown_members_and_missing_arguments_are_fine() {
        let frame = Bytes::from_static(
            br#"{"v":2,"params":{"x":[],"name":"a","meta":{"new":1}},"method":"call_tool"}"#,
        );
        assert_eq!(read_call(&frame).arguments.as_str(), "{}");
    }

    #[test]
    fn replies_are_read_and_written_as_the_protocol_says() {
        let rows: [(&'static str, &str); 10] = [
            (
                r#"{"result":{"content":[ {"type":"t"} ],"isError":true,"x":1}}"#,
                r#"{"result":{"content":[ {"type":"t"} ],"isError":true,"x":1}}"#,
            ),
            (r#"{"error":{"message":"m","type":"T"},"v":1}"#, r#"{"error":{"message":"m","type":"T"}}"#),
            (r#"{"error":{"message":"m"}}"#, r#"{"error":{"message":"m","type":"IPCToolExecutionError"}}"#),
            (r#"{"progress":{"progress":1,"total":2.5}}"#, r#"{"progress":{"progress":1,"total":2.5}}"#),
            (r#"{"progress":{"progress":null}}"#, r#"{"progress":null}"#),
            ("{}", "invalid message: the parent's answer must have one of `result`, `error` and `progress`"),
            (
                r#"{"result":{"content":[{"type":"t"}]},"progress":{"progress":1}}"#,
                "invalid message: the parent's answer must have one of `result`, `error` and `progress`",
            ),
            (
                r#"{"result":{"content":[{"type":"t"}]},"result":1}"#,
                "invalid message: the parent's answer has a duplicate member `result`",
            ),
            ("[1]", "invalid message: the parent's answer must have one of `result`, `error` and `progress`"),
            ("nope", "invalid message: the parent's answer is not JSON: expected ident at line 1 column 2"),
        ];
        for (frame, want) in rows {
            let got = match read_reply(&Bytes::from_static(frame.as_bytes())) {
                Ok(reply) => String::from_utf8(whole(&write_reply(reply)).to_vec()).unwrap(),
                Err(error) => error.to_string(),
            };
            assert_eq!(got, want, "{frame}");
        }
    }

    #[test]
    fn a_result_that_is_none_is_an_error_that_says_what_would_be_right() {
        let rows = [
            ("[]", "it is not an object"),
            ("null", "it is not an object"),
            ("{}", "it has no `content`"),
            (r#"{"content":null}"#, "its `content` is not a list"),
            (r#"{"content":"text"}"#, "its `content` is not a list"),
            (r#"{"content":[]}"#, "its `content` is empty"),
            (r#"{"content":["text"]}"#, "`content[0]` is not an object"),
            (r#"{"content":[{"text":"a"}]}"#, "`content[0]` has no `type` that is a string"),
        ];
        for (result, want) in rows {
            let error = read_reply(&Bytes::from(format!(r#"{{"result":{result}}}"#))).unwrap_err();
            let text = format!(
                "invalid message: the parent's `result` is unusable: {want}; a result is an object whose `content` is a \
                 list of at least one block, an object with a `type`"
            );
            assert_eq!((error.to_string(), error.type_name()), (text, "IPCError"), "{result}");
        }
        let deep = format!(
            r#"{{"result":{{"content":[{{"type":"t"}}],"structuredContent":{}{}}}}}"#,
            "[".repeat(128),
            "]".repeat(128)
        );
        let error = read_reply(&Bytes::from(deep)).unwrap_err().to_string();
        let want = "invalid message: the parent's `result` is unusable: it is nested 129 levels deep, the limit is 128";
        assert_eq!(error, want);
    }

    #[test]
    fn an_error_beside_a_result_is_shown() {
        let rows = [
            (r#"{"message":"disk full","type":"DiskError"}"#, "disk full (DiskError)"),
            (r#"{"message":"disk full"}"#, "disk full (IPCToolExecutionError)"),
            (r#""disk full""#, r#""disk full""#),
            ("null", "null"),
        ];
        for (error, want) in rows {
            for result in [r#"{"content":[{"type":"text","text":"fine"}]}"#, "{}", "null"] {
                let frame = format!(r#"{{"result":{result},"error":{error}}}"#);
                let got = read_reply(&Bytes::from(frame)).unwrap_err().to_string();
                let want = format!(
                    "invalid message: the parent's answer has both `result` and `error`, which says: {want}"
                );
                assert_eq!(got, want);
            }
        }
    }
}
