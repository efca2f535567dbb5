//! One request: the CLI, the tools, and everything that passes between them, from start to end.

use std::collections::{HashMap, VecDeque};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use toolbridge_core::{RawJson, ToolSource};
use toolbridge_ipc::Session;
use toolbridge_mcp::{Incoming as _, LineReader, ServerInfo, serve};

use crate::control::{Control, Unanswered};
use crate::error::ExecutionKind;
use crate::event::{Event, McpServerStatus};
use crate::line::{Ask, Line, read};
use crate::model::OnMessage;
use crate::permission::{Decider, Permission, PermissionRequest, Restrictions};
use crate::process::{Group, Pipes, Process};
use crate::response::{Asked, Part, answer};
use crate::sdk::{SdkServer, sdk_server};
use crate::stream::{Events, Signals};
use crate::{ClaudeCodeError, bridge};

/// The longest line that is read from the CLI; beyond that memory is worth more.
const MAX_LINE_BYTES: usize = 256 * 1024 * 1024;

/// The longest answer, with all its tool calls and results.
const MAX_ANSWER_BYTES: usize = 1024 * 1024 * 1024;

/// How much of the CLI's stderr is kept for errors.
const STDERR_TAIL_BYTES: usize = 8 * 1024;

/// How often the CLI is asked whether it has connected to our server.
const CONNECTING: Duration = Duration::from_millis(20);

/// How long the CLI may not even know of our server.
const UNKNOWN_PATIENCE: Duration = Duration::from_secs(5);

/// How long the CLI has to come to a result after an interrupt.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(5);

/// How long output may still come once the CLI has ended: somebody else may hold the pipe.
const LAST_OUTPUT: Duration = Duration::from_millis(500);

/// How tools are offered in a request.
pub(crate) enum Offer {
    /// By a bridge that the CLI starts.
    Stdio { server: String, session: Arc<Session> },
    /// Over the control channel.
    Sdk { server: String, source: Arc<dyn ToolSource> },
}

impl Offer {
    fn server(&self) -> &str {
        match self {
            Self::Stdio { server, .. } | Self::Sdk { server, .. } => server,
        }
    }
}

/// What a request has outside of this process. It can be given back by anybody at any time, without a
/// runtime.
pub(crate) struct Held {
    group: Arc<Group>,
    /// Weak: it is the run's, and ends with it.
    session: Weak<Session>,
}

impl Held {
    pub(crate) fn new(process: &Process, offer: Option<&Offer>) -> Self {
        let session = match offer {
            Some(Offer::Stdio { session, .. }) => Arc::downgrade(session),
            Some(Offer::Sdk { .. }) | None => Weak::new(),
        };
        Self { group: process.group(), session }
    }

    pub(crate) fn release(&self) {
        self.group.end();
        if let Some(session) = self.session.upgrade() {
            session.abandon();
        }
    }
}

/// A request that has been made ready: the CLI runs, and waits for its first line.
pub(crate) struct Run {
    pub(crate) process: Process,
    pub(crate) pipes: Pipes,
    pub(crate) offer: Option<Offer>,
    pub(crate) prompt: String,
    pub(crate) wants_output: bool,
    pub(crate) limit: Duration,
    pub(crate) signals: Signals,
    pub(crate) restrictions: Restrictions,
    pub(crate) decider: Option<Decider>,
    pub(crate) on_message: Option<OnMessage>,
}

