//! Starts a CLI for a request.

use std::sync::{Arc, PoisonError};

use serde_json::Value;
use tokio::sync::oneshot;
use toolbridge_core::call::CancellationToken;
use toolbridge_core::ipc::session_dir;
use toolbridge_core::source::Selection;
use toolbridge_core::tool::check_server_name;

use crate::callbacks::hook::HookShape;
use crate::callbacks::restriction::{Restrictions, canonical, is_among, no_such_tool};
use crate::cli::{Cli, TurnOptions};
use crate::launch::Launch;
use crate::model::{ClaudeCodeModel, DEFAULT_SERVER_NAME};
use crate::names::uncalled;
use crate::opaque::Opaque;
use crate::permit::{Permit, Waits, is_awaited};
use crate::process::locate::find_cli;
use crate::process::scratch::ScratchDir;
use crate::process::version::{Version, version_of};
use crate::process::{self, Process};
use crate::request::Request;
use crate::settings::{DEFAULT_TIMEOUT, NO_HOOKS_VARIABLE, Settings};
use crate::stream::ResponseStream;
use crate::tools::{ServerTools, Source, TurnTools};
use crate::{ClaudeCodeError, Transport};

impl ClaudeCodeModel {
    pub(crate) async fn start(
        &self,
        request: Request,
        partial: bool,
    ) -> Result<ResponseStream, ClaudeCodeError> {
        request.check()?;
        let signals = self.0.running.add();
        let guard = signals.guard();
        let (launch, turn) = self.resolve(&request, partial, false).await?;
        let history = launch.history(&request.history);
        let prompt = request.prompt_line(&launch, history.is_none())?;
        // A waiting CLI was started without history.
        let waiting = if history.is_none() { self.0.warm.take(&launch) } else { None };
        let cli = match waiting {
            Some(cli) => cli,
            None => Box::pin(self.open(&launch, history.as_deref(), &signals.interrupt)).await?,
        };
        let (began, has_begun) = oneshot::channel();
        if history.is_none() {
            self.warm_up(&launch, has_begun);
        }
        guard.disarm();
        Ok(cli.only(&turn, prompt, signals, began))
    }

    /// Checks everything in a request except its prompt.
    pub(crate) async fn resolve(
        &self,
        request: &Request,
        partial: bool,
        stays_open: bool,
    ) -> Result<(Launch, TurnOptions), ClaudeCodeError> {
        let options = &self.0.options;
        let settings = request.settings.clone().or(&options.settings);
        settings.check()?;
        let strict = settings.strict_mcp_config.unwrap_or(!settings.is_claude_code());
        let mut tools = self.tools_of(request)?;
        let unconfirmed_tools = unconfirmed_tools(&options.restrictions, &settings, tools.as_ref(), strict)?;
        let cli = find_cli(options.cli.as_deref())?;
        let version = version_of(&cli, options.guard.as_deref()).await;
        match (&mut tools, &request.only) {
            (Some((source, described)), Some(names)) => {
                *source = Opaque(Arc::new(Selection::new(Arc::clone(&source.0), names)?));
                (described.list, described.may_change) = (source.0.tools(), !source.0.changes().is_never());
            }
            (None, Some(names)) if !names.is_empty() => return Err(ClaudeCodeError::ToolsetNotRegistered),
            _ => {}
        }
        let (source, tools) = tools.filter(|(_, described)| !described.list.is_empty()).unzip();
        if let Some(ServerTools { server, .. }) =
            tools.as_ref().filter(|tools| settings.mcp_servers.contains_key(&tools.server))
        {
            let reason = format!("both the toolset and an MCP server are called `{server}`");
            return Err(ClaudeCodeError::invalid(reason));
        }
        let has_tool = |name: &str| tools.as_ref().is_some_and(|tools| tools.list.get(name).is_some());
        let own = |server: &str, tool: &str| {
            tools.as_ref().is_some_and(|tools| tools.server == server)
                && (tool.contains('*') || has_tool(tool))
        };
        for rule in settings.allowed_in_vain(strict, own) {
            tracing::warn!("`{rule}` in `allowed_tools` allows a tool that nothing offers");
        }
        let callbacks = request.callbacks.or(&options.callbacks);
        let hooks: Vec<_> = callbacks.hooks.iter().map(|hook| hook.shape.clone()).collect();
        if let Some(error) = hooks.iter().find_map(|hook| uncalled(&hook.event.to_string())) {
            return Err(error);
        }
        let fault = settings.misspelt_for_agent(has_tool);
        if let Some(fault) = fault.or_else(|| hooks.iter().find_map(HookShape::misspelt)) {
            return Err(ClaudeCodeError::invalid(fault));
        }
        let turn = TurnOptions {
            limit: settings.timeout.unwrap_or(DEFAULT_TIMEOUT),
            counts_tools: settings.timeout_counts_tools.unwrap_or(false),
            until: request.until.clone(),
            session_id: Arc::default(),
            tools: source.map(|source| TurnTools {
                source,
                state: (!request.state.is_empty()).then(|| Arc::new(request.state.clone())),
                reports: None,
                waits: Waits::default(),
                on_ask: callbacks.on_ask.clone(),
            }),
            wants_reports: partial,
            callbacks,
        };
        let asks = turn.callbacks.can_use_tool.is_some();
        let allow_own = settings.allow_own_tools.unwrap_or(!asks);
        let launch = Launch {
            cli,
            version,
            settings,
            strict,
            partial,
            stays_open,
            asks,
            allow_own,
            hooks,
            restrictions: options.restrictions.clone(),
            output_schema: request.output_schema.clone(),
            tools,
            unconfirmed_tools,
        };
        Ok((launch, turn))
    }

