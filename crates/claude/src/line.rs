//! What the CLI writes: one JSON object a line.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use toolbridge_core::RawJson;
use toolbridge_core::json::{Inner, Span, envelope};

use crate::event::{Event, McpServerStatus, Started};
use crate::response::Part;

/// A line of the CLI's output.
#[derive(Debug)]
pub(crate) enum Line {
    /// The CLI wants something from us.
    Ask { id: String, ask: Ask },
    /// The CLI no longer wants what it asked for.
    Withdraw { id: String },
    /// The answer to something we asked.
    Answer { id: String, answer: Result<RawJson, String> },
    /// The end of a request.
    Result(RawJson),
    /// What the model said and did, and which model that was.
    Assistant { model: Option<String>, events: Vec<Event> },
    /// Something else that happened, in one or more events.
    Events(Vec<Event>),
}

/// What the CLI may ask.
#[derive(Debug)]
pub(crate) enum Ask {
    /// Pass this message to an MCP server here.
    Mcp { server: String, message: RawJson },
    /// May this tool be used?
    Permission { tool: String, input: RawJson, tool_use_id: Option<String> },
    /// A tool is about to be used.
    Hook { input: RawJson },
    /// Something else.
    Unknown { subtype: String },
}

/// Reads a line.
///
/// # Errors
///
/// When it is not a JSON object with a `type`.
pub(crate) fn read(line: &Bytes) -> Result<Line, String> {
    let text = std::str::from_utf8(line).map_err(|error| error.to_string())?;
    let found = envelope(
        text,
        &["type", "subtype", "request_id", "response", "message", "event", "parent_tool_use_id"],
        "request",
        &["subtype", "server_name", "message", "tool_name", "input", "tool_use_id"],
    );
    let found = found.map_err(|error| error.to_string())?.ok_or("it is not a JSON object")?;
    let [kind, subtype, request_id, response, message, event, parent] = found.outer;
    let raw = |value: Span<'_>| RawJson::span(line, value);
    let whole = || RawJson::parse(line.clone()).map_err(|error| error.to_string());
    let id = || string(request_id).ok_or("it has no `request_id`");
    let kind = string(kind).ok_or("it has no `type`")?;
    let events = match (kind.as_str(), string(subtype).as_deref()) {
        ("control_request", _) => {
            let Inner::Object(inner) = found.inner else { return Err("it has no `request`".into()) };
            let [subtype, server, message, tool, input, tool_use_id] = inner;
            let ask =
                match (string(subtype).unwrap_or_default(), string(server), message, string(tool), input) {
                    (subtype, Some(server), Some(message), ..) if subtype == "mcp_message" => {
                        Ask::Mcp { server, message: raw(message) }
                    }
                    (subtype, _, _, Some(tool), Some(input)) if subtype == "can_use_tool" => {
                        Ask::Permission { tool, input: raw(input), tool_use_id: string(tool_use_id) }
                    }
                    (subtype, .., Some(input)) if subtype == "hook_callback" => {
                        Ask::Hook { input: raw(input) }
                    }
                    (subtype, ..) => Ask::Unknown { subtype },
                };
            return Ok(Line::Ask { id: id()?, ask });
        }
        ("control_cancel_request", _) => return Ok(Line::Withdraw { id: id()? }),
        ("control_response", _) => {
            let response = response.ok_or("it has no `response`")?;
            return answer(line, response).map_err(|error| error.to_string());
        }
        ("result", _) => return Ok(Line::Result(whole()?)),
        ("system", Some("init")) => started(text).map(|started| vec![Event::Started(started)]),
        ("assistant", _) => message.and_then(|message| blocks(line, message)),
        ("user", _) => message.and_then(|message| results(line, message)),
        ("stream_event", _) => event.and_then(delta).map(|delta| vec![delta]),
        _ => None,
    };
    // What is not understood is passed on as it is.
    let events = match events {
        Some(events) => events,
        None => vec![Event::Other(whole()?)],
    };
    Ok(match string(parent) {
        None if kind == "assistant" => Line::Assistant { model: message.and_then(model_of), events },
        None => Line::Events(events),
        Some(parent) => {
            let of_agent =
                |event| Event::Subagent { parent_tool_use_id: parent.clone(), event: Box::new(event) };
            Line::Events(events.into_iter().map(of_agent).collect())
        }
    })
}

/// The model of a message; the CLI itself calls itself `<synthetic>`.
fn model_of(message: Span<'_>) -> Option<String> {
    #[derive(Deserialize)]
    struct Message {
        model: Option<String>,
    }
    message.decode::<Message>().ok()?.model.filter(|model| !model.starts_with('<'))
}

