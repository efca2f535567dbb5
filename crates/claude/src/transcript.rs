//! Reads the CLI's record of a conversation: a file with one JSON object per line.
//!
//! Each line names the line before it (`parentUuid`), so a file contains a tree: going back and continuing
//! differently starts a branch. Unreadable lines are skipped; a killed CLI may leave an incomplete line.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde_json::{Value, json};
use toolbridge_core::RawJson;
use uuid::Uuid;

use crate::part::Part;
use crate::prompt::{Input, Message};

/// The longest text of a prompt that is shown in a list.
const MAX_SHOWN: usize = 200;

/// The content of the first and the last lines of a file.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Summary {
    pub(crate) title: Option<String>,
    pub(crate) tag: Option<String>,
    pub(crate) first_prompt: Option<String>,
    pub(crate) directory: Option<String>,
    pub(crate) created: Option<SystemTime>,
    /// Whether it contains any message.
    pub(crate) has_messages: bool,
}

fn lines(text: &str) -> impl Iterator<Item = Value> {
    text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).filter(Value::is_object)
}

fn is_message(line: &Value) -> bool {
    line["uuid"].is_string() && (line["type"] == "user" || line["type"] == "assistant")
}

/// Whether the line is a message of the conversation, and not of a subagent, for display, or internal to
/// the CLI.
fn is_visible(line: &Value) -> bool {
    let is = |name: &str| line[name] == true;
    let is_other = ["isSidechain", "isMeta", "isVirtual", "isApiErrorMessage"].into_iter().any(is);
    is_message(line) && !is_other && line["teamName"].is_null()
}

impl Summary {
    /// Reads the pieces of a file, in order.
    pub(crate) fn of(pieces: &[&str]) -> Self {
        let mut read = Self::default();
        let mut generated_title = None;
        for line in pieces.iter().flat_map(|piece| lines(piece)) {
            let text = |name: &str| line[name].as_str().map(str::to_owned).filter(|text| !text.is_empty());
            read.created =
                read.created.or_else(|| text("timestamp")?.parse::<Timestamp>().ok().map(Into::into));
            read.directory = read.directory.or_else(|| text("cwd"));
            match line["type"].as_str() {
                Some("custom-title") => read.title = text("customTitle"),
                Some("ai-title") => generated_title = text("aiTitle"),
                Some("tag") => read.tag = text("tag"),
                _ => {}
            }
            read.has_messages |= is_message(&line);
            if read.first_prompt.is_none() && line["type"] == "user" && is_visible(&line) {
                read.first_prompt = prompt_of(&line["message"]["content"]);
            }
        }
        read.title = read.title.or(generated_title);
        read
    }
}

/// The user's text, if it is one: commands and reminders of the CLI are enclosed in tags.
fn prompt_of(content: &Value) -> Option<String> {
    let texts = content.as_array().into_iter().flatten().filter_map(|block| block["text"].as_str());
    let text = content.as_str().into_iter().chain(texts).map(str::trim);
    let text = text.into_iter().find(|text| !text.is_empty() && !text.starts_with('<'))?;
    Some(text.chars().take(MAX_SHOWN).collect())
}

/// The messages of the latest branch, with the ids of their lines.
pub(crate) fn messages(text: &str) -> Vec<(String, Message)> {
    let lines: Vec<_> = lines(text).filter(|line| line["uuid"].is_string()).collect();
    let branch = last_branch(&lines);
    let messages = lines.iter().filter(|line| is_visible(line) && branch.contains(id(line)));
    messages.flat_map(|line| read(line).into_iter().map(|message| (id(line).to_owned(), message))).collect()
}

fn id(line: &Value) -> &str {
    line["uuid"].as_str().unwrap_or_default()
}

fn parent(line: &Value) -> Option<&str> {
    line["parentUuid"].as_str()
}

