//! JSON-RPC lines: reading requests and writing responses.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use rmcp::ErrorData;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::{CallMeta, RawJson, ToolSpec};

/// The error for an invalid message.
pub(crate) fn invalid_request(message: impl Into<Cow<'static, str>>) -> ErrorData {
    ErrorData::invalid_request(message, None)
}

/// The error for invalid parameters.
pub(crate) fn invalid_params(message: impl Into<Cow<'static, str>>) -> ErrorData {
    ErrorData::invalid_params(message, None)
}

/// The complete message for an error; `id` is null if the request's id is unknown.
#[must_use]
pub fn error_line(id: Option<&RpcId>, error: &ErrorData) -> String {
    let id = id.map_or("null", |id| id.raw.as_str());
    let error = serde_json::to_string(error).expect("numbers and strings can always be written");
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
}

/// A longer id is not valid.
const MAX_ID_BYTES: usize = 1024;

/// A request's id: as it was written, and in comparable form.
#[derive(Debug, Clone)]
pub struct RpcId {
    /// As it was written.
    pub raw: RawJson,
    /// In comparable form.
    pub key: IdKey,
}

/// MCP's ids are strings and integers; the digits are kept, since integers may have any size.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum IdKey {
    /// The digits of an integer.
    Number(String),
    /// A text.
    Text(String),
}

impl IdKey {
    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Number(text) | Self::Text(text) => text,
        }
    }
}

impl RpcId {
    fn read(raw: &RawValue) -> Option<Self> {
        let text = raw.get();
        // It is copied, and kept as long as its call.
        if text.len() > MAX_ID_BYTES {
            return None;
        }
        let key = if text.starts_with('"') {
            IdKey::Text(serde_json::from_str(text).ok()?)
        } else if text.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit()) {
            IdKey::Number(text.to_owned())
        } else {
            return None;
        };
        // A copy, because it lives as long as the call, unlike the line with its large arguments.
        Some(Self { raw: RawJson::parse(text.to_owned()).ok()?, key })
    }
}

/// One message, classified by how it is handled.
#[derive(Debug)]
pub enum Message {
    /// `tools/call`.
    Call(RpcId, CallParams),
    /// `tools/list`, with its `_meta`, and whether it has a cursor, although the list has one page.
    List {
        /// The request's id.
        id: RpcId,
        /// Its `_meta`.
        meta: Option<RawJson>,
        /// Whether it asks for another page.
        has_cursor: bool,
    },
    /// `notifications/cancelled` of a request.
    Cancel(IdKey),
    /// Any other request.
    Request {
        /// Its id.
        id: RpcId,
        /// Its method.
        method: String,
        /// Its `_meta`.
        meta: Option<RawJson>,
        /// All its parameters.
        params: Option<RawJson>,
    },
    /// Any other notification.
    Notification,
    /// A response to one of our requests.
    Response {
        /// The id of our request, if it can be read.
        id: Option<IdKey>,
        /// The result, or the error.
        outcome: Result<RawJson, ErrorData>,
    },
}

/// The parameters of a `tools/call`.
#[derive(Debug)]
pub struct CallParams {
    /// The tool's name.
    pub name: String,
    /// An object.
    pub arguments: RawJson,
    /// The call's metadata.
    pub meta: Option<RawJson>,
    /// The size of the whole message, which the arguments keep in memory.
    pub line_bytes: usize,
    /// Set if it continues a call that waits for answers: the state that identifies that call, and the answers, an
    /// object.
    pub retry: Option<(String, RawJson)>,
}

/// Why a line is not a valid message, and the id for the error, if there is one.
pub type Refusal = (Option<RpcId>, ErrorData);

/// The members of a message.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "given")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "given")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "given")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "given")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "given")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "given")]
    error: Option<&'a RawValue>,
}

/// The members of `params` that are known here. A `null` is a missing member, except where it cancels something.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KnownParams<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
    #[serde(borrow)]
    request_id: Option<&'a RawValue>,
    cursor: Option<IgnoredAny>,
    #[serde(borrow)]
    request_state: Option<&'a RawValue>,
    #[serde(borrow)]
    input_responses: Option<&'a RawValue>,
}

