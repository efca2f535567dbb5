//! The model: the CLI, with tools of this process in it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use toolbridge_core::trace::{Process as Side, Tracer, trace_path};
use toolbridge_core::{
    CancellationToken, RawJson, Selection, Stateful, States, ToolSource, check_server_name,
};
use toolbridge_ipc::{IpcError, Session, session_dir};

use crate::command::{Extras, Launch};
use crate::find::find_cli;
use crate::opening::UNKNOWN_PATIENCE;
use crate::permission::{Decider, Permission, PermissionRequest};
use crate::process::{self, Process};
use crate::request::Request;
use crate::restriction::{Restricted, Restrictions, canonical, is_among, no_such_tool};
use crate::result_limit::ResultLimit;
use crate::room::Room;
use crate::run::{Held, Offer, Run};
use crate::settings::{DEFAULT_TIMEOUT, HOOKLESS, Settings, setters};
use crate::stream::{ResponseStream, Signals};
use crate::version::{Version, version_of};
use crate::{ClaudeCodeError, ModelResponse, ResponseWithMetadata, Transport};

/// The name under which tools are offered when none is given.
pub const DEFAULT_SERVER_NAME: &str = "tools";

/// A model that runs in the Claude Code CLI. Cloning is cheap; clones are the same model.
///
/// Requests are independent of each other: each has a CLI process and, for tools, a session of its own. The model
/// gets your tools and nothing else: none of the CLI's own, no settings, no files; see
/// [`claude_code`](Self::claude_code).
///
/// ```no_run
/// use schemars::JsonSchema;
/// use serde::Deserialize;
/// use toolbridge_claude::{ClaudeCodeModel, Request};
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
/// let answer = model.request(Request::new("What is 40 + 2?").tools(tools)).await?;
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
    /// Each running CLI has one, where their number is bounded.
    permits: Option<Arc<Semaphore>>,
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
    strict_mcp_config: Option<bool>,
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
            strict_mcp_config: None,
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

impl Registered {
    /// The tools' names as the CLI has them.
    fn full_names(&self) -> Vec<String> {
        self.source.tools().iter().map(|tool| format!("mcp__{}__{}", self.server, tool.name)).collect()
    }
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
    pub(crate) fn new(call: impl Fn(&RawJson) + Send + Sync + 'static) -> Self {
        Self(Arc::new(call))
    }

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

    /// Forgets a request; once more, nothing happens.
    fn remove(&self, key: u64) {
        self.lock().remove(&key);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.running.remove(self.key);
    }
}

/// Makes a [`ClaudeCodeModel`].
#[derive(Debug, Default)]
#[must_use]
pub struct ClaudeCodeModelBuilder {
    options: Options,
    restrictions: Vec<(String, String, Value)>,
    max_concurrent_requests: Option<usize>,
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
        self.options.on_message = Some(OnMessage::new(call));
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
    /// CLI is made to ask first, and hooks of settings files and shell lines of skills, which could get round that,
    /// are switched off. A restriction of `Bash` holds for every other tool of the CLI that takes a `command`.
    /// A restriction of a tool that the request does not have is an error.
    ///
    /// ```
    /// use serde_json::json;
    /// use toolbridge_claude::ClaudeCodeModel;
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
        let permits = match self.max_concurrent_requests {
            Some(0) => {
                return Err(ClaudeCodeError::invalid(
                    "`max_concurrent_requests` is 0; it must be at least 1",
                ));
            }
            most => most.map(|most| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)))),
        };
        Ok(ClaudeCodeModel(Arc::new(Inner { options: self.options, permits, ..Inner::default() })))
    }
}

impl ClaudeCodeModel {
    /// A model with everything as it is by default.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A model that is the whole of Claude Code, as `claude` is in a terminal: with its own tools and system prompt,
    /// the user's and the project's settings, memories, skills, hooks and MCP servers, and transcripts on disk.
    ///
    /// Prompts are plain text all the same: [`Settings::expand_prompts`] lets the CLI look into them.
    #[must_use]
    pub fn claude_code() -> Self {
        let settings = Settings::default().claude_code(true);
        Self(Arc::new(Inner { options: Options { settings, ..Options::default() }, ..Inner::default() }))
    }

