//! Drives one CLI: a state machine and the loop that owns it.
//!
//! The [`State`]s follow each other in the order in which they are listed; states that are not needed are
//! skipped. A result leads back to [`State::Ready`], and the next [`Turn`] begins. When no further turn can
//! come, the CLI ends.

use std::collections::{HashMap, VecDeque};
use std::process::ExitStatus;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use toolbridge_core::call::CancellationToken;
use toolbridge_core::mcp::{Incoming as _, LineReader, Serving, serve_with};
use toolbridge_core::process::child::Pipes;
use toolbridge_core::tool::RawJson;
use tracing::{Instrument as _, Span};
use uuid::Uuid;

use crate::callbacks::Callbacks;
use crate::callbacks::restriction::Restrictions;
use crate::error::ExecutionKind;
use crate::event::{Event, McpServerStatus};
use crate::model::Place;
use crate::offer::{Channel, Offer};
use crate::output::Collected;
use crate::process::Process;
use crate::process::diagnose::{broken_guardian, explain, no_result, not_connected};
use crate::process::stderr::Tail;
use crate::protocol::control::{Control, request_line};
use crate::protocol::outcome::{Expected, answer};
use crate::protocol::sdk::SdkServer;
use crate::stream::{Events, Signals};
use crate::tools::{Bound, Report};
use crate::waits::Waits;
use crate::{ClaudeCodeError, ResponseWithMetadata};

/// The longest line that is read from the CLI; a limit on memory.
const MAX_LINE_BYTES: usize = 256 * 1024 * 1024;

/// How often the CLI is polled for its connection to our server.
const CONNECT_POLL: Duration = Duration::from_millis(20);

/// How long the CLI may take to return a result after an interrupt, and how often the interrupt is
/// repeated.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(5);
const INTERRUPT_RETRY: Duration = Duration::from_millis(500);

/// How long to wait for more output after the CLI has ended: another process may still hold the pipe open.
const LAST_OUTPUT: Duration = Duration::from_millis(500);

/// How often the deadline is checked while the CLI waits for functions of this process.
const WAIT_POLL: Duration = Duration::from_millis(100);

/// A timeout that is never reached in practice.
pub(crate) const UNLIMITED: Duration = Duration::from_secs(60 * 60 * 24 * 365);

/// Settings that apply to all turns of a CLI.
pub(crate) struct Plan {
    /// The `initialize` request, which is sent first.
    pub(crate) initialize: Value,
    /// How long to wait for the CLI to list our server before the prompt is sent anyway.
    pub(crate) patience: Duration,
    pub(crate) wants_output: bool,
    pub(crate) restrictions: Restrictions,
    /// Restricted or built-in tools whose existence only the CLI can confirm.
    pub(crate) unconfirmed_tools: Vec<String>,
    /// Other MCP servers, without which the model must not be asked.
    pub(crate) other_servers: Vec<String>,
}

/// The options of a turn, which all turns of a CLI share.
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
    /// The context of tool calls.
    pub(crate) tools: Option<Bound>,
    /// Whether the progress of tool calls is reported as events.
    pub(crate) wants_reports: bool,
}

/// One prompt, until it is answered.
pub(crate) struct Turn {
    pub(crate) prompt: Value,
    pub(crate) options: TurnOptions,
    /// Notified when the CLI starts working on the turn, or when the turn is over.
    pub(crate) began: Option<oneshot::Sender<()>>,
    /// Released together with the turn, so that a request without a driver does not count as running.
    pub(crate) _place: Option<Place>,
    pub(crate) signals: Signals,
    pub(crate) events: Events,
    /// The caller's span.
    pub(crate) span: Span,
    /// The progress of tool calls.
    pub(crate) reports: Option<mpsc::Receiver<Report>>,
}

/// Commands from the holders of a CLI to its driver.
pub(crate) enum Command {
    Turn(Box<Turn>),
    /// Asks to be notified when the CLI accepts a prompt, which must happen within `limit`.
    Ready {
        limit: Duration,
        reply: oneshot::Sender<Answer>,
    },
    /// Sends a request to the CLI.
    Request {
        request: Value,
        reply: oneshot::Sender<Answer>,
    },
}

/// The CLI's response to a request.
pub(crate) type Answer = Result<RawJson, ClaudeCodeError>;

