//! The Claude Code CLI as a model that can call tools of this process.
//!
//! [`ClaudeCodeModel`] starts the CLI for each request, offers it the tools of a
//! [`ToolSource`](toolbridge_core::ToolSource), and reads its answer: complete
//! ([`ClaudeCodeModel::request`]), with its cost ([`ClaudeCodeModel::request_with_metadata`]), or as a
//! stream ([`ClaudeCodeModel::request_stream`]).

mod builder;
mod callbacks;
mod cli;
mod control;
mod conversation;
mod diagnose;
mod driver;
mod error;
mod event;
mod history;
mod hook;
mod launch;
mod locate;
mod message;
mod model;
mod names;
mod offer;
mod opaque;
mod outcome;
mod output;
mod part;
mod permission;
mod permission_update;
mod process;
mod prompt;
mod question;
mod record;
mod request;
mod response;
mod restriction;
mod result_limit;
mod room;
mod sandbox;
mod sdk;
mod settings;
mod start;
mod stderr;
mod stream;
mod subagent;
mod sweep;
mod tools;
mod transport;
mod version;
mod waits;
mod warm;

pub use builder::ClaudeCodeModelBuilder;
pub use conversation::{Conversation, ConversationBuilder, Prompt};
pub use error::{ClaudeCodeError, ExecutionKind};
pub use event::{Event, McpServerStatus, Started};
pub use hook::{HookCall, HookEvent, HookOutput};
pub use locate::find_cli;
pub use model::{ClaudeCodeModel, DEFAULT_SERVER_NAME};
pub use names::BUILTIN_TOOLS;
pub use part::Part;
pub use permission::{Permission, PermissionRequest};
pub use permission_update::{PermissionDestination, PermissionRule, PermissionUpdate, RuleBehavior};
pub use prompt::{Base64Source, Input, Message};
pub use question::AskRequest;
pub use request::Request;
pub use response::{Metadata, ModelResponse, ResponseWithMetadata, Usage};
pub use sandbox::{Sandbox, SandboxNetwork};
#[doc(hidden)]
pub use settings::SETTINGS;
pub use settings::{DEFAULT_TIMEOUT, Effort, PermissionMode, Settings, Skills, Thinking, ThinkingDisplay};
pub use stream::ResponseStream;
pub use subagent::Subagent;
pub use sweep::end_all_with_home;
pub use transport::Transport;
pub use version::{cli_login, cli_version, takes_plain_prompts};
pub use waits::{awaited, is_awaited};
