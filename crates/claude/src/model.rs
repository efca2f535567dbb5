//! The model: the CLI, with tools of this process in it.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use serde_json::{Value, json};
use toolbridge_core::trace::{Process as Side, Tracer, trace_path};
use toolbridge_core::{CancellationToken, RawJson, Selection, ToolSource, check_server_name};
use toolbridge_ipc::{IpcError, Session};

use crate::command::{Extras, arguments};
use crate::find::find_cli;
use crate::permission::{Decider, Permission, PermissionRequest};
use crate::process::{self, Process};
use crate::request::Request;
use crate::restriction::{Restricted, Restrictions};
use crate::run::{Held, Offer, Run};
use crate::settings::{DEFAULT_TIMEOUT, HOOKLESS, Settings, setters};
use crate::stream::{ResponseStream, Signals};
use crate::{ClaudeCodeError, ModelResponse, ResponseWithMetadata, Transport};

/// The name under which tools are offered when none is given.
pub const DEFAULT_SERVER_NAME: &str = "tools";

/// A model that runs in the Claude Code CLI. Cloning is cheap; clones are the same model.
///
/// Requests are independent of each other: each has a CLI process and, for tools, a session of its own.
///
/// ```no_run
/// use schemars::JsonSchema;
/// use serde::Deserialize;
/// use toolbridge_claude::{ClaudeCodeModel, Transport};
/// use toolbridge_core::Toolset;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Add {
///     a: f64,
///     b: f64,
/// }
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let tools = Toolset::builder().tool("add", "Adds", async |args: Add| args.a + args.b).build()?;
/// let model = ClaudeCodeModel::new();
/// model.set_agent_toolsets(tools, "tools", Transport::Auto)?;
/// let answer = model.request("What is 40 + 2?").await?;
/// println!("{}", answer.text());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Default)]
pub struct ClaudeCodeModel(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    options: Options,
    toolset: RwLock<Option<Registered>>,
    running: Running,
}

/// What is the same for all requests.
#[derive(Debug, Clone)]
struct Options {
    settings: Settings,
    cli: Option<PathBuf>,
    bridge: Option<PathBuf>,
    guard: Option<PathBuf>,
    session_dir: Option<PathBuf>,
    trace: Option<PathBuf>,
    inherit_env: bool,
    strict_mcp_config: bool,
    allow_own_tools: Option<bool>,
    restrictions: Restrictions,
    decider: Option<Decider>,
    on_message: Option<OnMessage>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            cli: None,
            bridge: None,
            guard: None,
            session_dir: None,
            trace: None,
            inherit_env: true,
            strict_mcp_config: true,
            allow_own_tools: None,
            restrictions: Restrictions::default(),
            decider: None,
            on_message: None,
        }
    }
}

#[derive(Clone)]
struct Registered {
    source: Arc<dyn ToolSource>,
    server: String,
    transport: Transport,
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tools as `{}` over {}", self.source.tools().len(), self.server, self.transport)
    }
}

/// What the user wants to be called for every message of the CLI.
#[derive(Clone)]
pub(crate) struct OnMessage(Arc<dyn Fn(&RawJson) + Send + Sync>);

impl OnMessage {
    pub(crate) fn call(&self, message: &RawJson) {
        (self.0)(message);
    }
}

impl fmt::Debug for OnMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnMessage")
    }
}

/// The requests under way, so that they can be interrupted.
#[derive(Debug, Clone, Default)]
struct Running {
    last: Arc<AtomicU64>,
    tokens: Arc<Mutex<HashMap<u64, CancellationToken>>>,
}

/// A request's place among those under way.
struct Place {
    running: Running,
    key: u64,
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, CancellationToken>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, token: CancellationToken) -> Place {
        let key = self.last.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(key, token);
        Place { running: self.clone(), key }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.running.lock().remove(&self.key);
    }
}

/// Makes a [`ClaudeCodeModel`].
#[derive(Debug, Default)]
#[must_use]
pub struct ClaudeCodeModelBuilder {
    options: Options,
    restrictions: Vec<(String, String, Value)>,
}

setters!(ClaudeCodeModelBuilder, options.settings);

