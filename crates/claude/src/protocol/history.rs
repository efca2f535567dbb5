//! Converts history to the CLI's own format: the lines of a session file that it resumes.
//!
//! The API requires that the user begins, that each tool call has a unique id, and that its result is in
//! the message right after it. History from other sources may violate this and is normalized here.

use std::collections::{HashMap, HashSet, VecDeque};

use jiff::{Timestamp, Unit};
use serde_json::{Value, json};
use toolbridge_core::tool::RawJson;
use uuid::Uuid;

use crate::part::Part;
use crate::prompt::{Input, Message, part_json};

/// Placeholders for missing content.
const NOTHING_SAID: &str = "(The user has not said anything yet.)";
const NO_RESULT: &str = "(The result of this call is not known.)";
const EMPTY: &str = "(nothing)";

/// The block types allowed in a tool result.
const RESULT_BLOCKS: [&str; 4] = ["text", "image", "document", "search_result"];

/// The maximum length of a name or an id.
const MAX_NAME: usize = 128;

/// The tools of the request that the history is for.
pub(crate) struct HistoryTools<'a> {
    /// Whether there are any. Without tools the API rejects tool calls too, so they become text.
    pub(crate) any: bool,
    /// Maps a tool's name to the name that the model knows.
    pub(crate) name: &'a dyn Fn(&str) -> String,
}

#[derive(Clone, Copy, PartialEq)]
enum Role {
    User,
    Assistant,
}

#[derive(Default)]
struct Turns<'a> {
    messages: Vec<(Role, Vec<Value>)>,
    /// The calls of the last message: original id and new id.
    open: Vec<(&'a str, String)>,
    /// Results without a call so far, by original id and in order.
    results: HashMap<&'a str, VecDeque<Value>>,
    /// The new ids.
    ids: HashSet<String>,
}

/// The lines of a session with these messages; `None` if there are none.
pub(crate) fn session(messages: &[Message], tools: &HistoryTools<'_>) -> Option<String> {
    let mut turns = Turns::default();
    if tools.any {
        turns.collect_results(messages);
    }
    for message in messages {
        match message {
            Message::User(inputs) => inputs.iter().for_each(|input| turns.add_input(input)),
            Message::Assistant(parts) => parts.iter().for_each(|part| turns.add_part(part, tools)),
        }
    }
    turns.answer_calls();
    lines(turns.messages)
}

impl<'a> Turns<'a> {
    fn collect_results(&mut self, messages: &'a [Message]) {
        let parts = messages.iter().filter_map(|message| match message {
            Message::Assistant(parts) => Some(parts),
            Message::User(_) => None,
        });
        for part in parts.flatten() {
            if let Part::ToolResult { id, content, is_error, .. } = part {
                let result = json!({ "content": result_content(content), "is_error": is_error });
                self.results.entry(id).or_default().push_back(result);
            }
        }
    }

    /// Appends to the last message if it has that role, otherwise to a new one.
    fn push(&mut self, role: Role, block: Value) {
        match self.messages.last_mut() {
            Some((last, blocks)) if *last == role => blocks.push(block),
            _ => {
                if self.messages.is_empty() && role == Role::Assistant {
                    self.messages.push((Role::User, vec![text(NOTHING_SAID)]));
                }
                self.messages.push((role, vec![block]));
            }
        }
    }

    fn add_input(&mut self, input: &Input) {
        if !input.is_blank() {
            self.answer_calls();
            self.push(Role::User, json!(input));
        }
    }

    fn add_part(&mut self, part: &'a Part, tools: &HistoryTools<'_>) {
        match part {
            Part::Text { text: content } if !content.trim().is_empty() => {
                self.push(Role::Assistant, text(content));
            }
            Part::ToolCall { .. } | Part::ToolResult { .. } if !tools.any => self.add_as_text(part),
            Part::ToolCall { id, name, input } => {
                let now = self.new_id(id);
                let input = Some(input.decode::<Value>().unwrap_or_default()).filter(Value::is_object);
                let name = plain(&(tools.name)(name));
                let input = input.unwrap_or_else(|| json!({}));
                self.push(
                    Role::Assistant,
                    json!({ "type": "tool_use", "id": now, "name": name, "input": input }),
                );
                self.open.push((id, now));
            }
            Part::ToolResult { id, .. } => {
                if self.open.iter().any(|(open, _)| open == id) {
                    self.answer_calls();
                } else if self.results.get_mut(id.as_str()).and_then(VecDeque::pop_front).is_some() {
                    // The result of an unknown call.
                    self.add_as_text(part);
                }
            }
            // Thinking is not passed on.
            Part::Text { .. } | Part::Thinking { .. } | Part::Other(_) => {}
        }
    }

    /// Adds a part as text when it cannot be represented otherwise.
    fn add_as_text(&mut self, part: &Part) {
        if let Some(json) = part_json(part) {
            self.answer_calls();
            self.push(Role::User, text(&json.to_string()));
        }
    }

