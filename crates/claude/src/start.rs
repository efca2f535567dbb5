//! Starts a CLI for a request.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use toolbridge_core::call::CancellationToken;
use toolbridge_core::ipc::session_dir;
use tracing::Span;

use crate::ClaudeCodeError;
use crate::callbacks::hook::HookShape;
use crate::cli::{Cli, Held};
use crate::driver::{Driver, Plan, Turn, TurnOptions};
use crate::launch::{Launch, LaunchContext};
use crate::model::{ClaudeCodeModel, Permit, Place};
use crate::names::uncalled;
use crate::offer::{Channel, Described, Offer, ServerTools, unconfirmed_tools};
use crate::process::locate::find_cli;
use crate::process::scratch::ScratchDir;
use crate::process::version::{Version, version_of};
use crate::process::{self, Process};
use crate::protocol::history::{Offered, session};
use crate::request::Request;
use crate::result_limit::max_chars;
use crate::settings::{DEFAULT_TIMEOUT, NO_HOOKS_VARIABLE, Settings};
use crate::stream::{Events, ResponseStream, Signals};
use crate::tools::{Bound, MAX_REPORTS};
use crate::waits::{Waits, is_awaited};

/// How long to wait for our server to be listed, with a CLI that connects to servers before the first
/// prompt.
const UNKNOWN_PATIENCE: Duration = Duration::from_secs(5);

/// Everything that a CLI depends on, except its prompts.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "they do not depend on each other")]
pub(crate) struct CliSpec {
    pub(crate) cli: PathBuf,
    pub(crate) version: Version,
    pub(crate) settings: Settings,
    /// Whether only the MCP servers given here exist.
    pub(crate) strict: bool,
    /// Whether text is streamed as it arrives.
    pub(crate) partial: bool,
    /// Whether it takes more than one prompt.
    pub(crate) stays_open: bool,
    /// Whether there is a function that decides about tools.
    pub(crate) asks: bool,
    pub(crate) hooks: Vec<HookShape>,
    pub(crate) output_schema: Option<Value>,
    pub(crate) tools: Option<Described>,
    pub(crate) unconfirmed_tools: Vec<String>,
}

impl CliSpec {
    /// The history as a file that the CLI resumes; `None` if it is empty or the CLI does not support that.
    pub(crate) fn history(&self, request: &Request) -> Option<String> {
        if self.version < Version::WITH_HISTORY || self.settings.resumes() {
            return None;
        }
        let any = self.tools.is_some()
            || self.output_schema.is_some()
            || !self.settings.brings_no_tools(self.strict);
        session(&request.history, &Offered { any, name: &|name| self.full_name(name) })
    }

    /// The CLI's name for a tool: a tool of this process has the name of its server before its own.
    pub(crate) fn full_name(&self, tool: &str) -> String {
        match &self.tools {
            Some(own) if own.list.get(tool).is_some() => format!("mcp__{}__{tool}", own.server),
            _ => tool.to_owned(),
        }
    }
}

impl TurnOptions {
    /// Creates a turn for one prompt.
    pub(crate) fn turn(&self, prompt: Value, place: Place, signals: Signals, events: Events) -> Turn {
        let (sender, reports) = self.wants_reports.then(|| mpsc::channel(MAX_REPORTS)).unzip();
        let mut options = self.clone();
        options.tools = options.tools.map(|bound| Bound { reports: sender, ..bound });
        let span = Span::current();
        Turn { prompt, options, began: None, _place: Some(place), signals, events, span, reports }
    }
}

