//! A running CLI, for one request or for many, as its holders see it.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;
use toolbridge_core::Session;
use toolbridge_core::call::CancellationToken;
use toolbridge_core::process::child::Pipes;
use toolbridge_core::tool::RawJson;
use tracing::{Instrument as _, Span};

use crate::ClaudeCodeError;
use crate::callbacks::Callbacks;
use crate::driver::{Driver, Prompt};
use crate::error::ExecutionKind;
use crate::launch::Launch;
use crate::permit::Permit;
use crate::process::{Group, Process};
use crate::response::Event;
use crate::run::Loop;
use crate::stream::{Events, RequestGuard, ResponseStream, Signals};
use crate::tools::{Channel, MAX_REPORTS, ToolServer, TurnTools};

/// The CLI's response to a request.
pub(crate) type ControlResponse = Result<RawJson, ClaudeCodeError>;

/// What all turns of a CLI share.
#[derive(Debug, Clone, Default)]
pub(crate) struct TurnOptions {
    pub(crate) limit: Duration,
    /// Whether time spent waiting for functions of this process counts towards the limit.
    pub(crate) counts_tools: bool,
    /// Ends the turn with the output received so far.
    pub(crate) until: Option<CancellationToken>,
    /// Filled with the conversation's id once it is known.
    pub(crate) session_id: Arc<OnceLock<String>>,
    pub(crate) callbacks: Callbacks,
    pub(crate) tools: Option<TurnTools>,
    /// Whether the progress of tool calls is reported as events.
    pub(crate) wants_reports: bool,
}

/// One prompt, until it is answered.
pub(crate) struct Turn {
    pub(crate) prompt: Option<Prompt>,
    pub(crate) options: TurnOptions,
    /// Notified when the CLI starts working on the turn, or when the turn is over.
    pub(crate) began: Option<oneshot::Sender<()>>,
    /// Released together with the turn, so that a request without a driver does not count as running.
    _guard: RequestGuard,
    pub(crate) signals: Signals,
    pub(crate) events: Events,
    /// The caller's span.
    pub(crate) span: Span,
    /// The progress of tool calls.
    pub(crate) reports: Option<mpsc::Receiver<(Event, usize)>>,
}

impl TurnOptions {
    /// A turn for one prompt.
    fn turn(
        &self,
        line: Value,
        guard: RequestGuard,
        signals: Signals,
        events: Events,
        began: Option<oneshot::Sender<()>>,
    ) -> Turn {
        let (sender, reports) = self.wants_reports.then(|| mpsc::channel(MAX_REPORTS)).unzip();
        let mut options = self.clone();
        options.tools = options.tools.map(|tools| TurnTools { reports: sender, ..tools });
        let prompt = Prompt { line, limit: self.limit, counts_tools: self.counts_tools };
        let span = Span::current();
        Turn { prompt: Some(prompt), options, began, _guard: guard, signals, events, span, reports }
    }
}

/// Commands from the holders of a CLI to its loop.
pub(crate) enum Command {
    Turn(Box<Turn>),
    /// Asks to be notified when the CLI accepts a prompt, which must happen within `limit`.
    Ready {
        limit: Duration,
        reply: oneshot::Sender<ControlResponse>,
    },
    /// Sends a request to the CLI.
    Request {
        request: Value,
        reply: oneshot::Sender<ControlResponse>,
    },
}

/// A CLI process and the task of its loop. Dropping it ends both.
pub(crate) struct Cli {
    commands: mpsc::UnboundedSender<Command>,
    task: AbortOnDropHandle<()>,
    guard: CliGuard,
}

impl fmt::Debug for Cli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cli").field("is_over", &self.is_over()).finish_non_exhaustive()
    }
}

/// The CLI's resources outside this process. Dropping it releases them; no runtime is needed.
struct CliGuard {
    group: Arc<Group>,
    session: Option<Arc<Session>>,
}

impl Drop for CliGuard {
    fn drop(&mut self) {
        self.group.end();
        // The loop may be doing the same on another thread; this waits until it has finished.
        if let Some(session) = &self.session {
            session.abandon();
        }
    }
}

