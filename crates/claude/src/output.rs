//! Handles the CLI's output, line by line.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::task::AbortHandle;
use toolbridge_core::tool::RawJson;

use crate::ClaudeCodeError;
use crate::callbacks::hook::place_of;
use crate::callbacks::permission::decide;
use crate::callbacks::question::ask;
use crate::callbacks::restriction::{RESTRICTIONS, Restrictions, is_among, no_such_tool};
use crate::driver::{Driver, too_much};
use crate::error::ExecutionKind;
use crate::event::{Event, McpServerStatus, Started};
use crate::names::{BUILTIN_TOOLS, unknown as unknown_name};
use crate::part::Part;
use crate::process::diagnose::{cli_says, not_connected, unknown};
use crate::protocol::control::response_line;
use crate::protocol::message::{CliRequest, Line, read};
use crate::waits::awaited;

/// The maximum size of an answer, with all its tool calls and results.
const MAX_ANSWER_BYTES: usize = 1024 * 1024 * 1024;

/// The maximum number of unanswered requests of the CLI.
const MAX_REQUESTS: usize = 4096;

/// Collected output of the CLI that is needed later.
#[derive(Default)]
pub(crate) struct Collected {
    pub(crate) parts: Vec<Part>,
    /// The total length of the lines that contained the parts.
    part_bytes: usize,
    pub(crate) model: Option<String>,
    pub(crate) session_id: Option<String>,
    /// The kind of error that the CLI reports in place of an answer.
    pub(crate) error: Option<String>,
    /// The error of the first unreadable line.
    pub(crate) unreadable: Option<String>,
    /// The calls being written, by block index: id and name.
    writing: HashMap<u64, (String, String)>,
    /// Tool names by call id.
    names: HashMap<String, String>,
    /// The calls whose restrictions were checked before the CLI made them.
    checked: HashSet<String>,
    /// Requests of the CLI in progress, which it may cancel.
    running: HashMap<String, AbortHandle>,
}

impl Collected {
    /// Drops the parts of another turn.
    pub(crate) fn drop_parts(&mut self) {
        self.parts.clear();
        self.part_bytes = 0;
    }
}

