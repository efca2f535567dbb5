//! What follows from the CLI's output and from what its holders ask for: a state machine without I/O.
//!
//! [`Driver::on`] takes an [`Input`] and returns the [`Action`]s that follow; `run.rs` performs them. The
//! [`Phase`]s follow each other in the order in which they are listed; those that are not needed are skipped. A
//! result leads back to [`Phase::Ready`], and the next prompt is sent. When no further one can come, the CLI ends.

use std::collections::{HashMap, HashSet, VecDeque};
use std::process::ExitStatus;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use toolbridge_core::tool::RawJson;
use uuid::Uuid;

use crate::callbacks::restriction::{RESTRICTIONS, Restrictions, is_among, no_such_tool};
use crate::error::ExecutionKind;
use crate::launch::Launch;
use crate::names::{BUILTIN_TOOLS, unknown as unknown_name};
use crate::part::Part;
use crate::permit::Waited;
use crate::process::diagnose::{cli_says, not_connected, unknown};
use crate::protocol::control::{request_line, response_line};
use crate::protocol::message::{CliRequest, Line, read};
use crate::protocol::outcome::{Expected, response_of};
use crate::response::{Event, McpServerStatus, Started};
use crate::{ClaudeCodeError, ResponseWithMetadata};

/// How often the CLI is polled for its connection to our server, and how long to wait until it lists the server:
/// some versions do so only after the prompt.
const CONNECT_POLL: Duration = Duration::from_millis(20);
const LIST_PATIENCE: Duration = Duration::from_secs(5);

/// How long the CLI may take to return a result after an interrupt, and how often the interrupt is
/// repeated.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(5);
const INTERRUPT_RETRY: Duration = Duration::from_millis(500);

/// How often the deadline is checked while the CLI waits for functions of this process.
const WAIT_POLL: Duration = Duration::from_millis(100);

/// A timeout that is never reached in practice.
pub(crate) const UNLIMITED: Duration = Duration::from_secs(60 * 60 * 24 * 365);

/// The maximum size of an answer, with all its tool calls and results.
const MAX_ANSWER_BYTES: usize = 1024 * 1024 * 1024;

pub(crate) const INTERRUPTED: ClaudeCodeError = ClaudeCodeError::CliInterrupted { result: None };

/// What the state machine learns.
#[derive(Debug)]
pub(crate) enum Input {
    /// The CLI has been started.
    Started,
    /// A line of its output.
    Line(Bytes),
    /// A prompt, to be answered after those before it.
    Prompt(Prompt),
    /// Somebody waits until the CLI accepts a prompt, which must happen within this time.
    Await(Duration),
    /// No further prompt will come.
    Closed,
    /// The answer is not wanted.
    Interrupt,
    /// The answer is to be the output received so far.
    Finish,
    /// A tool reports progress; with the size of the event.
    Report(Event, usize),
    /// The time that [`Driver::wakes`] names has come.
    Time,
    /// The CLI has exited, and all its output has been read.
    Exited(Option<ExitStatus>),
    /// An action or the reading of the output has failed, or everything is to end at once.
    Failed(ClaudeCodeError),
}

/// What is to be done about it, in this order.
#[derive(Debug)]
pub(crate) enum Action {
    /// Write this line to the CLI.
    Write(String),
    /// The next prompt's turn begins: calls belong to it from now on.
    Begin,
    /// Tell those who wait that the CLI accepts a prompt.
    Ready,
    /// The conversation has this id.
    Named(String),
    /// Show a message of the CLI to the user's function.
    Message(Bytes),
    /// Pass on an event that came with a line of so many bytes.
    Emit(Event, usize),
    /// Respond to this request of the CLI.
    Respond { id: String, request: CliRequest },
    /// The CLI no longer waits for that response.
    Withdraw { id: String },
    /// The CLI's response to a request of one of its holders.
    Response { id: String, response: Result<RawJson, String> },
    /// The turn is over.
    End(Result<Box<ResponseWithMetadata>, ClaudeCodeError>),
    /// The CLI is to end. The last action.
    Exit(Exit),
}

/// How a CLI ends.
#[derive(Debug)]
pub(crate) enum Exit {
    /// By itself: it has answered all prompts.
    Orderly,
    /// Killed, because the turn ends with the output received so far.
    Early(Box<ResponseWithMetadata>),
    /// It has ended without a result.
    Unexpected { status: Option<ExitStatus>, has_greeted: bool, unreadable: Option<String> },
    /// Because of an error.
    Failed(ClaudeCodeError),
}

/// A prompt as a line for the CLI, and the limit of its answer.
#[derive(Debug, Default)]
pub(crate) struct Prompt {
    pub(crate) line: Value,
    pub(crate) limit: Duration,
    /// Whether time spent waiting for functions of this process counts towards the limit.
    pub(crate) counts_tools: bool,
}

/// The progress of the CLI.
#[derive(Debug, PartialEq)]
enum Phase {
    /// The `initialize` request has been sent.
    Greeting,
    /// The CLI is polled until it is connected to the servers that were given; otherwise the model would not see the
    /// tools. `late` are the other servers that it is still connecting to.
    Connecting { since: Instant, late: Vec<String> },
    /// The CLI accepts a prompt.
    Ready,
    /// The prompt has been sent.
    Asked,
    /// The CLI is told to stop. This is repeated because the CLI only listens while it queries the model.
    Interrupted(Reason),
    /// The turn is to end early. All output before the response to a request belongs to the turn.
    Ending,
}

