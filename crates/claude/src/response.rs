//! What is answered.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use toolbridge_core::RawJson;

use crate::ClaudeCodeError;
use crate::part::Part;

/// How many tokens a request took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Usage {
    /// Read by the model, those from the cache not included.
    #[serde(deserialize_with = "lenient")]
    pub input_tokens: u64,
    /// Written by the model.
    #[serde(deserialize_with = "lenient")]
    pub output_tokens: u64,
    /// Put into the cache.
    #[serde(alias = "cache_creation_input_tokens", deserialize_with = "lenient")]
    pub cache_write_tokens: u64,
    /// Read from the cache.
    #[serde(alias = "cache_read_input_tokens", deserialize_with = "lenient")]
    pub cache_read_tokens: u64,
}

/// Reads what it can: an answer is not thrown away because a number about it is missing or odd.
pub(crate) fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(
    from: D,
) -> Result<T, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(from)?).unwrap_or_default())
}

/// The model's answer, and how it came to it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelResponse {
    /// Text, thoughts, tool calls and their results, in order.
    pub parts: Vec<Part>,
    /// How many tokens it took.
    pub usage: Usage,
    /// The model that answered, where the CLI said.
    pub model: Option<String>,
    /// The output that fits the request's schema, if it had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub structured_output: Option<RawJson>,
}

impl ModelResponse {
    /// The answer's text: what the model said after its last tool call.
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
    /// [`StructuredOutput`](ClaudeCodeError::StructuredOutput) when there is none, or it does not fit `T`.
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

/// What the CLI says about a request besides the answer. As JSON it has the names that the CLI's result has.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Metadata {
    /// What it cost, in US dollars.
    #[serde(default, deserialize_with = "lenient")]
    pub total_cost_usd: Option<f64>,
    /// How often the model was asked.
    #[serde(default, deserialize_with = "lenient")]
    pub num_turns: Option<u32>,
    /// The conversation's id, for [`Conversation::Resume`](crate::Conversation::Resume).
    #[serde(default, deserialize_with = "lenient")]
    pub session_id: Option<String>,
    /// How long it took, from the prompt to the result.
    #[serde(rename = "duration_ms", default, with = "ms")]
    pub duration: Option<Duration>,
    /// How long the API took of that.
    #[serde(rename = "duration_api_ms", default, with = "ms")]
    pub duration_api: Option<Duration>,
    /// Why the model stopped, such as `end_turn`.
    #[serde(default, deserialize_with = "lenient")]
    pub stop_reason: Option<String>,
    /// The whole result, as the CLI wrote it.
    #[serde(default = "RawJson::empty_object")]
    pub raw: RawJson,
}

/// Times in milliseconds.
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

/// An answer with everything that is known about it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ResponseWithMetadata {
    /// The answer.
    pub response: ModelResponse,
    /// The rest.
    pub metadata: Metadata,
}

impl ResponseWithMetadata {
    /// What was said until the request was ended, of which the CLI says no more.
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