/// A JSON string, decoded; `None` for anything else.
fn string(value: Option<Span<'_>>) -> Option<String> {
    value?.decode().ok()
}

fn answer(line: &Bytes, response: Span<'_>) -> Result<Line, serde_json::Error> {
    #[derive(Deserialize)]
    struct Response<'a> {
        request_id: String,
        #[serde(default)]
        subtype: String,
        #[serde(borrow, rename = "response")]
        content: Option<&'a RawValue>,
        error: Option<String>,
    }
    let found: Response<'_> = response.decode()?;
    let answer = if found.subtype == "success" {
        Ok(found.content.map_or_else(RawJson::empty_object, |value| RawJson::span(line, value)))
    } else {
        Err(found.error.unwrap_or_else(|| "no reason given".into()))
    };
    Ok(Line::Answer { id: found.request_id, answer })
}

fn started(text: &str) -> Option<Started> {
    #[derive(Deserialize)]
    struct Init {
        session_id: Option<String>,
        model: Option<String>,
        #[serde(default)]
        tools: Vec<String>,
        #[serde(default)]
        mcp_servers: Vec<McpServerStatus>,
    }
    let init: Init = serde_json::from_str(text).ok()?;
    Some(Started {
        session_id: init.session_id,
        model: init.model,
        tools: init.tools,
        mcp_servers: init.mcp_servers,
    })
}

/// The content of a message, when it is an array of blocks.
fn content(message: Span<'_>) -> Option<Vec<&RawValue>> {
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        content: Vec<&'a RawValue>,
    }
    serde_json::from_str::<Message<'_>>(message.get()).ok().map(|message| message.content)
}

#[derive(Deserialize)]
struct Block<'a> {
    r#type: String,
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    id: Option<String>,
    tool_use_id: Option<String>,
    name: Option<String>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    is_error: Option<bool>,
}

fn blocks(line: &Bytes, message: Span<'_>) -> Option<Vec<Event>> {
    let part = |raw: &RawValue| {
        let kept = || Part::Other(RawJson::span(line, raw));
        let Ok(mut block) = serde_json::from_str::<Block<'_>>(raw.get()) else { return kept() };
        match (&*std::mem::take(&mut block.r#type), block) {
            ("text", Block { text: Some(text), .. }) => Part::Text { text },
            ("thinking", Block { thinking: Some(text), signature, .. }) => Part::Thinking { text, signature },
            ("tool_use", Block { id: Some(id), name: Some(name), input: Some(input), .. }) => {
                Part::ToolCall { id, name, input: RawJson::span(line, input) }
            }
            _ => kept(),
        }
    };
    Some(content(message)?.into_iter().map(part).map(Event::Part).collect())
}

/// Tool results, and what stands beside them as it is; a message without any is not understood here.
fn results(line: &Bytes, message: Span<'_>) -> Option<Vec<Event>> {
    let result = |raw: &RawValue| {
        let block: Block<'_> = serde_json::from_str(raw.get()).ok()?;
        let content = block.content.map(|content| RawJson::span(line, content));
        (block.r#type == "tool_result").then_some(Event::Part(Part::ToolResult {
            id: block.tool_use_id?,
            name: None,
            content: content.or_else(|| RawJson::of("").ok())?,
            is_error: block.is_error.unwrap_or_default(),
        }))
    };
    let blocks = content(message)?;
    let kept = |raw: &RawValue| Event::Other(RawJson::span(line, raw));
    let events: Vec<_> = blocks.into_iter().map(|raw| result(raw).unwrap_or_else(|| kept(raw))).collect();
    events.iter().any(|event| matches!(event, Event::Part(_))).then_some(events)
}

