//! Functions of this process that are called during a request.

pub(crate) mod hook;
pub(crate) mod permission;
pub(crate) mod permission_update;
pub(crate) mod question;
pub(crate) mod restriction;

use futures_core::future::BoxFuture;
use serde_json::Value;
use toolbridge_core::call::Answer;
use toolbridge_core::tool::RawJson;

use crate::callbacks::hook::{Hook, HookCall, HookEvent, HookOutput};
use crate::callbacks::permission::{Permission, PermissionRequest};
use crate::callbacks::question::AskRequest;
use crate::opaque::Opaque;
use crate::{ClaudeCodeModelBuilder, ConversationBuilder, Request};

/// Decides whether a tool may be used.
pub(crate) type CanUseTool =
    Opaque<dyn Fn(PermissionRequest) -> BoxFuture<'static, Permission> + Send + Sync>;

/// Answers questions to the user.
pub(crate) type OnAsk = Opaque<dyn Fn(AskRequest) -> BoxFuture<'static, Answer<Value>> + Send + Sync>;

/// Is called with every message of the CLI.
pub(crate) type OnMessage = Opaque<dyn Fn(&RawJson) + Send + Sync>;

/// Is called with every line of the CLI's stderr.
pub(crate) type OnStderr = Opaque<dyn Fn(&str) + Send + Sync>;

/// The functions of a model or a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Callbacks {
    pub(crate) can_use_tool: Option<CanUseTool>,
    pub(crate) on_ask: Option<OnAsk>,
    pub(crate) on_message: Option<OnMessage>,
    pub(crate) on_stderr: Option<OnStderr>,
    pub(crate) hooks: Vec<Hook>,
}

impl Callbacks {
    /// These functions; missing ones are taken from `base`, and the hooks of both are called.
    pub(crate) fn or(&self, base: &Self) -> Self {
        let (own, base) = (self.clone(), base.clone());
        Self {
            can_use_tool: own.can_use_tool.or(base.can_use_tool),
            on_ask: own.on_ask.or(base.on_ask),
            on_message: own.on_message.or(base.on_message),
            on_stderr: own.on_stderr.or(base.on_stderr),
            hooks: base.hooks.into_iter().chain(own.hooks).collect(),
        }
    }
}

macro_rules! setters {
    ($($owner:ty)*) => {
        $(impl $owner {
            /// Sets the function that decides about tools that no rule allows or denies. Without it the CLI
            /// denies them. A request's function replaces that of its model.
            ///
            /// ```
            /// # mod toolbridge { pub use toolbridge_claude::{self as model, ClaudeCodeModel, Request}; }
            /// use toolbridge::ClaudeCodeModel;
            /// use toolbridge::model::Permission;
            ///
            /// let model = ClaudeCodeModel::builder()
            ///     .can_use_tool(async |request| match request.tool_name.as_str() {
            ///         "Bash" => Permission::deny("there is no shell here"),
            ///         _ => Permission::Allow,
            ///     })
            ///     .build()?;
            /// # Ok::<(), toolbridge_claude::ClaudeCodeError>(())
            /// ```
            pub fn can_use_tool<F, D>(mut self, decide: F) -> Self
            where
                F: Fn(PermissionRequest) -> D + Send + Sync + 'static,
                D: Future<Output = Permission> + Send + 'static,
            {
                self.own_callbacks().can_use_tool = Some(Opaque::function(decide));
                self
            }

            /// Sets the function that answers questions of tools
            /// ([`CallContext::ask`](toolbridge_core::CallContext::ask)) and of other MCP servers in the run.
            /// Without it, tools cannot ask, and questions of other servers are cancelled. A request's
            /// function replaces that of its model.
            ///
            /// The answer is the requested value, or an object with a member for each field. If the function
            /// panics, the question is cancelled. The time-outs of the tool and of the request are paused
            /// during a question, the latter unless `timeout_counts_tools` is set.
            ///
            /// ```
            /// use serde_json::json;
            /// # mod toolbridge { pub use toolbridge_claude::ClaudeCodeModel; pub use toolbridge_core::call; }
            /// use toolbridge::ClaudeCodeModel;
            /// use toolbridge::call::Answer;
            ///
            /// let model = ClaudeCodeModel::builder()
            ///     .on_ask(async |question| match question.message.as_str() {
            ///         "Which colour?" => Answer::Accepted(json!("red")),
            ///         _ => Answer::Declined,
            ///     })
            ///     .build()?;
            /// # Ok::<(), toolbridge_claude::ClaudeCodeError>(())
            /// ```
            pub fn on_ask<F, A>(mut self, ask: F) -> Self
            where
                F: Fn(AskRequest) -> A + Send + Sync + 'static,
                A: Future<Output = Answer<Value>> + Send + 'static,
            {
                self.own_callbacks().on_ask = Some(Opaque::function(ask));
                self
            }

            /// Adds a function that is called when `event` happens in the CLI. `matcher` selects the tools,
            /// such as `Bash|Write`; `*` matches all. Hooks for the same event run concurrently, and a single
            /// denial is enough to deny. Parameter restrictions take precedence over all hooks. The hooks of
            /// a request are called in addition to those of its model.
            ///
            /// If a hook panics, the tool, prompt or permission that it was called for is denied. The same
            /// happens when the CLI stops waiting for a hook, if the CLI's version supports that.
            ///
            /// ```
            /// # mod toolbridge { pub use toolbridge_claude::{self as model, ClaudeCodeModel, Request}; }
            /// use toolbridge::ClaudeCodeModel;
            /// use toolbridge::model::{HookEvent, HookOutput};
            ///
            /// let model = ClaudeCodeModel::builder()
            ///     .builtin_tools(["Bash"])
            ///     .hook(HookEvent::PreToolUse, "Bash", async |call| match call.tool_input()["command"].as_str() {
            ///         Some("git status") => HookOutput::allow(),
            ///         _ => HookOutput::deny("only `git status`"),
            ///     })
            ///     .build()?;
            /// # Ok::<(), toolbridge_claude::ClaudeCodeError>(())
            /// ```
            pub fn hook<F, O>(mut self, event: HookEvent, matcher: impl Into<String>, call: F) -> Self
            where
                F: Fn(HookCall) -> O + Send + Sync + 'static,
                O: Future<Output = HookOutput> + Send + 'static,
            {
                self.own_callbacks().hooks.push(Hook::new(event, matcher.into(), call));
                self
            }

            /// Sets a function that is called with every message of the CLI, unchanged. It must not block. A
            /// request's function replaces that of its model.
            pub fn on_message(mut self, call: impl Fn(&RawJson) + Send + Sync + 'static) -> Self {
                self.own_callbacks().on_message = Some(Opaque(std::sync::Arc::new(call)));
                self
            }

            /// Sets a function that is called with every line the CLI writes to its stderr. It must not
            /// block. A request's function replaces that of its model.
            pub fn on_stderr(mut self, call: impl Fn(&str) + Send + Sync + 'static) -> Self {
                self.own_callbacks().on_stderr = Some(Opaque(std::sync::Arc::new(call)));
                self
            }
        })*
    };
}

setters!(ClaudeCodeModelBuilder Request ConversationBuilder);