impl Run {
    /// Runs the request to its end, whatever that is, and leaves nothing behind.
    pub(crate) async fn drive(self, events: Events) {
        let Self { mut process, pipes, offer, prompt, limit, .. } = self;
        let control = Arc::new(Control::new(pipes.stdin));
        let stderr = Arc::<Mutex<VecDeque<u8>>>::default();
        let mut work = JoinSet::new();
        let heard = work.spawn(keep_tail(pipes.stderr, Arc::clone(&stderr)));

        let mut sdk = None;
        if let Some(Offer::Sdk { server, source }) = &offer {
            let (into, incoming, outgoing) = sdk_server(server, Arc::clone(&control));
            sdk = Some(into);
            let source = Arc::clone(source);
            work.spawn(async move {
                _ = serve(source, ServerInfo::default(), incoming, outgoing).await;
                Ok(())
            });
        }
        let server = offer.as_ref().map(|offer| offer.server().to_owned());
        work.spawn(open(Arc::clone(&control), server.clone(), self.restrictions.clone(), prompt));

        let mut talk = Talk {
            control: Arc::clone(&control),
            sdk,
            server,
            work,
            asked: HashMap::new(),
            restrictions: self.restrictions,
            decider: self.decider,
            on_message: self.on_message,
            events,
            names: HashMap::new(),
            parts: Vec::new(),
            part_bytes: 0,
            model: None,
            unreadable: None,
        };
        let mut lines = LineReader::with_limit(pipes.stdout, MAX_LINE_BYTES);
        let ended = talk.until_result(&mut lines, &mut process, limit, &self.signals).await;

        // An orderly end is one that the CLI came to by itself; its output is read on, so that it can.
        control.close();
        let result = match ended {
            Ended::Result { raw, interrupted } => {
                let asked = Asked { output: self.wants_output, interrupted };
                let answer = answer(&raw, std::mem::take(&mut talk.parts), talk.model.take(), asked);
                let rest = async {
                    while let Ok(Some(_)) = lines.next().await {}
                    std::future::pending::<()>().await;
                };
                tokio::select! {
                    _ = process.end_orderly() => {}
                    () = rest => {}
                }
                answer.map(|answer| Event::Result(Box::new(answer)))
            }
            Ended::Exit(status) => {
                _ = timeout(LAST_OUTPUT, async {
                    while !heard.is_finished() {
                        sleep(CONNECTING).await;
                    }
                })
                .await;
                Err(no_result(status, &tail(&stderr), talk.unreadable.take()))
            }
            Ended::Failed(error) => {
                process.end_now().await;
                Err(error)
            }
            Ended::ServerFailed(error) => {
                process.end_now().await;
                Err(bridge::explain(error, offer.as_ref()).await)
            }
        };
        talk.work.shutdown().await;
        if let Some(Offer::Stdio { session, .. }) = &offer {
            session.stop().await;
        }
        match result {
            Ok(event) => talk.events.send(event, 0).unwrap_or_else(|error| talk.events.fail(error)),
            Err(error) => talk.events.fail(error),
        }
    }
}

/// How the talk with the CLI came to its end.
enum Ended {
    /// With a result.
    Result { raw: RawJson, interrupted: bool },
    /// The CLI has gone without one.
    Exit(Option<ExitStatus>),
    /// For a reason of ours.
    Failed(ClaudeCodeError),
    /// Our server could not be started.
    ServerFailed(ClaudeCodeError),
}

/// The talk with the CLI.
struct Talk {
    control: Arc<Control>,
    sdk: Option<SdkServer>,
    server: Option<String>,
    /// What goes on beside reading. A failure of any of it is the request's.
    work: JoinSet<Result<(), ClaudeCodeError>>,
    /// What the CLI has asked and may take back.
    asked: HashMap<String, AbortHandle>,
    restrictions: Restrictions,
    decider: Option<Decider>,
    on_message: Option<OnMessage>,
    events: Events,
    /// The tools called, by the ids of their calls.
    names: HashMap<String, String>,
    parts: Vec<Part>,
    /// How long the lines were that the parts came in.
    part_bytes: usize,
    model: Option<String>,
    /// Why the first line that could not be read could not.
    unreadable: Option<String>,
}