/// The progress of the CLI.
#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    /// The `initialize` request has been sent.
    Greeting,
    /// The CLI is polled until it is connected to the servers that were given; otherwise the model would not see the
    /// tools.
    Connecting { since: Instant },
    /// The CLI accepts a prompt.
    Ready,
    /// The prompt has been sent.
    Asked,
    /// The CLI is told to stop. This is repeated because the CLI only listens while it queries the model.
    Interrupted(Reason),
    /// The turn is to end early. A request has been sent to the CLI: all output before its response belongs
    /// to the turn.
    Ending,
    /// The response has arrived.
    Ended,
    /// The CLI has ended, perhaps without a response to `initialize`; the rest of its output may still arrive.
    Exited { status: Option<ExitStatus>, interrupted: Option<Reason>, greeting: bool },
}

/// Why a turn is interrupted.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Reason {
    /// [`ResponseStream::interrupt`](crate::ResponseStream::interrupt) was called.
    Requested,
    /// The time limit was reached.
    Timeout,
}

/// The driver's own request to the CLI; the state says which one.
#[derive(Debug, PartialEq)]
enum Pending {
    /// Waiting for its response.
    Response { id: String },
    /// It will be sent again.
    Retry { at: Instant },
}

/// How a turn, or the whole CLI, ended.
enum End {
    /// With a result.
    Result { raw: RawJson, interrupted: Option<Reason> },
    /// With the output received so far.
    Early,
    /// No further turn will come.
    Done,
    /// The CLI ended without a result.
    Exit(Option<ExitStatus>),
}

/// A running CLI. `output.rs` handles its output.
pub(crate) struct Driver {
    state: State,
    pending: Option<Pending>,
    deadline: Instant,
    /// The values from which the deadline is computed.
    limit: Duration,
    began: Instant,
    /// The time the CLI has spent waiting for functions of this process, and its value when the turn began.
    pub(crate) waits: Waits,
    waited: Duration,
    pub(crate) plan: Plan,
    commands: mpsc::UnboundedReceiver<Command>,
    pub(crate) turn: Option<Turn>,
    /// The id of the last prompt that was sent.
    pub(crate) prompt_id: String,
    /// Whether the CLI reports when it starts on a prompt; older ones do not.
    pub(crate) reports_starts: bool,
    /// Whether the CLI has started on the turn's prompt, as far as it reports that.
    pub(crate) has_started: bool,
    /// The callbacks of this turn or, between two turns, of the last one.
    pub(crate) callbacks: Callbacks,
    next_turns: VecDeque<Turn>,
    /// Requests from holders of the CLI, by request id.
    requests: HashMap<String, oneshot::Sender<Answer>>,
    /// The servers of `plan.other_servers` to which the CLI is still connecting.
    late_servers: Vec<String>,
    /// Callers that wait until the CLI accepts a prompt.
    waiting: Vec<oneshot::Sender<Answer>>,
    /// Forwards changes of our tool list.
    changes: Option<AbortHandle>,
    process: Process,
    lines: LineReader<pipe::Receiver>,
    stderr: Tail,
    pub(crate) control: Arc<Control>,
    offer: Option<Offer>,
    pub(crate) sdk: Option<SdkServer>,
    /// Tasks that run concurrently with reading.
    pub(crate) work: JoinSet<()>,
    pub(crate) collected: Collected,
}

