//! Parts of the model's output and of tool results.

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use toolbridge_core::tool::RawJson;

/// A part of the model's output, or a tool result that was returned to it.
///
/// As JSON, `type` names the kind, such as `tool_call`; the CLI's own blocks can be read as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Part {
    /// Text for the user.
    Text {
        /// The text.
        text: String,
    },
    /// The model's thinking.
    Thinking {
        /// The text.
        text: String,
        /// The API's signature of the thinking.
        signature: Option<String>,
    },
    /// A tool was called.
    ToolCall {
        /// The model's id for the call.
        id: String,
        /// The tool's name as the model knows it, such as `mcp__tools__add`.
        name: String,
        /// The arguments.
        input: RawJson,
    },
    /// A tool's result.
    ToolResult {
        /// The id of its call.
        id: String,
        /// The tool's name, if its call is known.
        name: Option<String>,
        /// The content returned to the model: a string, or an array of blocks.
        content: RawJson,
        /// Whether the call failed.
        is_error: bool,
    },
    /// A block of another kind, unchanged.
    #[serde(untagged)]
    Other(RawJson),
}

/// The members of all kinds of parts. A tagged enum of serde would not preserve JSON as written.
#[derive(Deserialize)]
struct Block<'a> {
    r#type: String,
    #[serde(alias = "thinking")]
    text: Option<String>,
    signature: Option<String>,
    #[serde(alias = "tool_use_id")]
    id: Option<String>,
    name: Option<String>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(default)]
    is_error: Option<bool>,
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        RawJson::deserialize(from).map(|block| Self::read(&block.to_bytes(), block))
    }
}

impl Part {
    /// Reads a block inside `buffer`; the part shares the buffer.
    pub(crate) fn read(buffer: &Bytes, block: RawJson) -> Self {
        let raw = |value: &RawValue| RawJson::span(buffer, value);
        let known = |Block { r#type, text, signature, id, name, input, content, is_error }: Block<'_>| {
            Some(match r#type.as_str() {
                "text" => Self::Text { text: text? },
                "thinking" => Self::Thinking { text: text?, signature },
                "tool_call" | "tool_use" => Self::ToolCall { id: id?, name: name?, input: raw(input?) },
                "tool_result" => Self::ToolResult {
                    id: id?,
                    name,
                    content: content.map_or_else(|| RawJson::from(json!("")), raw),
                    is_error: is_error.unwrap_or_default(),
                },
                _ => return None,
            })
        };
        let part = block.decode().ok().and_then(known);
        part.unwrap_or(Self::Other(block))
    }

    /// The text of the part or of the tool's result; blocks without text are skipped.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Text { text } | Self::Thinking { text, .. } => Some(text.clone()),
            Self::ToolResult { content, .. } => Some(content_text(content)),
            Self::ToolCall { .. } | Self::Other(_) => None,
        }
    }
}

fn content_text(content: &RawJson) -> String {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Content {
        Text(String),
        Blocks(Vec<Block>),
    }
    #[derive(Deserialize)]
    struct Block {
        #[serde(default)]
        text: String,
    }
    match content.decode() {
        Ok(Content::Text(text)) => text,
        Ok(Content::Blocks(blocks)) => blocks.into_iter().map(|block| block.text).collect(),
        Err(_) => String::new(),
    }
}
