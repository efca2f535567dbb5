//! What can be said about a model before it is asked.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Semaphore;
use toolbridge_core::{Answer, RawJson, ServerInfo};

use crate::hook::{Hook, HookCall, HookEvent, HookOutput};
use crate::model::{ClaudeCodeModel, Inner};
use crate::opaque::Opaque;
use crate::permission::{Decider, Permission, PermissionRequest, decider};
use crate::question::{AskRequest, OnAsk, on_ask};
use crate::request::OnMessage;
use crate::restriction::Restrictions;
use crate::settings::Settings;
use crate::stderr::OnStderr;
use crate::{ClaudeCodeError, Transport};

/// What is the same for all requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub(crate) settings: Settings,
    pub(crate) cli: Option<PathBuf>,
    pub(crate) bridge: Option<PathBuf>,
    pub(crate) guard: Option<PathBuf>,
    pub(crate) session_dir: Option<PathBuf>,
    pub(crate) trace: Option<PathBuf>,
    pub(crate) server: Option<ServerInfo>,
    pub(crate) clears_env: bool,
    /// What `Auto` stands for.
    pub(crate) transport: Transport,
    pub(crate) strict_mcp_config: Option<bool>,
    pub(crate) allow_own_tools: Option<bool>,
    pub(crate) restrictions: Restrictions,
    pub(crate) decider: Option<Decider>,
    pub(crate) on_ask: Option<OnAsk>,
    pub(crate) on_message: Option<OnMessage>,
    pub(crate) on_stderr: Option<OnStderr>,
    pub(crate) hooks: Vec<Hook>,
}

/// Makes a [`ClaudeCodeModel`].
#[derive(Debug, Default)]
#[must_use]
pub struct ClaudeCodeModelBuilder {
    options: Options,
    restrictions: Vec<(String, String, Value)>,
    max_concurrent_requests: Option<usize>,
}

impl ClaudeCodeModelBuilder {
    pub(crate) fn own_settings(&mut self) -> &mut Settings {
        &mut self.options.settings
    }

