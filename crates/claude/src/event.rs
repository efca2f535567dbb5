//! Events of a request.

use serde::{Deserialize, Serialize};
use toolbridge_core::call::Progress;
use toolbridge_core::tool::RawJson;

use crate::part::Part;
use crate::response::ResponseWithMetadata;

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