impl ClaudeCodeModelBuilder {
    /// Names the CLI's executable, instead of the one that [`find_cli`] finds.
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
        self.options.inherit_env = inherit;
        self
    }

    /// Whether there are only the MCP servers given here, which is the default, or those of the user's
    /// own configuration too.
    pub fn strict_mcp_config(mut self, strict: bool) -> Self {
        self.options.strict_mcp_config = strict;
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
        self.options.on_message = Some(OnMessage(Arc::new(call)));
        self
    }

    /// Decides about tools that no rule allows and no rule forbids. Without it the CLI denies them.
    ///
    /// ```
    /// use toolbridge_claude::{ClaudeCodeModel, Permission};
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
        self.options.decider = Some(Decider::new(decide));
        self
    }

    /// Restricts parameters of tools: the tool, the parameter, and a JSON Schema that its value must fit.
    /// A call that leaves a restricted parameter out is denied as well, and several restrictions of one
    /// parameter hold together. They hold for every call, whatever rule allows it.
    ///
    /// For the tools of this process they are checked here, right before the call. For the CLI's own tools the
    /// CLI is made to ask first; a hook in the user's own settings may still change the arguments after that
    /// ([`setting_sources`](Self::setting_sources) leaves such settings out).
    ///
    /// ```
    /// use serde_json::json;
    /// use toolbridge_claude::ClaudeCodeModel;
    ///
    /// let model = ClaudeCodeModel::builder()
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
        Ok(ClaudeCodeModel(Arc::new(Inner { options: self.options, ..Inner::default() })))
    }
}

impl ClaudeCodeModel {
    /// A model with everything as it is by default.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a model of which more is to be said.
    pub fn builder() -> ClaudeCodeModelBuilder {
        ClaudeCodeModelBuilder::default()
    }

    /// Offers tools to the model, in all requests from now on. They replace those of a former call;
    /// requests that are under way keep theirs.
    ///
    /// # Errors
    ///
    /// When the CLI would not take a server or tool of that name.
    pub fn set_agent_toolsets(
        &self,
        tools: impl ToolSource,
        server_name: &str,
        transport: Transport,
    ) -> Result<(), ClaudeCodeError> {
        check_server_name(server_name, tools.tools())?;
        let registered = Registered { source: Arc::new(tools), server: server_name.into(), transport };
        *self.0.toolset.write().unwrap_or_else(PoisonError::into_inner) = Some(registered);
        Ok(())
    }

    /// Asks the model, and waits for its answer.
    ///
    /// Dropping the future ends the request, with everything that belongs to it.
    ///
    /// # Errors
    ///
    /// Whatever can fail; see [`ClaudeCodeError`].
    pub async fn request(&self, request: impl Into<Request>) -> Result<ModelResponse, ClaudeCodeError> {
        Ok(self.request_with_metadata(request).await?.response)
    }

    /// Asks the model, and returns the answer with its cost, turns, session id and durations.
    ///
    /// # Errors
    ///
    /// Whatever can fail; see [`ClaudeCodeError`].
    pub async fn request_with_metadata(
        &self,
        request: impl Into<Request>,
    ) -> Result<ResponseWithMetadata, ClaudeCodeError> {
        self.start(request.into(), false).await?.finish().await
    }

    /// Asks the model, and returns what happens as it happens. Needs a tokio runtime, and it must go on
    /// running.
    ///
    /// # Errors
    ///
    /// When the request cannot be started. What goes wrong later is the stream's last item.
    pub async fn request_stream(
        &self,
        request: impl Into<Request>,
    ) -> Result<ResponseStream, ClaudeCodeError> {
        self.start(request.into(), true).await
    }

    /// Interrupts all requests that are under way, as a user would, and returns how many. They end with
    /// [`CliInterrupted`](ClaudeCodeError::CliInterrupted).
    ///
    /// [`ResponseStream::interrupt`] is for one of them.
    #[must_use]
    pub fn interrupt(&self) -> usize {
        let running = self.0.running.lock();
        running.values().for_each(CancellationToken::cancel);
        running.len()
    }

