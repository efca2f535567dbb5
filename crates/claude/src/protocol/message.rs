//! Parses the CLI's output: one JSON object per line.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use toolbridge_core::tool::RawJson;

use crate::callbacks::permission::RawPermissionRequest;
use crate::callbacks::question::AskRequest;
use crate::part::Part;
use crate::response::Event;
use crate::response::lenient;

/// A line of the CLI's output.
#[derive(Debug)]
pub(crate) enum Line {
    /// A request of the CLI.
    Request { id: String, request: CliRequest },
    /// The CLI cancels its request.
    Cancel { id: String },
    /// The response to one of our requests.
    Response { id: String, response: Result<RawJson, String> },
    /// News of the prompt with this id, such as that the CLI starts on it.
    Prompt { id: String, starts: bool },
    /// The end of a turn. `is_own`: the CLI started the turn by itself.
    Result { raw: RawJson, is_own: bool },
    /// Output of the model, the model's name, and the kind of error, if the text is that of an error.
    Assistant { model: Option<String>, error: Option<String>, events: Vec<Event> },
    /// The model begins a tool call, in the block with this index.
    Call { index: u64, id: String, name: String },
    /// The next piece of the arguments in the block with this index.
    CallDelta { index: u64, json: String },
    /// Anything else, as one or more events.
    Events(Vec<Event>),
}

/// Requests of the CLI.
#[derive(Debug)]
pub(crate) enum CliRequest {
    /// Forward this message to an MCP server in this process.
    Mcp { server: String, message: RawJson },
    /// May this tool be used?
    Permission(RawPermissionRequest),
    /// Call the hook with this id.
    Hook { callback_id: String, input: RawJson },
    /// An MCP server asks the user a question.
    Question(AskRequest),
    /// An unknown request.
    Unknown { subtype: String },
}

/// The members of all kinds of lines. A tagged enum would parse payloads into trees to find the tag.
#[derive(Default, Deserialize)]
struct Members<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    subtype: Option<Cow<'a, str>>,
    request_id: Option<String>,
    parent_tool_use_id: Option<String>,
    request: Option<&'a RawValue>,
    response: Option<ControlResponse<'a>>,
    message: Option<ApiMessage<'a>>,
    event: Option<Value>,
    #[serde(default, deserialize_with = "lenient")]
    error: Option<String>,
    command_uuid: Option<String>,
    state: Option<&'a RawValue>,
    origin: Option<&'a RawValue>,
}

/// The members that are read if another member has an unknown shape.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    parent_tool_use_id: Option<String>,
}

/// What caused a turn.
#[derive(Deserialize)]
struct Origin<'a> {
    kind: Cow<'a, str>,
}

#[derive(Deserialize)]
struct ControlRequest<'a> {
    #[serde(borrow)]
    subtype: Option<Cow<'a, str>>,
    server_name: Option<String>,
    callback_id: Option<String>,
    message: Option<&'a RawValue>,
    tool_name: Option<String>,
    input: Option<&'a RawValue>,
    mcp_server_name: Option<String>,
    requested_schema: Option<&'a RawValue>,
    url: Option<String>,
}

