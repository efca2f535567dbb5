//! The talk with the CLI, from its first line to its result.

use std::collections::{HashMap, HashSet};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::net::unix::pipe;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use toolbridge_core::RawJson;
use toolbridge_mcp::{Incoming as _, LineReader};

use crate::ClaudeCodeError;
use crate::control::Control;
use crate::error::ExecutionKind;
use crate::event::{Event, Started};
use crate::line::{Ask, Line, read};
use crate::model::OnMessage;
use crate::opening::{Stage, not_connected, unknown};
use crate::permission::{Decider, decide};
use crate::process::Process;
use crate::response::Part;
use crate::restriction::{Restrictions, is_among, no_such_tool};
use crate::sdk::SdkServer;
use crate::stream::{Events, Signals};

/// The longest line that is read from the CLI; beyond that memory is worth more.
pub(crate) const MAX_LINE_BYTES: usize = 256 * 1024 * 1024;

/// The longest answer, with all its tool calls and results.
const MAX_ANSWER_BYTES: usize = 1024 * 1024 * 1024;

/// How much the CLI may ask before it reads the answers.
const MAX_ASKED: usize = 4096;

/// How long the CLI has to come to a result after an interrupt, and how often it is told.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(5);
const INTERRUPT_AGAIN: Duration = Duration::from_millis(500);

/// How long output may still come once the CLI has ended: somebody else may hold the pipe.
const LAST_OUTPUT: Duration = Duration::from_millis(500);

/// A time-out that is as good as none.
const FOR_EVER: Duration = Duration::from_secs(60 * 60 * 24 * 365);

/// How the talk came to its end.
pub(crate) enum Ended {
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
pub(crate) struct Talk {
    control: Arc<Control>,
    sdk: Option<SdkServer>,
    server: Option<String>,
    stage: Arc<Stage>,
    /// What goes on beside reading. A failure of any of it is the request's.
    pub(crate) work: JoinSet<Result<(), ClaudeCodeError>>,
    /// What the CLI has asked and may take back.
    asked: HashMap<String, AbortHandle>,
    pub(crate) restrictions: Restrictions,
    /// Tools that are restricted and have not been seen yet.
    pub(crate) awaited: Vec<String>,
    pub(crate) decider: Option<Decider>,
    pub(crate) on_message: Option<OnMessage>,
    pub(crate) events: Events,
    /// The tools called, by the ids of their calls.
    names: HashMap<String, String>,
    /// The calls that the CLI has asked about before it made them.
    asked_about: HashSet<String>,
    pub(crate) parts: Vec<Part>,
    /// How long the lines were that the parts came in.
    part_bytes: usize,
    pub(crate) model: Option<String>,
    /// Why the first line that could not be read could not.
    pub(crate) unreadable: Option<String>,
}

impl Talk {
    pub(crate) fn new(
        control: Arc<Control>,
        sdk: Option<SdkServer>,
        server: Option<String>,
        stage: Arc<Stage>,
        work: JoinSet<Result<(), ClaudeCodeError>>,
        events: Events,
    ) -> Self {
        Self {
            control,
            sdk,
            server,
            stage,
            work,
            asked: HashMap::new(),
            restrictions: Restrictions::default(),
            awaited: Vec::new(),
            decider: None,
            on_message: None,
            events,
            names: HashMap::new(),
            asked_about: HashSet::new(),
            parts: Vec::new(),
            part_bytes: 0,
            model: None,
            unreadable: None,
        }
    }