    async fn start(&self, request: Request, partial: bool) -> Result<ResponseStream, ClaudeCodeError> {
        let options = &self.0.options;
        request.check()?;
        let settings = request.settings.clone().or(&options.settings);
        settings.check()?;
        let offered = self.offered(&request)?;
        let has_restrictions = !options.restrictions.is_empty();
        if has_restrictions && settings.switches_hooks_off() {
            return Err(ClaudeCodeError::invalid(format!(
                "`--bare` and `{HOOKLESS}` switch off what keeps the restrictions of tool parameters"
            )));
        }
        let cli = find_cli(options.cli.as_deref())?;

        let (offer, entry) = match &offered {
            None => (None, None),
            Some(offered) => {
                if settings.mcp_servers.contains_key(&offered.server) {
                    return Err(ClaudeCodeError::invalid(format!(
                        "both the toolset and an MCP server are called `{}`",
                        offered.server
                    )));
                }
                let (offer, entry) = self.offer(offered).await?;
                (Some(offer), Some((offered.server.as_str(), entry)))
            }
        };
        let extras = Extras {
            server: entry,
            allow_own: options.allow_own_tools.unwrap_or(options.decider.is_none()),
            strict: options.strict_mcp_config,
            asks: options.decider.is_some(),
            partial,
            output_schema: request.output_schema.as_ref(),
        };
        let arguments = arguments(&settings, extras);
        if arguments.iter().any(|argument| argument.contains('\0')) {
            return Err(ClaudeCodeError::invalid(
                "a setting holds a NUL character, which no command line can",
            ));
        }
        let mut command = process::command(&cli, options.guard.as_deref());
        if !options.inherit_env {
            command.env_clear();
        }
        if has_restrictions {
            command.env_remove(HOOKLESS);
        }
        // A CLI inside a CLI's tool would take itself for a part of that one.
        command.env_remove("CLAUDECODE").args(arguments).envs(&settings.env);
        if let Some(directory) = &settings.working_directory {
            command.current_dir(directory);
        }
        let (process, pipes) = Process::start(command)?;
        let signals = Signals::default();
        let place = self.0.running.add(signals.interrupt.clone());
        let held = Held::new(&process, offer.as_ref());
        let run = Run {
            process,
            pipes,
            offer,
            prompt: request.to_line(),
            wants_output: request.output_schema.is_some(),
            limit: settings.timeout.unwrap_or(DEFAULT_TIMEOUT),
            signals: signals.clone(),
            restrictions: options.restrictions.clone(),
            decider: options.decider.clone(),
            on_message: options.on_message.clone(),
        };
        Ok(ResponseStream::start(
            signals,
            move || held.release(),
            |events| async move {
                let _place = place;
                run.drive(events).await;
            },
        ))
    }

    /// The tools of a request: those registered, as far as it wants them.
    fn offered(&self, request: &Request) -> Result<Option<Registered>, ClaudeCodeError> {
        let registered = self.0.toolset.read().unwrap_or_else(PoisonError::into_inner).clone();
        match (registered, &request.tools) {
            (None, Some(_)) => Err(ClaudeCodeError::ToolsetNotRegistered),
            (Some(registered), Some(names)) => {
                let source = Arc::new(Selection::new(registered.source, names)?);
                Ok(Some(self.restricted(Registered { source, ..registered })))
            }
            (registered, None) => Ok(registered.map(|registered| self.restricted(registered))),
        }
    }

    fn restricted(&self, registered: Registered) -> Registered {
        let restrictions = self.0.options.restrictions.clone();
        if restrictions.is_empty() {
            return registered;
        }
        let (source, server) = (registered.source, registered.server.clone());
        Registered { source: Arc::new(Restricted { source, server, restrictions }), ..registered }
    }

    /// Makes the tools reachable for the CLI; and what to tell it.
    async fn offer(&self, offered: &Registered) -> Result<(Offer, Value), ClaudeCodeError> {
        let server = offered.server.clone();
        let failed = |error| ClaudeCodeError::session(&server, error);
        if offered.transport.resolved() == Transport::Sdk {
            let entry = json!({ "type": "sdk", "name": server });
            let file = trace_path(self.0.options.trace.as_deref());
            let tracer =
                Tracer::open(Side::Parent, file.as_deref()).map_err(IpcError::from).map_err(failed)?;
            return Ok((Offer::Sdk { server, source: Arc::clone(&offered.source), tracer }, entry));
        }
        let mut builder = Session::builder(Arc::clone(&offered.source));
        if let Some(dir) = &self.0.options.session_dir {
            builder = builder.dir(dir);
        }
        if let Some(bridge) = &self.0.options.bridge {
            builder = builder.bridge(bridge);
        }
        if let Some(file) = &self.0.options.trace {
            builder = builder.trace(file);
        }
        let session = builder.start().await.map_err(failed)?;
        let entry = session.mcp_server().map_err(failed)?;
        let entry = serde_json::to_value(entry).map_err(|error| {
            ClaudeCodeError::invalid(format!("the bridge's path cannot be written as JSON: {error}"))
        })?;
        Ok((Offer::Stdio { server, session: Arc::new(session) }, entry))
    }
}
