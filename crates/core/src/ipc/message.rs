//! Converts frames to messages: requests and their answers.
//!
//! Payloads (`arguments`, `result`) are passed as slices of the frame they arrived in.

use crate::trace::Outcome;
use crate::{Answer, CallMeta, Caller, Progress, Question, RawJson, ToolCall, ToolError};
use bytes::Bytes;
use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::ipc::IpcError;
use crate::ipc::frame::check_size;

const CALL_TOOL: &str = "call_tool";
const WATCH_TOOLS: &str = "watch_tools";

/// A message in three parts: the text before the payload, the payload, and the text after it.
#[derive(Debug)]
pub struct Parts {
    /// What comes before the payload.
    pub head: Vec<u8>,
    /// The payload.
    pub payload: RawJson,
    /// What comes after it.
    pub tail: Vec<u8>,
}

impl Parts {
    /// A message with one member.
    fn of(member: &str, payload: RawJson) -> Self {
        Self { head: format!(r#"{{"{member}":"#).into(), payload, tail: b"}".into() }
    }

    pub(crate) fn size(&self) -> usize {
        self.head.len() + self.payload.as_bytes().len() + self.tail.len()
    }
}

fn json(value: &impl Serialize) -> RawJson {
    RawJson::of(value).expect("strings, numbers and raw JSON can always be written")
}

/// Reads an object. Serde's structs would also accept a list, and take its items for the members in order.
pub(crate) fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, serde_json::Error> {
    if text.trim_ascii_start().starts_with('[') {
        return Err(serde_json::Error::invalid_type(Unexpected::Seq, &"an object"));
    }
    serde_json::from_str(text)
}

/// Reads a member that is there, even if it is `null`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

fn invalid(reason: String) -> IpcError {
    IpcError::Invalid { reason }
}

/// The members of a message, in either direction. Unknown ones are ignored.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    answer: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    progress: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    ask: Option<&'a RawValue>,
}

/// Opens a message, which is called `what` in errors.
fn open<'a>(frame: &'a Bytes, what: &str) -> Result<Envelope<'a>, IpcError> {
    let text = std::str::from_utf8(frame).map_err(|error| invalid(format!("not UTF-8: {error}")))?;
    object(text).map_err(|error| unreadable(what, &error))
}

fn unreadable(what: &str, error: &serde_json::Error) -> IpcError {
    invalid(format!("{what} cannot be read: {error}"))
}

/// A message from a bridge.
#[expect(clippy::large_enum_variant, reason = "nearly all are calls, and none is kept")]
#[derive(Debug)]
pub enum BridgeMessage {
    /// `call_tool`; the first request of a connection may carry the client.
    Call(ToolCall, Option<Caller>),
    /// `watch_tools`, with the revision that the bridge knows.
    Watch(Option<u64>),
    /// The answer to the question with that number, or why there is none.
    Answer(u64, Result<Answer, String>),
    /// A request for something that cannot be done; the connection stays usable.
    Refused(ToolError),
}

#[derive(Deserialize)]
struct RequestParams<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    meta: Option<&'a RawValue>,
    #[serde(borrow)]
    client: Option<&'a RawValue>,
    #[serde(borrow)]
    revision: Option<&'a RawValue>,
}