impl Talk {
    async fn until_result(
        &mut self,
        lines: &mut LineReader<pipe::Receiver>,
        process: &mut Process,
        limit: Duration,
        signals: &Signals,
    ) -> Ended {
        let mut interrupted = false;
        let mut deadline = Instant::now() + limit;
        let mut exit = None;
        loop {
            tokio::select! {
                // What ends a request comes first: a CLI that never stops talking must not keep it going.
                biased;
                () = signals.cancel.cancelled() => {
                    return Ended::Failed(ClaudeCodeError::CliInterrupted { result: None });
                }
                () = sleep_until(deadline) => return match exit {
                    Some(status) => Ended::Exit(status),
                    None if interrupted => Ended::Failed(ClaudeCodeError::CliInterrupted { result: None }),
                    None => Ended::Failed(timed_out(limit)),
                },
                () = signals.interrupt.cancelled(), if !interrupted => {
                    interrupted = true;
                    deadline = deadline.min(Instant::now() + INTERRUPT_PATIENCE);
                    let control = Arc::clone(&self.control);
                    self.work.spawn(async move {
                        _ = control.ask(json!({ "subtype": "interrupt" })).await;
                        Ok(())
                    });
                }
                Some(done) = self.work.join_next() => match done {
                    Ok(Ok(())) => {}
                    Ok(Err(error @ ClaudeCodeError::BridgeStartup { .. })) => return Ended::ServerFailed(error),
                    Ok(Err(error)) => return Ended::Failed(error),
                    Err(error) => if let Ok(panic) = error.try_into_panic() {
                        std::panic::resume_unwind(panic);
                    },
                },
                line = lines.next() => match line {
                    Ok(Some(Ok(line))) => match self.take(&line) {
                        Ok(None) => {}
                        Ok(Some(raw)) => return Ended::Result { raw, interrupted },
                        Err(ended) => return ended,
                    },
                    Ok(Some(Err(_))) => {
                        return Ended::Failed(too_much("a line", MAX_LINE_BYTES));
                    }
                    Ok(None) | Err(_) => {
                        return match timeout(LAST_OUTPUT, process.exited()).await {
                            Ok(status) => Ended::Exit(status),
                            Err(_) => Ended::Exit(process.end_now().await),
                        };
                    }
                },
                status = process.exited(), if exit.is_none() => {
                    exit = Some(status);
                    deadline = deadline.min(Instant::now() + LAST_OUTPUT);
                }
            }
        }
    }

    /// Takes a line; returns the result, if it is one.
    fn take(&mut self, line: &Bytes) -> Result<Option<RawJson>, Ended> {
        // Some versions talk to people on stdout.
        if line.trim_ascii_start().first() != Some(&b'{') {
            let start = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
            self.unreadable.get_or_insert(format!("`{start}` is not a message"));
            return Ok(None);
        }
        let read = match read(line) {
            Ok(read) => read,
            Err(reason) => {
                tracing::warn!(%reason, bytes = line.len(), "cannot read a line of the CLI's output");
                self.unreadable.get_or_insert(format!("a line of {} bytes: {reason}", line.len()));
                return Ok(None);
            }
        };
        if let (Some(on_message), Line::Result(_) | Line::Events(_)) = (&self.on_message, &read)
            && let Ok(message) = RawJson::parse(line.clone())
        {
            on_message.call(&message);
        }
        match read {
            Line::Ask { id, ask } => self.answer(id, ask),
            Line::Withdraw { id } => {
                if let Some(asked) = self.asked.remove(&id) {
                    asked.abort();
                } else if let Some(sdk) = &self.sdk {
                    sdk.withdraw(&id);
                }
            }
            Line::Answer { id, answer } => self.control.answered(&id, answer),
            Line::Result(raw) => return Ok(Some(raw)),
            Line::Events(events) => {
                if events.iter().any(|event| matches!(event, Event::Part(_))) {
                    self.part_bytes += line.len();
                }
                if self.part_bytes > MAX_ANSWER_BYTES {
                    return Err(Ended::Failed(too_much("the answer", MAX_ANSWER_BYTES)));
                }
                for event in events {
                    let event = self.note(event)?;
                    self.events.send(event, line.len()).map_err(Ended::Failed)?;
                }
            }
        }
        Ok(None)
    }

