//! Options of a model, set before its first request.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use toolbridge_core::tool::ServerInfo;

use crate::callbacks::Callbacks;
use crate::callbacks::restriction::Restrictions;
use crate::model::{ClaudeCodeModel, Inner};
use crate::permit::Permits;
use crate::settings::Settings;
use crate::{ClaudeCodeError, Transport};

/// Options that apply to all requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub(crate) settings: Settings,
    pub(crate) cli: Option<PathBuf>,
    pub(crate) bridge: Option<PathBuf>,
    pub(crate) guard: Option<PathBuf>,
    pub(crate) session_dir: Option<PathBuf>,
    pub(crate) trace: Option<PathBuf>,
    pub(crate) info: Option<ServerInfo>,
    pub(crate) clears_env: bool,
    /// The transport that `Auto` selects.
    pub(crate) transport: Transport,
    pub(crate) restrictions: Restrictions,
    pub(crate) callbacks: Callbacks,
}

/// Builds a [`ClaudeCodeModel`].
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

    pub(crate) fn own_callbacks(&mut self) -> &mut Callbacks {
        &mut self.options.callbacks
    }

    /// Overrides the settings made so far with every setting that is set in `settings`.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.options.settings = settings.or(&self.options.settings);
        self
    }

    /// Sets the path of the CLI's executable. The default is the one that [`find_cli`](crate::find_cli)
    /// finds.
    pub fn cli(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.cli = Some(path.into());
        self
    }

    /// Sets the executable that the CLI starts as the bridge; see
    /// [`SessionBuilder::bridge`](toolbridge_core::ipc::SessionBuilder::bridge).
    pub fn bridge(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.bridge = Some(path.into());
        self
    }

    /// Sets the executable that runs as the CLI's guardian: `toolbridge-bridge`, `toolbridge`, or any
    /// program that calls `toolbridge::run_bridge_if_asked`. The default is this program if it calls that
    /// function, otherwise one of the two executables next to this program or on the PATH.
    ///
    /// The guardian ensures that neither the CLI nor any process it has started outlives this process.
    /// Without a guardian, the CLI still ends with this process, but commands it has started may keep
    /// running.
    pub fn guard(mut self, path: impl Into<PathBuf>) -> Self {
        self.options.guard = Some(path.into());
        self
    }

    /// Sets how the tool server introduces itself: its name, its version, and instructions for the model.
    pub fn info(mut self, info: ServerInfo) -> Self {
        self.options.info = Some(info);
        self
    }

    /// Puts session files into this directory instead of the temporary directory.
    pub fn session_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.options.session_dir = Some(dir.into());
        self
    }

    /// Appends one line of JSON per tool call to this file, from this process and from the bridge; payloads
    /// are never written. The default is the file named by `TOOLBRIDGE_TRACE`, if that is set.
    pub fn trace(mut self, file: impl Into<PathBuf>) -> Self {
        self.options.trace = Some(file.into());
        self
    }

    /// Sets whether the CLI inherits this process's environment (the default) or gets only the variables
    /// set with [`env`](Self::env).
    pub fn inherit_env(mut self, inherit: bool) -> Self {
        self.options.clears_env = !inherit;
        self
    }

    /// Sets the transport of tool calls for requests with [`Transport::Auto`], which is also the default of
    /// a request.
    pub fn transport(mut self, transport: Transport) -> Self {
        self.options.transport = transport;
        self
    }

    /// Limits how many requests run at a time, each with its own CLI process. Further requests wait in order,
    /// and their time limit starts when they leave the queue. Dropping or interrupting a waiting request ends
    /// it. CLIs of [`keep_warm`](ClaudeCodeModel::keep_warm) count too, open conversations do not.
    ///
    /// The default is twice the number of cores: more at once take longer in total. `usize::MAX` means no limit.
    ///
    /// A request that a tool, a hook or another callback of a request makes neither waits nor counts: the
    /// request that has called it may be the one it would wait for. This applies to the function's own task,
    /// not to tasks that it spawns: a request of those waits. If all running requests wait for functions of this
    /// process for as long as the time limit of a waiting request, without a break, that one ends with an error
    /// ([`ExecutionKind::Blocked`](crate::ExecutionKind::Blocked)): one of the functions may be waiting for it.
    pub fn max_concurrent_requests(mut self, most: usize) -> Self {
        self.max_concurrent_requests = Some(most);
        self
    }

    /// Restricts parameters of tools: the tool, the parameter, and a JSON Schema that its value must match.
    /// A call that omits a restricted parameter is denied too. Several restrictions of one parameter must
    /// all match. They apply to every call, even if a rule allows it.
    ///
    /// For the tools of this process they are checked here, right before the call. For built-in tools the
    /// CLI is made to ask first; hooks from settings files and shell lines of skills are disabled because
    /// they could bypass the check. A restriction of `Bash` applies to every built-in tool that takes a
    /// `command`. Restricting a tool that the request does not have is an error.
    ///
    /// ```
    /// use serde_json::json;
    /// # mod toolbridge { pub use toolbridge_claude::{self as model, ClaudeCodeModel, Request}; }
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

    /// Checks the settings and builds the model.
    ///
    /// # Errors
    ///
    /// When a setting is invalid. A missing CLI is only reported by the first request.
    pub fn build(mut self) -> Result<ClaudeCodeModel, ClaudeCodeError> {
        self.options.settings.check()?;
        self.options.restrictions = Restrictions::new(self.restrictions)?;
        if self.max_concurrent_requests == Some(0) {
            return Err(ClaudeCodeError::invalid("`max_concurrent_requests` is 0; it must be at least 1"));
        }
        let permits = self.max_concurrent_requests.map_or_else(Permits::default, Permits::new);
        Ok(ClaudeCodeModel(Arc::new(Inner { options: self.options, permits, ..Inner::default() })))
    }
}