    /// Adds the results of all open calls right after them.
    fn answer_calls(&mut self) {
        for (old, now) in std::mem::take(&mut self.open) {
            let known = self.results.get_mut(old).and_then(VecDeque::pop_front);
            let mut result = known.unwrap_or_else(|| json!({ "content": NO_RESULT, "is_error": true }));
            result["type"] = json!("tool_result");
            result["tool_use_id"] = json!(now);
            self.push(Role::User, result);
        }
    }

    /// Makes an id that is valid for the API and unique. An id that starts with another id and `_` would be
    /// treated by the CLI as a part of that other call.
    fn new_id(&mut self, old: &str) -> String {
        let plain = plain(old);
        let is_part =
            |one: &str, other: &str| one.strip_prefix(other).is_some_and(|rest| rest.starts_with('_'));
        let is_free = |id: &String| {
            !self.ids.contains(id) && !self.ids.iter().any(|other| is_part(id, other) || is_part(other, id))
        };
        let others = (2..).map(|count: usize| format!("again{count}-{plain}"));
        let id = std::iter::once(plain.clone()).chain(others).find(is_free).unwrap_or(plain);
        self.ids.insert(id.clone());
        id
    }
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

/// A name or an id with only characters that the API accepts.
fn plain(name: &str) -> String {
    let letter =
        |letter: char| if letter.is_ascii_alphanumeric() || "_-".contains(letter) { letter } else { '_' };
    let plain: String = name.chars().take(MAX_NAME).map(letter).collect();
    if plain.is_empty() { "unknown".into() } else { plain }
}

/// A tool's result: a text, or blocks of the allowed types.
fn result_content(content: &RawJson) -> Value {
    let block = |block: Value| match block["type"].as_str() {
        Some(kind) if RESULT_BLOCKS.contains(&kind) => block,
        _ => text(&block.to_string()),
    };
    let is_blank = |block: &Value| block["text"].as_str().is_some_and(|text| text.trim().is_empty());
    match content.decode().unwrap_or_default() {
        Value::String(content) if !content.trim().is_empty() => json!(content),
        Value::Array(blocks) if blocks.iter().any(|block| !is_blank(block)) => {
            blocks.into_iter().map(block).filter(|block| !is_blank(block)).collect()
        }
        Value::Null | Value::String(_) | Value::Array(_) => json!(EMPTY),
        other => json!(other.to_string()),
    }
}

fn lines(turns: Vec<(Role, Vec<Value>)>) -> Option<String> {
    let now = Timestamp::now().round(Unit::Millisecond).unwrap_or_default().to_string();
    let session = Uuid::new_v4().to_string();
    let mut before: Option<String> = None;
    let mut line = |role: Role, content: Vec<Value>, is_virtual: bool| {
        let id = Uuid::new_v4();
        let name = if role == Role::User { "user" } else { "assistant" };
        let mut message = json!({ "role": name, "content": content });
        if role == Role::Assistant {
            message["type"] = json!("message");
            message["id"] = json!(format!("msg_{}", id.simple()));
            message["model"] = json!("unknown");
            message["stop_reason"] = json!("end_turn");
        }
        let mut line = json!({
            "type": name, "message": message, "uuid": id.to_string(), "parentUuid": before, "sessionId": session,
            "timestamp": now, "isSidechain": false,
        });
        if is_virtual {
            line["isVirtual"] = json!(true);
        }
        before = Some(id.to_string());
        format!("{line}\n")
    };
    let (last, _) = turns.last()?;
    let ends_with_user = *last == Role::User;
    let mut lines: String = turns.into_iter().map(|(role, content)| line(role, content, false)).collect();
    if ends_with_user {
        // Otherwise the CLI would make the model answer that no response is requested. The model does not
        // see a virtual message.
        lines.push_str(&line(Role::Assistant, vec![text("(no answer yet)")], true));
    }
    Some(lines)
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "it is made for the call")]
mod tests {
    use super::*;

    fn call(id: &str, name: &str) -> Part {
        Part::ToolCall { id: id.into(), name: name.into(), input: RawJson::from(&json!({ "a": 1 })) }
    }

    fn result(id: &str, content: Value) -> Part {
        Part::ToolResult { id: id.into(), name: None, content: RawJson::from(content), is_error: false }
    }

    fn text_part(text: &str) -> Part {
        Part::Text { text: text.into() }
    }

    /// The messages in the file, without line ids.
    fn written(messages: &[Message], any: bool) -> Vec<(String, Value)> {
        let name = |name: &str| if name == "add" { "mcp__tools__add".into() } else { name.to_owned() };
        let Some(lines) = session(messages, &HistoryTools { any, name: &name }) else { return Vec::new() };
        let mut before = Value::Null;
        let read = lines.lines().map(|line| {
            let mut line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(std::mem::replace(&mut before, line["uuid"].clone()), line["parentUuid"]);
            assert_eq!(line["type"], line["message"]["role"]);
            let is_virtual = if line["isVirtual"] == true { "virtual " } else { "" };
            (format!("{is_virtual}{}", line["type"].as_str().unwrap()), line["message"]["content"].take())
        });
        read.collect()
    }