    /// Talks until there is a result, or there will be none.
    pub(crate) async fn until_result(
        &mut self,
        lines: &mut LineReader<pipe::Receiver>,
        process: &mut Process,
        limit: Duration,
        signals: &Signals,
    ) -> Ended {
        let mut interrupted = false;
        let mut deadline = Instant::now() + limit.min(FOR_EVER);
        let mut exit = None;
        loop {
            tokio::select! {
                // What ends a request comes first: a CLI that never stops talking must not keep it going.
                biased;
                () = signals.cancel.cancelled() => return interrupted_without_result(),
                () = sleep_until(deadline) => return match exit {
                    // Somebody else holds the pipe, so the last line may never end.
                    Some(status) => match lines.take_rest().map(|line| self.take(&line)) {
                        Some(Ok(Some(raw))) => Ended::Result { raw, interrupted },
                        Some(Err(ended)) => ended,
                        _ => Ended::Exit(status),
                    },
                    None if interrupted => interrupted_without_result(),
                    None => Ended::Failed(self.timed_out(limit)),
                },
                () = signals.interrupt.cancelled(), if !interrupted => {
                    // Nothing has been asked, so there is nothing that the CLI could stop.
                    if !self.stage.has_asked() {
                        return interrupted_without_result();
                    }
                    interrupted = true;
                    deadline = deadline.min(Instant::now() + INTERRUPT_PATIENCE);
                    self.interrupt();
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
                    Ok(Some(Err(_))) => return Ended::Failed(too_much("a line", MAX_LINE_BYTES)),
                    Err(error) => {
                        let reason = format!("reading it failed: {error}");
                        return Ended::Failed(ClaudeCodeError::CliResponseParse { reason });
                    }
                    Ok(None) => {
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

    /// Tells the CLI to stop; again and again, because it listens only while it asks the model.
    fn interrupt(&mut self) {
        let control = Arc::clone(&self.control);
        self.work.spawn(async move {
            while control.ask(json!({ "subtype": "interrupt" })).await.is_ok() {
                sleep(INTERRUPT_AGAIN).await;
            }
            Ok(())
        });
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
        if let (Some(on_message), Line::Result(_) | Line::Events(_) | Line::Assistant { .. }) =
            (&self.on_message, &read)
            && let Ok(message) = RawJson::parse(line.clone())
        {
            on_message.call(&message);
        }
        match read {
            Line::Ask { id, ask } => self.answer(id, ask)?,
            Line::Withdraw { id } => {
                if let Some(asked) = self.asked.remove(&id) {
                    asked.abort();
                } else if let Some(sdk) = &self.sdk {
                    sdk.withdraw(&id);
                }
            }
            Line::Answer { id, answer } => self.control.answered(&id, answer),
            Line::Result(raw) => return Ok(Some(raw)),
            Line::Events(events) => self.pass_on(events, line.len())?,
            Line::Assistant { model, events } => {
                self.model = model.or_else(|| self.model.take());
                self.pass_on(events, line.len())?;
            }
        }
        Ok(None)
    }

    /// Keeps what belongs to the answer, and passes everything on.
    fn pass_on(&mut self, events: Vec<Event>, line_bytes: usize) -> Result<(), Ended> {
        if events.iter().any(|event| matches!(event, Event::Part(_))) {
            self.part_bytes += line_bytes;
            if self.part_bytes > MAX_ANSWER_BYTES {
                return Err(Ended::Failed(too_much("the answer", MAX_ANSWER_BYTES)));
            }
        }
        let mut bytes = line_bytes;
        for mut event in events {
            match &mut event {
                Event::Part(part) => {
                    self.note(part).map_err(Ended::Failed)?;
                    self.parts.push(part.clone());
                }
                Event::Started(started) => {
                    self.model.clone_from(&started.model);
                    self.check_server(started).map_err(Ended::ServerFailed)?;
                    self.check_restrictions(started).map_err(Ended::Failed)?;
                }
                _ => {}
            }
            // The events of a line share its buffer.
            self.events.send(event, std::mem::take(&mut bytes)).map_err(Ended::Failed)?;
        }
        Ok(())
    }

    /// Puts the tool's name to its result; and sees to it that the CLI asked where it had to.
    fn note(&mut self, part: &mut Part) -> Result<(), ClaudeCodeError> {
        match part {
            Part::ToolCall { id, name, .. } => _ = self.names.insert(id.clone(), name.clone()),
            Part::ToolResult { id, name, is_error, .. } => {
                *name = self.names.get(id).cloned();
                if let Some(name) = name
                    && !*is_error
                    && self.restrictions.cover(name, self.server.as_deref())
                    && !self.asked_about.contains(id)
                {
                    let message = format!("the CLI ran `{name}` without regard to its restrictions");
                    return Err(ClaudeCodeError::execution(ExecutionKind::Other, message));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A CLI that begins without our server would be a model without its tools.
    fn check_server(&self, started: &Started) -> Result<(), ClaudeCodeError> {
        let Some(server) = &self.server else { return Ok(()) };
        match started.mcp_servers.iter().find(|status| status.name == *server) {
            Some(status) if status.status == "connected" => Ok(()),
            Some(status) => Err(not_connected(status)),
            None => Err(unknown(server)),
        }
    }

    /// The restricted tools that only the CLI knows of must be there.
    fn check_restrictions(&self, started: &Started) -> Result<(), ClaudeCodeError> {
        let missing =
            self.awaited.iter().find(|tool| !is_among(tool, &started.tools, self.server.as_deref()));
        missing.map_or(Ok(()), |tool| Err(no_such_tool(tool)))
    }

    /// Answers what the CLI asks; never waits, so that the next line can be read.
    fn answer(&mut self, id: String, ask: Ask) -> Result<(), Ended> {
        if self.work.len() > MAX_ASKED {
            let reason = format!("it asks more than {MAX_ASKED} things and reads no answer");
            return Err(Ended::Failed(ClaudeCodeError::CliResponseParse { reason }));
        }
        let control = Arc::clone(&self.control);
        let answer = match ask {
            Ask::Mcp { server, message } => match &self.sdk {
                Some(sdk) if sdk.name() == server => {
                    if sdk.take(&id, &message) {
                        return Ok(());
                    }
                    Ok(json!({ "mcp_response": { "jsonrpc": "2.0", "result": {} } }))
                }
                _ => Err(format!("there is no server `{server}` here")),
            },
            Ask::Hook { input } => {
                let (id, answer) = self.restrictions.before_use(&input, self.server.as_deref());
                self.asked_about.extend(id);
                Ok(answer)
            }
            Ask::Permission { tool, input, tool_use_id } => {
                let (decider, restrictions) = (self.decider.clone(), self.restrictions.clone());
                let (asked, server) = (id.clone(), self.server.clone());
                let deciding = self.work.spawn(async move {
                    let permission =
                        decide(decider, &restrictions, server.as_deref(), tool, &input, tool_use_id).await;
                    control.answer(&id, Ok(permission.to_answer(&input))).await;
                    Ok(())
                });
                self.asked.insert(asked, deciding);
                return Ok(());
            }
            Ask::Unknown { subtype } => Err(format!("toolbridge does not answer `{subtype}`")),
        };
        self.work.spawn(async move {
            control.answer(&id, answer).await;
            Ok(())
        });
        Ok(())
    }

    fn timed_out(&self, limit: Duration) -> ClaudeCodeError {
        let waiting = match &self.server {
            Some(server) if self.stage.is_connecting() => {
                format!("; the CLI was still connecting to the tools of server `{server}`")
            }
            _ => String::new(),
        };
        let message = format!("no result within {} s{waiting}", limit.as_secs_f64());
        ClaudeCodeError::execution(ExecutionKind::Timeout(limit), message)
    }
}

fn interrupted_without_result() -> Ended {
    Ended::Failed(ClaudeCodeError::CliInterrupted { result: None })
}

fn too_much(what: &str, limit: usize) -> ClaudeCodeError {
    ClaudeCodeError::CliResponseParse { reason: format!("{what} is over the limit of {limit} bytes") }
}

/// Why there is no result, as far as the CLI's end tells.
pub(crate) fn no_result(
    status: Option<ExitStatus>,
    stderr: &str,
    unreadable: Option<String>,
) -> ClaudeCodeError {
    let said = if stderr.is_empty() { String::new() } else { format!(": {stderr}") };
    if let (Some(reason), true) = (unreadable, status.is_some_and(|status| status.success())) {
        return ClaudeCodeError::CliResponseParse {
            reason: format!("there is no result in it, and {reason}{said}"),
        };
    }
    let how = status.map_or("the CLI ended".into(), |status| format!("the CLI ended with {status}"));
    ClaudeCodeError::execution(ExecutionKind::Exit, format!("{how} and without a result{said}"))
}