impl Driver {
    /// Drives a CLI that has been started. When all senders of `commands` are dropped, it ends after its
    /// last turn.
    pub(crate) fn new(
        plan: Plan,
        (process, pipes): (Process, Pipes),
        offer: Option<Offer>,
        waits: Waits,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Self {
        let control = Arc::new(Control::new(pipes.stdin));
        let mut work = JoinSet::new();
        let mut sdk = None;
        if let Some(Offer { server, channel: Channel::Sdk { source, info, tracer }, .. }) = &offer {
            let (into, incoming, outgoing) = SdkServer::new(server, Arc::clone(&control));
            sdk = Some(into);
            let source = Arc::clone(source);
            let serving = Serving { info: info.clone(), tracer: tracer.clone(), session_id: None };
            let serving = async move {
                _ = serve_with(source, serving, incoming, outgoing).await;
            };
            work.spawn(serving.in_current_span());
        }
        Self {
            state: State::Greeting,
            pending: None,
            deadline: Instant::now() + UNLIMITED,
            limit: UNLIMITED,
            began: Instant::now(),
            waits,
            waited: Duration::ZERO,
            plan,
            commands,
            turn: None,
            prompt_id: String::new(),
            reports_starts: false,
            has_started: true,
            callbacks: Callbacks::default(),
            next_turns: VecDeque::new(),
            requests: HashMap::new(),
            late_servers: Vec::new(),
            waiting: Vec::new(),
            changes: None,
            process,
            lines: LineReader::with_limit(pipes.stdout, MAX_LINE_BYTES),
            stderr: Tail::of(pipes.stderr),
            control,
            offer,
            sdk,
            work,
            collected: Collected::default(),
        }
    }

    pub(crate) fn server(&self) -> Option<&str> {
        self.offer.as_ref().map(|offer| offer.server.as_str())
    }

    /// Runs turns until the end, then cleans up.
    pub(crate) async fn drive(mut self) {
        self.request(&self.plan.initialize.clone());
        let end = loop {
            match self.run_turn().await {
                Ok(End::Result { raw, interrupted }) if !self.is_last() => {
                    let answer = self.answer_of(&raw, interrupted);
                    self.end_turn(answer);
                    self.next_turn();
                }
                end => break end,
            }
        };
        if matches!(end, Ok(End::Early)) {
            // Kill the CLI first: if the calls it waits for ended before, it would continue.
            self.process.kill().await;
        }
        self.control.close();
        let failure = match end {
            Ok(End::Result { raw, interrupted }) => {
                let answer = self.answer_of(&raw, interrupted);
                let cancel = self.turn.as_ref().map(|turn| turn.signals.cancel.clone()).unwrap_or_default();
                // The event stream ends only after everything is cleaned up.
                if let Some(turn) = &self.turn {
                    turn.events.end(answer);
                }
                end_orderly(&mut self.process, &mut self.lines, &cancel).await;
                None
            }
            Ok(End::Early) => {
                let Collected { parts, model, session_id, .. } = std::mem::take(&mut self.collected);
                let answer = ResponseWithMetadata::unfinished(parts, model, session_id);
                if let Some(turn) = &self.turn {
                    turn.events.end(Ok(answer));
                }
                None
            }
            Ok(End::Done) => {
                end_orderly(&mut self.process, &mut self.lines, &CancellationToken::new()).await;
                None
            }
            Ok(End::Exit(status)) => {
                let broken = match &self.process.guardian {
                    Some(guardian)
                        if matches!(self.state, State::Greeting | State::Exited { greeting: true, .. }) =>
                    {
                        broken_guardian(guardian).await
                    }
                    _ => None,
                };
                let stderr = self.stderr.text().await;
                Some(broken.unwrap_or_else(|| no_result(status, &stderr, self.collected.unreadable.take())))
            }
            Err(error) => {
                self.process.end_now().await;
                Some(explain(error, self.offer.as_ref()).await)
            }
        };
        self.work.shutdown().await;
        if let Some(session) = self.offer.as_ref().and_then(Offer::session) {
            session.stop().await;
        }
        if let Some(error) = failure {
            self.fail(error);
        }
    }

    /// Whether no further turn can begin.
    fn is_last(&self) -> bool {
        self.next_turns.is_empty() && self.commands.is_closed() && self.commands.is_empty()
    }

    fn answer_of(
        &mut self,
        raw: &RawJson,
        interrupted: Option<Reason>,
    ) -> Result<ResponseWithMetadata, ClaudeCodeError> {
        let Collected { parts, model, error, .. } = std::mem::take(&mut self.collected);
        let expected = Expected {
            output: self.plan.wants_output,
            interrupted: interrupted.is_some(),
            login_failed: error.as_deref() == Some("authentication_failed"),
        };
        self.collected.model.clone_from(&model);
        match answer(raw, parts, model, expected) {
            Err(ClaudeCodeError::CliInterrupted { .. }) if interrupted == Some(Reason::Timeout) => {
                Err(self.timed_out(""))
            }
            answer => answer,
        }
    }

    /// Sets the parent span of calls. A stored span does not close, so it is removed with its turn.
    fn surround_calls(&self, span: Option<Span>) {
        if let Some(offer) = &self.offer {
            offer.surround_calls(span);
        }
    }

    fn end_turn(&mut self, answer: Result<ResponseWithMetadata, ClaudeCodeError>) {
        self.surround_calls(None);
        if let Some(turn) = self.turn.take() {
            turn.events.end(answer);
        }
    }

    /// Fails all waiting requests. The first one gets the error itself, the others get a summary of it.
    fn fail(mut self, error: ClaudeCodeError) {
        let why = error.to_string();
        let over = || ClaudeCodeError::execution(ExecutionKind::Exit, format!("the CLI has ended: {why}"));
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Turn(turn) => self.next_turns.push_back(*turn),
                Command::Ready { reply, .. } | Command::Request { reply, .. } => self.waiting.push(reply),
            }
        }
        let mut first = Some(error);
        for mut turn in self.turn.into_iter().chain(self.next_turns) {
            // A turn that has not begun gets what the CLI has written, too.
            if let Some(listener) = turn.options.callbacks.on_stderr.take() {
                self.stderr.set_listener(Some(listener));
            }
            turn.events.end(Err(first.take().unwrap_or_else(over)));
        }
        for reply in self.waiting.into_iter().chain(self.requests.into_values()) {
            _ = reply.send(Err(first.take().unwrap_or_else(over)));
        }
    }

    /// Begins the next turn, or waits for one.
    fn next_turn(&mut self) {
        self.state = State::Ready;
        self.pending = None;
        self.deadline = Instant::now() + UNLIMITED;
        if let Some(turn) = self.next_turns.pop_front() {
            self.begin(turn);
        }
    }

    /// The turn's time limit starts now, even if the CLI is not ready for its prompt yet.
    fn begin(&mut self, mut turn: Turn) {
        self.limit_to(turn.options.limit);
        self.stderr.set_listener(turn.options.callbacks.on_stderr.take());
        self.callbacks = std::mem::take(&mut turn.options.callbacks);
        self.surround_calls(Some(std::mem::replace(&mut turn.span, Span::none())));
        if let (Some(offer), Some(bound)) = (&self.offer, turn.options.tools.take()) {
            let bound = Bound { waits: self.waits.clone(), ..bound };
            let changes = self.work.spawn(offer.tools.bind(bound));
            if let Some(before) = self.changes.replace(changes) {
                before.abort();
            }
        }
        self.turn = Some(turn);
        if self.state == State::Ready {
            self.send_prompt();
        }
    }

    fn limit_to(&mut self, limit: Duration) {
        self.limit = limit;
        self.began = Instant::now();
        self.waited = self.waits.total();
        self.deadline = self.began + limit.min(UNLIMITED);
    }

    fn handle(&mut self, command: Command) {
        match command {
            Command::Turn(turn) if self.turn.is_some() => self.next_turns.push_back(*turn),
            Command::Turn(turn) => self.begin(*turn),
            Command::Ready { reply, .. } if self.is_ready() => _ = reply.send(Ok(RawJson::empty_object())),
            Command::Ready { limit, reply } => {
                self.waiting.push(reply);
                self.limit_to(limit);
            }
            Command::Request { request, reply } => {
                let id = self.control.new_id();
                self.send(request_line(&id, &request));
                self.requests.insert(id, reply);
            }
        }
    }

    fn is_ready(&self) -> bool {
        !matches!(self.state, State::Greeting | State::Connecting { .. } | State::Exited { .. })
    }

    /// Forwards an event, if there is a turn that waits for events.
    pub(crate) fn emit(&mut self, event: Event, bytes: usize) -> Result<(), ClaudeCodeError> {
        let Some(turn) = &mut self.turn else { return Ok(()) };
        if let Some(began) = turn.began.take() {
            _ = began.send(());
        }
        let event = if self.has_started { event } else { Event::Background(Box::new(event)) };
        turn.events.send(event, bytes)
    }

    async fn run_turn(&mut self) -> Result<End, ClaudeCodeError> {
        let mut is_open = true;
        loop {
            let again = match self.pending {
                Some(Pending::Retry { at }) => Some(at),
                _ => None,
            };
            let is_running = !matches!(self.state, State::Exited { .. });
            let is_interrupted = matches!(self.state, State::Interrupted(_));
            let signals = self.turn.as_ref().map(|turn| turn.signals.clone());
            let until = self.turn.as_ref().and_then(|turn| turn.options.until.clone());
            tokio::select! {
                // Check what ends a request first: a CLI that never stops writing must not keep it running.
                biased;
                Some(()) = cancelled(signals.as_ref().map(|signals| &signals.cancel)) => return Err(INTERRUPTED),
                () = sleep_until(self.deadline) => {
                    if let Some(end) = self.deadline_reached()? {
                        return Ok(end);
                    }
                }
                Some(()) = cancelled(signals.as_ref().map(|signals| &signals.interrupt)), if is_running && !is_interrupted => {
                    self.interrupt(Reason::Requested)?;
                }
                Some(()) = cancelled(until.as_ref()), if self.state == State::Asked => self.end_early(),
                Some(()) = reached(again) => self.repeat_request(),
                Some(done) = self.work.join_next() => {
                    if let Err(Ok(panic)) = done.map_err(JoinError::try_into_panic) {
                        std::panic::resume_unwind(panic);
                    }
                }
                line = self.lines.next() => match line {
                    Ok(Some(Ok(line))) => {
                        self.pass_reports()?;
                        if let Some(raw) = self.take(&line)? {
                            return Ok(self.result(raw));
                        }
                        if self.state == State::Ended {
                            return Ok(End::Early);
                        }
                    }
                    Ok(Some(Err(_))) => return Err(too_much("a line", MAX_LINE_BYTES)),
                    Err(error) => {
                        let reason = format!("reading it failed: {error}");
                        return Err(ClaudeCodeError::CliResponseParse { reason });
                    }
                    Ok(None) => {
                        let status = match timeout(LAST_OUTPUT, self.process.exited()).await {
                            Ok(status) => status,
                            Err(_) => self.process.end_now().await,
                        };
                        return Ok(End::Exit(status));
                    }
                },
                // After the lines: a tool that reports progress without pause must not starve them.
                Some(report) = next_report(&mut self.turn) => self.emit(report.event, report.bytes)?,
                command = self.commands.recv(), if is_open => match command {
                    Some(command) => self.handle(command),
                    None if self.turn.is_none() => return Ok(End::Done),
                    None => is_open = false,
                },
                status = self.process.exited(), if is_running => {
                    let interrupted = match self.state {
                        State::Interrupted(reason) => Some(reason),
                        _ => None,
                    };
                    let greeting = self.state == State::Greeting;
                    self.state = State::Exited { status, interrupted, greeting };
                    self.pending = None;
                    self.deadline = self.deadline.min(Instant::now() + LAST_OUTPUT);
                }
            }
        }
    }

    fn result(&self, raw: RawJson) -> End {
        let interrupted = match self.state {
            State::Interrupted(reason) => Some(reason),
            State::Exited { interrupted, .. } => interrupted,
            _ => None,
        };
        End::Result { raw, interrupted }
    }

    fn deadline_reached(&mut self) -> Result<Option<End>, ClaudeCodeError> {
        if self.state == State::Asked && self.extend_deadline() {
            return Ok(None);
        }
        if let (State::Connecting { .. }, Some(name)) = (self.state, self.late_servers.first()) {
            let (late, seconds) = (self.late_servers.join("`, `"), self.limit.as_secs_f64());
            let reason = format!("the CLI was still connecting to `{late}` after {seconds} s");
            return Err(ClaudeCodeError::McpServer { name: name.clone(), reason });
        }
        let waiting = match (self.state, self.server()) {
            (State::Exited { status, .. }, _) => {
                // Another process holds the pipe open, so the last line may never end.
                let raw = self.lines.take_rest().map(|line| self.take(&line)).transpose()?.flatten();
                return Ok(Some(raw.map_or(End::Exit(status), |raw| self.result(raw))));
            }
            (State::Interrupted(Reason::Requested), _) => return Err(INTERRUPTED),
            (State::Ending, _) => return Ok(Some(End::Early)),
            // Interrupt instead of ending the CLI, so that the earlier conversation is not lost.
            (State::Asked, _) if !self.is_last() => return self.interrupt(Reason::Timeout).map(|()| None),
            (State::Connecting { .. }, Some(server)) => {
                format!("; the CLI was still connecting to the tools of server `{server}`")
            }
            (State::Connecting { .. }, None) => "; the CLI was still connecting to MCP servers".into(),
            _ => String::new(),
        };
        Err(self.timed_out(&waiting))
    }

    /// Extends the deadline by the time the CLI waited for functions of this process, unless that time
    /// counts. Returns whether there is time left.
    fn extend_deadline(&mut self) -> bool {
        if self.turn.as_ref().is_none_or(|turn| turn.options.counts_tools) {
            return false;
        }
        let (now, is_waiting) = (Instant::now(), self.waits.is_waiting());
        let due = self.began + self.limit.min(UNLIMITED) + self.waits.total().saturating_sub(self.waited);
        // While the CLI waits, no time is used up; checking periodically is enough.
        self.deadline = if is_waiting { due.max(now + WAIT_POLL) } else { due };
        self.deadline > now
    }

    /// Ends the turn with the output so far, once all of it has been read.
    fn end_early(&mut self) {
        self.state = State::Ending;
        self.deadline = self.deadline.min(Instant::now() + INTERRUPT_PATIENCE);
        self.request(&json!({ "subtype": "mcp_status" }));
    }

    fn timed_out(&self, waiting: &str) -> ClaudeCodeError {
        let message = format!("no result within {} s{waiting}", self.limit.as_secs_f64());
        ClaudeCodeError::execution(ExecutionKind::Timeout(self.limit), message)
    }

    fn interrupt(&mut self, reason: Reason) -> Result<(), ClaudeCodeError> {
        // No prompt has been sent, so there is nothing for the CLI to stop.
        if self.state != State::Asked {
            return Err(INTERRUPTED);
        }
        self.state = State::Interrupted(reason);
        self.deadline = match reason {
            Reason::Requested => self.deadline.min(Instant::now() + INTERRUPT_PATIENCE),
            Reason::Timeout => Instant::now() + INTERRUPT_PATIENCE,
        };
        self.repeat_request();
        Ok(())
    }

    /// Sends the request that belongs to the current state.
    fn repeat_request(&mut self) {
        match self.state {
            State::Connecting { .. } => self.request(&json!({ "subtype": "mcp_status" })),
            State::Interrupted(_) => self.request(&json!({ "subtype": "interrupt" })),
            State::Greeting
            | State::Ready
            | State::Asked
            | State::Ending
            | State::Ended
            | State::Exited { .. } => {}
        }
    }

    /// Sends a request of the driver.
    fn request(&mut self, request: &Value) {
        let id = self.control.new_id();
        self.send(request_line(&id, request));
        self.pending = Some(Pending::Response { id });
    }

    /// Writes a line in a task, so that reading is not blocked.
    pub(crate) fn send(&mut self, line: String) {
        let control = Arc::clone(&self.control);
        self.work.spawn(async move { _ = control.write_line(line).await });
    }

    /// Marks the CLI as ready for a prompt.
    fn set_ready(&mut self) {
        self.state = State::Ready;
        for reply in self.waiting.drain(..) {
            _ = reply.send(Ok(RawJson::empty_object()));
        }
        if self.turn.is_none() {
            self.deadline = Instant::now() + UNLIMITED;
        }
        self.send_prompt();
    }

    fn send_prompt(&mut self) {
        let Some(turn) = &mut self.turn else { return };
        let mut prompt = turn.prompt.take();
        self.prompt_id = Uuid::new_v4().to_string();
        prompt["uuid"] = json!(self.prompt_id);
        // Otherwise the CLI would add the prompt to a turn that it has started by itself.
        prompt["priority"] = json!("later");
        self.state = State::Asked;
        self.has_started = !self.reports_starts;
        self.collected.drop_parts();
        self.send(prompt.to_string());
    }

    /// Handles the CLI's response to one of our requests.
    pub(crate) fn answered(
        &mut self,
        id: String,
        answer: Result<RawJson, String>,
    ) -> Result<(), ClaudeCodeError> {
        if let Some(reply) = self.requests.remove(&id) {
            let refused =
                |reason| ClaudeCodeError::execution(ExecutionKind::Other, format!("the CLI says: {reason}"));
            _ = reply.send(answer.map_err(refused));
            return Ok(());
        }
        if self.pending != Some(Pending::Response { id }) {
            return Ok(());
        }
        self.pending = None;
        let again = |after| Some(Pending::Retry { at: Instant::now() + after });
        match (self.state, answer) {
            (State::Greeting, answer) => {
                if let Err(reason) = answer {
                    // Otherwise the restrictions would not be enforced and the system prompt would be
                    // missing.
                    if sets_options(&self.plan.initialize) {
                        let message = format!(
                            "the CLI rejected `initialize`, which sets prompts, hooks and restrictions: {reason}"
                        );
                        return Err(ClaudeCodeError::execution(ExecutionKind::Start, message));
                    }
                    tracing::debug!(%reason, "the CLI rejected `initialize`");
                }
                if self.offer.is_some() || !self.plan.other_servers.is_empty() {
                    self.state = State::Connecting { since: Instant::now() };
                    self.repeat_request();
                } else {
                    self.set_ready();
                }
            }
            (State::Connecting { since }, Ok(answer)) => {
                let servers = server_statuses(&answer);
                self.check_others(&servers)?;
                let is_late = |one: &&McpServerStatus| {
                    one.status == "pending" && self.plan.other_servers.contains(&one.name)
                };
                self.late_servers = servers.iter().filter(is_late).map(|one| one.name.clone()).collect();
                let ours = servers.iter().find(|status| Some(&*status.name) == self.server());
                match ours {
                    _ if !self.late_servers.is_empty() => self.pending = again(CONNECT_POLL),
                    None if self.offer.is_none() => self.set_ready(),
                    Some(status) if status.status == "connected" => self.set_ready(),
                    Some(status) if status.status == "pending" => self.pending = again(CONNECT_POLL),
                    Some(status) => return Err(not_connected(status)),
                    // Some versions list servers only after the prompt; their report then decides.
                    None if since.elapsed() >= self.plan.patience => self.set_ready(),
                    None => self.pending = again(CONNECT_POLL),
                }
            }
            // An older CLI. It reports the servers when it starts on the prompt.
            (State::Connecting { .. }, Err(_)) => self.set_ready(),
            (State::Interrupted(_), Ok(_)) => self.pending = again(INTERRUPT_RETRY),
            (State::Ending, _) => self.state = State::Ended,
            (State::Interrupted(_), Err(_))
            | (State::Ready | State::Asked | State::Ended | State::Exited { .. }, _) => {}
        }
        Ok(())
    }

    /// Forwards the pending progress reports of tools, so that they come before the tools' results.
    fn pass_reports(&mut self) -> Result<(), ClaudeCodeError> {
        let waiting =
            self.turn.as_ref().and_then(|turn| turn.reports.as_ref()).map_or(0, mpsc::Receiver::len);
        for _ in 0..waiting {
            let reports = self.turn.as_mut().and_then(|turn| turn.reports.as_mut());
            let Some(Ok(report)) = reports.map(mpsc::Receiver::try_recv) else { break };
            self.emit(report.event, report.bytes)?;
        }
        Ok(())
    }
}