    #[track_caller]
    fn check(messages: &[Message], want: Value) {
        let written: Vec<_> =
            written(messages, true).into_iter().map(|(who, what)| json!([who, what])).collect();
        assert_eq!(Value::from(written), want);
    }

    fn call_block(id: &str, name: &str) -> Value {
        json!({ "type": "tool_use", "id": id, "name": name, "input": { "a": 1 } })
    }

    fn result_block(id: &str, content: Value, is_error: bool) -> Value {
        json!({ "type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error })
    }

    #[test]
    fn results_follow_their_calls_as_the_api_requires() {
        let parts = vec![
            Part::Thinking { text: "hm".into(), signature: None },
            text_part("Let me see."),
            call("1", "add"),
            call("2", "other.tool"),
            result("2", json!("two")),
            text_part("Meanwhile."),
            result("1", json!([{ "type": "text", "text": "one" }, { "type": "odd" }])),
        ];
        let picture = Input::image(b"abc", "image/png");
        let user = Message::User(vec![Input::text("look"), Input::text(" "), picture.clone()]);
        check(
            &[user, Message::Assistant(parts)],
            json!([
                ["user", [text("look"), picture]],
                [
                    "assistant",
                    [text("Let me see."), call_block("1", "mcp__tools__add"), call_block("2", "other_tool")]
                ],
                [
                    "user",
                    [
                        result_block("1", json!([text("one"), text(r#"{"type":"odd"}"#)]), false),
                        result_block("2", json!("two"), false),
                    ]
                ],
                ["assistant", [text("Meanwhile.")]],
            ]),
        );
    }

    #[test]
    fn missing_prompts_and_results_get_placeholders() {
        let parts = vec![text_part("hi"), call("a|b", "x"), call("a|b", "x"), result("a|b", json!("1"))];
        check(
            &[
                Message::Assistant(parts),
                Message::user("so?"),
                Message::Assistant(vec![result("z", json!("9"))]),
            ],
            json!([
                ["user", [text(NOTHING_SAID)]],
                ["assistant", [text("hi"), call_block("a_b", "x"), call_block("again2-a_b", "x")]],
                [
                    "user",
                    [
                        result_block("a_b", json!("1"), false),
                        result_block("again2-a_b", json!(NO_RESULT), true),
                        text("so?"),
                        text(r#"{"id":"z","is_error":false,"tool_result":"9"}"#),
                    ]
                ],
                ["virtual assistant", [text("(no answer yet)")]],
            ]),
        );
    }

    #[test]
    fn a_repeated_id_is_a_new_call() {
        let turn = |text: &str| {
            let parts = vec![call("c", "x"), result("c", json!(text)), text_part("ok")];
            [Message::user("go"), Message::Assistant(parts)]
        };
        let written = written(&[turn("first"), turn("second")].concat(), true);
        let results: Vec<_> =
            written.iter().filter_map(|(_, blocks)| blocks[0]["tool_use_id"].as_str()).collect();
        let contents: Vec<_> =
            written.iter().filter_map(|(_, blocks)| blocks[0]["content"].as_str()).collect();
        assert_eq!((results, contents), (vec!["c", "again2-c"], vec!["first", "second"]));
    }

    #[test]
    fn no_id_is_the_prefix_of_another() {
        let parts = vec![
            call("call", "x"),
            call("call_1", "x"),
            call("call1", "x"),
            call("a_1", "x"),
            call("a", "x"),
        ];
        let written = written(&[Message::user("go"), Message::Assistant(parts)], true);
        let ids: Vec<_> =
            written[1].1.as_array().unwrap().iter().map(|block| block["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["call", "again2-call_1", "call1", "a_1", "again2-a"]);
    }

    #[test]
    fn without_tools_calls_become_text_and_empty_messages_are_dropped() {
        let parts = vec![call("1", "add"), result("1", json!("3")), text_part("3")];
        let written = written(&[Message::user("add"), Message::Assistant(parts)], false);
        let want = json!([
            text("add"),
            text(r#"{"arguments":{"a":1},"id":"1","tool_call":"add"}"#),
            text(r#"{"id":"1","is_error":false,"tool_result":"3"}"#),
        ]);
        assert_eq!(written[0], ("user".into(), want));
        assert_eq!((written.len(), &written[1].1), (2, &json!([text("3")])));
        let blank = [Message::user(" "), Message::Assistant(vec![text_part("\n")])];
        assert!(session(&blank, &HistoryTools { any: true, name: &str::to_owned }).is_none());
    }

    #[test]
    fn results_are_never_empty() {
        let rows = [
            (json!(""), json!(EMPTY)),
            (json!([]), json!(EMPTY)),
            (json!([{ "type": "text", "text": "" }]), json!(EMPTY)),
            (json!(null), json!(EMPTY)),
            (json!({ "a": 1 }), json!(r#"{"a":1}"#)),
            (
                json!([{ "type": "text", "text": "" }, { "type": "image", "source": {} }]),
                json!([{ "type": "image", "source": {} }]),
            ),
        ];
        for (content, want) in rows {
            assert_eq!(result_content(&RawJson::from(content)), want);
        }
    }
}