/// Why a turn is interrupted.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Reason {
    /// [`ResponseStream::interrupt`](crate::ResponseStream::interrupt) was called.
    Requested,
    /// The time limit was reached.
    Timeout,
}

/// The request that belongs to the phase.
#[derive(Debug, PartialEq)]
enum Pending {
    /// There is none.
    Nothing,
    /// It was sent, with this id.
    Response(String),
    /// It will be sent again.
    Retry(Instant),
}

/// The time limit of a turn, or of a start.
#[derive(Debug)]
struct Limit {
    time: Duration,
    began: Waited,
    deadline: Instant,
}

/// Collected output of the CLI that is needed later.
#[derive(Debug, Default)]
struct Collected {
    parts: Vec<Part>,
    /// The total length of the lines that contained the parts.
    part_bytes: usize,
    model: Option<String>,
    session_id: Option<String>,
    /// The kind of error that the CLI reports in place of an answer.
    error: Option<String>,
    /// The error of the first unreadable line.
    unreadable: Option<String>,
    /// The calls being written, by block index: id and name.
    writing: HashMap<u64, (String, String)>,
    /// Tool names by call id.
    names: HashMap<String, String>,
    /// The calls whose restrictions were checked before the CLI made them.
    checked: HashSet<String>,
}

impl Collected {
    /// Drops the parts of another turn.
    fn drop_parts(&mut self) {
        self.parts.clear();
        self.part_bytes = 0;
    }
}

/// The state machine of one CLI.
#[derive(Debug)]
pub(crate) struct Driver {
    launch: Launch,
    initialize: Value,
    phase: Phase,
    pending: Pending,
    limit: Limit,
    /// The running turn, and those after it.
    turn: Option<Prompt>,
    next: VecDeque<Prompt>,
    is_closed: bool,
    last_id: u64,
    /// The id of the last prompt that was sent.
    prompt_id: String,
    /// Whether the CLI reports when it starts on a prompt; older ones do not.
    reports_starts: bool,
    /// Whether the CLI has started on the turn's prompt, as far as it reports that.
    has_started: bool,
    collected: Collected,
    actions: Vec<Action>,
}

impl Driver {
    /// The state of a CLI that has not been started yet; `initialize` is the request that it gets first.
    pub(crate) fn new(launch: Launch, initialize: Value, now: Waited) -> Self {
        Self {
            launch,
            initialize,
            phase: Phase::Greeting,
            pending: Pending::Nothing,
            limit: Limit { time: UNLIMITED, began: now, deadline: now.now + UNLIMITED },
            turn: None,
            next: VecDeque::new(),
            is_closed: false,
            last_id: 0,
            prompt_id: String::new(),
            reports_starts: false,
            has_started: true,
            collected: Collected::default(),
            actions: Vec::new(),
        }
    }

    /// What follows from an input.
    pub(crate) fn on(&mut self, input: Input, now: Waited) -> Vec<Action> {
        let exit = self.take(input, now).unwrap_or_else(|error| Some(Exit::Failed(error)));
        let exit = exit.or_else(|| self.go_on(now));
        self.actions.extend(exit.map(Action::Exit));
        std::mem::take(&mut self.actions)
    }

    /// When the machine needs to know the time.
    pub(crate) fn wakes(&self) -> Instant {
        match self.pending {
            Pending::Retry(at) => at.min(self.limit.deadline),
            Pending::Nothing | Pending::Response(_) => self.limit.deadline,
        }
    }

    /// Whether an interrupt has an effect.
    pub(crate) fn can_be_interrupted(&self) -> bool {
        !matches!(self.phase, Phase::Interrupted(_))
    }

    pub(crate) fn restrictions(&self) -> &Restrictions {
        &self.launch.restrictions
    }

    /// Whether the model works on a prompt, so that the turn can end early.
    pub(crate) fn is_asked(&self) -> bool {
        self.phase == Phase::Asked
    }

    fn take(&mut self, input: Input, now: Waited) -> Result<Option<Exit>, ClaudeCodeError> {
        match input {
            Input::Started => self.enter(Phase::Greeting, now),
            Input::Line(line) => return self.line(&line, now),
            Input::Prompt(prompt) => self.next.push_back(prompt),
            Input::Await(limit) => match self.phase {
                Phase::Greeting | Phase::Connecting { .. } => self.limit_to(limit, now),
                _ => self.actions.push(Action::Ready),
            },
            Input::Closed => self.is_closed = true,
            Input::Interrupt => match self.phase {
                Phase::Asked => self.enter(Phase::Interrupted(Reason::Requested), now),
                Phase::Interrupted(_) => {}
                // No prompt has been sent, so there is nothing for the CLI to stop.
                _ => return Err(INTERRUPTED),
            },
            Input::Finish => self.enter(Phase::Ending, now),
            Input::Report(event, bytes) => self.emit(event, bytes),
            Input::Time => return self.time_has_come(now),
            Input::Exited(status) => {
                let has_greeted = self.phase != Phase::Greeting;
                let unreadable = self.collected.unreadable.take();
                return Ok(Some(Exit::Unexpected { status, has_greeted, unreadable }));
            }
            Input::Failed(error) => return Err(error),
        }
        Ok(None)
    }

