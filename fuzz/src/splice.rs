//! An answer around a raw result is one line of JSON that contains the result's own members.

use bytes::Bytes;
use toolbridge_core::fuzzing::answer;
use toolbridge_core::tool::RawJson;

use crate::json::{self, Node};

const IDS: [&str; 4] = ["1", "-123456789012345678901234567890", r#""a\n\u0022b""#, r#""日本""#];

/// Runs the target on one input: the first byte chooses the id and the protocol, the rest is the result.
pub fn run(input: &[u8]) {
    let Some((choice, result)) = input.split_first() else { return };
    let (id, is_stateless) = (IDS[usize::from(choice & 3)], choice & 4 != 0);

    let node = std::str::from_utf8(result).ok().and_then(json::read);
    let raw = RawJson::parse(Bytes::copy_from_slice(result));
    assert_eq!(raw.is_ok(), node.is_some(), "the two parsers disagree: {raw:?}");
    let (Ok(raw), Some(node)) = (raw, node) else { return };
    assert_eq!(raw.as_str(), node.text(), "kept as it was written");
    assert_eq!(raw.is_object(), node.is_object());
    // Results that are not objects are refused earlier.
    if !node.is_object() {
        return;
    }

    let request = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
    let line = answer(&request.into(), is_stateless, &raw).expect("a request is answered");
    let line = String::from_utf8(line).expect("an answer is text");
    assert!(!line.contains(['\n', '\r']), "it is one line");
    let whole = json::read(&line).expect("an answer is JSON");
    let keys: Vec<_> = whole.members().into_iter().filter_map(|(key, _)| key).collect();
    assert_eq!(keys, ["jsonrpc", "id", "result"]);
    assert_eq!(whole.get("id").map(Node::text), Some(id));

    let members = |node: Node<'_>| -> Vec<_> {
        let flat = |(key, value): (_, Node<'_>)| (key, value.text().replace(['\n', '\r'], " "));
        node.members().into_iter().map(flat).collect()
    };
    let (had, mut has) = (members(node), members(whole.members()[2].1));
    // `resultType` appears once: from the result itself, or from us.
    let is_ours = has.len() > had.len();
    if is_ours {
        assert_eq!(has.remove(0), (Some("resultType".into()), r#""complete""#.into()));
    }
    assert_eq!(has, had, "the result's own members");
    assert!(is_stateless || !is_ours);
    let said = had.iter().filter(|(key, _)| key.as_deref() == Some("resultType")).count();
    assert!(!is_stateless || is_ours || said > 0, "a stateless result says that it is complete");
    assert!(!is_ours || said != 1 || node.text().contains("\\u"), "it appears twice");
}
