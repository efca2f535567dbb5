//! Formats answers of the Messages API: as events, or as one message.

use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::{Block, ModelRequest};

/// The number of deltas for the arguments of a call.
const INPUT_PIECES: usize = 3;

const SIGNATURE: &str = "scripted";

/// One step of a streamed answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    Event(Value),
    Sleep(Duration),
    /// Closes the connection.
    Drop,
}

/// The `message_start` event, with a unique message id.
pub(crate) fn message_start(request: &ModelRequest) -> Value {
    json!({"type": "message_start", "message": envelope(request)})
}

/// All steps of a streamed answer.
pub(crate) fn steps(request: &ModelRequest, blocks: &[Block]) -> Vec<Step> {
    let mut steps = vec![Step::Event(message_start(request))];
    let mut index = 0;
    for (block, content) in blocks.iter().zip(contents(request, blocks)) {
        let Some((content, deltas)) = content else {
            steps.push(Step::Sleep(pause(block)));
            continue;
        };
        let start = json!({"type": "content_block_start", "index": index, "content_block": emptied(content)});
        let stop = json!({"type": "content_block_stop", "index": index});
        let delta = |delta| json!({"type": "content_block_delta", "index": index, "delta": delta});
        let deltas = deltas.into_iter().map(delta);
        steps.extend([start].into_iter().chain(deltas).chain([stop]).map(Step::Event));
        index += 1;
    }
    let end = json!({"stop_reason": stop_reason(blocks), "stop_sequence": null});
    let usage = json!({"output_tokens": 5});
    steps.push(Step::Event(json!({"type": "message_delta", "delta": end, "usage": usage})));
    steps.push(Step::Event(json!({"type": "message_stop"})));
    steps
}

/// The answer as one message, and its delay.
pub(crate) fn message(request: &ModelRequest, blocks: &[Block]) -> (Value, Duration) {
    let mut message = envelope(request);
    message["content"] = contents(request, blocks).flatten().map(|(content, _)| content).collect();
    message["stop_reason"] = stop_reason(blocks).into();
    (message, blocks.iter().map(pause).sum())
}

fn pause(block: &Block) -> Duration {
    if let Block::Sleep(duration) = block { *duration } else { Duration::ZERO }
}

/// The body of an HTTP error.
pub(crate) fn error(status: u16, message: &str) -> Value {
    let kind = match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": message}})
}