    /// Keeps what belongs to the answer.
    fn note(&mut self, event: Event) -> Result<Event, Ended> {
        match event {
            Event::Part(mut part) => {
                match &mut part {
                    Part::ToolCall { id, name, .. } => _ = self.names.insert(id.clone(), name.clone()),
                    Part::ToolResult { id, name, .. } => *name = self.names.get(id).cloned(),
                    _ => {}
                }
                self.parts.push(part.clone());
                Ok(Event::Part(part))
            }
            Event::Started(started) => {
                self.model.clone_from(&started.model);
                let ours = |status: &&McpServerStatus| Some(&status.name) == self.server.as_ref();
                if let Some(status) = started.mcp_servers.iter().find(ours)
                    && status.status == "failed"
                {
                    return Err(Ended::ServerFailed(failed(status)));
                }
                Ok(Event::Started(started))
            }
            event => Ok(event),
        }
    }

    /// Answers what the CLI asks; never waits, so that the next line can be read.
    fn answer(&mut self, id: String, ask: Ask) {
        let control = Arc::clone(&self.control);
        let answer = match ask {
            Ask::Mcp { server, message } => match &self.sdk {
                Some(sdk) if sdk.name() == server => {
                    if sdk.take(&id, &message) {
                        return;
                    }
                    Ok(json!({ "mcp_response": { "jsonrpc": "2.0", "result": {} } }))
                }
                _ => Err(format!("there is no server `{server}` here")),
            },
            Ask::Hook { input } => Ok(before_use(&self.restrictions, &input)),
            Ask::Permission { tool, input, tool_use_id } => {
                let (decider, restrictions) = (self.decider.clone(), self.restrictions.clone());
                let asked = id.clone();
                let deciding = self.work.spawn(async move {
                    let permission = decide(decider, &restrictions, tool, &input, tool_use_id).await;
                    control.answer(&id, Ok(permission.to_answer(&input))).await;
                    Ok(())
                });
                self.asked.insert(asked, deciding);
                return;
            }
            Ask::Unknown { subtype } => Err(format!("toolbridge does not answer `{subtype}`")),
        };
        self.work.spawn(async move {
            control.answer(&id, answer).await;
            Ok(())
        });
    }
}

/// Says hello, waits until the CLI has the tools, and asks.
async fn open(
    control: Arc<Control>,
    server: Option<String>,
    restrictions: Restrictions,
    prompt: String,
) -> Result<(), ClaudeCodeError> {
    let matchers: Vec<_> = restrictions
        .tools()
        .map(|tool| json!({ "matcher": tool, "hookCallbackIds": ["restrictions"] }))
        .collect();
    let hooks = if restrictions.is_empty() { Value::Null } else { json!({ "PreToolUse": matchers }) };
    match control.ask(json!({ "subtype": "initialize", "hooks": hooks })).await {
        Ok(_) => {}
        // Without the hook nobody would keep the restrictions.
        Err(Unanswered::Refused(reason)) if !restrictions.is_empty() => {
            let message = format!("the CLI does not take the restrictions of tool parameters: {reason}");
            return Err(ClaudeCodeError::execution(ExecutionKind::Start, message));
        }
        Err(Unanswered::Refused(reason)) => tracing::debug!(%reason, "the CLI does not initialize"),
        // Its end is seen elsewhere, with its reason.
        Err(Unanswered::Gone) => return Ok(()),
    }
    if let Some(server) = server {
        connected(&control, &server).await?;
    }
    if let Err(error) = control.write(prompt.as_bytes(), b"", b"").await {
        tracing::debug!(%error, "the CLI does not read the prompt");
    }
    Ok(())
}

/// Waits until the CLI is connected to our server. The model is not asked before, because it would not know
/// of the tools.
async fn connected(control: &Control, server: &str) -> Result<(), ClaudeCodeError> {
    let started = Instant::now();
    loop {
        let status = match control.ask(json!({ "subtype": "mcp_status" })).await {
            Ok(status) => status,
            // An older CLI. It reports the servers when it begins with the prompt.
            Err(Unanswered::Refused(_) | Unanswered::Gone) => return Ok(()),
        };
        match server_status(&status, server) {
            Some(status) if status.status == "connected" => return Ok(()),
            Some(status) if status.status == "pending" => {}
            Some(status) => return Err(failed(&status)),
            None if started.elapsed() > UNKNOWN_PATIENCE => {
                let reason = "the CLI does not know of it; a policy may forbid MCP servers".into();
                return Err(ClaudeCodeError::BridgeStartup { server: server.into(), reason });
            }
            None => {}
        }
        sleep(CONNECTING).await;
    }
}