impl Cli {
    /// Drives a CLI that has been started. After its last turn it ends, when all its holders are gone.
    pub(crate) fn new(
        launch: Launch,
        initialize: Value,
        (process, pipes): (Process, Pipes),
        tools: Option<(Arc<ToolServer>, Channel)>,
        permit: Option<Arc<Permit>>,
    ) -> Self {
        let (commands, receiver) = mpsc::unbounded_channel();
        let waits = permit.as_ref().map(|permit| permit.waits.clone()).unwrap_or_default();
        let session = tools.as_ref().and_then(|(_, channel)| channel.session()).cloned();
        let guard = CliGuard { group: process.group(), session };
        let driver = Driver::new(launch, initialize, waits.now());
        let running = Loop::new(driver, receiver, process, pipes, tools, waits);
        let driving = async move {
            let _permit = permit;
            running.run().await;
        };
        let task = AbortOnDropHandle::new(tokio::spawn(driving.in_current_span()));
        Self { commands, task, guard }
    }

    /// Whether it accepts no more turns; the driver may not have noticed yet.
    pub(crate) fn is_over(&self) -> bool {
        self.commands.is_closed() || self.guard.group.has_ended()
    }

    /// Waits until the CLI accepts a prompt.
    pub(crate) async fn ready(&self, limit: Duration) -> Result<(), ClaudeCodeError> {
        let (reply, response) = oneshot::channel();
        self.send(Command::Ready { limit, reply }, response).await.map(drop)
    }

    /// Sends a request to the CLI over its control channel.
    pub(crate) fn request(&self, request: Value) -> impl Future<Output = ControlResponse> + Send + use<> {
        let (reply, response) = oneshot::channel();
        self.send(Command::Request { request, reply }, response)
    }

    fn send(
        &self,
        command: Command,
        response: oneshot::Receiver<ControlResponse>,
    ) -> impl Future<Output = ControlResponse> + Send + use<> {
        let is_sent = self.commands.send(command).is_ok();
        async move {
            if !is_sent {
                return Err(over());
            }
            response.await.unwrap_or_else(|_| Err(over()))
        }
    }

    /// Makes the CLI answer one prompt and then end.
    pub(crate) fn only(
        self,
        options: &TurnOptions,
        line: Value,
        signals: Signals,
        began: oneshot::Sender<()>,
    ) -> ResponseStream {
        // A dropped request no longer counts as running, even if its driver has not noticed yet.
        let (events, stream) = ResponseStream::new(signals.clone(), (self.guard, signals.guard()));
        begin(&self.commands, options.turn(line, signals.guard(), signals, events, Some(began)));
        stream.driven_by(self.task)
    }

    /// Makes the CLI answer a prompt. Dropping the stream interrupts the turn.
    pub(crate) fn turn(&self, options: &TurnOptions, line: Value, signals: &Signals) -> ResponseStream {
        let interrupt = signals.interrupt.clone();
        // Cancelling a turn at once would end the whole CLI, so both signals only interrupt it.
        let outside =
            Signals { cancel: interrupt.clone(), interrupt: interrupt.clone(), ..Signals::default() };
        let interrupts = interrupt.clone().drop_guard();
        let (events, stream) = ResponseStream::new(outside, (interrupts, signals.guard()));
        let inside = Signals { interrupt, ..Signals::default() };
        begin(&self.commands, options.turn(line, signals.guard(), inside, events, None));
        stream
    }

    /// Lets the CLI end, and waits until everything is cleaned up.
    pub(crate) async fn close(self) {
        drop(self.commands);
        _ = self.task.await;
    }
}

fn begin(commands: &mpsc::UnboundedSender<Command>, turn: Turn) {
    if let Err(mpsc::error::SendError(Command::Turn(turn))) = commands.send(Command::Turn(Box::new(turn))) {
        turn.events.end(Err(over()));
    }
}

fn over() -> ClaudeCodeError {
    ClaudeCodeError::execution(ExecutionKind::Exit, "the conversation is over: the CLI has ended")
}
