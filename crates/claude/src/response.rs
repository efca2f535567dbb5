//! Answers of the model, and the events before them.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use toolbridge_core::call::Progress;
use toolbridge_core::tool::RawJson;

use crate::ClaudeCodeError;
use crate::part::Part;

/// The number of tokens used by a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens read by the model, without those from the cache.
    #[serde(deserialize_with = "lenient")]
    pub input_tokens: u64,
    /// Tokens written by the model.
    #[serde(deserialize_with = "lenient")]
    pub output_tokens: u64,
    /// Tokens written to the cache.
    #[serde(alias = "cache_creation_input_tokens", deserialize_with = "lenient")]
    pub cache_write_tokens: u64,
    /// Tokens read from the cache.
    #[serde(alias = "cache_read_input_tokens", deserialize_with = "lenient")]
    pub cache_read_tokens: u64,
}

/// Falls back to the default: an answer must not be lost because of a missing or invalid number.
pub(crate) fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(
    from: D,
) -> Result<T, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(from)?).unwrap_or_default())
}

/// The model's answer with all its parts.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelResponse {
    /// Text, thinking, tool calls and their results, in order.
    pub parts: Vec<Part>,
    /// The number of tokens used.
    pub usage: Usage,
    /// The model that answered, if the CLI reports it.
    pub model: Option<String>,
    /// The output that matches the request's schema, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_output: Option<RawJson>,
}

impl ModelResponse {
    /// The answer's text: all text after the last tool call.
    #[must_use]
    pub fn text(&self) -> String {
        let is_tool = |part: &Part| matches!(part, Part::ToolCall { .. } | Part::ToolResult { .. });
        let start = self.parts.iter().rposition(is_tool).map_or(0, |last| last + 1);
        let texts = self.parts[start..].iter().filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n\n")
    }

    /// The output for the request's schema, decoded.
    ///
    /// # Errors
    ///
    /// [`StructuredOutput`](ClaudeCodeError::StructuredOutput) if there is none, or it cannot be decoded as
    /// `T`.
    pub fn output<T: DeserializeOwned>(&self) -> Result<T, ClaudeCodeError> {
        let failed = |reason: String| ClaudeCodeError::StructuredOutput { reason, text: self.text() };
        let output = self
            .structured_output
            .as_ref()
            .ok_or_else(|| failed("the request had no schema: give one with `Request::output`".into()))?;
        let mut reader = serde_json::Deserializer::from_slice(output.as_bytes());
        serde_path_to_error::deserialize(&mut reader).map_err(|error| failed(error.to_string()))
    }
}

/// Data about a request besides the answer. As JSON it has the same names as the CLI's result.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Metadata {
    /// The cost in US dollars.
    #[serde(default, deserialize_with = "lenient")]
    pub total_cost_usd: Option<f64>,
    /// The number of turns, which are requests to the model.
    #[serde(default, deserialize_with = "lenient")]
    pub num_turns: Option<u32>,
    /// The conversation's id, for [`Settings::resume`](crate::Settings::resume).
    #[serde(default, deserialize_with = "lenient")]
    pub session_id: Option<String>,
    /// The time from the prompt to the result.
    #[serde(rename = "duration_ms", default, with = "ms")]
    pub duration: Option<Duration>,
    /// The part of that time spent in the API.
    #[serde(rename = "duration_api_ms", default, with = "ms")]
    pub duration_api: Option<Duration>,
    /// Why the model stopped, such as `end_turn`.
    #[serde(default, deserialize_with = "lenient")]
    pub stop_reason: Option<String>,
    /// The whole result, unchanged.
    #[serde(default = "RawJson::empty_object")]
    pub raw: RawJson,
}

/// Durations in milliseconds.
mod ms {
    use super::{Deserializer, Duration, Serialize as _, Serializer, lenient};

    #[expect(clippy::ref_option, reason = "serde's signature")]
    pub(super) fn serialize<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        time.map(|time| time.as_secs_f64() * 1e3).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        let ms: Option<f64> = lenient(from)?;
        Ok(ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok()))
    }
}

/// An answer with its metadata.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ResponseWithMetadata {
    /// The answer.
    pub response: ModelResponse,
    /// The metadata.
    pub metadata: Metadata,
}

impl ResponseWithMetadata {
    /// The output of a request that was ended early; the CLI reports no metadata for it.
    pub(crate) fn unfinished(parts: Vec<Part>, model: Option<String>, session_id: Option<String>) -> Self {
        let response = ModelResponse { parts, usage: Usage::default(), model, structured_output: None };
        let metadata = Metadata {
            total_cost_usd: None,
            num_turns: None,
            session_id,
            duration: None,
            duration_api: None,
            stop_reason: None,
            raw: RawJson::empty_object(),
        };
        Self { response, metadata }
    }
}

/// An event of a request.
///
/// As JSON it is an object with one member, named after the variant: `{"text_delta":"Let me "}`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The CLI has started on the prompt.
    Started(Started),
    /// The next piece of the model's text.
    TextDelta(String),
    /// The next piece of the model's thinking.
    ThinkingDelta(String),
    /// The next piece of the arguments of a tool call that the model is writing. The pieces of one call
    /// together are JSON text.
    ToolCallDelta {
        /// The model's id for the call.
        id: String,
        /// The tool's name as the model knows it.
        name: String,
        /// The piece.
        json: String,
    },
    /// A complete part: text, thinking, a tool call that starts, or the tool result that finishes it.
    Part(Part),
    /// A tool of this process reports progress with
    /// [`CallContext::progress`](toolbridge_core::CallContext::progress). It may arrive before the part
    /// with its call.
    ToolProgress {
        /// The model's id for the call, if the CLI provides it.
        id: Option<String>,
        /// The tool's name as the model knows it, such as `mcp__tools__add`.
        name: String,
        /// The progress.
        progress: Progress,
    },
    /// An event of a subagent that the model started with a tool call. It is not part of the answer.
    Subagent {
        /// The id of the call that started the subagent.
        parent_tool_use_id: String,
        /// The event.
        event: Box<Event>,
    },
    /// An event of a turn that the CLI started by itself, because something in the background had ended. The
    /// turn ends with an [`Other`](Self::Other), the CLI's result. It is not part of the answer. Between two
    /// prompts of a conversation, only `on_message` gets the messages of such a turn. With a CLI before
    /// 2.1.248 these events are not marked.
    Background(Box<Event>),
    /// The answer; the last event.
    Result(Box<ResponseWithMetadata>),
    /// Another message of the CLI, unchanged.
    Other(RawJson),
}

/// What the CLI reports when it starts on a prompt.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Started {
    /// The conversation's id.
    pub session_id: Option<String>,
    /// The model in use.
    pub model: Option<String>,
    /// The tools that the model may use.
    #[serde(default)]
    pub tools: Vec<String>,
    /// The MCP servers and their connection state.
    #[serde(default)]
    pub mcp_servers: Vec<McpServerStatus>,
}

/// The state of an MCP server.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct McpServerStatus {
    /// Its name.
    pub name: String,
    /// `connected`, `failed`, `pending`, or another value of the CLI.
    pub status: String,
    /// Why it failed, if the CLI reports that.
    pub error: Option<String>,
}