fn last_branch(lines: &[Value]) -> HashSet<&str> {
    let by_id: HashMap<_, _> = lines.iter().map(|line| (id(line), line)).collect();
    let mut branch = HashSet::new();
    let mut next = lines.iter().rfind(|line| is_visible(line));
    while let Some(line) = next {
        if !branch.insert(id(line)) {
            break; // a cycle, which no CLI writes
        }
        next = parent(line).and_then(|parent| by_id.get(parent).copied());
    }
    // Parallel calls of one answer are separate lines, each followed by its result: all but the last are
    // outside the branch.
    let answer = |line: &Value| line["message"]["id"].as_str().map(str::to_owned);
    let is_call = |line: &&Value| line["type"] == "assistant" && is_visible(line);
    let answers: HashSet<_> =
        lines.iter().filter(is_call).filter(|line| branch.contains(id(line))).filter_map(answer).collect();
    let calls =
        lines.iter().filter(is_call).filter(|line| answer(line).is_some_and(|id| answers.contains(&id)));
    let calls: HashSet<_> = calls.map(id).collect();
    let is_result = |line: &&Value| {
        let blocks = line["message"]["content"].as_array();
        blocks.is_some_and(|blocks| blocks.iter().any(|block| block["type"] == "tool_result"))
            && parent(line).is_some_and(|parent| calls.contains(parent))
    };
    branch.extend(lines.iter().filter(is_result).map(id));
    branch.extend(calls);
    branch
}

/// Converts a line to messages: tool results belong to the model, other blocks next to them to the user.
fn read(line: &Value) -> Vec<Message> {
    let content = &line["message"]["content"];
    let blocks = match content {
        Value::String(text) => vec![json!({ "type": "text", "text": text })],
        blocks => blocks.as_array().cloned().unwrap_or_default(),
    };
    let part = |block: &Value| {
        let raw = RawJson::from(block);
        Part::read(&raw.to_bytes(), raw)
    };
    if line["type"] == "assistant" {
        let parts: Vec<_> = blocks.iter().map(part).collect();
        return if parts.is_empty() { Vec::new() } else { vec![Message::Assistant(parts)] };
    }
    let (results, others): (Vec<_>, Vec<_>) =
        blocks.into_iter().partition(|block| block["type"] == "tool_result");
    let results: Vec<_> = results.iter().map(part).collect();
    let inputs: Vec<Input> =
        others.into_iter().filter_map(|block| serde_json::from_value(block).ok()).collect();
    let results = (!results.is_empty()).then_some(Message::Assistant(results));
    let inputs = (!inputs.is_empty()).then_some(Message::User(inputs));
    results.into_iter().chain(inputs).collect()
}

/// Copies a conversation under another id, up to the line with the given id; `None` if there is no such
/// line.
pub(crate) fn copy(text: &str, session_id: &str, up_to: Option<&str>, title: Option<&str>) -> Option<String> {
    let lines: Vec<_> = lines(text).filter(|line| line["isSidechain"] != true).collect();
    let end = match up_to {
        Some(up_to) => lines.iter().position(|line| id(line) == up_to)? + 1,
        None => lines.len(),
    };
    let kept: Vec<_> =
        lines[..end].iter().filter(|line| line["uuid"].is_string() && line["type"] != "progress").collect();
    let ids: HashMap<_, _> = kept.iter().map(|line| (id(line), Uuid::new_v4().to_string())).collect();
    let by_id: HashMap<_, _> = lines.iter().map(|line| (id(line), line)).collect();
    // Skips lines that are not copied.
    let parent_of = |line: &Value| {
        let mut next = parent(line);
        for _ in 0..lines.len() {
            match next.map(|id| (ids.get(id), by_id.get(id))) {
                Some((Some(id), _)) => return Some(id.clone()),
                Some((None, Some(line))) => next = parent(line),
                _ => break,
            }
        }
        None
    };
    let mut copy = String::new();
    for line in &kept {
        let mut copied = (*line).clone();
        copied["forkedFrom"] = json!({ "sessionId": line["sessionId"], "messageUuid": line["uuid"] });
        copied["parentUuid"] = json!(parent_of(line));
        copied["uuid"] = json!(ids.get(id(line)));
        if let Some(logical) = line["logicalParentUuid"].as_str() {
            copied["logicalParentUuid"] = json!(ids.get(logical));
        }
        copied["sessionId"] = json!(session_id);
        copy.push_str(&format!("{copied}\n"));
    }
    if let Some(title) = title {
        copy.push_str(&title_line(session_id, title));
    }
    Some(copy)
}

/// The line that sets a conversation's title.
pub(crate) fn title_line(session_id: &str, title: &str) -> String {
    format!("{}\n", json!({ "type": "custom-title", "customTitle": title, "sessionId": session_id }))
}