#[derive(Deserialize)]
struct ControlResponse<'a> {
    request_id: String,
    #[serde(default)]
    subtype: Cow<'a, str>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct ApiMessage<'a> {
    model: Option<String>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

/// Reads a line.
///
/// # Errors
///
/// When it is not a JSON object with a `type`.
pub(crate) fn read(line: &Bytes) -> Result<Line, String> {
    let text = std::str::from_utf8(line).map_err(|error| error.to_string())?;
    if !text.trim_start().starts_with('{') {
        return Err("it is not a JSON object".into());
    }
    let members = members(text)?;
    let Members { r#type, subtype, request_id, parent_tool_use_id, message, event, error, .. } = members;
    let whole = || RawJson::parse(line.clone()).map_err(|error| error.to_string());
    let id = || request_id.ok_or("it has no `request_id`");
    let events = match (&*r#type, subtype.as_deref()) {
        ("control_request", _) => {
            let request = members.request.ok_or("it has no `request`")?;
            let control = serde_json::from_str::<ControlRequest<'_>>(request.get());
            let request = control.map_err(|error| error.to_string())?.read(line, request);
            return Ok(Line::Request { id: id()?, request });
        }
        ("control_cancel_request", _) => return Ok(Line::Cancel { id: id()? }),
        ("control_response", _) => return Ok(members.response.ok_or("it has no `response`")?.read(line)),
        ("result", _) => {
            let origin =
                members.origin.and_then(|origin| serde_json::from_str::<Origin<'_>>(origin.get()).ok());
            let is_own = origin.is_some_and(|origin| origin.kind != "human");
            return Ok(Line::Result { raw: whole()?, is_own });
        }
        ("command_lifecycle", _) if members.command_uuid.is_some() => {
            let starts = members.state.is_some_and(|state| state.get() == r#""started""#);
            return Ok(Line::Prompt { id: members.command_uuid.unwrap_or_default(), starts });
        }
        ("system", Some("init")) => {
            serde_json::from_str(text).ok().map(|started| vec![Event::Started(started)])
        }
        // The CLI's own words about an error, which the result repeats; the model has not written them.
        ("assistant", _) if error.is_some() => None,
        ("assistant", _) => message.as_ref().and_then(|message| message.parts(line)),
        ("user", _) => message.as_ref().and_then(|message| message.results(line)),
        ("stream_event", _) => {
            let event = event.unwrap_or_default();
            if parent_tool_use_id.is_none()
                && let Some(call) = call(&event)
            {
                return Ok(call);
            }
            delta(&event).map(|delta| vec![delta])
        }
        _ => None,
    };
    // Unknown messages are passed on unchanged.
    let events = match events {
        Some(events) => events,
        None => vec![Event::Other(whole()?)],
    };
    Ok(match parent_tool_use_id {
        None if r#type == "assistant" => {
            // `<synthetic>` marks messages of the CLI itself.
            let model = message.and_then(|message| message.model).filter(|model| !model.starts_with('<'));
            Line::Assistant { model, error, events }
        }
        None => Line::Events(events),
        Some(parent) => {
            let of_agent =
                |event| Event::Subagent { parent_tool_use_id: parent.clone(), event: Box::new(event) };
            Line::Events(events.into_iter().map(of_agent).collect())
        }
    })
}

fn members(text: &str) -> Result<Members<'_>, String> {
    serde_json::from_str(text).or_else(|error| match serde_json::from_str::<Head<'_>>(text) {
        Ok(Head { r#type, parent_tool_use_id }) => {
            Ok(Members { r#type, parent_tool_use_id, ..Members::default() })
        }
        Err(head) if head.is_data() => Err("it has no `type`".into()),
        Err(_) => Err(error.to_string()),
    })
}

impl ControlRequest<'_> {
    fn read(self, line: &Bytes, whole: &RawValue) -> CliRequest {
        let Self { subtype, server_name, callback_id, message, tool_name, input, .. } = self;
        let raw = |value: &RawValue| RawJson::span(line, value);
        let subtype = subtype.unwrap_or_default();
        match (&*subtype, server_name, message, tool_name, input) {
            ("mcp_message", Some(server), Some(message), ..) => {
                CliRequest::Mcp { server, message: raw(message) }
            }
            ("can_use_tool", _, _, Some(tool), Some(input)) => {
                CliRequest::Permission(RawPermissionRequest { tool, input: raw(input), whole: raw(whole) })
            }
            ("hook_callback", .., Some(input)) => {
                CliRequest::Hook { callback_id: callback_id.unwrap_or_default(), input: raw(input) }
            }
            ("elicitation", _, Some(message), ..) => {
                let schema = self.requested_schema.and_then(|schema| serde_json::from_str(schema.get()).ok());
                CliRequest::Question(AskRequest {
                    server_name: self.mcp_server_name.unwrap_or_default(),
                    message: serde_json::from_str(message.get()).unwrap_or_default(),
                    schema: schema.unwrap_or_default(),
                    url: self.url,
                })
            }
            _ => CliRequest::Unknown { subtype: subtype.into_owned() },
        }
    }
}

impl ControlResponse<'_> {
    fn read(self, line: &Bytes) -> Line {
        let response = if self.subtype == "success" {
            Ok(self.response.map_or_else(RawJson::empty_object, |value| RawJson::span(line, value)))
        } else {
            Err(self.error.unwrap_or_else(|| "no reason given".into()))
        };
        Line::Response { id: self.request_id, response }
    }
}

impl ApiMessage<'_> {
    /// The content, if it is an array of blocks.
    fn blocks(&self) -> Option<Vec<&RawValue>> {
        serde_json::from_str(self.content?.get()).ok()
    }

    fn parts(&self, line: &Bytes) -> Option<Vec<Event>> {
        let part = |raw| Event::Part(Part::read(line, RawJson::span(line, raw)));
        Some(self.blocks()?.into_iter().map(part).collect())
    }

    /// Tool results, and other blocks next to them unchanged; `None` for a message without tool results.
    fn results(&self, line: &Bytes) -> Option<Vec<Event>> {
        let result = |raw| match Part::read(line, RawJson::span(line, raw)) {
            part @ Part::ToolResult { .. } => Event::Part(part),
            _ => Event::Other(RawJson::span(line, raw)),
        };
        let events: Vec<_> = self.blocks()?.into_iter().map(result).collect();
        events.iter().any(|event| matches!(event, Event::Part(_))).then_some(events)
    }
}

/// The tool call that an event of the model's stream starts or continues.
fn call(event: &Value) -> Option<Line> {
    let (index, block) = (event["index"].as_u64().unwrap_or_default(), &event["content_block"]);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    if block["type"] == "tool_use" {
        return Some(Line::Call { index, id: text(&block["id"])?, name: text(&block["name"])? });
    }
    Some(Line::CallDelta { index, json: text(&event["delta"]["partial_json"])? })
}

/// The next piece of the model's text or thinking.
fn delta(event: &Value) -> Option<Event> {
    let delta = &event["delta"];
    match delta["type"].as_str()? {
        "text_delta" => Some(Event::TextDelta(delta["text"].as_str()?.to_owned())),
        "thinking_delta" => Some(Event::ThinkingDelta(delta["thinking"].as_str()?.to_owned())),
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
    fn control_lines_are_parsed() {
        check(
            r#"{"type":"control_request","request_id":"r","request":{"subtype":"mcp_message","server_name":"s","message":{"id":1}}}"#,
            r#"Request { id: "r", request: Mcp { server: "s", message: RawJson(8 bytes) } }"#,
        );
        check(
            r#"{"request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"a":1},"tool_use_id":"t"},"request_id":"r","type":"control_request"}"#,
            r#"Request { id: "r", request: Permission(RawPermissionRequest { tool: "Bash", input: RawJson(7 bytes), whole: RawJson(79 bytes) }) }"#,
        );
        check(
            r#"{"type":"control_request","request_id":"r","request":{"subtype":"hook_callback","callback_id":"x","input":{}}}"#,
            r#"Request { id: "r", request: Hook { callback_id: "x", input: RawJson(2 bytes) } }"#,
        );
        check(
            r#"{"type":"control_request","request_id":"r","request":{"subtype":"elicitation","mcp_server_name":"s","message":"m?","mode":"form","requested_schema":{"type":"object"}}}"#,
            r#"Request { id: "r", request: Question(AskRequest { server_name: "s", message: "m?", schema: Object {"type": String("object")}, url: None }) }"#,
        );
        check(
            r#"{"type":"control_request","request_id":"r","request":{"subtype":"unknown_kind"}}"#,
            r#"Request { id: "r", request: Unknown { subtype: "unknown_kind" } }"#,
        );
        check(r#"{"type":"control_cancel_request","request_id":"r"}"#, r#"Cancel { id: "r" }"#);
        check(
            r#"{"type":"control_response","response":{"subtype":"success","request_id":"q","response":{"a":1}}}"#,
            r#"Response { id: "q", response: Ok(RawJson(7 bytes)) }"#,
        );
        check(
            r#"{"type":"control_response","response":{"subtype":"error","request_id":"q","error":"no"}}"#,
            r#"Response { id: "q", response: Err("no") }"#,
        );
        check(r#"{"type":"result","subtype":"success"}"#, "Result { raw: RawJson(37 bytes), is_own: false }");
        check(
            r#"{"type":"result","origin":{"kind":"task-notification","runId":"r"}}"#,
            "Result { raw: RawJson(67 bytes), is_own: true }",
        );
        for origin in [r#"{"kind":"human"}"#, "null", "7"] {
            let line = format!(r#"{{"type":"result","origin":{origin}}}"#);
            check(&line, &format!("Result {{ raw: RawJson({} bytes), is_own: false }}", line.len()));
        }
        for state in ["queued", "started"] {
            check(
                &format!(r#"{{"type":"command_lifecycle","command_uuid":"p","state":"{state}","uuid":"u"}}"#),
                &format!(r#"Prompt {{ id: "p", starts: {} }}"#, state == "started"),
            );
        }
    }

    #[test]
    fn messages_become_events() {
        check(
            r#"{"type":"assistant","message":{"model":"m","content":[{"type":"text","text":"hi"},{"type":"tool_use","id":"t","name":"n","input":{}},{"type":"new"}]},"parent_tool_use_id":null}"#,
            r#"Assistant { model: Some("m"), error: None, events: [Part(Text { text: "hi" }), Part(ToolCall { id: "t", name: "n", input: RawJson(2 bytes) }), Part(Other(RawJson(14 bytes)))] }"#,
        );
        check(
            r#"{"type":"assistant","message":{"content":[{"type":"thinking","thinking":"hm","signature":"s"}]},"parent_tool_use_id":"p"}"#,
            r#"Events([Subagent { parent_tool_use_id: "p", event: Part(Thinking { text: "hm", signature: Some("s") }) }])"#,
        );
        check(
            r#"{"type":"assistant","message":{"model":"<synthetic>","content":[{"type":"text","text":"no"}]},"error":"server_error"}"#,
            r#"Assistant { model: None, error: Some("server_error"), events: [Other(RawJson(117 bytes))] }"#,
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
            r#"{"type":"stream_event","event":{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"n","input":{}}}}"#,
            r#"Call { index: 1, id: "t", name: "n" }"#,
        );
        let delta = r#"{"type":"stream_event","event":{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{"}}"#;
        check(&format!("{delta}}}"), r#"CallDelta { index: 1, json: "{" }"#);
        check(
            &format!(r#"{delta},"parent_tool_use_id":"p"}}"#),
            r#"Events([Subagent { parent_tool_use_id: "p", event: Other(RawJson(152 bytes)) }])"#,
        );
        check(
            r#"{"type":"system","subtype":"init","session_id":"s","tools":["Read"],"mcp_servers":[{"name":"x","status":"failed"}]}"#,
            r#"Events([Started(Started { session_id: Some("s"), model: None, tools: ["Read"], mcp_servers: [McpServerStatus { name: "x", status: "failed", error: None }] })])"#,
        );
        check(r#"{"type":"unknown_kind","x":1}"#, "Events([Other(RawJson(29 bytes))])");
    }

    #[test]
    fn lines_that_are_not_messages_are_errors() {
        check("[1]", "error: it is not a JSON object");
        check("{}", "error: it has no `type`");
        check(r#"{"type":7}"#, "error: it has no `type`");
        check(r#"{"type":"control_request"}"#, "error: it has no `request`");
        assert!(read(&Bytes::from_static(b"{\"type\":\xff}")).is_err());
        assert!(read(&Bytes::from_static(b"{\"type\":")).is_err());
    }
}
