//! Pieces of what the model said and did.

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use toolbridge_core::RawJson;

/// A piece of what the model said or did, or of what came back to it.
///
/// As JSON its `type` says what it is, such as `tool_call`; the CLI's own blocks can be read as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Part {
    /// Text for the user.
    Text {
        /// The text.
        text: String,
    },
    /// What the model thought.
    Thinking {
        /// The thought.
        text: String,
        /// The API's signature of it.
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
    /// A tool has answered.
    ToolResult {
        /// The id of its call.
        id: String,
        /// The tool's name, if its call was seen.
        name: Option<String>,
        /// What the model got: a string, or an array of blocks.
        content: RawJson,
        /// Whether the call failed.
        is_error: bool,
    },
    /// A block of another kind, as the CLI wrote it.
    #[serde(untagged)]
    Other(RawJson),
}

/// The members of all kinds of parts. What serde itself makes of a tagged enum would not keep JSON as it was written.
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
    /// Reads a block that lies in `buffer`, which the part shares.
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

    /// The part's text, or that of a tool's result; blocks that are no text are left out.
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