/// A member that is given, be it as `null`.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Reads a line; what it carries is not decoded.
///
/// # Errors
///
/// When it is not a valid message.
#[expect(clippy::result_large_err, reason = "a refusal is answered where it is returned to")]
pub fn read(line: &Bytes) -> Result<Message, Refusal> {
    let not_json = |error: &dyn std::fmt::Display| {
        (None, ErrorData::parse_error(format!("the message is not JSON: {error}"), None))
    };
    let text = std::str::from_utf8(line).map_err(|error| {
        (None, ErrorData::parse_error(format!("the message is not UTF-8: {error}"), None))
    })?;
    let bad = |error: serde_json::Error| match error.classify() {
        // Of objects whose members may be anything, only this can be wrong.
        Category::Data => {
            let member = error.to_string().split('`').nth(1).unwrap_or_default().to_owned();
            (id_of(text), invalid_request(format!("duplicate member `{member}`")))
        }
        _ => not_json(&error),
    };
    if !text.trim_ascii_start().starts_with('{') {
        serde_json::from_str::<IgnoredAny>(text).map_err(|error| not_json(&error))?;
        return Err((None, invalid_request("a message is one JSON object; batches are not supported")));
    }
    let Envelope { jsonrpc, id, method, params, result, error } = serde_json::from_str(text).map_err(bad)?;
    let is_object = |value: &RawValue| value.get().starts_with('{');
    let (has_params, all_params) = (params.is_none_or(is_object), params);
    let params: Option<KnownParams<'_>> = match params.filter(|params| is_object(params)) {
        Some(params) => Some(serde_json::from_str(params.get()).map_err(bad)?),
        None => None,
    };
    if method.is_none() && (result.is_some() || error.is_some()) {
        let id = id.and_then(RpcId::read).map(|id| id.key);
        let outcome = match (result, error) {
            (Some(result), None) => Ok(RawJson::span(line, result)),
            (_, error) => Err(error
                .and_then(|error| serde_json::from_str(error.get()).ok())
                .unwrap_or_else(|| ErrorData::internal_error("the error cannot be read", None))),
        };
        return Ok(Message::Response { id, outcome });
    }
    let id = match id.map(RpcId::read) {
        None => None,
        Some(Some(id)) => Some(id),
        Some(None) => return Err((None, invalid_request("`id` must be a string or a whole number"))),
    };
    if jsonrpc.is_none_or(|version| version.get() != r#""2.0""#) {
        return Err((id, invalid_request("`jsonrpc` must be \"2.0\"")));
    }
    let Some(method) = method else {
        return Err((id, invalid_request("a request needs a `method`")));
    };
    let Ok(method) = serde_json::from_str::<String>(method.get()) else {
        return Err((id, invalid_request("`method` must be a string")));
    };
    let meta_of = |params: Option<KnownParams<'_>>| params?.meta.map(|meta| RawJson::span(line, meta));
    Ok(match (&*method, id) {
        ("tools/call", Some(id)) => match read_call(line, params) {
            Ok(call) => Message::Call(id, call),
            Err(error) => return Err((Some(id), error)),
        },
        ("tools/list", Some(id)) if !has_params => {
            return Err((Some(id), invalid_params("`params` must be an object")));
        }
        ("tools/list", Some(id)) => {
            let has_cursor = params.as_ref().is_some_and(|params| params.cursor.is_some());
            Message::List { id, meta: meta_of(params), has_cursor }
        }
        (_, Some(id)) => {
            let all_params = all_params.map(|params| RawJson::span(line, params));
            Message::Request { id, method, meta: meta_of(params), params: all_params }
        }
        ("notifications/cancelled", None) => {
            let request = params.and_then(|params| RpcId::read(params.request_id?));
            request.map_or(Message::Notification, |id| Message::Cancel(id.key))
        }
        (_, None) => Message::Notification,
    })
}

/// The id of an otherwise invalid message, so that its sender gets a response.
fn id_of(text: &str) -> Option<RpcId> {
    #[derive(Deserialize)]
    struct OnlyId<'a> {
        #[serde(borrow)]
        id: &'a RawValue,
    }
    serde_json::from_str::<OnlyId<'_>>(text).ok().and_then(|only| RpcId::read(only.id))
}

