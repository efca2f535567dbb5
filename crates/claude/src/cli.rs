//! A running CLI, for one request or for many: its holders' handle, and the loop that does what its driver decides.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::ops::ControlFlow;
use std::process::ExitStatus;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;
use toolbridge_core::Session;
use toolbridge_core::call::CancellationToken;
use toolbridge_core::mcp::{Incoming as _, LineReader, Serving, serve_with};
use toolbridge_core::process::child::Pipes;
use toolbridge_core::tool::RawJson;
use tracing::{Instrument as _, Span};

use crate::callbacks::Callbacks;
use crate::callbacks::hook::place_of;
use crate::callbacks::permission::decide;
use crate::callbacks::question::ask;
use crate::driver::{Action, Driver, Exit, INTERRUPTED, Input, Prompt, too_much};
use crate::error::ExecutionKind;
use crate::launch::Launch;
use crate::permit::{Permit, Waits, awaited};
use crate::process::diagnose::{broken_guardian, explain, no_result};
use crate::process::stderr::Tail;
use crate::process::{Group, Process};
use crate::protocol::control::{Control, request_line, response_line};
use crate::protocol::message::CliRequest;
use crate::protocol::sdk::SdkServer;
use crate::response::Event;
use crate::stream::{Events, RequestGuard, ResponseStream, Signals};
use crate::tools::{Channel, MAX_REPORTS, ToolServer, TurnTools};
use crate::{ClaudeCodeError, ResponseWithMetadata};

/// The longest line that is read from the CLI; a limit on memory.
const MAX_LINE_BYTES: usize = 256 * 1024 * 1024;

/// The maximum number of unanswered requests of the CLI.
const MAX_REQUESTS: usize = 4096;

