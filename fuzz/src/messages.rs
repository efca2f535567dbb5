//! Requests and replies on the socket are classified like a slow reader does, and payloads are unchanged.

use bytes::Bytes;
use toolbridge_core::fuzzing::{
    BridgeMessage, ParentMessage, Parts, read_bridge_message, read_parent_message, write_call,
};

use crate::json::{self, Node};

/// The members of a message, in either direction.
const MEMBERS: [&str; 7] = ["method", "params", "answer", "result", "error", "progress", "ask"];

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    let frame = Bytes::copy_from_slice(input);
    request(&frame);
    reply(&frame);
}

fn request(frame: &Bytes) {
    let node = std::str::from_utf8(frame).ok().and_then(json::read);
    match read_bridge_message(frame) {
        Err(_) => {
            let Some(node) = node else { return };
            let inner = node.get("params");
            let is_answer = node.get("method").is_none() && node.get("answer").is_some();
            let is_double = MEMBERS.iter().any(|key| node.all(key).len() > 1)
                || inner.is_some_and(|inner| {
                    ["name", "arguments", "meta", "client", "revision"]
                        .iter()
                        .any(|key| inner.all(key).len() > 1)
                });
            let is_odd = has_odd_key(node) || inner.is_some_and(has_odd_key);
            assert!(!node.is_object() || is_answer || is_double || is_odd, "a request was rejected");
        }
        Ok(BridgeMessage::Watch(_)) => {
            let method = node.as_ref().and_then(|node| node.get("method")).and_then(Node::as_text);
            assert_eq!(method.as_deref(), Some("watch_tools"));
        }
        Ok(BridgeMessage::Answer(..)) => {
            let node = node.expect("an answer is JSON");
            assert!(node.get("method").is_none() && node.get("answer").is_some());
        }
        Ok(BridgeMessage::Refused(error)) => {
            let node = node.expect("a refused request is JSON");
            let is_method = node.get("method").and_then(Node::as_text).as_deref() == Some("call_tool");
            match error.type_name() {
                "UnknownMethodError" => assert!(!is_method, "the method was not seen"),
                "InvalidParamsError" => assert!(is_method && !is_call(node)),
                other => panic!("no such refusal: {other}"),
            }
        }
        Ok(BridgeMessage::Call(call, _)) => {
            let node = node.expect("a call is JSON");
            assert!(is_call(node), "an invalid call was accepted");
            let params = node.get("params").expect("a call has parameters");
            assert_eq!(params.get("name").and_then(Node::as_text).as_deref(), Some(&*call.name));
            let arguments = params.get("arguments").map_or("{}", Node::text);
            assert_eq!(call.arguments.as_str(), arguments, "arguments pass byte for byte");
            let Parts { head, payload, tail } = write_call(&call, None);
            let again = Bytes::from([&head, payload.as_bytes(), &tail].concat());
            let Ok(BridgeMessage::Call(second, _)) = read_bridge_message(&again) else {
                panic!("it cannot be read again")
            };
            assert_eq!(second.name, call.name);
            assert_eq!(second.arguments, call.arguments);
            assert_eq!(second.meta.tool_use_id, call.meta.tool_use_id);
            assert_eq!(second.meta.progress_token, call.meta.progress_token);
            assert_eq!(second.meta.traceparent, call.meta.traceparent);
            assert_eq!(second.meta.can_ask, call.meta.can_ask);
        }
    }
}

/// Whether a key is not Unicode, because half of a pair is escaped.
fn has_odd_key(node: Node<'_>) -> bool {
    node.members().iter().any(|(key, _)| key.is_none())
}

fn is_call(node: Node<'_>) -> bool {
    let Some(params) = node.get("params").filter(|params| params.is_object()) else { return false };
    let has_name = params.get("name").is_some_and(|name| name.as_text().is_some());
    let has_arguments = params.get("arguments").is_none_or(Node::is_object);
    let once = ["toolUseId", "progressToken", "traceparent", "canAsk"];
    let has_meta = params.get("meta").is_none_or(|meta| {
        let is_plain = meta.is_object()
            && meta.members().iter().all(|(key, _)| key.is_some())
            && once.iter().all(|key| meta.all(key).len() <= 1);
        is_plain || meta.is_null()
    });
    has_name && has_arguments && has_meta
}

/// Whether every client can read it, whichever of duplicate members it uses.
fn is_result(node: Node<'_>) -> bool {
    let is_block = |block: &Node<'_>| {
        let types = block.all("type");
        block.is_object() && !types.is_empty() && types.into_iter().all(Node::is_text)
    };
    let has_blocks = |content: &Node<'_>| {
        let blocks = content.items();
        !blocks.is_empty() && blocks.iter().all(is_block)
    };
    let contents = node.all("content");
    node.is_object() && depth(node) <= 128 && !contents.is_empty() && contents.iter().all(has_blocks)
}

fn depth(node: Node<'_>) -> usize {
    let members = node.members().into_iter().map(|(_, value)| value);
    let inner = members.chain(node.items()).map(depth).max().unwrap_or(0);
    inner + usize::from(node.text().starts_with(['{', '[']))
}

fn reply(frame: &Bytes) {
    let node = std::str::from_utf8(frame).ok().and_then(json::read);
    let count = |key: &str| node.map_or(0, |node| node.all(key).len());
    let counts = (count("result"), count("error"), count("progress"));
    let Ok(reply) = read_parent_message(frame) else {
        let Some(node) = node else { return };
        let is_double = MEMBERS.iter().any(|key| count(key) > 1);
        let has_result = counts == (1, 0, 0) && !is_double && node.get("result").is_some_and(is_result);
        let has_result = has_result && !has_odd_key(node);
        assert!(!has_result, "a result was rejected");
        return;
    };
    let node = node.expect("a reply is JSON");
    match reply {
        ParentMessage::Result(result) => {
            assert_eq!(counts, (1, 0, 0));
            let own = node.get("result").expect("counted");
            assert_eq!(result.as_str(), own.text());
            assert!(is_result(own), "an invalid result was accepted");
        }
        ParentMessage::Error(error) => {
            let (type_name, message) = (error.type_name(), error.to_string());
            assert_eq!(counts, (0, 1, 0));
            let error = node.get("error").expect("counted");
            assert!(error.is_object(), "an error is an object");
            assert_eq!(error.get("message").and_then(Node::as_text).as_deref(), Some(&*message));
            let said = error.get("type").and_then(Node::as_text);
            assert_eq!(said.as_deref().unwrap_or("IPCToolExecutionError"), type_name);
        }
        ParentMessage::Progress(_) => assert_eq!(counts, (0, 0, 1)),
        ParentMessage::Ask(..) => assert_eq!((counts, count("ask")), ((0, 0, 0), 1)),
    }
}
