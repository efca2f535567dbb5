//! What happens during a request.

use serde::{Deserialize, Serialize};
use toolbridge_core::{Progress, RawJson};

use crate::part::Part;
use crate::response::ResponseWithMetadata;

/// Something that happened during a request.
///
/// As JSON it is an object with one member, which says what it is: `{"text_delta":"Let me "}`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// The CLI has begun.
    Started(Started),
    /// The next piece of the model's text.
    TextDelta(String),
    /// The next piece of what the model thinks.
    ThinkingDelta(String),
    /// The next piece of the arguments of a tool call that the model is making: JSON text, of which the pieces of one call make the whole.
    ToolCallDelta {
        /// The model's id for the call.
        id: String,
        /// The tool's name as the model knows it.
        name: String,
        /// The piece.
        json: String,
    },
    /// A whole part: text, a thought, a tool call that starts, or a tool result, with which its call is
    /// finished.
    Part(Part),
    /// A tool of this process says how far it is, with
    /// [`CallContext::progress`](toolbridge_core::CallContext::progress). It may come before the part with its call.
    ToolProgress {
        /// The model's id for the call, where the CLI gave one.
        id: Option<String>,
        /// The tool's name as the model knows it, such as `mcp__tools__add`.
        name: String,
        /// How far it is.
        progress: Progress,
    },
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
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Started {
    /// The conversation's id.
    pub session_id: Option<String>,
    /// The model that is asked.
    pub model: Option<String>,
    /// The tools that the model may use.
    #[serde(default)]
    pub tools: Vec<String>,
    /// The MCP servers, and whether they are connected.
    #[serde(default)]
    pub mcp_servers: Vec<McpServerStatus>,
}

/// How an MCP server is doing.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct McpServerStatus {
    /// Its name.
    pub name: String,
    /// `connected`, `failed`, `pending`, or another word of the CLI's.
    pub status: String,
    /// Why it failed, where the CLI says.
    pub error: Option<String>,
}