const INTERRUPTED: ClaudeCodeError = ClaudeCodeError::CliInterrupted { result: None };

/// Lets the CLI end after its result. Its output is still read, so that it can exit by itself.
async fn end_orderly(
    process: &mut Process,
    lines: &mut LineReader<pipe::Receiver>,
    cancel: &CancellationToken,
) {
    let reading = async {
        while let Ok(Some(_)) = lines.next().await {}
        std::future::pending().await
    };
    let is_cancelled = tokio::select! {
        _ = process.end_orderly() => false,
        () = cancel.cancelled() => true,
        never = reading => never,
    };
    if is_cancelled {
        process.end_now().await;
    }
}

async fn reached(at: Option<Instant>) -> Option<()> {
    sleep_until(at?).await;
    Some(())
}

async fn cancelled(signal: Option<&CancellationToken>) -> Option<()> {
    signal?.cancelled().await;
    Some(())
}

async fn next_report(turn: &mut Option<Turn>) -> Option<Report> {
    turn.as_mut()?.reports.as_mut()?.recv().await
}

pub(crate) fn too_much(what: &str, limit: usize) -> ClaudeCodeError {
    ClaudeCodeError::CliResponseParse { reason: format!("{what} is over the limit of {limit} bytes") }
}

/// Whether the request depends on the `initialize` request.
fn sets_options(initialize: &Value) -> bool {
    initialize.as_object().is_some_and(|members| members.len() > 2)
        || initialize.get("hooks").is_some_and(|hooks| !hooks.is_null())
}