    /// Begins the next turn, sends its prompt once the CLI accepts it, and lets the CLI end after the last.
    fn go_on(&mut self, now: Waited) -> Option<Exit> {
        if self.turn.is_none() {
            self.turn = self.next.pop_front();
            // The time limit starts now, even if the CLI is not ready for the prompt yet.
            if let Some(limit) = self.turn.as_ref().map(|turn| turn.limit) {
                self.limit_to(limit, now);
                self.actions.push(Action::Begin);
            }
        }
        match &mut self.turn {
            Some(turn) if self.phase == Phase::Ready => {
                let mut prompt = turn.line.take();
                self.prompt_id = Uuid::new_v4().to_string();
                prompt["uuid"] = json!(self.prompt_id);
                // Otherwise the CLI would add the prompt to a turn that it has started by itself.
                prompt["priority"] = json!("later");
                self.has_started = !self.reports_starts;
                self.collected.drop_parts();
                self.actions.push(Action::Write(prompt.to_string()));
                self.enter(Phase::Asked, now);
                None
            }
            Some(_) => None,
            None => self.is_closed.then_some(Exit::Orderly),
        }
    }

    /// Goes to a phase and sends the request that belongs to it.
    fn enter(&mut self, phase: Phase, Waited { now, .. }: Waited) {
        match phase {
            Phase::Ready => {
                self.actions.push(Action::Ready);
                if self.turn.is_none() {
                    self.limit.deadline = now + UNLIMITED;
                }
            }
            Phase::Interrupted(Reason::Timeout) => self.limit.deadline = now + INTERRUPT_PATIENCE,
            Phase::Interrupted(Reason::Requested) | Phase::Ending => {
                self.limit.deadline = self.limit.deadline.min(now + INTERRUPT_PATIENCE);
            }
            Phase::Greeting | Phase::Connecting { .. } | Phase::Asked => {}
        }
        self.phase = phase;
        self.request();
    }

    fn request(&mut self) {
        let request = match self.phase {
            Phase::Greeting => self.initialize.clone(),
            Phase::Connecting { .. } | Phase::Ending => json!({ "subtype": "mcp_status" }),
            Phase::Interrupted(_) => json!({ "subtype": "interrupt" }),
            Phase::Ready | Phase::Asked => return self.pending = Pending::Nothing,
        };
        self.last_id += 1;
        let id = format!("toolbridge_{}", self.last_id);
        self.actions.push(Action::Write(request_line(&id, &request)));
        self.pending = Pending::Response(id);
    }

    fn limit_to(&mut self, limit: Duration, began: Waited) {
        self.limit = Limit { time: limit, began, deadline: began.now + limit.min(UNLIMITED) };
    }

    fn time_has_come(&mut self, now: Waited) -> Result<Option<Exit>, ClaudeCodeError> {
        if matches!(self.pending, Pending::Retry(at) if at <= now.now) {
            self.request();
        }
        if self.limit.deadline > now.now || (self.is_asked() && self.extend_deadline(now)) {
            return Ok(None);
        }
        let waiting = match (&self.phase, self.server()) {
            (Phase::Connecting { late, .. }, _) if !late.is_empty() => {
                let (all, seconds) = (late.join("`, `"), self.limit.time.as_secs_f64());
                let reason = format!("the CLI was still connecting to `{all}` after {seconds} s");
                return Err(ClaudeCodeError::McpServer { name: late[0].clone(), reason });
            }
            (Phase::Connecting { .. }, Some(server)) => {
                format!("; the CLI was still connecting to the tools of server `{server}`")
            }
            (Phase::Connecting { .. }, None) => "; the CLI was still connecting to MCP servers".into(),
            (Phase::Interrupted(Reason::Requested), _) => return Err(INTERRUPTED),
            (Phase::Ending, _) => return Ok(Some(self.early())),
            // Interrupt instead of ending the CLI, so that the earlier conversation is not lost.
            (Phase::Asked, _) if !(self.is_closed && self.next.is_empty()) => {
                self.enter(Phase::Interrupted(Reason::Timeout), now);
                return Ok(None);
            }
            _ => String::new(),
        };
        Err(self.timed_out(&waiting))
    }

    /// Extends the deadline by the time the CLI waited for functions of this process, unless that time
    /// counts. Returns whether there is time left.
    fn extend_deadline(&mut self, now: Waited) -> bool {
        if self.turn.as_ref().is_none_or(|turn| turn.counts_tools) {
            return false;
        }
        let Limit { time, began, .. } = self.limit;
        let due = began.now + time.min(UNLIMITED) + now.total.saturating_sub(began.total);
        // While the CLI waits, no time is used up; checking periodically is enough.
        self.limit.deadline = if now.is_waiting { due.max(now.now + WAIT_POLL) } else { due };
        self.limit.deadline > now.now
    }

    fn timed_out(&self, waiting: &str) -> ClaudeCodeError {
        let limit = self.limit.time;
        let message = format!("no result within {} s{waiting}", limit.as_secs_f64());
        ClaudeCodeError::execution(ExecutionKind::Timeout(limit), message)
    }

