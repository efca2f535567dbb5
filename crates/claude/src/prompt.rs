//! Messages to the model.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use toolbridge_core::tool::RawJson;

use crate::part::Part;
use crate::response::ModelResponse;

/// A part of a user's message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Input {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image {
        /// Its data.
        source: Base64Source,
    },
    /// A document, such as a PDF.
    Document {
        /// Its data.
        source: Base64Source,
    },
}

/// Base64-encoded data inside a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename = "base64")]
pub struct Base64Source {
    media_type: String,
    data: String,
}

impl Base64Source {
    fn new(data: &[u8], media_type: impl Into<String>) -> Self {
        Self { media_type: media_type.into(), data: STANDARD.encode(data) }
    }
}

impl Input {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// An image with its media type, such as `image/png`.
    pub fn image(data: &[u8], media_type: impl Into<String>) -> Self {
        Self::Image { source: Base64Source::new(data, media_type) }
    }

    /// A document, with its media type, such as `application/pdf`.
    pub fn document(data: &[u8], media_type: impl Into<String>) -> Self {
        Self::Document { source: Base64Source::new(data, media_type) }
    }

    pub(crate) fn is_blank(&self) -> bool {
        matches!(self, Self::Text { text } if text.trim().is_empty())
    }
}

/// One message of a conversation.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Message {
    /// A message of the user.
    User(Vec<Input>),
    /// Output of the model: text and tool calls with their results.
    Assistant(Vec<Part>),
}

impl Message {
    /// A user's message of plain text.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User(vec![Input::text(text)])
    }

    /// A model's message of plain text.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::Assistant(vec![Part::Text { text: text.into() }])
    }
}

impl From<ModelResponse> for Message {
    fn from(response: ModelResponse) -> Self {
        Self::Assistant(response.parts)
    }
}

/// Returns what the CLI would expand in a text: a file name after `@`, or a command after `/`. False
/// positives are accepted, because versions differ in what may precede an `@`.
pub(crate) fn expanded(text: &str) -> Option<String> {
    let start = text.trim_start();
    if start.starts_with('/') {
        return Some(start.split_whitespace().next().unwrap_or_default().to_owned());
    }
    let (at, _) = text.match_indices('@').find(|(at, _)| {
        let is_address = text[..*at].ends_with(|before: char| before.is_ascii_alphanumeric());
        !is_address && text[at + 1..].starts_with(|after: char| !after.is_whitespace())
    })?;
    text[at..].split_whitespace().next().map(Into::into)
}

/// A conversation as text: one JSON object per line, so that its content cannot be mistaken for markup.
pub(crate) fn transcript(messages: &[Message]) -> String {
    let mut text = String::from("The conversation so far, one JSON object a line:\n<conversation>\n");
    for message in messages {
        let lines = match message {
            Message::User(inputs) => inputs.iter().map(input_json).collect::<Vec<_>>(),
            Message::Assistant(parts) => parts.iter().filter_map(part_json).collect(),
        };
        text.extend(lines.iter().map(|line| format!("{line}\n")));
    }
    text.push_str("</conversation>\nWhat the user says now:\n");
    text
}

fn input_json(input: &Input) -> Value {
    json!({ "user": match input {
        Input::Text { text } => text.clone(),
        Input::Image { source } => format!("(a picture, {})", source.media_type),
        Input::Document { source } => format!("(a document, {})", source.media_type),
    } })
}

/// A part as JSON; `None` for thinking and unknown blocks.
pub(crate) fn part_json(part: &Part) -> Option<Value> {
    let raw = |json: &RawJson| json.decode::<Value>().unwrap_or_default();
    match part {
        Part::Text { text } => Some(json!({ "assistant": text })),
        Part::ToolCall { id, name, input } => {
            Some(json!({ "tool_call": name, "id": id, "arguments": raw(input) }))
        }
        Part::ToolResult { id, content, is_error, .. } => {
            Some(json!({ "tool_result": raw(content), "id": id, "is_error": is_error }))
        }
        // Thinking is not passed on.
        Part::Thinking { .. } | Part::Other(_) => None,
    }
}
