//! What happens during a request.

use serde::Deserialize;
use toolbridge_core::RawJson;

use crate::response::{Part, ResponseWithMetadata};

/// Something that happened during a request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// The CLI has begun.
    Started(Started),
    /// The next piece of the model's text.
    TextDelta(String),
    /// The next piece of what the model thinks.
    ThinkingDelta(String),
    /// A whole part: text, a thought, a tool call that starts, or a tool result, with which its call is
    /// finished.
    Part(Part),
    /// Something that an agent did which the model has started with a tool call. It is not a part of the
    /// answer.
    Subagent {
        /// The id of the call that started it.
        parent_tool_use_id: String,
        /// What it did.
        event: Box<Event>,
    },
    /// The answer; the last event.
    Result(Box<ResponseWithMetadata>),
    /// Something else that the CLI said, as it wrote it.
    Other(RawJson),
}

/// What the CLI says when it begins.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Started {
    /// The conversation's id.
    pub session_id: Option<String>,
    /// The model that is asked.
    pub model: Option<String>,
    /// The tools that the model may use.
    pub tools: Vec<String>,
    /// The MCP servers, and whether they are connected.
    pub mcp_servers: Vec<McpServerStatus>,
}

/// How an MCP server is doing.
#[derive(Debug, Clone, Deserialize)]
#[non_exhaustive]
pub struct McpServerStatus {
    /// Its name.
    pub name: String,
    /// `connected`, `failed`, `pending`, or another word of the CLI's.
    pub status: String,
    /// Why it failed, where the CLI says.
    #[serde(default)]
    pub error: Option<String>,
}
