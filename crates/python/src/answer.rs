//! What a model says and does, as JSON for Python.

use std::time::Duration;

use serde::Serialize;
use toolbridge::claude::{McpServerStatus, Metadata, ResponseWithMetadata, Usage};
use toolbridge::{Event, Part, RawJson};

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum EventJson<'a> {
    Started {
        session_id: Option<&'a str>,
        model: Option<&'a str>,
        tools: &'a [String],
        mcp_servers: Vec<ServerJson<'a>>,
    },
    TextDelta {
        text: &'a str,
    },
    ThinkingDelta {
        text: &'a str,
    },
    Part {
        part: PartJson<'a>,
    },
    Subagent {
        parent_tool_use_id: &'a str,
        event: Box<EventJson<'a>>,
    },
    Result(AnswerJson<'a>),
    Other {
        message: &'a RawJson,
    },
    /// What this crate does not know yet; Python passes over it.
    Unknown,
}

#[derive(Serialize)]
struct ServerJson<'a> {
    name: &'a str,
    status: &'a str,
    error: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum PartJson<'a> {
    Text {
        text: &'a str,
    },
    Thinking {
        text: &'a str,
        signature: Option<&'a str>,
    },
    /// The input as text: Python keeps it as it was written.
    ToolCall {
        id: &'a str,
        name: &'a str,
        input: &'a str,
    },
    ToolResult {
        id: &'a str,
        name: Option<&'a str>,
        content: &'a RawJson,
        is_error: bool,
    },
    Other {
        block: &'a RawJson,
    },
    /// What this crate does not know yet; Python passes over it.
    Unknown,
}

#[derive(Serialize)]
struct AnswerJson<'a> {
    parts: Vec<PartJson<'a>>,
    usage: UsageJson,
    model: Option<&'a str>,
    /// As text, for the same reason.
    structured_output: Option<&'a str>,
    metadata: MetadataJson<'a>,
}

#[expect(clippy::struct_field_names, reason = "the names that Python has for them")]
#[derive(Serialize)]
struct UsageJson {
    input_tokens: u64,
    output_tokens: u64,
    cache_write_tokens: u64,
    cache_read_tokens: u64,
}

#[derive(Serialize)]
struct MetadataJson<'a> {
    total_cost_usd: Option<f64>,
    num_turns: Option<u32>,
    session_id: Option<&'a str>,
    duration_ms: Option<f64>,
    duration_api_ms: Option<f64>,
    stop_reason: Option<&'a str>,
    raw: &'a RawJson,
}

impl<'a> From<&'a Event> for EventJson<'a> {
    fn from(event: &'a Event) -> Self {
        match event {
            Event::Started(started) => Self::Started {
                session_id: started.session_id.as_deref(),
                model: started.model.as_deref(),
                tools: &started.tools,
                mcp_servers: started.mcp_servers.iter().map(Into::into).collect(),
            },
            Event::TextDelta(text) => Self::TextDelta { text },
            Event::ThinkingDelta(text) => Self::ThinkingDelta { text },
            Event::Part(part) => Self::Part { part: part.into() },
            Event::Subagent { parent_tool_use_id, event } => {
                Self::Subagent { parent_tool_use_id, event: Box::new(Self::from(&**event)) }
            }
            Event::Result(answer) => Self::Result((&**answer).into()),
            Event::Other(message) => Self::Other { message },
            _ => Self::Unknown,
        }
    }
}

impl<'a> From<&'a McpServerStatus> for ServerJson<'a> {
    fn from(server: &'a McpServerStatus) -> Self {
        Self { name: &server.name, status: &server.status, error: server.error.as_deref() }
    }
}

impl<'a> From<&'a Part> for PartJson<'a> {
    fn from(part: &'a Part) -> Self {
        match part {
            Part::Text { text } => Self::Text { text },
            Part::Thinking { text, signature } => Self::Thinking { text, signature: signature.as_deref() },
            Part::ToolCall { id, name, input } => Self::ToolCall { id, name, input: input.as_str() },
            Part::ToolResult { id, name, content, is_error } => {
                Self::ToolResult { id, name: name.as_deref(), content, is_error: *is_error }
            }
            Part::Other(block) => Self::Other { block },
            _ => Self::Unknown,
        }
    }
}

impl<'a> From<&'a ResponseWithMetadata> for AnswerJson<'a> {
    fn from(answer: &'a ResponseWithMetadata) -> Self {
        let response = &answer.response;
        Self {
            parts: response.parts.iter().map(Into::into).collect(),
            usage: response.usage.into(),
            model: response.model.as_deref(),
            structured_output: response.structured_output.as_ref().map(RawJson::as_str),
            metadata: (&answer.metadata).into(),
        }
    }
}

impl From<Usage> for UsageJson {
    fn from(usage: Usage) -> Self {
        Self {
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cache_write_tokens: usage.cache_write_tokens,
            cache_read_tokens: usage.cache_read_tokens,
        }
    }
}

impl<'a> From<&'a Metadata> for MetadataJson<'a> {
    fn from(metadata: &'a Metadata) -> Self {
        let ms = |time: Option<Duration>| time.map(|time| time.as_secs_f64() * 1e3);
        Self {
            total_cost_usd: metadata.total_cost_usd,
            num_turns: metadata.num_turns,
            session_id: metadata.session_id.as_deref(),
            duration_ms: ms(metadata.duration),
            duration_api_ms: ms(metadata.duration_api),
            stop_reason: metadata.stop_reason.as_deref(),
            raw: &metadata.raw,
        }
    }
}

/// The answer as JSON text.
pub(crate) fn answer_json(answer: &ResponseWithMetadata) -> Vec<u8> {
    written(&AnswerJson::from(answer))
}

/// The event as JSON text.
pub(crate) fn event_json(event: &Event) -> Vec<u8> {
    written(&EventJson::from(event))
}

fn written(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("text, numbers and JSON can be written")
}