    /// The tools of a request, or those of all requests, and how they are described to the CLI.
    fn tools_of(&self, request: &Request) -> Result<Option<(Source, ServerTools)>, ClaudeCodeError> {
        let given = match request.tools.clone() {
            Some(source) => {
                let server = request.server_name.as_deref().unwrap_or(DEFAULT_SERVER_NAME);
                check_server_name(server, &source.0.tools())?;
                Some((source, server.to_owned(), request.transport))
            }
            None => self.0.tools.read().unwrap_or_else(PoisonError::into_inner).clone(),
        };
        Ok(given.map(|(source, server, transport)| {
            let chosen = if transport == Transport::Auto { self.0.options.transport } else { transport };
            let (list, may_change) = (source.0.tools(), !source.0.changes().is_never());
            (source, ServerTools { server, transport: chosen.resolved(), list, may_change })
        }))
    }

    /// Starts a CLI, once the limit allows it.
    pub(crate) async fn open(
        &self,
        launch: &Launch,
        history: Option<&str>,
        interrupt: &CancellationToken,
    ) -> Result<Cli, ClaudeCodeError> {
        let options = &self.0.options;
        let permit = self.permit(launch, interrupt).await?;
        // The longest result that the CLI shows, in UTF-16 units. With `Read`, the model can read the file to which it
        // writes a longer one.
        let shown = if launch.version >= Version::COMPLETE { 500_000 } else { 40_000 };
        let limit = (!launch.settings.offers_builtin("Read")).then_some(shown);
        let served = match &launch.tools {
            Some(tools) => Some(tools.serve(options, limit).await?),
            None => None,
        };
        let (tools, entry) = served.map(|(tools, channel, entry)| ((tools, channel), entry)).unzip();
        let scratch = ScratchDir::new(&options.session_dir.clone().unwrap_or_else(session_dir))?;
        let mut command = process::command(&launch.cli, options.guard.as_deref());
        process::warn_if_unguarded(&command);
        if options.clears_env {
            command.env_clear();
        }
        let initialize = launch.prepare(&mut command, &scratch, entry, history)?;
        let started = Process::start(command, Some(scratch))?;
        Ok(Cli::new(launch.clone(), initialize, started, tools, permit))
    }

    /// Waits until one more CLI may run. Ends a waiting CLI to make room.
    async fn permit(
        &self,
        launch: &Launch,
        interrupt: &CancellationToken,
    ) -> Result<Option<Arc<Permit>>, ClaudeCodeError> {
        if is_awaited() || launch.stays_open {
            return Ok(None);
        }
        let permits = &self.0.permits;
        if let Some(permit) = permits.try_take() {
            return Ok(Some(permit));
        }
        self.0.warm.end_one();
        let limit = launch.settings.timeout.unwrap_or(DEFAULT_TIMEOUT);
        tokio::select! {
            permit = permits.take(limit) => permit.map(Some),
            () = interrupt.cancelled() => Err(ClaudeCodeError::CliInterrupted { result: None }),
        }
    }
}

impl Request {
    /// The line for the CLI. Its text stays plain unless the CLI may expand it.
    pub(crate) fn prompt_line(&self, launch: &Launch, with_history: bool) -> Result<Value, ClaudeCodeError> {
        let expand = launch.settings.expand_prompts.unwrap_or(false);
        if !expand {
            self.check_plain(launch.version)?;
        }
        Ok(self.to_line(expand, with_history))
    }
}

/// The restricted or built-in tools whose existence only the CLI can confirm.
///
/// # Errors
///
/// When such a tool cannot exist, or the settings disable restrictions.
fn unconfirmed_tools(
    restrictions: &Restrictions,
    settings: &Settings,
    tools: Option<&(Source, ServerTools)>,
    strict: bool,
) -> Result<Vec<String>, ClaudeCodeError> {
    let switches_off = settings.env.contains_key(NO_HOOKS_VARIABLE) || settings.has_argument("--bare");
    if switches_off && !restrictions.is_empty() {
        return Err(ClaudeCodeError::invalid(format!(
            "`--bare` and `{NO_HOOKS_VARIABLE}` disable the hooks that enforce restrictions of tool parameters"
        )));
    }
    let tools = tools.map(|(_, tools)| tools);
    let server = tools.map(|tools| tools.server.as_str());
    let full_names =
        |tools: &ServerTools| tools.list.iter().map(|tool| tools.full_name(&tool.name)).collect();
    let own: Vec<String> = tools.map(full_names).unwrap_or_default();
    let may_come = |tool: &str| match tool.strip_prefix("mcp__") {
        Some(name) => {
            let of = |server: &String| {
                name.strip_prefix(server.as_str()).is_some_and(|name| name.starts_with("__"))
            };
            !strict || settings.mcp_servers.keys().any(of)
        }
        None => {
            settings.offered_builtins().is_none_or(|names| names.iter().any(|name| canonical(name) == tool))
        }
    };
    let unknown = restrictions.tools().filter(|tool| !is_among(tool, &own, server));
    let restricted = unknown
        .map(|tool| if may_come(tool) { Ok(tool.to_owned()) } else { Err(no_such_tool(tool, &own, server)) });
    restricted.chain(settings.unknown_builtins().map(|tool| Ok(tool.to_owned()))).collect()
}