fn read_call(line: &Bytes, params: Option<KnownParams<'_>>) -> Result<CallParams, ErrorData> {
    let Some(params) = params else {
        return Err(invalid_params("`params` must be an object with `name` and `arguments`"));
    };
    let Some(Ok(name)) = params.name.map(|name| serde_json::from_str(name.get())) else {
        return Err(invalid_params("`params.name` must be a string"));
    };
    let object = |member: &str, value: Option<&RawValue>| match value {
        Some(value) if value.get().starts_with('{') => Ok(Some(RawJson::span(line, value))),
        Some(_) => Err(invalid_params(format!("`params.{member}` must be an object"))),
        None => Ok(None),
    };
    let arguments = object("arguments", params.arguments)?.unwrap_or_else(RawJson::empty_object);
    let meta = object("_meta", params.meta)?;
    let responses = object("inputResponses", params.input_responses)?;
    let retry = if responses.is_none() && params.request_state.is_none() {
        None
    } else {
        let state = params.request_state.and_then(|state| serde_json::from_str(state.get()).ok());
        let state = state.ok_or_else(|| {
            invalid_params("`params.requestState` must be the string that came with the questions")
        })?;
        Some((state, responses.unwrap_or_else(RawJson::empty_object)))
    };
    Ok(CallParams { name, arguments, meta, line_bytes: line.len(), retry })
}

/// Reads the parameters of a request.
pub(crate) fn read_params<T: DeserializeOwned>(
    method: &str,
    params: Option<&RawJson>,
) -> Result<T, ErrorData> {
    let read = params.map_or_else(|| RawJson::empty_object().decode(), RawJson::decode);
    read.map_err(|error| invalid_params(format!("the parameters of `{method}` cannot be read: {error}")))
}

/// Reads a call's `_meta`; the front adds the client, and whether it can be asked.
pub(crate) fn read_meta(meta: Option<&RawJson>) -> CallMeta {
    meta.and_then(|meta| meta.decode().ok()).unwrap_or_default()
}

/// The result of `tools/list`.
pub(crate) fn write_list(tools: &[ToolSpec]) -> RawJson {
    RawJson::of(&BTreeMap::from([("tools", tools)])).expect("tools can always be written")
}

/// Which form results have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// Up to 2025-11-25.
    Initialize,
    /// From 2026-07-28 on: every result has a `resultType`.
    Stateless,
}