fn delta(event: Span<'_>) -> Option<Event> {
    #[derive(Deserialize)]
    struct StreamEvent {
        delta: Option<Delta>,
    }
    #[derive(Deserialize)]
    struct Delta {
        r#type: Option<String>,
        text: Option<String>,
        thinking: Option<String>,
    }
    match serde_json::from_str::<StreamEvent>(event.get()).ok()?.delta? {
        Delta { r#type: Some(kind), text: Some(text), .. } if kind == "text_delta" => {
            Some(Event::TextDelta(text))
        }
        Delta { r#type: Some(kind), thinking: Some(text), .. } if kind == "thinking_delta" => {
            Some(Event::ThinkingDelta(text))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, want: &str) {
        let shown = match read(&Bytes::from(line.to_owned())) {
            Ok(line) => format!("{line:?}"),
            Err(error) => format!("error: {error}"),
        };
        assert_eq!(shown, want, "{line}");
    }

    #[test]
    fn control_lines_are_told_from_what_happens() {
        check(
            r#"{"type":"control_request","request_id":"r","request":{"subtype":"mcp_message","server_name":"s","message":{"id":1}}}"#,
            r#"Ask { id: "r", ask: Mcp { server: "s", message: RawJson(8 bytes) } }"#,
        );
        check(
            r#"{"request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"a":1},"tool_use_id":"t"},"request_id":"r","type":"control_request"}"#,
            r#"Ask { id: "r", ask: Permission { tool: "Bash", input: RawJson(7 bytes), tool_use_id: Some("t") } }"#,
        );
        check(
            r#"{"type":"control_request","request_id":"r","request":{"subtype":"hook_callback","callback_id":"x","input":{}}}"#,
            r#"Ask { id: "r", ask: Hook { input: RawJson(2 bytes) } }"#,
        );
        check(
            r#"{"type":"control_request","request_id":"r","request":{"subtype":"elicitation"}}"#,
            r#"Ask { id: "r", ask: Unknown { subtype: "elicitation" } }"#,
        );
        check(r#"{"type":"control_cancel_request","request_id":"r"}"#, r#"Withdraw { id: "r" }"#);
        check(
            r#"{"type":"control_response","response":{"subtype":"success","request_id":"q","response":{"a":1}}}"#,
            r#"Answer { id: "q", answer: Ok(RawJson(7 bytes)) }"#,
        );
        check(
            r#"{"type":"control_response","response":{"subtype":"error","request_id":"q","error":"no"}}"#,
            r#"Answer { id: "q", answer: Err("no") }"#,
        );
        check(r#"{"type":"result","subtype":"success"}"#, "Result(RawJson(37 bytes))");
    }

    #[test]
    fn messages_become_events() {
        check(
            r#"{"type":"assistant","message":{"model":"m","content":[{"type":"text","text":"hi"},{"type":"tool_use","id":"t","name":"n","input":{}},{"type":"new"}]},"parent_tool_use_id":null}"#,
            r#"Assistant { model: Some("m"), events: [Part(Text { text: "hi" }), Part(ToolCall { id: "t", name: "n", input: RawJson(2 bytes) }), Part(Other(RawJson(14 bytes)))] }"#,
        );
        check(
            r#"{"type":"assistant","message":{"content":[{"type":"thinking","thinking":"hm","signature":"s"}]},"parent_tool_use_id":"p"}"#,
            r#"Events([Subagent { parent_tool_use_id: "p", event: Part(Thinking { text: "hm", signature: Some("s") }) }])"#,
        );
        check(
            r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":"42","is_error":true}]}}"#,
            r#"Events([Part(ToolResult { id: "t", name: None, content: RawJson(4 bytes), is_error: true })])"#,
        );
        check(
            r#"{"type":"user","message":{"content":[{"type":"text"},{"type":"tool_result","tool_use_id":"t"}]}}"#,
            r#"Events([Other(RawJson(15 bytes)), Part(ToolResult { id: "t", name: None, content: RawJson(2 bytes), is_error: false })])"#,
        );
        check(
            r#"{"type":"user","message":{"content":[{"type":"text"}]}}"#,
            "Events([Other(RawJson(55 bytes))])",
        );
        check(r#"{"type":"user","message":{"content":"hello"}}"#, "Events([Other(RawJson(45 bytes))])");
        check(
            r#"{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}}"#,
            r#"Events([TextDelta("a")])"#,
        );
        check(
            r#"{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"b"}}}"#,
            r#"Events([ThinkingDelta("b")])"#,
        );
        check(
            r#"{"type":"system","subtype":"init","session_id":"s","tools":["Read"],"mcp_servers":[{"name":"x","status":"failed"}]}"#,
            r#"Events([Started(Started { session_id: Some("s"), model: None, tools: ["Read"], mcp_servers: [McpServerStatus { name: "x", status: "failed", error: None }] })])"#,
        );
        check(r#"{"type":"of_tomorrow","x":1}"#, "Events([Other(RawJson(28 bytes))])");
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        check("[1]", "error: it is not a JSON object");
        check("{}", "error: it has no `type`");
        check(r#"{"type":7}"#, "error: it has no `type`");
        check(r#"{"type":"control_request"}"#, "error: it has no `request`");
        assert!(read(&Bytes::from_static(b"{\"type\":\xff}")).is_err());
        assert!(read(&Bytes::from_static(b"{\"type\":")).is_err());
    }
}