impl ClaudeCodeModel {
    pub(crate) async fn start(
        &self,
        request: Request,
        partial: bool,
    ) -> Result<ResponseStream, ClaudeCodeError> {
        request.check()?;
        let place = self.0.running.add();
        let (spec, turn) = self.resolve(&request, partial).await?;
        let expand = spec.settings.expand_prompts.unwrap_or(false);
        if !expand {
            request.check_plain(spec.version)?;
        }
        let history = spec.history(&request);
        let prompt = request.to_line(expand, history.is_none());
        // A waiting CLI was started without history.
        let waiting = if history.is_none() { self.0.warm.take(&spec) } else { None };
        let interrupt = place.signals().interrupt;
        let cli = match waiting {
            Some(cli) => cli,
            None => Box::pin(self.open(&spec, history.as_deref(), &interrupt)).await?,
        };
        let (began, has_begun) = oneshot::channel();
        if history.is_none() {
            self.warm_up(&spec, has_begun);
        }
        Ok(cli.only(place, |place, signals, events| Turn {
            began: Some(began),
            ..turn.turn(prompt, place, signals, events)
        }))
    }

    /// Checks everything in a request except its prompt.
    pub(crate) async fn resolve(
        &self,
        request: &Request,
        partial: bool,
    ) -> Result<(CliSpec, TurnOptions), ClaudeCodeError> {
        let options = &self.0.options;
        let settings = request.settings.clone().or(&options.settings);
        settings.check()?;
        let strict = options.strict_mcp_config.unwrap_or(!settings.is_claude_code());
        let registered = || self.0.tools.read().unwrap_or_else(PoisonError::into_inner).clone();
        let tools = ServerTools::of(request)?.or_else(registered);
        let unconfirmed_tools = unconfirmed_tools(&options.restrictions, &settings, tools.as_ref(), strict)?;
        let cli = find_cli(options.cli.as_deref())?;
        let version = version_of(&cli, options.guard.as_deref()).await;
        let tools = match tools {
            Some(tools) => tools.chosen(request, &settings)?,
            None if request.only.as_ref().is_some_and(|names| !names.is_empty()) => {
                return Err(ClaudeCodeError::ToolsetNotRegistered);
            }
            None => None,
        };
        let has_tool =
            |name: &str| tools.as_ref().is_some_and(|tools| tools.source.0.tools().get(name).is_some());
        if let Some(fault) = settings.misspelt_for_agent(has_tool) {
            return Err(ClaudeCodeError::invalid(fault));
        }
        let own = |server: &str, tool: &str| {
            tools.as_ref().is_some_and(|tools| tools.server == server)
                && (tool.contains('*') || has_tool(tool))
        };
        for rule in settings.allowed_in_vain(strict, own) {
            tracing::warn!("`{rule}` in `allowed_tools` allows a tool that nothing offers");
        }
        let callbacks = request.callbacks.or(&options.callbacks);
        if let Some(error) = callbacks.hooks.iter().find_map(|hook| uncalled(&hook.shape.event.to_string())) {
            return Err(error);
        }
        let fault =
            |shape: &HookShape| version.misses_hook(&shape.event.to_string()).or_else(|| shape.misspelt());
        if let Some(fault) = callbacks.hooks.iter().find_map(|hook| fault(&hook.shape)) {
            return Err(ClaudeCodeError::invalid(fault));
        }
        let spec = CliSpec {
            hooks: callbacks.hooks.iter().map(|hook| hook.shape.clone()).collect(),
            cli,
            version,
            strict,
            partial,
            stays_open: false,
            asks: callbacks.can_use_tool.is_some(),
            output_schema: request.output_schema.clone(),
            tools: tools.as_ref().map(|tools| tools.described(options.transport)),
            unconfirmed_tools,
            settings,
        };
        let state = (!request.state.is_empty()).then(|| Arc::new(request.state.clone()));
        let tools = tools.map(|tools| Bound {
            source: tools.source.0,
            state,
            reports: None,
            waits: Waits::default(),
            on_ask: callbacks.on_ask.clone(),
        });
        let turn = TurnOptions {
            limit: spec.settings.timeout.unwrap_or(DEFAULT_TIMEOUT),
            counts_tools: spec.settings.timeout_counts_tools.unwrap_or(false),
            until: request.until.clone(),
            session_id: Arc::default(),
            callbacks,
            tools,
            wants_reports: partial,
        };
        Ok((spec, turn))
    }