/// The response to a request, in parts, so that the result need not be copied; `members` are added to a stateless one.
pub(crate) fn answer_parts(id: &RpcId, era: Era, members: &str, result: &RawJson) -> [Bytes; 3] {
    let head = format!(r#"{{"jsonrpc":"2.0","id":{},"result":"#, id.raw);
    let end = Bytes::from_static(b"}");
    let result_bytes = in_one_line(result.to_bytes());
    if era == Era::Initialize || has_result_type(result) {
        return [head.into(), result_bytes, end];
    }
    let rest = result_bytes.slice(1..);
    let comma = if rest.trim_ascii_start().starts_with(b"}") { "" } else { "," };
    [format!(r#"{head}{{"resultType":"complete"{members}{comma}"#).into(), rest, end]
}

/// A parent may know the newer protocol and have set `resultType` itself.
fn has_result_type(result: &RawJson) -> bool {
    memchr::memmem::find(result.as_bytes(), b"resultType").is_some()
        && result.member::<IgnoredAny>("resultType").is_some()
}

/// JSON without line breaks. They only occur between tokens, where a space is equivalent.
fn in_one_line(json: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &json).is_none() {
        return json;
    }
    json.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn show(line: &str) -> String {
        match read(&Bytes::copy_from_slice(line.as_bytes())) {
            Ok(Message::Call(id, call)) => format!("call {} {} {}", id.raw, call.name, call.arguments),
            Ok(Message::List { id, has_cursor, .. }) => format!("list {} {has_cursor}", id.raw),
            Ok(Message::Cancel(key)) => format!("cancel {key:?}"),
            Ok(Message::Request { id, .. }) => format!("request {}", id.raw),
            Ok(Message::Notification) => "notification".into(),
            Ok(Message::Response { id, outcome }) => {
                let outcome = outcome.map(|result| result.to_string()).map_err(|error| error.message);
                format!("response {id:?} {outcome:?}")
            }
            Err((id, error)) => error_line(id.as_ref(), &error),
        }
    }

    #[test]
    fn every_line_goes_where_it_belongs() {
        let rows = [
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x": 1}}}"#,
                r#"call 1 a {"x": 1}"#,
            ),
            (
                r#"{"method":"tools/call","params":{"name":"\u0061"},"jsonrpc":"2.0","id":"z"}"#,
                r#"call "z" a {}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":null,"_meta":null}}"#,
                "call 1 a {}",
            ),
            (r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#, "list 2 false"),
            (r#"{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"cursor":"x"}}"#, "list 2 true"),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#,
                r#"cancel Number("7")"#,
            ),
            (
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"\u0061"}}"#,
                r#"cancel Text("a")"#,
            ),
            (r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#, "notification"),
            (r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#, "request 3"),
            (
                r#"{"jsonrpc":"2.0","id":-18446744073709551616,"method":"ping"}"#,
                "request -18446744073709551616",
            ),
            (r#"{"jsonrpc":"2.0","id":3,"method":"initialize","params":{}}"#, "request 3"),
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, "notification"),
            (r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"a"}}"#, "notification"),
            (
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":""}}"#,
                r#"response None Err("")"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":4,"method":"ping","method":"ping"}"#,
                r#"{"jsonrpc":"2.0","id":4,"error":{"code":-32600,"message":"duplicate member `method`"}}"#,
            ),
            (
                "nonsense",
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"the message is not JSON: expected ident at line 1 column 2"}}"#,
            ),
            (
                r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#,
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"a message is one JSON object; batches are not supported"}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"`id` must be a string or a whole number"}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"`id` must be a string or a whole number"}}"#,
            ),
            (
                r#"{"id":1,"method":"ping"}"#,
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"`jsonrpc` must be \"2.0\""}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1}"#,
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"a request needs a `method`"}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":5}"#,
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"`method` must be a string"}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
                r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"duplicate member `id`"}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#,
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"`params` must be an object with `name` and `arguments`"}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{}}}"#,
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"`params.name` must be a string"}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":[]}}"#,
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"`params.arguments` must be an object"}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":5}}"#,
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"`params._meta` must be an object"}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}"#,
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"`params` must be an object"}}"#,
            ),
        ];
        for (line, want) in rows {
            assert_eq!(show(line), want, "{line}");
        }
        let (_, error) = read(&Bytes::from_static(b"{\"a\":\"\xff\"}")).unwrap_err();
        assert_eq!(error.code.0, -32700);
    }

    #[test]
    fn answers_and_retries_say_what_they_belong_to() {
        let rows = [
            (
                r#"{"jsonrpc":"2.0","id":"a","result":{"x": 1}}"#,
                r#"response Some(Text("a")) Ok("{\"x\": 1}")"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","inputResponses":{}}}"#,
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"`params.requestState` must be the string that came with the questions"}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","requestState":"x","inputResponses":[]}}"#,
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"`params.inputResponses` must be an object"}}"#,
            ),
        ];
        for (line, want) in rows {
            assert_eq!(show(line), want, "{line}");
        }
    }

    #[test]
    fn a_stateless_result_says_that_it_is_complete() {
        let Ok(Message::List { id, .. }) =
            read(&Bytes::from_static(br#"{"jsonrpc":"2.0","id":5,"method":"tools/list"}"#))
        else {
            panic!("no list")
        };
        let rows = [
            (Era::Initialize, r#"{"a":1}"#, r#"{"jsonrpc":"2.0","id":5,"result":{"a":1}"#),
            (
                Era::Stateless,
                r#"{"a":1}"#,
                r#"{"jsonrpc":"2.0","id":5,"result":{"resultType":"complete","a":1}"#,
            ),
            (Era::Stateless, "{ }", r#"{"jsonrpc":"2.0","id":5,"result":{"resultType":"complete" }"#),
            (
                Era::Stateless,
                r#"{"resultType":"x"}"#,
                r#"{"jsonrpc":"2.0","id":5,"result":{"resultType":"x"}"#,
            ),
            (
                Era::Stateless,
                r#"{"a":"resultType"}"#,
                r#"{"jsonrpc":"2.0","id":5,"result":{"resultType":"complete","a":"resultType"}"#,
            ),
        ];
        for (era, result, want) in rows {
            let result = RawJson::parse(result).unwrap();
            assert_eq!(answer_parts(&id, era, "", &result).concat(), format!("{want}}}").as_bytes());
        }
    }

    #[test]
    fn a_line_break_never_leaves_its_line() {
        let broken = Bytes::from_static(b"{\n\"a\":\r\n \"\\n\"}");
        assert_eq!(in_one_line(broken), &b"{ \"a\":   \"\\n\"}"[..]);
    }

    #[test]
    fn an_odd_member_of_the_metadata_does_not_cost_the_others() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let read = |id: &str, token: &str, parent: &str| {
            let meta = format!(
                r#"{{"claudecode/toolUseId":{id},"new":[],"progressToken":{token},"traceparent":{parent}}}"#
            );
            let meta = read_meta(Some(&RawJson::parse(meta).unwrap()));
            let token = meta.progress_token.map(|token| token.to_string());
            (meta.tool_use_id, token, meta.traceparent.map(|parent| parent.to_string()))
        };
        let id = Some("toolu_1".to_owned());
        let token = Some("7".to_owned());
        let place = Some(parent.to_owned());
        let quoted = format!("\"{parent}\"");
        assert_eq!(read(r#""toolu_1""#, "7", &quoted), (id.clone(), token.clone(), place.clone()));
        for odd in ["5", "null", "[]", "{}", r#""\ud800""#] {
            assert_eq!(read(r#""toolu_1""#, "7", odd), (id.clone(), token.clone(), None), "{odd}");
            assert_eq!(read(odd, "7", &quoted), (None, token.clone(), place.clone()), "{odd}");
        }
        for odd in ["null", "[]", "{}", "true"] {
            assert_eq!(read(r#""toolu_1""#, odd, &quoted), (id.clone(), None, place.clone()), "{odd}");
        }
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<u64>().prop_map(Into::into),
            any::<f64>().prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                proptest::collection::hash_map(any::<String>(), inner, 0..6)
                    .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn arguments_pass_byte_for_byte(name in any::<String>(), arguments in any_json(), id in any::<i64>()) {
            let arguments = serde_json::json!({ "x": arguments });
            let pretty = serde_json::to_string_pretty(&arguments).unwrap().replace('\n', " ");
            let name_json = serde_json::Value::from(name.clone());
            let line = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":{name_json},"arguments":{pretty}}}}}"#
            );
            let Ok(Message::Call(_, call)) = read(&line.into()) else { panic!("no call") };
            prop_assert_eq!(call.name, name);
            prop_assert_eq!(call.arguments.as_str(), pretty);
        }

        #[test]
        fn a_spliced_answer_is_one_line_of_valid_json(result in any_json(), stateless in any::<bool>()) {
            let result = serde_json::json!({ "content": [{ "type": "text", "text": "" }], "x": result });
            let pretty = RawJson::parse(serde_json::to_string_pretty(&result).unwrap()).unwrap();
            let Ok(Message::List { id, .. }) = read(&Bytes::from_static(br#"{"jsonrpc":"2.0","id":"\u0061","method":"tools/list"}"#))
            else { panic!("no list") };
            let era = if stateless { Era::Stateless } else { Era::Initialize };
            let line = answer_parts(&id, era, "", &pretty).concat();
            prop_assert!(!line.contains(&b'\n'));
            let mut back: serde_json::Value = serde_json::from_slice(&line).unwrap();
            let said = back["result"].as_object_mut().unwrap().remove("resultType");
            prop_assert_eq!(said.is_some(), stateless);
            // Both are parsed in the same way, because not every parser of floating-point numbers is exact.
            prop_assert_eq!(&back["result"], &pretty.decode::<serde_json::Value>().unwrap());
        }

        #[test]
        fn any_line_is_classified_or_refused(line in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = read(&line.into());
        }
    }
}