    fn early(&mut self) -> Exit {
        let Collected { parts, model, session_id, .. } = std::mem::take(&mut self.collected);
        Exit::Early(Box::new(ResponseWithMetadata::unfinished(parts, model, session_id)))
    }

    fn server(&self) -> Option<&str> {
        self.launch.tools.as_ref().map(|tools| tools.server.as_str())
    }

    fn line(&mut self, line: &Bytes, now: Waited) -> Result<Option<Exit>, ClaudeCodeError> {
        let read = match read(line) {
            Ok(read) => read,
            // Some versions write human-readable text to stdout.
            Err(reason) => {
                tracing::debug!(%reason, bytes = line.len(), "cannot read a line of the CLI's output");
                let start = String::from_utf8_lossy(&line[..line.len().min(80)]);
                self.collected.unreadable.get_or_insert(match line.trim_ascii_start().first() {
                    Some(b'{') => format!("a line of {} bytes: {reason}", line.len()),
                    _ => format!("`{start}` is not a message"),
                });
                return Ok(None);
            }
        };
        let is_control = matches!(
            &read,
            Line::Request { .. } | Line::Cancel { .. } | Line::Response { .. } | Line::Prompt { .. }
        );
        self.actions.extend((!is_control).then(|| Action::Message(line.clone())));
        match read {
            Line::Request { id, request: CliRequest::Hook { callback_id, input } }
                if callback_id == RESTRICTIONS =>
            {
                let (call, response) = self.launch.restrictions.before_use(&input, self.server());
                self.collected.checked.extend(call);
                self.actions.push(Action::Write(response_line(&id, Ok(response))));
            }
            Line::Request { id, request } => self.actions.push(Action::Respond { id, request }),
            Line::Cancel { id } => self.actions.push(Action::Withdraw { id }),
            Line::Response { id, response } => return self.response(id, response, now),
            Line::Prompt { id, starts } if id == self.prompt_id => {
                self.reports_starts = true;
                if starts {
                    self.has_started = true;
                    self.collected.drop_parts();
                }
            }
            Line::Prompt { .. } => {}
            Line::Result { raw, is_own } => {
                let is_of_prompt = if self.reports_starts { self.has_started } else { !is_own };
                if is_of_prompt && self.turn.take().is_some() {
                    let response = self.response_of(&raw);
                    self.actions.push(Action::End(response.map(Box::new)));
                    self.enter(Phase::Ready, now);
                } else {
                    self.collected.drop_parts();
                    self.emit(Event::Other(raw), line.len());
                }
            }
            Line::Events(events) => self.pass_on(events, line.len())?,
            Line::Call { index, id, name } => {
                self.collected.writing.insert(index, (id, name));
                let begins = RawJson::parse(line.clone()).map(Event::Other);
                self.pass_on(begins.into_iter().collect(), line.len())?;
            }
            Line::CallDelta { index, json } => {
                if let Some((id, name)) = self.collected.writing.get(&index) {
                    let delta = Event::ToolCallDelta { id: id.clone(), name: name.clone(), json };
                    self.emit(delta, line.len());
                }
            }
            Line::Assistant { model, error, events } => {
                self.collected.error = error;
                self.collected.model = model.or_else(|| self.collected.model.take());
                self.pass_on(events, line.len())?;
            }
        }
        Ok(None)
    }

    /// The CLI's response to a request of the phase, or of somebody else.
    fn response(
        &mut self,
        id: String,
        response: Result<RawJson, String>,
        now: Waited,
    ) -> Result<Option<Exit>, ClaudeCodeError> {
        if !matches!(&self.pending, Pending::Response(sent) if *sent == id) {
            self.actions.push(Action::Response { id, response });
            return Ok(None);
        }
        self.pending = Pending::Nothing;
        match (&self.phase, response) {
            (Phase::Greeting, response) => {
                if let Err(reason) = response {
                    // Otherwise the restrictions would not be enforced and the system prompt would be
                    // missing.
                    if sets_options(&self.initialize) {
                        let message = format!(
                            "the CLI rejected `initialize`, which sets prompts, hooks and restrictions: {reason}"
                        );
                        return Err(ClaudeCodeError::execution(ExecutionKind::Start, message));
                    }
                    tracing::debug!(%reason, "the CLI rejected `initialize`");
                }
                let connects = self.launch.tools.is_some() || !self.launch.settings.mcp_servers.is_empty();
                let connecting = Phase::Connecting { since: now.now, late: Vec::new() };
                self.enter(if connects { connecting } else { Phase::Ready }, now);
            }
            (Phase::Connecting { since, .. }, Ok(status)) => {
                let since = *since;
                match self.late_servers(&status, since, now)? {
                    None => self.enter(Phase::Ready, now),
                    Some(late) => {
                        self.phase = Phase::Connecting { since, late };
                        self.pending = Pending::Retry(now.now + CONNECT_POLL);
                    }
                }
            }
            // An older CLI. It reports the servers when it starts on the prompt.
            (Phase::Connecting { .. }, Err(_)) => self.enter(Phase::Ready, now),
            (Phase::Interrupted(_), Ok(_)) => self.pending = Pending::Retry(now.now + INTERRUPT_RETRY),
            (Phase::Ending, _) => return Ok(Some(self.early())),
            (Phase::Interrupted(_), Err(_)) | (Phase::Ready | Phase::Asked, _) => {}
        }
        Ok(None)
    }