/// How long to wait for more output after the CLI has ended: another process may still hold the pipe open.
const LAST_OUTPUT: Duration = Duration::from_millis(500);

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
    prompt: Option<Prompt>,
    options: TurnOptions,
    /// Notified when the CLI starts working on the turn, or when the turn is over.
    began: Option<oneshot::Sender<()>>,
    /// Released together with the turn, so that a request without a driver does not count as running.
    _guard: RequestGuard,
    signals: Signals,
    events: Events,
    /// The caller's span.
    span: Span,
    /// The progress of tool calls.
    reports: Option<mpsc::Receiver<(Event, usize)>>,
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
enum Command {
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
        let control = Arc::new(Control::new(pipes.stdin));
        let mut work = JoinSet::new();
        let mut sdk = None;
        if let Some((server, Channel::Sdk(source, Serving { info, tracer, .. }))) = &tools {
            let (outgoing, incoming) = SdkServer::new(&server.name, Arc::clone(&control));
            sdk = Some(outgoing.clone());
            let serving = Serving { info: info.clone(), tracer: tracer.clone(), session_id: None };
            let source = Arc::clone(source);
            let serving = async move {
                _ = serve_with(source, serving, incoming, outgoing).await;
            };
            work.spawn(serving.in_current_span());
        }
        let driving = Loop {
            driver: Driver::new(launch, initialize, waits.now()),
            commands: receiver,
            is_open: true,
            turn: None,
            next_turns: VecDeque::new(),
            callbacks: Callbacks::default(),
            cancel: CancellationToken::new(),
            requests: HashMap::new(),
            waiting: Vec::new(),
            running: HashMap::new(),
            changes: None,
            process,
            exited: None,
            lines: LineReader::with_limit(pipes.stdout, MAX_LINE_BYTES),
            stderr: Tail::of(pipes.stderr),
            control,
            tools,
            sdk,
            waits,
            work,
        };
        let driving = async move {
            let _permit = permit;
            driving.run().await;
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

/// Gives the driver its inputs and performs its actions.
struct Loop {
    driver: Driver,
    commands: mpsc::UnboundedReceiver<Command>,
    is_open: bool,
    turn: Option<Turn>,
    next_turns: VecDeque<Turn>,
    /// The functions of this turn or, between two turns, of the last one.
    callbacks: Callbacks,
    /// Ends the last turn at once.
    cancel: CancellationToken,
    /// Requests from holders of the CLI, by request id.
    requests: HashMap<String, oneshot::Sender<ControlResponse>>,
    /// Callers that wait until the CLI accepts a prompt.
    waiting: Vec<oneshot::Sender<ControlResponse>>,
    /// Requests of the CLI in progress, which it may cancel.
    running: HashMap<String, AbortHandle>,
    /// Forwards changes of our tool list.
    changes: Option<AbortHandle>,
    process: Process,
    /// How the CLI has ended, and how long its last output is waited for.
    exited: Option<(Option<ExitStatus>, Instant)>,
    lines: LineReader<pipe::Receiver>,
    stderr: Tail,
    control: Arc<Control>,
    tools: Option<(Arc<ToolServer>, Channel)>,
    sdk: Option<SdkServer>,
    waits: Waits,
    /// Tasks that run concurrently with reading.
    work: JoinSet<()>,
}

impl Loop {
    /// Runs turns until the end, then cleans up.
    async fn run(mut self) {
        let mut inputs = VecDeque::from([Input::Started]);
        let exit = loop {
            let input = match inputs.pop_front() {
                Some(input) => input,
                None => self.wait(&mut inputs).await,
            };
            let mut actions = self.driver.on(input, self.waits.now()).into_iter();
            if let ControlFlow::Break(exit) = actions.try_for_each(|action| self.perform(action)) {
                break exit;
            }
        };
        self.end(exit).await;
    }

    /// Waits for the next input. Those that come before it are put into `before`, and it after them.
    async fn wait(&mut self, before: &mut VecDeque<Input>) -> Input {
        loop {
            let is_running = self.exited.is_none();
            let signals = self.turn.as_ref().map(|turn| turn.signals.clone());
            let until = self.turn.as_ref().and_then(|turn| turn.options.until.clone());
            tokio::select! {
                // Check what ends a request first: a CLI that never stops writing must not keep it running.
                biased;
                Some(()) = cancelled(signals.as_ref().map(|signals| &signals.cancel)) => return Input::Failed(INTERRUPTED),
                () = sleep_until(self.driver.wakes()), if is_running => return Input::Time,
                Some(()) = cancelled(signals.as_ref().map(|signals| &signals.interrupt)), if is_running && self.driver.can_be_interrupted() => {
                    return Input::Interrupt;
                }
                Some(()) = cancelled(until.as_ref()), if self.driver.is_asked() => return Input::Finish,
                Some(done) = self.work.join_next() => {
                    if let Err(Ok(panic)) = done.map_err(JoinError::try_into_panic) {
                        std::panic::resume_unwind(panic);
                    }
                }
                // Before the lines: whether there is a next turn decides what follows from a result.
                command = self.commands.recv(), if self.is_open => {
                    self.is_open = command.is_some();
                    if let Some(input) = command.map_or(Some(Input::Closed), |command| self.command(command)) {
                        return input;
                    }
                }
                line = self.lines.next() => match line {
                    Ok(Some(Ok(line))) => {
                        // The progress of a tool comes before its result.
                        let reports = self.turn.as_mut().and_then(|turn| turn.reports.as_mut());
                        let waiting = reports.into_iter().flat_map(|reports| {
                            (0..reports.len()).map_while(|_| reports.try_recv().ok()).collect::<Vec<_>>()
                        });
                        before.extend(waiting.map(|(event, bytes)| Input::Report(event, bytes)));
                        before.push_back(Input::Line(line));
                        if let Some(first) = before.pop_front() {
                            return first;
                        }
                    }
                    Ok(Some(Err(_))) => return Input::Failed(too_much("a line", MAX_LINE_BYTES)),
                    Err(error) => {
                        let reason = format!("reading it failed: {error}");
                        return Input::Failed(ClaudeCodeError::CliResponseParse { reason });
                    }
                    Ok(None) => {
                        return Input::Exited(match timeout(LAST_OUTPUT, self.process.exited()).await {
                            Ok(status) => status,
                            Err(_) => self.process.end_now().await,
                        });
                    }
                },
                // After the lines: a tool that reports progress without pause must not starve them.
                Some((event, bytes)) = next_report(&mut self.turn) => return Input::Report(event, bytes),
                status = self.process.exited(), if is_running => {
                    self.exited = Some((status, Instant::now() + LAST_OUTPUT));
                }
                Some(status) = silent(self.exited) => {
                    // Another process holds the pipe open, so the last line may never end.
                    return self.lines.take_rest().map_or(Input::Exited(status), Input::Line);
                }
            }
        }
    }

    fn command(&mut self, command: Command) -> Option<Input> {
        match command {
            Command::Turn(mut turn) => {
                let prompt = turn.prompt.take().map(Input::Prompt);
                self.next_turns.push_back(*turn);
                prompt
            }
            Command::Ready { limit, reply } => {
                self.waiting.push(reply);
                Some(Input::Await(limit))
            }
            Command::Request { request, reply } => {
                let id = self.control.new_id();
                self.write(request_line(&id, &request));
                self.requests.insert(id, reply);
                None
            }
        }
    }

    fn perform(&mut self, action: Action) -> ControlFlow<Exit> {
        match action {
            Action::Write(line) => self.write(line),
            Action::Begin => self.begin(),
            Action::Ready => {
                self.waiting.drain(..).for_each(|reply| _ = reply.send(Ok(RawJson::empty_object())));
            }
            Action::Named(id) => {
                self.turn.as_ref().map(|turn| turn.options.session_id.set(id));
            }
            Action::Message(line) => {
                if let (Some(on_message), Ok(message)) = (&self.callbacks.on_message, RawJson::parse(line)) {
                    (on_message.0)(&message);
                }
            }
            Action::Emit(event, bytes) => {
                let Some(turn) = &mut self.turn else { return ControlFlow::Continue(()) };
                if let Some(began) = turn.began.take() {
                    _ = began.send(());
                }
                if let Err(error) = turn.events.send(event, bytes) {
                    return ControlFlow::Break(Exit::Failed(error));
                }
            }
            Action::Respond { id, request } => {
                if self.work.len() > MAX_REQUESTS {
                    let reason = format!("it has more than {MAX_REQUESTS} unanswered requests");
                    return ControlFlow::Break(Exit::Failed(ClaudeCodeError::CliResponseParse { reason }));
                }
                self.respond(id, request);
            }
            Action::Withdraw { id } => match (self.running.remove(&id), &self.sdk) {
                (Some(running), _) => running.abort(),
                (None, Some(sdk)) => sdk.cancel(&id),
                (None, None) => {}
            },
            Action::Response { id, response } => {
                if let Some(reply) = self.requests.remove(&id) {
                    let refused = |reason| {
                        ClaudeCodeError::execution(ExecutionKind::Other, format!("the CLI says: {reason}"))
                    };
                    _ = reply.send(response.map_err(refused));
                }
            }
            Action::End(response) => self.end_turn(response.map(|response| *response)),
            Action::Exit(exit) => return ControlFlow::Break(exit),
        }
        ControlFlow::Continue(())
    }

    fn begin(&mut self) {
        let Some(mut turn) = self.next_turns.pop_front() else { return };
        self.stderr.set_listener(turn.options.callbacks.on_stderr.take());
        self.callbacks = std::mem::take(&mut turn.options.callbacks);
        self.cancel = turn.signals.cancel.clone();
        if let Some((server, channel)) = &self.tools {
            channel.surround_calls(Some(std::mem::replace(&mut turn.span, Span::none())));
            if let Some(tools) = turn.options.tools.take() {
                let tools = TurnTools { waits: self.waits.clone(), ..tools };
                let changes = self.work.spawn(server.begin(tools));
                if let Some(before) = self.changes.replace(changes) {
                    before.abort();
                }
            }
        }
        self.turn = Some(turn);
    }

    fn end_turn(&mut self, response: Result<ResponseWithMetadata, ClaudeCodeError>) {
        // A stored span does not close, so it is removed with its turn.
        if let Some((_, channel)) = &self.tools {
            channel.surround_calls(None);
        }
        self.running.clear();
        if let Some(turn) = self.turn.take() {
            turn.events.end(response);
        }
    }

    /// Writes a line in a task, so that reading is not blocked.
    fn write(&mut self, line: String) {
        let control = Arc::clone(&self.control);
        self.work.spawn(async move { _ = control.write_line(line).await });
    }

    /// Responds to a request of the CLI.
    fn respond(&mut self, id: String, request: CliRequest) {
        let restrictions = self.driver.restrictions().clone();
        let server = self.tools.as_ref().map(|(server, _)| server.name.clone());
        let response = match request {
            CliRequest::Mcp { server, message } => match &self.sdk {
                Some(sdk) if sdk.name() == server => {
                    if sdk.take(&id, &message) {
                        return;
                    }
                    Ok(json!({ "mcp_response": { "jsonrpc": "2.0", "result": {} } }))
                }
                _ => Err(format!("there is no server `{server}` here")),
            },
            CliRequest::Hook { callback_id, input } => {
                match place_of(&callback_id).and_then(|place| self.callbacks.hooks.get(place)).cloned() {
                    Some(hook) => {
                        let output = async move { hook.call(&input, &restrictions, server.as_deref()).await };
                        return self.respond_later(id, output);
                    }
                    None => Err(format!("there is no hook `{callback_id}` here")),
                }
            }
            CliRequest::Permission(question) => {
                let can_use_tool = self.callbacks.can_use_tool.clone();
                return self.respond_later(id, async move {
                    let permission = decide(can_use_tool, &restrictions, server.as_deref(), &question).await;
                    permission.to_response(&question.input)
                });
            }
            CliRequest::Question(question) => {
                return self.respond_later(id, ask(self.callbacks.on_ask.clone(), question));
            }
            CliRequest::Unknown { subtype } => Err(format!("toolbridge does not answer `{subtype}`")),
        };
        self.write(response_line(&id, response));
    }

    /// Runs a function of this process in a task and sends its response. The CLI may cancel it.
    fn respond_later(&mut self, id: String, work: impl Future<Output = Value> + Send + 'static) {
        let (control, wait, request_id) = (self.control.clone(), self.waits.begin(), id.clone());
        let working = self.work.spawn(async move {
            let _wait = wait;
            let line = response_line(&id, Ok(awaited(work).await));
            _ = control.write_line(line).await;
        });
        self.running.insert(request_id, working);
    }

    /// Ends the CLI, then everything that belongs to it, then the turns that have no answer.
    async fn end(mut self, exit: Exit) {
        if matches!(exit, Exit::Early(_)) {
            // Kill the CLI first: if the calls it waits for ended before, it would continue.
            self.process.kill().await;
        }
        self.control.close();
        let failure = match exit {
            Exit::Orderly => {
                self.end_orderly().await;
                None
            }
            Exit::Early(response) => {
                self.end_turn(Ok(*response));
                None
            }
            Exit::Unexpected { status, has_greeted, unreadable } => {
                let broken = match &self.process.guardian {
                    Some(guardian) if !has_greeted => broken_guardian(guardian).await,
                    _ => None,
                };
                let stderr = self.stderr.text().await;
                Some(broken.unwrap_or_else(|| no_result(status, &stderr, unreadable)))
            }
            Exit::Failed(error) => {
                self.process.end_now().await;
                Some(explain(error, self.tools.as_ref().map(|(_, channel)| channel)).await)
            }
        };
        self.work.shutdown().await;
        if let Some(session) = self.tools.as_ref().and_then(|(_, channel)| channel.session()) {
            session.stop().await;
        }
        if let Some(error) = failure {
            self.fail(error);
        }
    }

    /// Lets the CLI end after its result. Its output is still read, so that it can exit by itself.
    async fn end_orderly(&mut self) {
        let reading = async {
            while let Ok(Some(_)) = self.lines.next().await {}
            std::future::pending().await
        };
        let is_cancelled = tokio::select! {
            _ = self.process.end_orderly() => false,
            () = self.cancel.cancelled() => true,
            never = reading => never,
        };
        if is_cancelled {
            self.process.end_now().await;
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
}

async fn cancelled(signal: Option<&CancellationToken>) -> Option<()> {
    signal?.cancelled().await;
    Some(())
}

async fn next_report(turn: &mut Option<Turn>) -> Option<(Event, usize)> {
    turn.as_mut()?.reports.as_mut()?.recv().await
}

/// How the CLI has ended, after its last output should have come.
async fn silent(exited: Option<(Option<ExitStatus>, Instant)>) -> Option<Option<ExitStatus>> {
    let (status, until) = exited?;
    sleep_until(until).await;
    Some(status)
}