impl Driver {
    /// Handles a line; returns the result of the turn, if it is one.
    pub(crate) fn take(&mut self, line: &Bytes) -> Result<Option<RawJson>, ClaudeCodeError> {
        // Some versions write human-readable text to stdout.
        if line.trim_ascii_start().first() != Some(&b'{') {
            let start = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
            self.collected.unreadable.get_or_insert(format!("`{start}` is not a message"));
            return Ok(None);
        }
        let read = match read(line) {
            Ok(read) => read,
            Err(reason) => {
                tracing::warn!(%reason, bytes = line.len(), "cannot read a line of the CLI's output");
                self.collected.unreadable.get_or_insert(format!("a line of {} bytes: {reason}", line.len()));
                return Ok(None);
            }
        };
        let on_message = self.callbacks.on_message.as_ref();
        let is_control = matches!(
            &read,
            Line::Request { .. } | Line::Cancel { .. } | Line::Response { .. } | Line::Prompt { .. }
        );
        if let (Some(on_message), false) = (on_message, is_control)
            && let Ok(message) = RawJson::parse(line.clone())
        {
            (on_message.0)(&message);
        }
        match read {
            Line::Request { id, request } => self.answer(id, request)?,
            Line::Cancel { id } => {
                if let Some(running) = self.collected.running.remove(&id) {
                    running.abort();
                } else if let Some(sdk) = &self.sdk {
                    sdk.cancel(&id);
                }
            }
            Line::Response { id, response } => self.answered(id, response)?,
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
                if self.turn.is_some() && is_of_prompt {
                    return Ok(Some(raw));
                }
                self.collected.drop_parts();
                self.emit(Event::Other(raw), line.len())?;
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
                    self.pass_on(vec![delta], line.len())?;
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
            self.emit(event, std::mem::take(&mut bytes))?;
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
                    && self.plan.restrictions.restrict(name, self.server())
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
        if let (Some(turn), Some(id)) = (&self.turn, &started.session_id) {
            _ = turn.options.session_id.set(id.clone());
        }
        if let Some(server) = self.server() {
            match started.mcp_servers.iter().find(|status| status.name == server) {
                Some(status) if status.status == "connected" => {}
                Some(status) => return Err(not_connected(status)),
                None => return Err(unknown(server)),
            }
        }
        self.check_others(&started.mcp_servers)?;
        let is_missing = |tool: &&String| !is_among(tool, &started.tools, self.server());
        let Some(tool) = self.plan.unconfirmed_tools.iter().find(is_missing) else { return Ok(()) };
        if self.plan.restrictions.tools().any(|restricted| restricted == tool) {
            return Err(no_such_tool(tool, &started.tools, self.server()));
        }
        let names = started.tools.iter().map(String::as_str);
        let offered: Vec<_> = names.filter(|name| !name.starts_with("mcp__")).collect();
        let known = if offered.is_empty() { BUILTIN_TOOLS } else { &offered };
        Err(unknown_name("built-in tool", tool, known))
    }

    /// Fails if another server that was given is not connected, and will not be.
    pub(crate) fn check_others(&self, servers: &[McpServerStatus]) -> Result<(), ClaudeCodeError> {
        let is_dead = |status: &&McpServerStatus| {
            matches!(&*status.status, "failed" | "needs-auth")
                && self.plan.other_servers.contains(&status.name)
        };
        let Some(status) = servers.iter().find(is_dead) else { return Ok(()) };
        Err(ClaudeCodeError::McpServer { name: status.name.clone(), reason: cli_says(status) })
    }

    /// Answers a request of the CLI.
    fn answer(&mut self, id: String, request: CliRequest) -> Result<(), ClaudeCodeError> {
        if self.work.len() > MAX_REQUESTS {
            let reason = format!("it has more than {MAX_REQUESTS} unanswered requests");
            return Err(ClaudeCodeError::CliResponseParse { reason });
        }
        let answered = match request {
            CliRequest::Mcp { server, message } => match &self.sdk {
                Some(sdk) if sdk.name() == server => {
                    if sdk.take(&id, &message) {
                        return Ok(());
                    }
                    Ok(json!({ "mcp_response": { "jsonrpc": "2.0", "result": {} } }))
                }
                _ => Err(format!("there is no server `{server}` here")),
            },
            CliRequest::Hook { callback_id, input } if callback_id == RESTRICTIONS => {
                let (id, answer) = self.plan.restrictions.before_use(&input, self.server());
                self.collected.checked.extend(id);
                Ok(answer)
            }
            CliRequest::Hook { callback_id, input } => {
                match place_of(&callback_id).and_then(|place| self.callbacks.hooks.get(place)).cloned() {
                    Some(hook) => {
                        let (restrictions, server) = self.checks();
                        self.answer_later(id, async move {
                            hook.answer(&input, &restrictions, server.as_deref()).await
                        });
                        return Ok(());
                    }
                    None => Err(format!("there is no hook `{callback_id}` here")),
                }
            }
            CliRequest::Permission(question) => {
                let can_use_tool = self.callbacks.can_use_tool.clone();
                let (restrictions, server) = self.checks();
                self.answer_later(id, async move {
                    let permission = decide(can_use_tool, &restrictions, server.as_deref(), &question).await;
                    permission.to_answer(&question.input)
                });
                return Ok(());
            }
            CliRequest::Question(question) => {
                let on_ask = self.callbacks.on_ask.clone();
                self.answer_later(id, ask(on_ask, question));
                return Ok(());
            }
            CliRequest::Unknown { subtype } => Err(format!("toolbridge does not answer `{subtype}`")),
        };
        self.send(response_line(&id, answered));
        Ok(())
    }

    /// The restrictions, and the name of our server, whose tools they may name without it.
    fn checks(&self) -> (Restrictions, Option<String>) {
        (self.plan.restrictions.clone(), self.server().map(str::to_owned))
    }

    /// Runs a function of this process in a task and sends its answer. The CLI may cancel it.
    fn answer_later(&mut self, id: String, work: impl Future<Output = Value> + Send + 'static) {
        let (control, wait, request_id) = (self.control.clone(), self.waits.begin(), id.clone());
        let working = self.work.spawn(async move {
            let _wait = wait;
            let line = response_line(&id, Ok(awaited(work).await));
            _ = control.write_line(line).await;
        });
        self.collected.running.insert(request_id, working);
    }
}
