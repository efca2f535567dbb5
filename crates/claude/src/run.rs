//! The loop of a CLI: gives the driver its inputs, and does what it decides.

use std::collections::{HashMap, VecDeque};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

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

use crate::callbacks::Callbacks;
use crate::callbacks::hook::place_of;
use crate::callbacks::permission::decide;
use crate::callbacks::question::ask;
use crate::cli::{Command, ControlResponse, Turn};
use crate::driver::{Action, Driver, Exit, INTERRUPTED, Input, too_much};
use crate::error::ExecutionKind;
use crate::permit::{Waits, awaited};
use crate::process::Process;
use crate::process::diagnose::{broken_guardian, explain, no_result};
use crate::process::stderr::Tail;
use crate::protocol::control::{Control, request_line, response_line};
use crate::protocol::message::CliRequest;
use crate::protocol::sdk::SdkServer;
use crate::response::Event;
use crate::tools::{Channel, ToolServer, TurnTools};
use crate::{ClaudeCodeError, ResponseWithMetadata};

/// The longest line that is read from the CLI; a limit on memory.
const MAX_LINE_BYTES: usize = 256 * 1024 * 1024;

/// The maximum number of unanswered requests of the CLI.
const MAX_REQUESTS: usize = 4096;

/// How long to wait for more output after the CLI has ended: another process may still hold the pipe open.
const LAST_OUTPUT: Duration = Duration::from_millis(500);

/// Gives the driver its inputs and performs its actions.
pub(crate) struct Loop {
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
    pub(crate) fn new(
        driver: Driver,
        commands: mpsc::UnboundedReceiver<Command>,
        process: Process,
        pipes: Pipes,
        tools: Option<(Arc<ToolServer>, Channel)>,
        waits: Waits,
    ) -> Self {
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
        Self {
            driver,
            commands,
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
        }
    }

    /// Runs turns until the end, then cleans up.
    pub(crate) async fn run(mut self) {
        let mut inputs = VecDeque::from([Input::Started]);
        let exit = loop {
            let Some(input) = inputs.pop_front() else {
                self.wait(&mut inputs).await;
                continue;
            };
            let mut actions = self.driver.on(input, self.waits.now()).into_iter();
            if let Some(exit) = actions.find_map(|action| self.perform(action)) {
                break exit;
            }
        };
        self.end(exit).await;
    }

    /// Waits for something to happen, and tells the driver.
    async fn wait(&mut self, inputs: &mut VecDeque<Input>) {
        let is_running = self.exited.is_none();
        let signals = self.turn.as_ref().map(|turn| turn.signals.clone());
        let until = self.turn.as_ref().and_then(|turn| turn.options.until.clone());
        let input = tokio::select! {
            // Check what ends a request first: a CLI that never stops writing must not keep it running.
            biased;
            Some(()) = cancelled(signals.as_ref().map(|signals| &signals.cancel)) => Some(Input::Failed(INTERRUPTED)),
            () = sleep_until(self.driver.wakes()), if is_running => Some(Input::Time),
            Some(()) = cancelled(signals.as_ref().map(|signals| &signals.interrupt)),
                if is_running && self.driver.can_be_interrupted() => Some(Input::Interrupt),
            Some(()) = cancelled(until.as_ref()), if self.driver.is_asked() => Some(Input::Finish),
            Some(done) = self.work.join_next() => {
                if let Err(Ok(panic)) = done.map_err(JoinError::try_into_panic) {
                    std::panic::resume_unwind(panic);
                }
                None
            }
            // Before the lines: whether there is a next turn decides what follows from a result.
            command = self.commands.recv(), if self.is_open => {
                self.is_open = command.is_some();
                command.map_or(Some(Input::Closed), |command| self.command(command))
            }
            line = self.lines.next() => Some(match line {
                Ok(Some(Ok(line))) => {
                    // The progress of a tool comes before its result.
                    let reports = self.turn.as_mut().and_then(|turn| turn.reports.as_mut());
                    let waiting = reports.into_iter().flat_map(|reports| {
                        (0..reports.len()).map_while(|_| reports.try_recv().ok()).collect::<Vec<_>>()
                    });
                    inputs.extend(waiting.map(|(event, bytes)| Input::Report(event, bytes)));
                    Input::Line(line)
                }
                Ok(Some(Err(_))) => Input::Failed(too_much("a line", MAX_LINE_BYTES)),
                Err(error) => {
                    let reason = format!("reading it failed: {error}");
                    Input::Failed(ClaudeCodeError::CliResponseParse { reason })
                }
                Ok(None) => Input::Exited(match timeout(LAST_OUTPUT, self.process.exited()).await {
                    Ok(status) => status,
                    Err(_) => self.process.end_now().await,
                }),
            }),
            // After the lines: a tool that reports progress without pause must not starve them.
            Some((event, bytes)) = next_report(&mut self.turn) => Some(Input::Report(event, bytes)),
            status = self.process.exited(), if is_running => {
                self.exited = Some((status, Instant::now() + LAST_OUTPUT));
                None
            }
            Some(status) = silent(self.exited) => {
                // Another process holds the pipe open, so the last line may never end.
                inputs.extend(self.lines.take_rest().map(Input::Line));
                Some(Input::Exited(status))
            }
        };
        inputs.extend(input);
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

    /// Does what the driver has decided; returns how the CLI is to end, if it is.
    fn perform(&mut self, action: Action) -> Option<Exit> {
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
                if let Some(on_message) = &self.callbacks.on_message
                    && let Ok(message) = RawJson::parse(line)
                {
                    (on_message.0)(&message);
                }
            }
            Action::Emit(event, bytes) => {
                let Some(turn) = &mut self.turn else { return None };
                if let Some(began) = turn.began.take() {
                    _ = began.send(());
                }
                if let Err(error) = turn.events.send(event, bytes) {
                    return Some(Exit::Failed(error));
                }
            }
            Action::Respond { id, request } => {
                if self.work.len() > MAX_REQUESTS {
                    let reason = format!("it has more than {MAX_REQUESTS} unanswered requests");
                    return Some(Exit::Failed(ClaudeCodeError::CliResponseParse { reason }));
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
            Action::Exit(exit) => return Some(exit),
        }
        None
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