    /// Starts a model of which more is to be said.
    pub fn builder() -> ClaudeCodeModelBuilder {
        ClaudeCodeModelBuilder::default()
    }

    /// Offers tools to the model, in all requests from now on that bring none of their own
    /// ([`Request::tools`]). They replace those of a former call; requests that are under way keep theirs.
    ///
    /// Clones are the same model: for many users with tools or state of their own, let requests bring them.
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
        check_server_name(server_name, &tools.tools())?;
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
        let strict = options.strict_mcp_config.unwrap_or(!settings.is_claude_code());
        let registered = self.registered(&request)?;
        let awaited = self.awaited(&settings, registered.as_ref(), strict)?;
        let cli = find_cli(options.cli.as_deref())?;

        let signals = Signals::default();
        let place = self.0.running.add(signals.interrupt.clone());
        let permit = self.permit(&signals.interrupt).await?;
        let version = version_of(&cli).await;
        let expand = settings.expand_prompts.unwrap_or(false);
        if !expand {
            request.check_plain(version)?;
        }
        let offered = self.offered(registered, &request, &settings, version)?;
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
        let room = Room::new(&options.session_dir.clone().unwrap_or_else(session_dir))?;
        let decider = request.decider.clone().or_else(|| options.decider.clone());
        let extras = Extras {
            version,
            room: &room,
            server: entry,
            allow_own: options.allow_own_tools.unwrap_or(decider.is_none()),
            strict,
            asks: decider.is_some(),
            restricted: !options.restrictions.is_empty(),
            partial,
            output_schema: request.output_schema.as_ref(),
        };
        let is_sdk = matches!(offer, Some(Offer::Sdk { .. }));
        let is_late = is_sdk && !version.connects_sdk_at_start();
        let patience = if is_late { Duration::ZERO } else { UNKNOWN_PATIENCE };
        let launch = Launch::new(&settings, extras)?;
        let hello = launch.hello.clone();
        let command = self.command(&cli, launch, &settings)?;
        let (process, pipes) = Process::start(command, Some(room)).await?;
        let held = Held::new(&process, offer.as_ref());
        let run = Run {
            process,
            pipes,
            offer,
            hello,
            patience,
            prompt: request.to_line(expand),
            wants_output: request.output_schema.is_some(),
            limit: settings.timeout.unwrap_or(DEFAULT_TIMEOUT),
            signals: signals.clone(),
            restrictions: options.restrictions.clone(),
            awaited,
            decider,
            on_message: request.on_message.or_else(|| options.on_message.clone()),
        };
        let (running, key) = (self.0.running.clone(), place.key);
        let release = move || {
            // A request that was given up is not under way, even where its driver has not heard of it yet.
            running.remove(key);
            held.release();
        };
        Ok(ResponseStream::start(signals, release, |events| async move {
            let _of_this_request = (place, permit);
            run.drive(events).await;
        }))
    }

    /// Waits until one more CLI may run.
    async fn permit(
        &self,
        interrupt: &CancellationToken,
    ) -> Result<Option<OwnedSemaphorePermit>, ClaudeCodeError> {
        let Some(permits) = &self.0.permits else { return Ok(None) };
        tokio::select! {
            // It is never closed.
            permit = Arc::clone(permits).acquire_owned() => Ok(permit.ok()),
            () = interrupt.cancelled() => Err(ClaudeCodeError::CliInterrupted { result: None }),
        }
    }

    fn command(&self, cli: &Path, launch: Launch, settings: &Settings) -> Result<Command, ClaudeCodeError> {
        let has_nul = |argument: &OsString| argument.as_encoded_bytes().contains(&0);
        if launch.arguments.iter().any(has_nul) {
            return Err(ClaudeCodeError::invalid(
                "a setting holds a NUL character, which no command line can",
            ));
        }
        let mut command = process::command(cli, self.0.options.guard.as_deref());
        process::warn_if_unguarded(&command);
        if !self.0.options.inherit_env {
            command.env_clear();
        }
        if !self.0.options.restrictions.is_empty() {
            command.env_remove(HOOKLESS);
        }
        // A CLI inside a CLI's tool would take itself for a part of that one.
        command.env_remove("CLAUDECODE").args(launch.arguments).envs(launch.env).envs(&settings.env);
        if let Some(directory) = launch.directory {
            command.current_dir(directory);
        }
        Ok(command)
    }

    /// The tools of a request: its own, else those registered with the model.
    fn registered(&self, request: &Request) -> Result<Option<Registered>, ClaudeCodeError> {
        let Some(tools) = &request.tools else {
            return Ok(self.0.toolset.read().unwrap_or_else(PoisonError::into_inner).clone());
        };
        let server = request.own_server_name();
        check_server_name(server, &tools.0.tools())?;
        let source = Arc::clone(&tools.0);
        Ok(Some(Registered { source, server: server.into(), transport: request.transport }))
    }

    /// The restricted tools of which only the CLI can say whether there are such.
    fn awaited(
        &self,
        settings: &Settings,
        registered: Option<&Registered>,
        strict: bool,
    ) -> Result<Vec<String>, ClaudeCodeError> {
        let restrictions = &self.0.options.restrictions;
        if restrictions.is_empty() {
            return Ok(Vec::new());
        }
        let switches_off = settings.env.contains_key(HOOKLESS) || settings.has_argument("--bare");
        if switches_off {
            return Err(ClaudeCodeError::invalid(format!(
                "`--bare` and `{HOOKLESS}` switch off what keeps the restrictions of tool parameters"
            )));
        }
        let server = registered.map(|registered| registered.server.as_str());
        let own: Vec<_> = registered.iter().flat_map(|registered| registered.full_names()).collect();
        let mut awaited = Vec::new();
        for tool in restrictions.tools().filter(|tool| !is_among(tool, &own, server)) {
            let may_come = match tool.strip_prefix("mcp__") {
                Some(name) => {
                    let of = |server: &String| {
                        name.strip_prefix(server.as_str()).is_some_and(|name| name.starts_with("__"))
                    };
                    !strict || settings.mcp_servers.keys().any(of)
                }
                None => settings
                    .offered_builtins()
                    .is_none_or(|names| names.iter().any(|name| canonical(name) == tool)),
            };
            if !may_come {
                return Err(no_such_tool(tool));
            }
            awaited.push(tool.to_owned());
        }
        Ok(awaited)
    }

    /// The tools as this request offers them: those that it wants, with its state, restrictions and limits. None
    /// when nothing is left.
    fn offered(
        &self,
        registered: Option<Registered>,
        request: &Request,
        settings: &Settings,
        version: Version,
    ) -> Result<Option<Registered>, ClaudeCodeError> {
        let Some(mut offered) = registered else {
            return match &request.only {
                Some(names) if !names.is_empty() => Err(ClaudeCodeError::ToolsetNotRegistered),
                _ => Ok(None),
            };
        };
        if let Some(names) = &request.only {
            offered.source = Arc::new(Selection::new(offered.source, names)?);
        }
        if offered.source.tools().is_empty() {
            return Ok(None);
        }
        if !request.state.is_empty() {
            let state: States = request.state.clone();
            offered.source = Arc::new(Stateful::new(offered.source, state));
        }
        let restrictions = self.0.options.restrictions.clone();
        if !restrictions.is_empty() {
            let (source, server) = (offered.source, offered.server.clone());
            offered.source = Arc::new(Restricted { source, server, restrictions });
        }
        // With that tool, a model can read the file that the CLI puts a long result into.
        let reads_files =
            settings.offered_builtins().is_none_or(|names| names.iter().any(|name| name == "Read"));
        if !reads_files {
            offered.source = Arc::new(ResultLimit::new(offered.source, version));
        }
        Ok(Some(offered))
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