    /// The other servers to which the CLI is still connecting; `None` if it is connected to all.
    fn late_servers(
        &self,
        status: &RawJson,
        since: Instant,
        now: Waited,
    ) -> Result<Option<Vec<String>>, ClaudeCodeError> {
        let servers = server_statuses(status);
        self.check_others(&servers)?;
        let others = &self.launch.settings.mcp_servers;
        let is_late = |one: &&McpServerStatus| one.status == "pending" && others.contains_key(&one.name);
        let late: Vec<_> = servers.iter().filter(is_late).map(|one| one.name.clone()).collect();
        let ours = servers.iter().find(|status| Some(&*status.name) == self.server());
        let has_ours = match ours {
            Some(status) if status.status == "connected" => true,
            Some(status) if status.status == "pending" => false,
            Some(status) if late.is_empty() => return Err(not_connected(status)),
            Some(_) => false,
            // Its report at the start of the prompt then decides.
            None => self.server().is_none() || now.now - since >= LIST_PATIENCE,
        };
        Ok((!late.is_empty() || !has_ours).then_some(late))
    }

    fn response_of(&mut self, raw: &RawJson) -> Result<ResponseWithMetadata, ClaudeCodeError> {
        let interrupted = match self.phase {
            Phase::Interrupted(reason) => Some(reason),
            _ => None,
        };
        let Collected { parts, model, error, .. } = std::mem::take(&mut self.collected);
        let expected = Expected {
            output: self.launch.output_schema.is_some(),
            interrupted: interrupted.is_some(),
            login_failed: error.as_deref() == Some("authentication_failed"),
        };
        self.collected.model.clone_from(&model);
        match response_of(raw, parts, model, expected) {
            Err(ClaudeCodeError::CliInterrupted { .. }) if interrupted == Some(Reason::Timeout) => {
                Err(self.timed_out(""))
            }
            response => response,
        }
    }

    /// Forwards an event, if there is a turn that waits for events.
    fn emit(&mut self, event: Event, bytes: usize) {
        if self.turn.is_some() {
            let event = if self.has_started { event } else { Event::Background(Box::new(event)) };
            self.actions.push(Action::Emit(event, bytes));
        }
    }

    /// Stores the parts of the answer and forwards all events.
    fn pass_on(&mut self, events: Vec<Event>, line_bytes: usize) -> Result<(), ClaudeCodeError> {
        if events.iter().any(|event| matches!(event, Event::Part(_))) {
            self.collected.part_bytes += line_bytes;
            if self.collected.part_bytes > MAX_ANSWER_BYTES {
                return Err(too_much("the answer", MAX_ANSWER_BYTES));
            }
        }
        let mut bytes = line_bytes;
        for mut event in events {
            match &mut event {
                Event::Part(part) => {
                    self.check_part(part)?;
                    self.collected.parts.push(part.clone());
                }
                Event::Started(started) => self.check_start(started)?,
                _ => {}
            }
            // The events of a line share its buffer, so its size is counted once.
            self.emit(event, std::mem::take(&mut bytes));
        }
        Ok(())
    }

