//! The calls that are made, and their expected answers.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

/// The size of the text after the items.
const SHORT_TEXT_BYTES: usize = 100;

/// The placeholder of an id in the arguments.
const NO_ID: &str = "00000000";

/// How messages are wrapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Plain MCP.
    Mcp,
    /// MCP inside the CLI's control messages.
    Control,
}

impl Dialect {
    /// Whether notifications are answered too.
    pub(crate) fn answers_all(self) -> bool {
        self == Self::Control
    }

    /// A JSON-RPC message as a line.
    pub(crate) fn line(self, id: u32, message: &str) -> Vec<u8> {
        let line = match self {
            Self::Mcp => format!("{message}\n"),
            Self::Control => format!(
                r#"{{"type":"control_request","request_id":"{id}","request":{{"subtype":"mcp_message","server_name":"tools","message":{message}}}}}{}"#,
                "\n"
            ),
        };
        line.into_bytes()
    }

    /// The JSON-RPC message in a line.
    pub(crate) fn message(self, line: &[u8]) -> Result<Value> {
        let mut line: Value = serde_json::from_slice(line).context("an answer that is not JSON")?;
        Ok(match self {
            Self::Mcp => line,
            Self::Control => line["response"]["response"]["mcp_response"].take(),
        })
    }
}

/// A call of a tool. Its text begins with the call's id.
pub(crate) struct Call {
    tool: &'static str,
    arguments: String,
}

impl Call {
    /// A text of `bytes` bytes, which is returned.
    pub(crate) fn text(bytes: usize) -> Self {
        Self { tool: "echo", arguments: format!(r#"{{"text":"{}"}}"#, text(bytes)) }
    }

    /// An array of small objects, `bytes` bytes in all, and a short text; only the text is returned.
    pub(crate) fn items_one_way(bytes: usize) -> Self {
        Self { tool: "take", arguments: items(bytes) }
    }

    /// The same, but everything is returned.
    pub(crate) fn items_both_ways(bytes: usize) -> Self {
        Self { tool: "both", arguments: items(bytes) }
    }

    pub(crate) fn tool(&self) -> &'static str {
        self.tool
    }

    /// The arguments of the call with this id, as JSON.
    pub(crate) fn arguments(&self, id: u32) -> String {
        self.arguments.replace(NO_ID, &id.to_string())
    }

    /// The JSON-RPC request with this id.
    pub(crate) fn request(&self, id: u32) -> String {
        let (tool, arguments) = (self.tool, self.arguments(id));
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
        )
    }

    /// Checks the content of an answer, regardless of its formatting.
    pub(crate) fn check(&self, id: u32, answer: &Value) -> Result<()> {
        let shown = || answer.to_string().chars().take(300).collect::<String>();
        let result = &answer["result"];
        ensure!(answer["id"] == id && result["isError"] != true, "a wrong answer to call {id}: {}", shown());
        let sent: Value = serde_json::from_str(&self.arguments(id))?;
        let text = &result["content"][0]["text"];
        let right = if self.tool == "both" {
            // A server without structured content writes it as text.
            let as_text = || text.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
            result["structuredContent"] == sent || as_text().is_some_and(|value| value == sent)
        } else {
            *text == sent["text"]
        };
        ensure!(right, "the answer to call {id} of `{}` says something else: {}", self.tool, shown());
        Ok(())
    }
}

/// A text that takes `bytes` bytes in JSON, with a line break now and then.
fn text(bytes: usize) -> String {
    let sentence = r"The quick brown fox jumps over the lazy dog, and then sleeps.\n";
    let mut text = format!("{NO_ID} ");
    while text.len() < bytes {
        text.push_str(sentence);
    }
    text.truncate(bytes);
    // Do not end with half an escape.
    if text.ends_with('\\') {
        text.replace_range(bytes - 1.., ".");
    }
    text
}

/// An array of small objects, followed by a short text.
fn items(bytes: usize) -> String {
    let mut items = String::new();
    for number in 0.. {
        let item = json!({
            "id": number,
            "name": format!("item {number}"),
            // Never a whole number, which servers format differently.
            "price": f64::from(number) * 0.5 + 0.25,
            "tags": ["new", "in stock"],
            "parent": null,
            "visible": number % 2 == 0,
        });
        if !items.is_empty() {
            items.push(',');
        }
        items.push_str(&item.to_string());
        if items.len() >= bytes {
            break;
        }
    }
    format!(r#"{{"items":[{items}],"text":"{}"}}"#, text(SHORT_TEXT_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_as_long_as_it_should_be_and_is_json() {
        for bytes in 9..300 {
            let text = text(bytes);
            assert_eq!(text.len(), bytes);
            assert!(serde_json::from_str::<String>(&format!("\"{text}\"")).is_ok(), "{text}");
        }
    }

    #[test]
    fn an_answer_may_be_written_in_any_way_but_must_say_the_right_thing() {
        let id = 10_000_001;
        let call = Call::items_both_ways(500);
        let sent: Value = serde_json::from_str(&call.arguments(id)).unwrap();
        let check = |result: Value| call.check(id, &json!({ "id": id, "result": result }));
        let said = |text: &str| json!([{ "type": "text", "text": text }]);
        assert!(check(json!({ "content": said(""), "structuredContent": sent })).is_ok());
        assert!(check(json!({ "content": said(&sent.to_string()) })).is_ok());
        assert!(check(json!({ "content": said(""), "structuredContent": sent, "isError": true })).is_err());
        assert!(check(json!({ "content": said(""), "structuredContent": { "items": [] } })).is_err());
        let text = Call::text(50);
        let right = json!({ "content": [{ "text": serde_json::from_str::<Value>(&text.arguments(id)).unwrap()["text"] }] });
        assert!(text.check(id, &json!({ "id": id, "result": right })).is_ok());
        assert!(text.check(id + 1, &json!({ "id": id + 1, "result": right })).is_err());
    }

    #[test]
    fn a_control_message_holds_the_same_message() {
        let request = Call::text(50).request(10_000_001);
        let line: Value = serde_json::from_slice(&Dialect::Control.line(10_000_001, &request)).unwrap();
        assert_eq!(line["request"]["message"], serde_json::from_str::<Value>(&request).unwrap());
        let answer = br#"{"type":"control_response","response":{"response":{"mcp_response":{"id":1}}}}"#;
        assert_eq!(Dialect::Control.message(answer).unwrap(), json!({ "id": 1 }));
    }
}