/// Reads a message from a bridge.
///
/// # Errors
///
/// When it is none.
pub fn read_bridge_message(frame: &Bytes) -> Result<BridgeMessage, IpcError> {
    const REQUEST: &str = "the request";
    let refuse = |type_name, reason: String| {
        Ok(BridgeMessage::Refused(ToolError::new(type_name, reason).called(Outcome::Refused)))
    };
    let Envelope { method, params, answer, .. } = open(frame, REQUEST)?;
    let params = params.filter(|params| params.get().starts_with('{'));
    let params = params.map(|params| object::<RequestParams<'_>>(params.get())).transpose();
    let params = params.map_err(|error| unreadable(REQUEST, &error))?;
    match (method.map(|method| serde_json::from_str::<String>(method.get())), answer) {
        (Some(Ok(method)), _) if method == CALL_TOOL => {}
        (Some(Ok(method)), _) if method == WATCH_TOOLS => {
            let known = params.and_then(|params| serde_json::from_str(params.revision?.get()).ok());
            return Ok(BridgeMessage::Watch(known));
        }
        (Some(Ok(method)), _) => {
            let known = format!("the methods are `{CALL_TOOL}` and `{WATCH_TOOLS}`");
            return refuse("UnknownMethodError", format!("unknown method `{method}`; {known}"));
        }
        (None, Some(answer)) => return read_answer(answer),
        _ => return refuse("UnknownMethodError", format!("a request needs `\"method\": \"{CALL_TOOL}\"`")),
    }
    let Some(RequestParams { name, arguments, meta, client, .. }) = params else {
        let reason = "`params` must be an object with `name` and `arguments`";
        return refuse("InvalidParamsError", reason.into());
    };
    let Some(Ok(name)) = name.map(|name| serde_json::from_str(name.get())) else {
        return refuse("InvalidParamsError", "`params.name` must be a string".into());
    };
    let arguments = arguments.map_or(RawJson::empty_object(), |arguments| RawJson::span(frame, arguments));
    if !arguments.is_object() {
        return refuse("InvalidParamsError", "`params.arguments` must be an object".into());
    }
    let meta = match meta.map_or(Ok(CallMeta::default()), |meta| object(meta.get())) {
        Ok(meta) => meta,
        Err(error) => {
            return refuse("InvalidParamsError", format!("`params.meta` cannot be read: {error}"));
        }
    };
    // The client is informational, so an unreadable one is ignored.
    let client = client.and_then(|client| object(client.get()).ok());
    Ok(BridgeMessage::Call(ToolCall { name, arguments, meta }, client))
}

/// Writes a request, which names the client if that fits.
pub fn write_call(call: &ToolCall, client: Option<&Caller>) -> Parts {
    let name = serde_json::Value::from(&*call.name);
    let head = format!(r#"{{"method":"{CALL_TOOL}","params":{{"name":{name},"arguments":"#).into();
    let meta = json(&call.meta);
    let tail = if meta == RawJson::empty_object() { "}}".into() } else { format!(r#","meta":{meta}}}}}"#) };
    let mut request = Parts { head, payload: call.arguments.clone(), tail: tail.into() };
    if let Some(client) = client {
        let client = format!(r#","client":{}"#, json(client));
        if check_size(request.size() + client.len()).is_ok() {
            request.tail.splice(0..0, client.into_bytes());
        }
    }
    request
}

/// Requests a revision other than `known`; without it, the current one immediately.
pub(crate) fn write_watch(known: Option<u64>) -> Parts {
    let params = serde_json::json!({ "revision": known });
    let params = if known.is_some() { json(&params) } else { RawJson::empty_object() };
    Parts {
        head: format!(r#"{{"method":"{WATCH_TOOLS}","params":"#).into(),
        payload: params,
        tail: b"}".into(),
    }
}

/// A parent's answer to `watch_tools`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Watched {
    /// Different for each list of tools. The schema file is at least as new.
    pub(crate) revision: u64,
    /// How many calls the parent has begun to answer.
    #[serde(default)]
    pub(crate) calls: u64,
}

/// Writes that answer.
pub(crate) fn write_watched(watched: Watched) -> Parts {
    Parts::of("result", json(&watched))
}

/// Reads that answer.
pub(crate) fn read_watched(frame: &Bytes) -> Result<Watched, IpcError> {
    let result = open(frame, "the parent's answer")?.result;
    let watched = result.and_then(|result| serde_json::from_str(result.get()).ok());
    watched.ok_or_else(|| invalid("the parent does not say when its tools change".into()))
}

/// A message from a parent: any number of progress reports and questions, then a result or an error.
#[derive(Debug)]
pub enum ParentMessage {
    /// The tool ran; `isError` inside says whether it failed.
    Result(RawJson),
    /// The tool could not be run, or failed.
    Error(ToolError),
    /// The call's progress, if it could be read.
    Progress(Option<Progress>),
    /// A question to the user of the bridge's client, with its number within the call; `None` withdraws it.
    Ask(u64, Option<Question>),
}

impl From<Result<RawJson, ToolError>> for ParentMessage {
    fn from(outcome: Result<RawJson, ToolError>) -> Self {
        outcome.map_or_else(Self::Error, Self::Result)
    }
}

/// A question on the wire.
#[derive(Serialize, Deserialize)]
struct QuestionPayload {
    id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<RawJson>,
}

/// An answer on the wire.
#[derive(Serialize, Deserialize)]
struct AnswerPayload {
    id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Writes the answer to a question.
pub(crate) fn write_answer(id: u64, answer: Result<Answer, ToolError>) -> Parts {
    let (action, content, error) = match answer {
        Ok(Answer::Accepted(content)) => (Some("accept"), Some(content), None),
        Ok(Answer::Declined) => (Some("decline"), None, None),
        Ok(Answer::Cancelled) => (Some("cancel"), None, None),
        Ok(Answer::Nobody) => (Some("nobody"), None, None),
        Err(error) => (None, None, Some(error.to_string())),
    };
    Parts::of("answer", json(&AnswerPayload { id, action: action.map(Into::into), content, error }))
}

fn read_answer(answer: &RawValue) -> Result<BridgeMessage, IpcError> {
    let AnswerPayload { id, action, content, error } =
        object(answer.get()).map_err(|error| unreadable("the answer to a question", &error))?;
    let answer = match action.as_deref() {
        Some("accept") => Ok(Answer::Accepted(content.unwrap_or(RawJson::empty_object()))),
        Some("decline") => Ok(Answer::Declined),
        Some("cancel") => Ok(Answer::Cancelled),
        Some("nobody") => Ok(Answer::Nobody),
        Some(other) => return Err(invalid(format!("a question cannot be answered with `{other}`"))),
        None => Err(error.unwrap_or_else(|| "the bridge does not say why there is no answer".into())),
    };
    Ok(BridgeMessage::Answer(id, answer))
}

/// An error on the wire.
#[derive(Debug, Serialize, Deserialize)]
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

/// Reads a message from a parent.
///
/// # Errors
///
/// When it is none.
pub fn read_parent_message(frame: &Bytes) -> Result<ParentMessage, IpcError> {
    match open(frame, "the parent's answer")? {
        Envelope { result: Some(result), error: None, progress: None, .. } => {
            let result = RawJson::span(frame, result).into_result();
            result
                .map(ParentMessage::Result)
                .map_err(|flaw| invalid(format!("the parent's `result` is unusable: {flaw}")))
        }
        Envelope { result: Some(_), error: Some(error), .. } => {
            let text = error_text(error);
            Err(invalid(format!("the parent's answer has both `result` and `error`, which says: {text}")))
        }
        Envelope { result: None, error: Some(error), progress: None, .. } => {
            let ErrorPayload { message, type_name } =
                object(error.get()).map_err(|error| unreadable("the parent's `error`", &error))?;
            let outcome = outcome_of(&type_name);
            Ok(ParentMessage::Error(ToolError::new(type_name, message).called(outcome)))
        }
        Envelope { result: None, error: None, progress: Some(progress), .. } => {
            Ok(ParentMessage::Progress(object(progress.get()).ok()))
        }
        // Next to another member, `ask` is ignored like an unknown one.
        Envelope { result: None, error: None, progress: None, ask: Some(ask), .. } => {
            let QuestionPayload { id, message, schema } =
                object(ask.get()).map_err(|error| unreadable("the parent's `ask`", &error))?;
            let schema = schema.unwrap_or(RawJson::empty_object());
            Ok(ParentMessage::Ask(id, message.map(|message| Question { message, schema })))
        }
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
fn error_text(error: &RawValue) -> String {
    const SHOWN_CHARS: usize = 2_000;
    match object::<ErrorPayload>(error.get()) {
        Ok(payload) => format!("{} ({})", payload.message, payload.type_name),
        Err(_) => error.get().chars().take(SHOWN_CHARS).collect(),
    }
}

/// Writes a message from a parent.
pub(crate) fn write_parent_message(message: ParentMessage) -> Parts {
    match message {
        ParentMessage::Result(result) => Parts::of("result", result),
        ParentMessage::Error(error) => {
            let payload = ErrorPayload { type_name: error.type_name().into(), message: error.to_string() };
            Parts::of("error", json(&payload))
        }
        ParentMessage::Progress(progress) => Parts::of("progress", json(&progress)),
        ParentMessage::Ask(id, question) => {
            let (message, schema) = question.map(|question| (question.message, question.schema)).unzip();
            Parts::of("ask", json(&QuestionPayload { id, message, schema }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(parts: &Parts) -> Bytes {
        [&parts.head, parts.payload.as_bytes(), &parts.tail].concat().into()
    }

    fn read_call(frame: &Bytes) -> ToolCall {
        let BridgeMessage::Call(call, _) = read_bridge_message(frame).unwrap() else {
            panic!("no call: {frame:?}")
        };
        call
    }

    #[test]
    fn the_client_is_sent_once_and_an_unreadable_one_is_ignored() {
        let mut client = Caller::default();
        (client.name, client.session_id) = (Some("c".into()), Some("s".into()));
        let mut call = ToolCall::new("a", RawJson::empty_object());
        call.meta.tool_use_id = Some("t".into());
        let request = write_call(&call, Some(&client));
        let text = r#"{"method":"call_tool","params":{"name":"a","arguments":{},"client":CLIENT,"meta":{"toolUseId":"t"}}}"#;
        assert_eq!(whole(&request), text.replace("CLIENT", r#"{"name":"c","sessionId":"s"}"#));
        let read = |text: String| match read_bridge_message(&Bytes::from(text)).unwrap() {
            BridgeMessage::Call(call, client) => (call.meta.tool_use_id.unwrap(), client),
            other => panic!("no call: {other:?}"),
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
            let request = whole(&write_watch(known));
            assert!(
                matches!(read_bridge_message(&request), Ok(BridgeMessage::Watch(read)) if read == known),
                "{request:?}"
            );
        }
        for text in [r#"{"method":"watch_tools"}"#, r#"{"method":"watch_tools","params":{"revision":"x"}}"#] {
            assert!(matches!(read_bridge_message(&text.into()), Ok(BridgeMessage::Watch(None))), "{text}");
        }
    }

    #[test]
    fn requests_are_written_as_the_protocol_says() {
        let mut call = ToolCall::new("a\"b", RawJson::parse(r#"{"x": 1e400}"#).unwrap());
        assert_eq!(
            whole(&write_call(&call, None)),
            r#"{"method":"call_tool","params":{"name":"a\"b","arguments":{"x": 1e400}}}"#
        );
        call.meta.tool_use_id = Some("toolu_1".into());
        call.meta.progress_token = Some(RawJson::parse("7").unwrap());
        let frame = whole(&write_call(&call, None));
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
        let frame = whole(&write_call(&call, None));
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
                "closed: invalid message: the request cannot be read: EOF while parsing an object at line 1 column 1",
            ),
            (
                b"NaN",
                "closed: invalid message: the request cannot be read: expected value at line 1 column 1",
            ),
            (
                b"[]",
                "closed: invalid message: the request cannot be read: invalid type: sequence, expected an object",
            ),
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
                "closed: invalid message: the request cannot be read: duplicate field `name` at line 1 column 18",
            ),
        ];
        for (frame, want) in rows {
            let got = match read_bridge_message(&Bytes::from_static(frame)) {
                Err(error) => format!("closed: {error}"),
                Ok(BridgeMessage::Refused(error)) => format!("{}: {error}", error.type_name()),
                Ok(other) => format!("{other:?}"),
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
                "invalid message: the parent's answer cannot be read: duplicate field `result` at line 1 column 45",
            ),
            (
                "[1]",
                "invalid message: the parent's answer cannot be read: invalid type: sequence, expected an object",
            ),
            (
                "nope",
                "invalid message: the parent's answer cannot be read: expected ident at line 1 column 2",
            ),
        ];
        for (frame, want) in rows {
            let got = match read_parent_message(&Bytes::from_static(frame.as_bytes())) {
                Ok(reply) => String::from_utf8(whole(&write_parent_message(reply)).to_vec()).unwrap(),
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
            let error = read_parent_message(&Bytes::from(format!(r#"{{"result":{result}}}"#))).unwrap_err();
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
        let error = read_parent_message(&Bytes::from(deep)).unwrap_err().to_string();
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
                let got = read_parent_message(&Bytes::from(frame)).unwrap_err().to_string();
                let want = format!(
                    "invalid message: the parent's answer has both `result` and `error`, which says: {want}"
                );
                assert_eq!(got, want);
            }
        }
    }
}
