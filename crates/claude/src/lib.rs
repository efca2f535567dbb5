//! The Claude Code CLI as a model that can call tools of this process.
//!
//! [`ClaudeCodeModel`] starts the CLI for each request, offers it the tools of a
//! [`ToolSource`](toolbridge_core::ToolSource), and reads its answer: complete
//! ([`ClaudeCodeModel::request`]), with its cost ([`ClaudeCodeModel::request_with_metadata`]), or as a
//! stream ([`ClaudeCodeModel::request_stream`]).

mod builder;
mod callbacks;
mod cli;
mod conversation;
mod driver;
mod error;
mod launch;
mod model;
mod names;
mod opaque;
mod part;
mod permit;
mod process;
mod prompt;
mod protocol;
mod record;
mod request;
mod response;
mod result_limit;
mod run;
mod sandbox;
mod settings;
mod start;
mod stream;
mod subagent;
mod tools;
mod transport;
mod warm;

pub use builder::ClaudeCodeModelBuilder;
pub use callbacks::hook::{HookCall, HookEvent, HookOutput};
pub use callbacks::permission::{Permission, PermissionRequest};
pub use callbacks::permission_update::{
    PermissionDestination, PermissionRule, PermissionUpdate, RuleBehavior,
};
pub use callbacks::question::AskRequest;
pub use conversation::{Conversation, ConversationBuilder};
pub use error::{ClaudeCodeError, ExecutionKind};
pub use model::{ClaudeCodeModel, DEFAULT_SERVER_NAME};
pub use names::BUILTIN_TOOLS;
pub use part::Part;
pub use permit::{awaited, is_awaited};
pub use process::locate::find_cli;
pub use process::sweep::end_all_with_home;
pub use process::version::{cli_login, cli_version, takes_plain_prompts};
pub use prompt::{Base64Source, Input, Message};
pub use request::Request;
pub use response::{Event, McpServerStatus, Metadata, ModelResponse, ResponseWithMetadata, Started, Usage};
pub use sandbox::{Sandbox, SandboxNetwork};
#[doc(hidden)]
pub use settings::SETTINGS;
pub use settings::{DEFAULT_TIMEOUT, Effort, PermissionMode, Settings, Skills, Thinking, ThinkingDisplay};
pub use stream::ResponseStream;
pub use subagent::Subagent;
pub use transport::Transport;