/// The servers in the response to `mcp_status`.
fn server_statuses(status: &RawJson) -> Vec<McpServerStatus> {
    #[derive(Deserialize)]
    struct Status {
        #[serde(rename = "mcpServers")]
        servers: Vec<Value>,
    }
    let servers = status.decode().map(|status: Status| status.servers).unwrap_or_default();
    servers.into_iter().filter_map(|status| serde_json::from_value(status).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ResponseStream;

    #[test]
    fn our_server_status_is_found_among_others() {
        let status = RawJson::from(&json!({ "mcpServers": [
            { "name": "other", "status": "failed", "error": { "code": 1 } },
            { "name": "tools", "status": "failed", "error": "Connection closed" },
        ] }));
        let [ours] = &server_statuses(&status)[..] else { panic!("the other has no text as its error") };
        assert_eq!(
            not_connected(ours).to_string(),
            "the tools of server `tools` are not available: the CLI says `failed`: Connection closed"
        );
    }

    /// A driver with a turn, and the stream of its events.
    fn driver(initialize: Value) -> (Driver, ResponseStream) {
        let plan = Plan {
            initialize,
            patience: Duration::ZERO,
            wants_output: false,
            restrictions: Restrictions::default(),
            unconfirmed_tools: Vec::new(),
            other_servers: Vec::new(),
        };
        let cli = Process::start(std::process::Command::new("/bin/cat"), None).unwrap();
        let (_, commands) = mpsc::unbounded_channel();
        let mut driver = Driver::new(plan, cli, None, Waits::default(), commands);
        let (events, stream) = ResponseStream::new(Signals::default(), ());
        driver.begin(Turn {
            prompt: json!({}),
            options: TurnOptions {
                limit: Duration::from_secs(60),
                counts_tools: true,
                ..TurnOptions::default()
            },
            began: None,
            _place: None,
            signals: Signals::default(),
            events,
            span: Span::none(),
            reports: None,
        });
        (driver, stream)
    }

    #[tokio::test]
    async fn only_the_response_to_the_current_request_changes_the_state() {
        let (mut driver, mut stream) = driver(json!({ "subtype": "initialize", "hooks": null }));
        driver.request(&driver.plan.initialize.clone());
        driver.answered("another id".into(), Ok(RawJson::empty_object())).unwrap();
        assert_eq!(driver.state, State::Greeting);
        let Some(Pending::Response { id }) = &driver.pending else { panic!("{:?}", driver.pending) };
        driver.answered(id.clone(), Err("no".into())).unwrap();
        assert_eq!((driver.state, &driver.pending), (State::Asked, &None));

        driver.interrupt(Reason::Requested).unwrap();
        assert_eq!(driver.state, State::Interrupted(Reason::Requested));
        let Some(Pending::Response { id }) = &driver.pending else { panic!("{:?}", driver.pending) };
        driver.answered(id.clone(), Ok(RawJson::empty_object())).unwrap();
        assert!(matches!(driver.pending, Some(Pending::Retry { .. })), "{:?}", driver.pending);
        driver.repeat_request();
        let Some(Pending::Response { id }) = &driver.pending else { panic!("{:?}", driver.pending) };
        driver.answered(id.clone(), Err("no".into())).unwrap();
        assert_eq!((driver.state, &driver.pending), (State::Interrupted(Reason::Requested), &None));
        drop(driver);
        assert!(stream.next().await.is_none());
    }

    #[tokio::test]
    async fn time_in_functions_of_this_process_counts_only_if_configured() {
        let (mut driver, _stream) = driver(json!({ "subtype": "initialize", "hooks": null }));
        tokio::time::pause();
        driver.limit_to(Duration::from_secs(60));
        let second = |count| tokio::time::advance(Duration::from_secs(count));
        let wait = driver.waits.begin();
        second(100).await;
        assert!(!driver.extend_deadline());
        driver.turn.as_mut().unwrap().options.counts_tools = false;
        assert!(driver.extend_deadline());
        drop(wait);
        second(59).await;
        assert!(driver.extend_deadline());
        assert_eq!(driver.deadline, Instant::now() + Duration::from_secs(1));
        second(1).await;
        assert!(!driver.extend_deadline());
        // Time waited before a turn does not count for it.
        driver.limit_to(Duration::from_secs(60));
        second(60).await;
        assert!(!driver.extend_deadline());
    }

    #[tokio::test]
    async fn a_rejected_initialize_that_sets_options_is_an_error() {
        let (mut driver, mut stream) = driver(json!({ "subtype": "initialize", "hooks": {} }));
        driver.request(&driver.plan.initialize.clone());
        let error = driver.interrupt(Reason::Requested).unwrap_err();
        assert!(matches!(error, ClaudeCodeError::CliInterrupted { result: None }), "{error}");
        let Some(Pending::Response { id }) = &driver.pending else { panic!("{:?}", driver.pending) };
        let error = driver.answered(id.clone(), Err("no".into())).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the CLI rejected `initialize`, which sets prompts, hooks and restrictions: no"
        );
        drop(driver);
        assert!(stream.next().await.is_none());
    }
}