fn envelope(request: &ModelRequest) -> Value {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // The CLI joins the parts of a message by its id, even in a session that it resumes with another model.
    let id = format!("msg_{}_{}", process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    json!({
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": request.body["model"],
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    })
}

/// Each block as in the message, and its deltas; a pause is not part of the message.
fn contents(request: &ModelRequest, blocks: &[Block]) -> impl Iterator<Item = Option<(Value, Vec<Value>)>> {
    let turn = request.turn();
    let mut calls = 0;
    blocks.iter().map(move |block| match block {
        Block::Text(pieces) => {
            let deltas = pieces.iter().map(|piece| json!({"type": "text_delta", "text": piece}));
            Some((json!({"type": "text", "text": pieces.concat()}), deltas.collect()))
        }
        Block::Think(pieces) => {
            let content = json!({"type": "thinking", "thinking": pieces.concat(), "signature": SIGNATURE});
            let thoughts = pieces.iter().map(|piece| json!({"type": "thinking_delta", "thinking": piece}));
            let signature = json!({"type": "signature_delta", "signature": SIGNATURE});
            Some((content, thoughts.chain([signature]).collect()))
        }
        Block::Call { name, input, id } => {
            let id = id.clone().unwrap_or_else(|| format!("toolu_{turn}_{calls}"));
            calls += 1;
            let text: Vec<char> = input.to_string().chars().collect();
            let pieces = text.chunks(text.len().div_ceil(INPUT_PIECES)).map(String::from_iter);
            let deltas = pieces.map(|piece| json!({"type": "input_json_delta", "partial_json": piece}));
            let name = request.tool_named(name);
            Some((json!({"type": "tool_use", "id": id, "name": name, "input": input}), deltas.collect()))
        }
        Block::Sleep(_) => None,
    })
}

/// A block as in `content_block_start`, without the content that the deltas add.
fn emptied(mut content: Value) -> Value {
    for (key, empty) in
        [("text", json!("")), ("thinking", json!("")), ("signature", json!("")), ("input", json!({}))]
    {
        if let Some(value) = content.get_mut(key) {
            *value = empty;
        }
    }
    content
}

fn stop_reason(blocks: &[Block]) -> &'static str {
    let calls = blocks.iter().any(|block| matches!(block, Block::Call { .. }));
    if calls { "tool_use" } else { "end_turn" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> ModelRequest {
        let messages = json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]);
        ModelRequest { body: json!({"model": "claude-test", "messages": messages}) }
    }

    fn blocks() -> Vec<Block> {
        vec![
            Block::Think(vec!["hm".into()]),
            Block::Text(vec!["Let me ".into(), "see.".into()]),
            Block::Sleep(Duration::from_millis(7)),
            Block::call("add", json!({"a": "ü", "b": 2})),
            Block::call_as("Bash", json!({}), "mine"),
            Block::call("add", json!({})),
        ]
    }

    fn whole() -> Value {
        json!([
            {"type": "thinking", "thinking": "hm", "signature": SIGNATURE},
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "toolu_1_0", "name": "mcp__tools__add", "input": {"a": "ü", "b": 2}},
            {"type": "tool_use", "id": "mine", "name": "Bash", "input": {}},
            {"type": "tool_use", "id": "toolu_1_2", "name": "mcp__tools__add", "input": {}},
        ])
    }

    #[test]
    fn events_add_up_to_the_message() {
        let mut content: Vec<Value> = Vec::new();
        let mut kinds = Vec::new();
        for step in steps(&request(), &blocks()) {
            let Step::Event(event) = step else {
                kinds.push("sleep".to_owned());
                continue;
            };
            kinds.push(event["type"].as_str().unwrap().replace("content_block_", ""));
            if kinds.last().unwrap() == "start" {
                content.push(event["content_block"].clone());
            }
            let delta = &event["delta"];
            let (from, to) = match delta["type"].as_str() {
                Some("text_delta") => ("text", "text"),
                Some("thinking_delta") => ("thinking", "thinking"),
                Some("signature_delta") => ("signature", "signature"),
                Some("input_json_delta") => ("partial_json", "json"),
                _ => continue,
            };
            let block = &mut content[usize::try_from(event["index"].as_u64().unwrap()).unwrap()];
            block[to] =
                format!("{}{}", block[to].as_str().unwrap_or(""), delta[from].as_str().unwrap()).into();
        }
        for block in content.iter_mut().filter(|block| block["type"] == "tool_use") {
            assert_eq!(block["input"], json!({}));
            let json = block.as_object_mut().unwrap().remove("json").unwrap();
            block["input"] = serde_json::from_str(json.as_str().unwrap()).unwrap();
        }
        assert_eq!(Value::from(content), whole());
        let want = "message_start start delta delta stop start delta delta stop sleep start delta delta delta stop \
                    start delta delta stop start delta delta stop message_delta message_stop";
        assert_eq!(kinds.join(" "), want);
    }

    #[test]
    fn a_message_has_the_same_content() {
        let (message, duration) = message(&request(), &blocks());
        assert_eq!(message["content"], whole());
        assert_eq!((&message["model"], &message["stop_reason"]), (&json!("claude-test"), &json!("tool_use")));
        assert_eq!(duration, Duration::from_millis(7));
        let (plain, _) = super::message(&request(), &[Block::text("hi")]);
        assert_eq!(plain["stop_reason"], "end_turn");
        assert_ne!(plain["id"], message["id"]);
    }

    #[test]
    fn errors_have_the_type_of_their_status() {
        for (status, want) in
            [(400, "invalid_request_error"), (429, "rate_limit_error"), (529, "overloaded_error")]
        {
            assert_eq!(error(status, "no")["error"], json!({"type": want, "message": "no"}));
        }
    }
}
