//! The Claude Code CLI as a model, with tools of this process in it.
//!
//! [`ClaudeCodeModel`] starts the CLI for each request, offers it the tools of a
//! [`ToolSource`](toolbridge_core::ToolSource), and reads its answer: whole ([`ClaudeCodeModel::request`]),
//! with what it cost ([`ClaudeCodeModel::request_with_metadata`]), or as it comes
//! ([`ClaudeCodeModel::request_stream`]).

mod bridge;
mod command;
mod control;
mod error;
mod event;
mod find;
mod line;
mod model;
mod opening;
mod permission;
mod process;
mod request;
mod response;
mod restriction;
mod result_limit;
mod room;
mod run;
mod sdk;
mod settings;
mod stream;
mod tail;
mod talk;
mod transport;
mod version;

pub use error::{ClaudeCodeError, ExecutionKind};
pub use event::{Event, McpServerStatus, Started};
pub use find::find_cli;
pub use model::{ClaudeCodeModel, ClaudeCodeModelBuilder, DEFAULT_SERVER_NAME};
pub use permission::{Permission, PermissionRequest};
pub use request::{Base64Source, Input, Message, Request};
pub use response::{Metadata, ModelResponse, Part, ResponseWithMetadata, Usage};
pub use settings::{Conversation, DEFAULT_TIMEOUT, PermissionMode, Settings};
pub use stream::ResponseStream;
pub use transport::Transport;
pub use version::{cli_version, takes_plain_prompts};