fn server_status(status: &RawJson, server: &str) -> Option<McpServerStatus> {
    #[derive(Deserialize)]
    struct Status {
        #[serde(rename = "mcpServers")]
        servers: Vec<McpServerStatus>,
    }
    let status: Status = status.decode().ok()?;
    status.servers.into_iter().find(|status| status.name == server)
}

fn failed(status: &McpServerStatus) -> ClaudeCodeError {
    let reason = match &status.error {
        Some(error) => format!("the CLI says `{}`: {error}", status.status),
        None => format!("the CLI says `{}`", status.status),
    };
    ClaudeCodeError::BridgeStartup { server: status.name.clone(), reason }
}

/// What a tool may not be used for, as a hook's answer.
fn before_use(restrictions: &Restrictions, input: &RawJson) -> Value {
    #[derive(Deserialize)]
    struct Use {
        tool_name: String,
        #[serde(default)]
        tool_input: Value,
    }
    let objection = match input.decode::<Use>() {
        Ok(used) => restrictions.objection(&used.tool_name, &used.tool_input),
        Err(error) => Some(format!("the CLI does not say what is to be used: {error}")),
    };
    match objection {
        None => json!({}),
        Some(reason) => json!({ "hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": "deny",
            "permissionDecisionReason": reason,
        } }),
    }
}

async fn decide(
    decider: Option<Decider>,
    restrictions: &Restrictions,
    tool: String,
    input: &RawJson,
    tool_use_id: Option<String>,
) -> Permission {
    let Some(decider) = decider else { return Permission::deny("nobody is there to allow it") };
    let input = input.decode().unwrap_or_default();
    let request = PermissionRequest { tool_name: tool.clone(), input, tool_use_id };
    // In a task of its own, so that its panic is a refusal.
    let permission = match tokio::spawn(decider.decide(request)).await {
        Ok(permission) => permission,
        Err(error) => {
            tracing::error!(%error, tool, "the permission hook failed");
            return Permission::deny("the permission hook failed, so the tool is not allowed");
        }
    };
    match &permission {
        Permission::AllowWith(input) => {
            restrictions.objection(&tool, input).map_or(permission, Permission::deny)
        }
        _ => permission,
    }
}

/// Keeps the end of what comes.
async fn keep_tail(
    mut stderr: pipe::Receiver,
    tail: Arc<Mutex<VecDeque<u8>>>,
) -> Result<(), ClaudeCodeError> {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend(&buffer[..count]);
        let surplus = tail.len().saturating_sub(STDERR_TAIL_BYTES);
        tail.drain(..surplus);
    }
    Ok(())
}

fn tail(stderr: &Mutex<VecDeque<u8>>) -> String {
    let bytes: Vec<u8> = stderr.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

fn too_much(what: &str, limit: usize) -> ClaudeCodeError {
    ClaudeCodeError::CliResponseParse { reason: format!("{what} is over the limit of {limit} bytes") }
}

fn timed_out(limit: Duration) -> ClaudeCodeError {
    let message = format!("no result within {} s", limit.as_secs_f64());
    ClaudeCodeError::execution(ExecutionKind::Timeout(limit), message)
}

/// Why there is no result, as far as the CLI's end tells.
fn no_result(status: Option<ExitStatus>, stderr: &str, unreadable: Option<String>) -> ClaudeCodeError {
    if let (Some(reason), true) = (unreadable, status.is_some_and(|status| status.success())) {
        return ClaudeCodeError::CliResponseParse {
            reason: format!("there is no result in it, and {reason}"),
        };
    }
    let how = status.map_or("the CLI ended".into(), |status| format!("the CLI ended with {status}"));
    let said = if stderr.is_empty() { String::new() } else { format!(": {stderr}") };
    ClaudeCodeError::execution(ExecutionKind::Exit, format!("{how} and without a result{said}"))
}