    /// Overrides the settings so far with those that these settings have.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.options.settings = settings.or(&self.options.settings);
        self
    }

    /// Names the CLI's executable, instead of the one that [`find_cli`](crate::find_cli) finds.
    pub fn cli(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.cli = Some(path.into());
        self
    }

    /// Names the executable that the CLI starts as the bridge; see
    /// [`SessionBuilder::bridge`](toolbridge_ipc::SessionBuilder::bridge).
    pub fn bridge(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.bridge = Some(path.into());
        self
    }

    /// Names the executable that is the CLI's guardian: `toolbridge-bridge`, `toolbridge`, or any program that calls
    /// `toolbridge::run_bridge_if_asked`. Without this it is this program, if it calls that, else one of the two beside
    /// this program or on the PATH.
    ///
    /// The guardian sees to it that neither the CLI nor anything it has started outlives this process. Without any,
    /// the CLI still ends with this process, but commands it has started may go on.
    pub fn guard(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.guard = Some(path.into());
        self
    }

    /// How the server of the tools introduces itself: what it is called, its version, and what a model should know before it
    /// uses the tools.
    pub fn server(mut self, info: ServerInfo) -> Self {
        self.options.server = Some(info);
        self
    }

    /// Puts the files of sessions into that directory, instead of the temporary one.
    pub fn session_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.options.session_dir = Some(dir.into());
        self
    }

    /// Appends to that file a line of JSON for every tool call, here and in the bridge; never a payload. Without
    /// this, the file that `TOOLBRIDGE_TRACE` names, if it does.
    pub fn trace(mut self, file: impl Into<PathBuf>) -> Self {
        self.options.trace = Some(file.into());
        self
    }

    /// Whether the CLI gets this process's environment, which is the default, or only what
    /// [`env`](Self::env) names.
    pub fn inherit_env(mut self, inherit: bool) -> Self {
        self.options.clears_env = !inherit;
        self
    }

    /// How tool calls travel where a request says [`Transport::Auto`], as one does that says nothing.
    pub fn transport(mut self, transport: Transport) -> Self {
        self.options.transport = transport;
        self
    }

    /// Whether there are only the MCP servers given here, which is the default, or those of the user's
    /// own configuration and the project's too.
    pub fn strict_mcp_config(mut self, strict: bool) -> Self {
        self.options.strict_mcp_config = Some(strict);
        self
    }

    /// Limits how many requests run at a time, each with a CLI of its own; there is no limit by default. The others
    /// wait for their turn, in order; their time limit begins with it. Dropping or interrupting one that waits ends it.
    pub fn max_concurrent_requests(mut self, most: usize) -> Self {
        self.max_concurrent_requests = Some(most);
        self
    }

    /// Whether the tools of [`set_agent_toolsets`](ClaudeCodeModel::set_agent_toolsets) run without anybody
    /// being asked. They do, unless there is a [`can_use_tool`](Self::can_use_tool) to ask.
    pub fn allow_own_tools(mut self, allow: bool) -> Self {
        self.options.allow_own_tools = Some(allow);
        self
    }

    /// Is called with every message of the CLI, as it wrote it. It must not block.
    pub fn on_message(mut self, call: impl Fn(&RawJson) + Send + Sync + 'static) -> Self {
        self.options.on_message = Some(Opaque(Arc::new(call)));
        self
    }

    /// Is called with every line that the CLI writes to its stderr. It must not block.
    pub fn on_stderr(mut self, call: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.options.on_stderr = Some(Opaque(Arc::new(call)));
        self
    }

    /// Has a function called whenever something happens in the CLI. `matcher` says for which tools, such as `Bash|Write`; `*` is all.
    /// Hooks for one event run at the same time, and one that forbids wins. Restrictions of parameters hold over all of them.
    ///
    /// A hook that panics has the tool, the prompt or the permission that it was called for denied; so has one that the CLI does not wait for any
    /// longer, with a CLI that can be told so.
    ///
    /// ```
    /// # use toolbridge_claude as toolbridge;
    /// use toolbridge::{ClaudeCodeModel, HookEvent, HookOutput};
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
        self.options.hooks.push(Hook::new(event, matcher.into(), call));
        self
    }

    /// Decides about tools that no rule allows and no rule forbids. Without it the CLI denies them.
    ///
    /// ```
    /// # use toolbridge_claude as toolbridge;
    /// use toolbridge::{ClaudeCodeModel, Permission};
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
        self.options.decider = Some(decider(decide));
        self
    }

    /// Answers what tools ask with [`CallContext::ask`](toolbridge_core::CallContext::ask), and what other MCP servers of the run ask.
    /// Without it there is nobody to ask, and a server of others is told that its question was cancelled.
    ///
    /// The answer is the value that was asked for, or an object with a member for each field. A function that panics cancels the question.
    /// The time limit of the request goes on; that of the tool does not.
    ///
    /// ```
    /// use serde_json::json;
    /// # mod toolbridge { pub use toolbridge_claude::*; pub use toolbridge_core::Answer; }
    /// use toolbridge::{Answer, ClaudeCodeModel};
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
        self.options.on_ask = Some(on_ask(ask));
        self
    }

    /// Restricts parameters of tools: the tool, the parameter, and a JSON Schema that its value must fit.
    /// A call that leaves a restricted parameter out is denied as well, and several restrictions of one
    /// parameter hold together. They hold for every call, whatever rule allows it.
    ///
    /// For the tools of this process they are checked here, right before the call. For the CLI's own tools the
    /// CLI is made to ask first, and hooks of settings files and shell lines of skills, which could get round that,
    /// are switched off. A restriction of `Bash` holds for every other tool of the CLI that takes a `command`.
    /// A restriction of a tool that the request does not have is an error.
    ///
    /// ```
    /// use serde_json::json;
    /// # use toolbridge_claude as toolbridge;
    /// use toolbridge::ClaudeCodeModel;
    ///
    /// let model = ClaudeCodeModel::builder()
    ///     .builtin_tools(["Bash"])
    ///     .tool_parameter_restrictions([("Bash", "command", json!({ "pattern": "^git (log|status)$" }))])
    ///     .build()?;
    /// # Ok::<(), toolbridge_claude::ClaudeCodeError>(())
    /// ```
    pub fn tool_parameter_restrictions<T: Into<String>, P: Into<String>>(
        mut self,
        restrictions: impl IntoIterator<Item = (T, P, Value)>,
    ) -> Self {
        let rules = restrictions.into_iter();
        self.restrictions.extend(rules.map(|(tool, name, schema)| (tool.into(), name.into(), schema)));
        self
    }

    /// Checks the settings.
    ///
    /// # Errors
    ///
    /// When a setting makes no sense. Whether there is a CLI is seen with the first request.
    pub fn build(mut self) -> Result<ClaudeCodeModel, ClaudeCodeError> {
        self.options.settings.check()?;
        self.options.restrictions = Restrictions::new(self.restrictions)?;
        if self.max_concurrent_requests == Some(0) {
            return Err(ClaudeCodeError::invalid("`max_concurrent_requests` is 0; it must be at least 1"));
        }
        let permits = |most: usize| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        let permits = self.max_concurrent_requests.map(permits);
        Ok(ClaudeCodeModel(Arc::new(Inner { options: self.options, permits, ..Inner::default() })))
    }
}
