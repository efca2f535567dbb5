//! Each JSON-RPC line is classified like a slow reader does, with its payload byte for byte.

use bytes::Bytes;
use toolbridge_core::fuzzing::{IdKey, Message, Refusal, error_line, read};
use toolbridge_core::tool::RawJson;

use crate::json::{self, Node};

const OUTER: [&str; 5] = ["jsonrpc", "id", "method", "result", "error"];
const INNER: [&str; 7] =
    ["name", "arguments", "_meta", "requestId", "cursor", "requestState", "inputResponses"];

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    let line = Bytes::copy_from_slice(input);
    let got = read(&line);
    if let Err((id, error)) = &got {
        let (said, code) = (error_line(id.as_ref(), error), error.code.0);
        assert!(!said.contains(['\n', '\r']), "a refusal is one line");
        let said = json::read(&said).expect("a refusal is JSON");
        let has_id = said.get("id").is_some_and(|id| !id.is_null());
        assert_eq!(has_id, id.is_some());
        assert!([-32700, -32600, -32602].contains(&code), "code {code}");
    }
    let got = show(got);
    let want = slowly(input);
    assert!(want.contains(&got), "got {got}, wanted {want:?}");
}

/// The classification of a line as text, for comparison.
fn show(read: Result<Message, Refusal>) -> String {
    let raw = |json: Option<RawJson>| json.map_or("-".to_owned(), |json| json.to_string());
    match read {
        Ok(Message::Call(id, call)) => {
            format!("call {} {:?} {} {}", id.raw, call.name, call.arguments, raw(call.meta))
        }
        Ok(Message::List { id, meta, has_cursor }) => format!("list {} {} {has_cursor}", id.raw, raw(meta)),
        Ok(Message::Cancel(IdKey::Number(digits))) => format!("cancel {:?}", Ok::<_, ()>(digits)),
        Ok(Message::Cancel(IdKey::Text(text))) => format!("cancel {:?}", Err::<(), _>(text)),
        Ok(Message::Request { id, .. }) => format!("request {}", id.raw),
        Ok(Message::Notification) => "notification".into(),
        Ok(Message::Response { .. }) => "response".into(),
        Err((id, error)) => format!("refused {} {}", raw(id.map(|id| id.raw)), error.code.0),
    }
}

/// The possible classifications of a line: one, except for lines with several faults.
fn slowly(input: &[u8]) -> Vec<String> {
    let refused = |id: Option<&str>, code: i32| format!("refused {} {code}", id.unwrap_or("-"));
    let broken = || vec![refused(None, -32700), refused(None, -32600)];
    let Ok(text) = std::str::from_utf8(input) else { return vec![refused(None, -32700)] };
    let Some(node) = json::read(text) else { return broken() };
    if !node.is_object() {
        return vec![refused(None, -32600)];
    }
    let params = node.get("params");
    let id = node.get("id").filter(|_| node.all("id").len() == 1);
    let good_id = id.filter(|id| key_of(*id).is_some()).map(Node::text);

    let is_odd = |node: Node<'_>| node.members().iter().any(|(key, _)| key.is_none());
    if is_odd(node) || params.is_some_and(|params| params.is_object() && is_odd(params)) {
        // A key that is not valid text cannot be compared with another.
        return vec![refused(None, -32700), refused(None, -32600), refused(good_id, -32600)];
    }
    let is_double = OUTER.iter().chain(&["params"]).any(|key| node.all(key).len() > 1)
        || params.is_some_and(|params| INNER.iter().any(|key| params.all(key).len() > 1));
    if is_double {
        return vec![refused(good_id, -32600)];
    }
    let method = node.get("method");
    if method.is_none() && (node.get("result").is_some() || node.get("error").is_some()) {
        return vec!["response".into()];
    }
    if id.is_some() && good_id.is_none() {
        return vec![refused(None, -32600)];
    }
    let is_version = node.get("jsonrpc").is_some_and(|version| version.text() == r#""2.0""#);
    let Some(method) = method.and_then(Node::as_text).filter(|_| is_version) else {
        return vec![refused(good_id, -32600)];
    };
    let member = |key: &str| params.and_then(|params| params.get(key));
    let raw = |key: &str| member(key).map_or("-", Node::text);
    vec![match (&*method, good_id) {
        ("tools/call", Some(id)) => {
            let name = member("name").and_then(Node::as_text);
            let fits = |node: Node<'_>| node.is_object() || node.is_null();
            let given = |key: &str| member(key).filter(|one| !one.is_null());
            let meta = given("_meta").map_or("-", Node::text);
            let arguments = given("arguments").map_or("{}", Node::text);
            let is_retry = given("requestState").is_some() || given("inputResponses").is_some();
            let has_state = member("requestState").is_some_and(|state| state.as_text().is_some());
            match name {
                Some(name)
                    if ["arguments", "_meta", "inputResponses"]
                        .iter()
                        .all(|key| member(key).is_none_or(fits))
                        && (!is_retry || has_state) =>
                {
                    format!("call {id} {name:?} {arguments} {meta}")
                }
                _ => refused(Some(id), -32602),
            }
        }
        ("tools/list", Some(id)) => match params {
            Some(params) if !params.is_object() => refused(Some(id), -32602),
            _ => {
                let has_cursor = !matches!(raw("cursor"), "-" | "null");
                let meta = member("_meta").filter(|meta| !meta.is_null()).map_or("-", Node::text);
                format!("list {id} {meta} {has_cursor}")
            }
        },
        (_, Some(id)) => format!("request {id}"),
        ("notifications/cancelled", None) => match member("requestId").and_then(key_of) {
            Some(key) => format!("cancel {key:?}"),
            None => "notification".into(),
        },
        (_, None) => "notification".into(),
    }]
}

/// A comparable form of an id: digits, or a text.
fn key_of(id: Node<'_>) -> Option<Result<String, String>> {
    if id.is_text() {
        return id.as_text().map(Err);
    }
    let is_whole = id.is_number() && !id.text().contains(['.', 'e', 'E']);
    is_whole.then(|| Ok(id.text().to_owned()))
}