    /// Starts a CLI, once the limit allows it.
    pub(crate) async fn open(
        &self,
        spec: &CliSpec,
        history: Option<&str>,
        interrupt: &CancellationToken,
    ) -> Result<Cli, ClaudeCodeError> {
        let options = &self.0.options;
        let permit = self.permit(spec, interrupt).await?;
        // With `Read`, the model can read the file to which the CLI writes a long result.
        let limit = (!spec.settings.offers_builtin("Read")).then(|| max_chars(spec.version));
        let (offer, entry) = match &spec.tools {
            Some(tools) => Some(tools.offer(options, limit).await?).unzip(),
            None => (None, None),
        };
        let scratch = ScratchDir::new(&options.session_dir.clone().unwrap_or_else(session_dir))?;
        let context = LaunchContext {
            scratch: &scratch,
            entry,
            allow_own: options.allow_own_tools.unwrap_or(!spec.asks),
            restricted: !options.restrictions.is_empty(),
            history,
        };
        let launch = Launch::new(spec, &context)?;
        let is_late = matches!(offer, Some(Offer { channel: Channel::Sdk { .. }, .. }))
            && spec.version < Version::WITH_EARLY_SDK;
        let plan = Plan {
            initialize: launch.initialize.clone(),
            patience: if is_late { Duration::ZERO } else { UNKNOWN_PATIENCE },
            wants_output: spec.output_schema.is_some(),
            restrictions: options.restrictions.clone(),
            unconfirmed_tools: spec.unconfirmed_tools.clone(),
            other_servers: spec.settings.mcp_servers.keys().cloned().collect(),
        };
        let command = self.command(&spec.cli, launch, &spec.settings)?;
        let cli = Process::start(command, Some(scratch))?;
        let session = offer.as_ref().and_then(Offer::session).cloned();
        let held = Held { group: cli.0.group(), session };
        Ok(Cli::new(held, permit, |waits, commands| Driver::new(plan, cli, offer, waits, commands)))
    }

    /// Waits until one more CLI may run. Ends a waiting CLI to make room.
    async fn permit(
        &self,
        spec: &CliSpec,
        interrupt: &CancellationToken,
    ) -> Result<Option<Arc<Permit>>, ClaudeCodeError> {
        if is_awaited() || spec.stays_open {
            return Ok(None);
        }
        let permits = &self.0.permits;
        if let Some(permit) = permits.try_take() {
            return Ok(Some(permit));
        }
        self.0.warm.end_one();
        let limit = spec.settings.timeout.unwrap_or(DEFAULT_TIMEOUT);
        tokio::select! {
            permit = permits.take(limit) => permit.map(Some),
            () = interrupt.cancelled() => Err(ClaudeCodeError::CliInterrupted { result: None }),
        }
    }

    fn command(&self, cli: &Path, launch: Launch, settings: &Settings) -> Result<Command, ClaudeCodeError> {
        let has_nul = |argument: &OsString| argument.as_encoded_bytes().contains(&0);
        if launch.arguments.iter().any(has_nul) {
            return Err(ClaudeCodeError::invalid(
                "a setting contains a NUL character, which a command line cannot",
            ));
        }
        let mut command = process::command(cli, self.0.options.guard.as_deref());
        process::warn_if_unguarded(&command);
        if self.0.options.clears_env {
            command.env_clear();
        }
        if !self.0.options.restrictions.is_empty() {
            command.env_remove(NO_HOOKS_VARIABLE);
        }
        // Otherwise a CLI started from a CLI's tool would consider itself part of that one.
        command.env_remove("CLAUDECODE").args(launch.arguments).envs(launch.env).envs(&settings.env);
        if let Some(directory) = launch.directory {
            command.current_dir(directory);
        }
        Ok(command)
    }
}