/// The line that sets its tag; an empty one removes the tag.
pub(crate) fn tag_line(session_id: &str, tag: &str) -> String {
    format!("{}\n", json!({ "type": "tag", "tag": tag, "sessionId": session_id }))
}

/// Seconds since 1970, for JSON.
pub(crate) fn seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64()
}

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "it is made for the call")]
mod tests {
    use super::*;

    fn line(id: &str, parent: Option<&str>, role: &str, content: Value) -> String {
        let message = json!({ "role": role, "content": content, "id": "m" });
        json!({ "type": role, "uuid": id, "parentUuid": parent, "message": message, "sessionId": "s" })
            .to_string()
    }

    fn shown(text: &str) -> Vec<String> {
        let of = |message: Message| match message {
            Message::User(inputs) => format!("user {}", inputs.len()),
            Message::Assistant(parts) => parts.iter().filter_map(Part::text).collect::<Vec<_>>().join(" "),
        };
        messages(text).into_iter().map(|(id, message)| format!("{id}: {}", of(message))).collect()
    }

    #[test]
    fn the_last_branch_is_read_with_all_its_results() {
        let call = |id: &str| json!([{ "type": "tool_use", "id": id, "name": "n", "input": {} }]);
        let result = |id: &str| json!([{ "type": "tool_result", "tool_use_id": id, "content": id }]);
        let text = [
            line("1", None, "user", json!("first")),
            line("old", Some("1"), "assistant", json!([{ "type": "text", "text": "another branch" }]))
                .replace("\"m\"", "\"old\""),
            json!({ "type": "system", "uuid": "1s", "parentUuid": "1" }).to_string(),
            line("2", Some("1s"), "assistant", call("a")),
            line("3", Some("2"), "assistant", call("b")),
            line("4", Some("2"), "user", result("a")),
            line("5", Some("3"), "user", result("b")),
            "{\"type\":\"user\",\"uuid\":\"torn".into(),
            line("6", Some("5"), "assistant", json!([{ "type": "text", "text": "done" }]))
                .replace("\"m\"", "\"n\""),
            line("x", Some("6"), "user", json!("hidden"))
                .replace("\"sessionId\"", "\"isMeta\":true,\"sessionId\""),
        ]
        .join("\n");
        assert_eq!(shown(&text), ["1: user 1", "2: ", "3: ", "4: a", "5: b", "6: done"]);
        assert!(shown("").is_empty() && shown("{}\n[1]\nnothing").is_empty());
        let circle =
            [line("1", Some("2"), "user", json!("a")), line("2", Some("1"), "user", json!("b"))].join("\n");
        assert_eq!(shown(&circle).len(), 2);
    }

    #[test]
    fn a_summary_has_the_first_prompt_and_the_last_title() {
        let head = [
            json!({ "type": "custom-title", "customTitle": "old" }).to_string(),
            line("0", None, "user", json!("<command-name>/x</command-name>")),
            line("1", None, "user", json!([{ "type": "text", "text": " Hello " }])),
        ]
        .join("\n");
        let tail = [tag_line("s", "t"), title_line("s", "new"), tag_line("s", "")].concat();
        let read = Summary::of(&[&head, &tail]);
        let want = (Some("new".into()), None, Some("Hello".into()), true);
        assert_eq!((read.title, read.tag, read.first_prompt, read.has_messages), want);
        assert_eq!(Summary::of(&[]), Summary::default());
    }

    #[test]
    fn a_copy_has_new_ids_and_ends_at_the_given_message() {
        let text = [
            line("1", None, "user", json!("one")),
            json!({ "type": "progress", "uuid": "p", "parentUuid": "1" }).to_string(),
            line("2", Some("p"), "assistant", json!([{ "type": "text", "text": "two" }])),
            line("3", Some("2"), "user", json!("three")),
        ]
        .join("\n");
        let copied = copy(&text, "new", Some("2"), Some("Copy")).unwrap();
        let lines: Vec<Value> = copied.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line["sessionId"] == "new"), "{copied}");
        assert_eq!((&lines[1]["parentUuid"], &lines[0]["parentUuid"]), (&lines[0]["uuid"], &Value::Null));
        assert_ne!(lines[0]["uuid"], "1");
        assert_eq!(lines[2]["customTitle"], "Copy");
        assert_eq!(copy(&text, "new", Some("no such line"), None), None);
    }
}
