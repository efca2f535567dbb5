//! From a request to a CLI that runs for it.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use toolbridge_core::CancellationToken;
use toolbridge_ipc::{Session, session_dir};

use crate::ClaudeCodeError;
use crate::driver::{Driver, Plan};
use crate::launch::{Extras, Launch};
use crate::locate::find_cli;
use crate::model::{ClaudeCodeModel, Place};
use crate::offer::{Offer, ServerTools, Way, awaited};
use crate::process::{self, Group, Process};
use crate::request::Request;
use crate::room::Room;
use crate::settings::{DEFAULT_TIMEOUT, HOOKLESS, Settings};
use crate::stream::{ResponseStream, Signals};
use crate::tools::MAX_REPORTS;
use crate::version::{Version, version_of};

/// How long a CLI that connects to servers before the first prompt may not even name ours.
const UNKNOWN_PATIENCE: Duration = Duration::from_secs(5);

/// What a request has outside of this process. Dropping it gives it back, without a runtime.
struct Held {
    group: Arc<Group>,
    session: Option<Arc<Session>>,
    /// A request that was given up is not under way, even where its driver has not heard of it yet.
    _place: Place,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.group.end();
        // The driver may be doing the same on another thread; this waits for it.
        if let Some(session) = &self.session {
            session.abandon();
        }
    }
}

impl ClaudeCodeModel {
    pub(crate) async fn start(
        &self,
        request: Request,
        partial: bool,
    ) -> Result<ResponseStream, ClaudeCodeError> {
        let options = &self.0.options;
        request.check()?;
        let settings = request.settings.clone().or(&options.settings);
        settings.check()?;
        let strict = options.strict_mcp_config.unwrap_or(!settings.is_claude_code());
        let registered = || self.0.tools.read().unwrap_or_else(PoisonError::into_inner).clone();
        let tools = ServerTools::of(&request)?.or_else(registered);
        let awaited = awaited(&options.restrictions, &settings, tools.as_ref(), strict)?;
        let cli = find_cli(options.cli.as_deref())?;

        let signals = Signals::default();
        let place = self.0.running.add(signals.interrupt.clone());
        let permit = self.permit(&signals.interrupt).await?;
        let version = version_of(&cli).await;
        let expand = settings.expand_prompts.unwrap_or(false);
        if !expand {
            request.check_plain(version)?;
        }
        let (tell, reports) = partial.then(|| mpsc::channel(MAX_REPORTS)).unzip();
        let tools = match tools {
            Some(tools) => tools.chosen(&request, &settings, &options.restrictions, version, tell)?,
            None if request.only.as_ref().is_some_and(|names| !names.is_empty()) => {
                return Err(ClaudeCodeError::ToolsetNotRegistered);
            }
            None => None,
        };
        let (offer, entry) = match &tools {
            Some(tools) => Some(tools.offer(options).await?).unzip(),
            None => (None, None),
        };
        let room = Room::new(&options.session_dir.clone().unwrap_or_else(session_dir))?;
        let decider = request.decider.clone().or_else(|| options.decider.clone());
        let launch = Launch::new(
            &settings,
            Extras {
                version,
                room: &room,
                server: offer.as_ref().map(|offer| offer.server.as_str()).zip(entry),
                allow_own: options.allow_own_tools.unwrap_or(decider.is_none()),
                strict,
                asks: decider.is_some(),
                restricted: !options.restrictions.is_empty(),
                partial,
                output_schema: request.output_schema.as_ref(),
            },
        )?;
        let is_late =
            matches!(offer, Some(Offer { way: Way::Sdk { .. }, .. })) && version < Version::WITH_EARLY_SDK;
        let plan = Plan {
            hello: launch.hello.clone(),
            prompt: request.to_line(expand),
            patience: if is_late { Duration::ZERO } else { UNKNOWN_PATIENCE },
            limit: settings.timeout.unwrap_or(DEFAULT_TIMEOUT),
            wants_output: request.output_schema.is_some(),
            restrictions: options.restrictions.clone(),
            awaited,
            decider,
            on_message: request.on_message.or_else(|| options.on_message.clone()),
        };
        let command = self.command(&cli, launch, &settings)?;
        let cli = Process::start(command, Some(room))?;
        let session = offer.as_ref().and_then(Offer::session).cloned();
        let held = Held { group: cli.0.group(), session, _place: place.clone() };
        Ok(ResponseStream::start(signals.clone(), held, |events| async move {
            let _of_this_request = (place, permit);
            Driver::new(plan, cli, offer, reports, signals, events).drive().await;
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
        if self.0.options.clears_env {
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
}