    /// Adds the tool's name to its result, and fails if the CLI ran a restricted tool without asking first.
    fn check_part(&mut self, part: &mut Part) -> Result<(), ClaudeCodeError> {
        match part {
            Part::ToolCall { id, name, .. } => _ = self.collected.names.insert(id.clone(), name.clone()),
            Part::ToolResult { id, name, is_error, .. } => {
                *name = self.collected.names.get(id).cloned();
                if let Some(name) = name
                    && !*is_error
                    && self.launch.restrictions.restrict(name, self.server())
                    && !self.collected.checked.contains(id)
                {
                    let message = format!("the CLI ran `{name}` without checking its restrictions");
                    return Err(ClaudeCodeError::execution(ExecutionKind::Other, message));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Fails if the CLI starts without a server that was given, since the model would have no tools, or without a
    /// tool that only the CLI may know.
    fn check_start(&mut self, started: &Started) -> Result<(), ClaudeCodeError> {
        self.collected.model.clone_from(&started.model);
        self.collected.session_id.clone_from(&started.session_id);
        self.actions.extend(started.session_id.clone().map(Action::Named));
        if let Some(server) = self.server() {
            match started.mcp_servers.iter().find(|status| status.name == server) {
                Some(status) if status.status == "connected" => {}
                Some(status) => return Err(not_connected(status)),
                None => return Err(unknown(server)),
            }
        }
        self.check_others(&started.mcp_servers)?;
        let is_missing = |tool: &&String| !is_among(tool, &started.tools, self.server());
        let Some(tool) = self.launch.unconfirmed_tools.iter().find(is_missing) else { return Ok(()) };
        if self.launch.restrictions.tools().any(|restricted| restricted == tool) {
            return Err(no_such_tool(tool, &started.tools, self.server()));
        }
        let names = started.tools.iter().map(String::as_str);
        let offered: Vec<_> = names.filter(|name| !name.starts_with("mcp__")).collect();
        let known = if offered.is_empty() { BUILTIN_TOOLS } else { &offered };
        Err(unknown_name("built-in tool", tool, known))
    }

    /// Fails if another server that was given is not connected, and will not be.
    fn check_others(&self, servers: &[McpServerStatus]) -> Result<(), ClaudeCodeError> {
        let is_dead = |status: &&McpServerStatus| {
            matches!(&*status.status, "failed" | "needs-auth")
                && self.launch.settings.mcp_servers.contains_key(&status.name)
        };
        let Some(status) = servers.iter().find(is_dead) else { return Ok(()) };
        Err(ClaudeCodeError::McpServer { name: status.name.clone(), reason: cli_says(status) })
    }
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
    use toolbridge_core::tool::ToolList;

    use super::*;
    use crate::Transport;
    use crate::callbacks::restriction::Restrictions;
    use crate::tools::ServerTools;

    const LIMIT: Duration = Duration::from_secs(60);

    /// A driver, and its clock.
    struct Test {
        driver: Driver,
        now: Waited,
        /// The id of the last request to the CLI, and that of the last prompt.
        request: String,
        prompt: String,
    }

    impl Test {
        fn new(launch: Launch, initialize: Value) -> Self {
            let now = Waited { now: Instant::now(), total: Duration::ZERO, is_waiting: false };
            let (request, prompt) = (String::new(), String::new());
            Self { driver: Driver::new(launch, initialize, now), now, request, prompt }
        }

        /// A driver that has been given a prompt.
        fn asked() -> Self {
            let mut test = Self::new(Launch::default(), json!({ "subtype": "initialize", "hooks": null }));
            assert_eq!(test.on(Input::Started), ["write initialize"]);
            assert_eq!(test.prompt("first"), ["begin"]);
            assert_eq!(test.respond(), ["ready", "write first"]);
            test
        }

        /// What follows from an input, in short words.
        fn on(&mut self, input: Input) -> Vec<String> {
            let actions = self.driver.on(input, self.now);
            actions.into_iter().map(|action| self.short(action)).collect()
        }

        fn short(&mut self, action: Action) -> String {
            match action {
                Action::Write(line) => {
                    let line: Value = serde_json::from_str(&line).unwrap();
                    if let Some(subtype) = line["request"]["subtype"].as_str() {
                        self.request = line["request_id"].as_str().unwrap().into();
                        return format!("write {subtype}");
                    }
                    if line["type"] == "control_response" {
                        return format!("respond {}", line["response"]["response"]);
                    }
                    self.prompt = line["uuid"].as_str().unwrap().into();
                    assert_eq!(line["priority"], "later");
                    format!("write {}", line["text"].as_str().unwrap())
                }
                Action::Begin => "begin".into(),
                Action::Ready => "ready".into(),
                Action::Named(id) => format!("named {id}"),
                Action::Message(_) => "message".into(),
                Action::Emit(Event::Part(part), _) => format!("emit {}", part.text().unwrap_or_default()),
                Action::Emit(Event::Background(_), _) => "emit background".into(),
                Action::Emit(..) => "emit".into(),
                Action::Respond { id, .. } => format!("respond {id}"),
                Action::Withdraw { id } => format!("withdraw {id}"),
                Action::Response { id, response } => format!("response {id} {}", response.is_ok()),
                Action::End(Ok(whole)) => format!("end {}", whole.response.text()),
                Action::End(Err(error)) => format!("end: {error}"),
                Action::Exit(Exit::Orderly) => "exit".into(),
                Action::Exit(Exit::Early(whole)) => format!("exit early {}", whole.response.text()),
                Action::Exit(Exit::Unexpected { has_greeted, .. }) => {
                    format!("exit of the CLI {has_greeted}")
                }
                Action::Exit(Exit::Failed(error)) => format!("exit: {error}"),
            }
        }

        fn line(&mut self, line: &Value) -> Vec<String> {
            self.on(Input::Line(line.to_string().into()))
        }

        fn prompt(&mut self, text: &str) -> Vec<String> {
            let line = json!({ "text": text });
            self.on(Input::Prompt(Prompt { line, limit: LIMIT, counts_tools: false }))
        }

        /// The CLI's response to the last request.
        fn respond(&mut self) -> Vec<String> {
            self.respond_with(&json!({}))
        }

        fn respond_with(&mut self, response: &Value) -> Vec<String> {
            let id = self.request.clone();
            let response = json!({ "subtype": "success", "request_id": id, "response": response });
            self.line(&json!({ "type": "control_response", "response": response }))
        }

        fn refuse(&mut self) -> Vec<String> {
            let response = json!({ "subtype": "error", "request_id": self.request.clone(), "error": "no" });
            self.line(&json!({ "type": "control_response", "response": response }))
        }

        fn text(&mut self, text: &str) -> Vec<String> {
            let content = json!([{ "type": "text", "text": text }]);
            self.line(&json!({ "type": "assistant", "message": { "content": content } }))
        }

        fn result(&mut self) -> Vec<String> {
            self.line(&json!({ "type": "result", "subtype": "success" }))
        }

        fn starts(&mut self, prompt: &str) -> Vec<String> {
            self.line(&json!({ "type": "command_lifecycle", "command_uuid": prompt, "state": "started" }))
        }

        fn after(&mut self, time: Duration) -> Vec<String> {
            self.now.now += time;
            self.on(Input::Time)
        }
    }

    fn tools() -> ServerTools {
        let (server, transport) = ("tools".to_owned(), Transport::Stdio);
        ServerTools { server, transport, list: ToolList::default(), may_change: false }
    }

    #[test]
    fn prompts_are_answered_in_turn_and_after_the_last_the_cli_ends() {
        let mut test = Test::asked();
        assert_eq!(test.prompt("second"), [""; 0]);
        assert_eq!(test.text("one"), ["message", "emit one"]);
        assert_eq!(test.result(), ["message", "end one", "ready", "begin", "write second"]);
        assert_eq!(test.on(Input::Closed), [""; 0]);
        test.text("two");
        assert_eq!(test.result(), ["message", "end two", "ready", "exit"]);
    }

    #[test]
    fn a_cli_that_nobody_uses_ends() {
        let mut test = Test::new(Launch::default(), json!({ "subtype": "initialize" }));
        test.on(Input::Started);
        assert_eq!(test.on(Input::Closed), ["exit"]);
    }

    #[test]
    fn a_turn_of_the_cli_itself_is_not_an_answer() {
        let mut test = Test::asked();
        let first = test.prompt.clone();
        assert_eq!(test.starts(&first), [""; 0]);
        test.text("one");
        assert_eq!(test.result(), ["message", "end one", "ready"]);
        assert_eq!(test.text("nobody listens"), ["message"]);
        assert_eq!(test.prompt("second"), ["begin", "write second"]);
        assert_eq!(test.text("still the other turn"), ["message", "emit background"]);
        assert_eq!(test.result(), ["message", "emit background"]);
        let second = test.prompt.clone();
        test.starts(&second);
        test.text("two");
        assert_eq!(test.result(), ["message", "end two", "ready"]);
    }

    #[test]
    fn an_interrupt_is_repeated_until_the_cli_stops() {
        let mut test = Test::asked();
        assert_eq!(test.on(Input::Interrupt), ["write interrupt"]);
        assert!(!test.driver.can_be_interrupted());
        assert_eq!(test.respond(), [""; 0]);
        assert_eq!(test.driver.wakes(), test.now.now + INTERRUPT_RETRY);
        assert_eq!(test.after(INTERRUPT_RETRY), ["write interrupt"]);
        assert_eq!(test.refuse(), [""; 0]);
        let failed = json!({ "type": "result", "subtype": "error_during_execution", "is_error": true });
        assert_eq!(test.line(&failed), ["message", "end: the request was interrupted", "ready"]);
        // One that does not stop is ended.
        test.prompt("second");
        test.on(Input::Interrupt);
        assert_eq!(test.after(INTERRUPT_PATIENCE), ["exit: the request was interrupted"]);
    }

    #[test]
    fn an_interrupt_before_the_prompt_ends_the_cli() {
        let mut test = Test::new(Launch::default(), json!({ "subtype": "initialize" }));
        test.on(Input::Started);
        test.prompt("first");
        assert_eq!(test.on(Input::Interrupt), ["exit: the request was interrupted"]);
    }

    #[test]
    fn a_time_out_interrupts_a_conversation_and_ends_a_request() {
        let message = "no result within 60 s";
        let mut test = Test::asked();
        assert_eq!(test.after(LIMIT), ["write interrupt"]);
        let failed = json!({ "type": "result", "subtype": "error_during_execution", "is_error": true });
        assert_eq!(test.line(&failed), ["message", &format!("end: {message}"), "ready"]);
        let mut test = Test::asked();
        test.on(Input::Closed);
        assert_eq!(test.after(LIMIT), [format!("exit: {message}")]);
    }

    #[test]
    fn time_in_functions_of_this_process_counts_only_if_configured() {
        let mut test = Test::asked();
        test.now.is_waiting = true;
        test.now.total = 2 * LIMIT;
        assert_eq!(test.after(2 * LIMIT), [""; 0]);
        assert_eq!(test.driver.wakes(), test.now.now + LIMIT);
        test.now.is_waiting = false;
        assert_eq!(test.after(Duration::from_secs(59)), [""; 0]);
        assert_eq!(test.driver.wakes(), test.now.now + Duration::from_secs(1));
        assert_eq!(test.after(Duration::from_secs(1)), ["write interrupt"]);
        // Time waited before a turn does not count for it.
        test.result();
        test.prompt("second");
        assert_eq!(test.after(LIMIT), ["write interrupt"]);

        let mut test = Test::asked();
        test.driver.turn.as_mut().unwrap().counts_tools = true;
        test.now.total = LIMIT;
        assert_eq!(test.after(LIMIT), ["write interrupt"]);
    }

    #[test]
    fn a_turn_that_ends_early_has_all_output_before_the_response() {
        let mut test = Test::asked();
        assert!(test.driver.is_asked());
        test.text("one");
        assert_eq!(test.on(Input::Finish), ["write mcp_status"]);
        test.text("two");
        assert_eq!(test.respond(), ["exit early one\n\ntwo"]);
    }

    #[test]
    fn the_prompt_is_sent_when_the_cli_is_connected_to_all_servers() {
        let settings = crate::Settings::default().mcp_server("other", json!({}));
        let launch = || Launch { tools: Some(tools()), settings: settings.clone(), ..Launch::default() };
        let status = |ours: &str, other: &str| json!({ "mcpServers": [{ "name": "other", "status": other }, { "name": "tools", "status": ours }] });
        let connecting = || {
            let mut test = Test::new(launch(), json!({ "subtype": "initialize", "hooks": null }));
            test.on(Input::Started);
            test.prompt("first");
            assert_eq!(test.respond(), ["write mcp_status"]);
            test
        };
        let mut test = connecting();
        for (ours, other) in [("pending", "connected"), ("connected", "pending")] {
            assert_eq!(test.respond_with(&status(ours, other)), [""; 0]);
            assert_eq!(test.after(CONNECT_POLL), ["write mcp_status"]);
        }
        assert_eq!(test.respond_with(&status("connected", "connected")), ["ready", "write first"]);

        let rows = [
            (("failed", "connected"), "the tools of server `tools` are not available: the CLI says `failed`"),
            (
                ("pending", "needs-auth"),
                "the tools of MCP server `other` are not available: the CLI says `needs-auth`",
            ),
        ];
        for ((ours, other), want) in rows {
            assert_eq!(connecting().respond_with(&status(ours, other)), [format!("exit: {want}")]);
        }
        let mut late = connecting();
        late.respond_with(&status("connected", "pending"));
        let want = "the CLI was still connecting to `other` after 60 s";
        let [.., last] = &late.after(LIMIT)[..] else { panic!() };
        assert_eq!(*last, format!("exit: the tools of MCP server `other` are not available: {want}"));
        // A version that lists servers only after the prompt, and one that does not answer.
        let mut unlisted = connecting();
        let connected = json!({ "mcpServers": [{ "name": "other", "status": "connected" }] });
        assert_eq!(unlisted.respond_with(&connected), [""; 0]);
        assert_eq!(unlisted.after(LIST_PATIENCE), ["write mcp_status"]);
        assert_eq!(unlisted.respond_with(&connected), ["ready", "write first"]);
        assert_eq!(connecting().refuse(), ["ready", "write first"]);
    }

    #[test]
    fn a_cli_without_the_tools_is_an_error_before_the_model_is_asked() {
        let mut test = Test::asked();
        test.driver.launch.tools = Some(tools());
        let init = json!({ "type": "system", "subtype": "init", "session_id": "s", "mcp_servers": [] });
        let reason = "the CLI does not list it; a policy may forbid MCP servers";
        let want = format!("exit: the tools of server `tools` are not available: {reason}");
        assert_eq!(test.line(&init), ["message", "named s", &want]);
    }

    #[test]
    fn a_restricted_tool_must_be_checked_before_it_runs() {
        let rule = ("Bash".to_owned(), "command".to_owned(), json!({ "pattern": "^git " }));
        let calls = json!([{ "type": "tool_use", "id": "t", "name": "Bash", "input": {} }]);
        let results = json!([{ "type": "tool_result", "tool_use_id": "t", "content": "done" }]);
        let before =
            json!({ "tool_name": "Bash", "tool_input": { "command": "git log" }, "tool_use_id": "t" });
        let hook = json!({ "subtype": "hook_callback", "callback_id": RESTRICTIONS, "input": before });
        for is_checked in [true, false] {
            let mut test = Test::asked();
            test.driver.launch.restrictions = Restrictions::new([rule.clone()]).unwrap();
            test.line(&json!({ "type": "assistant", "message": { "content": calls } }));
            if is_checked {
                let asks = json!({ "type": "control_request", "request_id": "r", "request": hook });
                assert_eq!(test.line(&asks), ["respond {}"]);
            }
            let done = test.line(&json!({ "type": "user", "message": { "content": results } }));
            let unchecked = "exit: the CLI ran `Bash` without checking its restrictions";
            assert_eq!(done, ["message", if is_checked { "emit done" } else { unchecked }]);
        }
    }

    #[test]
    fn requests_of_the_cli_and_responses_to_others_are_passed_on() {
        let mut test = Test::asked();
        let asks = json!({ "type": "control_request", "request_id": "r", "request": { "subtype": "x" } });
        assert_eq!(test.line(&asks), ["respond r"]);
        assert_eq!(
            test.line(&json!({ "type": "control_cancel_request", "request_id": "r" })),
            ["withdraw r"]
        );
        test.request = "of somebody else".into();
        assert_eq!(test.refuse(), ["response of somebody else false"]);
    }

    #[test]
    fn only_the_response_to_the_current_request_changes_the_state() {
        let mut test = Test::new(Launch::default(), json!({ "subtype": "initialize", "hooks": null }));
        test.on(Input::Started);
        test.prompt("first");
        let request = std::mem::replace(&mut test.request, "another id".into());
        assert_eq!(test.respond(), ["response another id true"]);
        test.request = request;
        // A CLI that does not know `initialize` can still answer.
        assert_eq!(test.refuse(), ["ready", "write first"]);
    }

    #[test]
    fn a_rejected_initialize_that_sets_options_is_an_error() {
        let mut test = Test::new(Launch::default(), json!({ "subtype": "initialize", "hooks": {} }));
        test.on(Input::Started);
        let want = "exit: the CLI rejected `initialize`, which sets prompts, hooks and restrictions: no";
        assert_eq!(test.refuse(), [want]);
    }

    #[test]
    fn a_cli_that_ends_has_no_answer() {
        let mut test = Test::asked();
        assert_eq!(test.on(Input::Line("A notice.".into())), [""; 0]);
        assert_eq!(test.on(Input::Exited(None)), ["exit of the CLI true"]);
    }

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
}
