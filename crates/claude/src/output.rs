//! Handles the CLI's output, line by line.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use serde_json::json;
use tokio::task::AbortHandle;
use toolbridge_core::RawJson;

use crate::ClaudeCodeError;
use crate::control::answer;
use crate::diagnose::{not_connected, unknown};
use crate::driver::{Driver, Turn, too_much};
use crate::error::ExecutionKind;
use crate::event::{Event, Started};
use crate::hook::place_of;
use crate::message::{Ask, Line, read};
use crate::part::Part;
use crate::permission::decide;
use crate::question::ask;
use crate::restriction::{RESTRICTIONS, is_among, no_such_tool};

/// The maximum size of an answer, with all its tool calls and results.
const MAX_ANSWER_BYTES: usize = 1024 * 1024 * 1024;

/// The maximum number of unanswered requests of the CLI.
const MAX_ASKED: usize = 4096;

/// Collected output of the CLI that is needed later.
#[derive(Default)]
pub(crate) struct Said {
    pub(crate) parts: Vec<Part>,
    /// The total length of the lines that contained the parts.
    part_bytes: usize,
    pub(crate) model: Option<String>,
    pub(crate) session_id: Option<String>,
    /// The error of the first unreadable line.
    pub(crate) unreadable: Option<String>,
    /// The calls being written, by block index: id and name.
    writing: HashMap<u64, (String, String)>,
    /// Tool names by call id.
    names: HashMap<String, String>,
    /// The calls that the CLI has asked about before it made them.
    asked_about: HashSet<String>,
    /// Requests of the CLI in progress, which it may cancel.
    asked: HashMap<String, AbortHandle>,
}

impl Driver {
    /// Handles a line; returns the result, if it is one.
    pub(crate) fn take(&mut self, line: &Bytes) -> Result<Option<RawJson>, ClaudeCodeError> {
        // Some versions write human-readable text to stdout.
        if line.trim_ascii_start().first() != Some(&b'{') {
            let start = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
            self.said.unreadable.get_or_insert(format!("`{start}` is not a message"));
            return Ok(None);
        }
        let read = match read(line) {
            Ok(read) => read,
            Err(reason) => {
                tracing::warn!(%reason, bytes = line.len(), "cannot read a line of the CLI's output");
                self.said.unreadable.get_or_insert(format!("a line of {} bytes: {reason}", line.len()));
                return Ok(None);
            }
        };
        let on_message = self.turn.as_ref().and_then(|turn| turn.on_message.as_ref());
        let is_for_us = matches!(&read, Line::Ask { .. } | Line::Withdraw { .. } | Line::Answer { .. });
        if let (Some(on_message), false) = (on_message, is_for_us)
            && let Ok(message) = RawJson::parse(line.clone())
        {
            (on_message.0)(&message);
        }
        match read {
            Line::Ask { id, ask } => self.answer(id, ask)?,
            Line::Withdraw { id } => {
                if let Some(asked) = self.said.asked.remove(&id) {
                    asked.abort();
                } else if let Some(sdk) = &self.sdk {
                    sdk.withdraw(&id);
                }
            }
            Line::Answer { id, answer } => self.answered(id, answer)?,
            Line::Result(raw) => return Ok(Some(raw)),
            Line::Events(events) => self.pass_on(events, line.len())?,
            Line::Call { index, id, name } => {
                self.said.writing.insert(index, (id, name));
                let begins = RawJson::parse(line.clone()).map(Event::Other);
                self.pass_on(begins.into_iter().collect(), line.len())?;
            }
            Line::CallDelta { index, json } => {
                if let Some((id, name)) = self.said.writing.get(&index) {
                    let delta = Event::ToolCallDelta { id: id.clone(), name: name.clone(), json };
                    self.pass_on(vec![delta], line.len())?;
                }
            }
            Line::Assistant { model, events } => {
                self.said.model = model.or_else(|| self.said.model.take());
                self.pass_on(events, line.len())?;
            }
        }
        Ok(None)
    }

    /// Stores the parts of the answer and forwards all events.
    fn pass_on(&mut self, events: Vec<Event>, line_bytes: usize) -> Result<(), ClaudeCodeError> {
        if events.iter().any(|event| matches!(event, Event::Part(_))) {
            self.said.part_bytes += line_bytes;
            if self.said.part_bytes > MAX_ANSWER_BYTES {
                return Err(too_much("the answer", MAX_ANSWER_BYTES));
            }
        }
        let mut bytes = line_bytes;
        for mut event in events {
            match &mut event {
                Event::Part(part) => {
                    self.note(part)?;
                    self.said.parts.push(part.clone());
                }
                Event::Started(started) => self.check_start(started)?,
                _ => {}
            }
            // The events of a line share its buffer, so its size is counted once.
            self.tell(event, std::mem::take(&mut bytes))?;
        }
        Ok(())
    }

    /// Adds the tool's name to its result, and fails if the CLI ran a restricted tool without asking first.
    fn note(&mut self, part: &mut Part) -> Result<(), ClaudeCodeError> {
        match part {
            Part::ToolCall { id, name, .. } => _ = self.said.names.insert(id.clone(), name.clone()),
            Part::ToolResult { id, name, is_error, .. } => {
                *name = self.said.names.get(id).cloned();
                if let Some(name) = name
                    && !*is_error
                    && self.plan.restrictions.cover(name, self.server())
                    && !self.said.asked_about.contains(id)
                {
                    let message = format!("the CLI ran `{name}` without regard to its restrictions");
                    return Err(ClaudeCodeError::execution(ExecutionKind::Other, message));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Fails if the CLI starts without our server, since the model would have no tools, or without a
    /// restricted tool that only the CLI knows.
    fn check_start(&mut self, started: &Started) -> Result<(), ClaudeCodeError> {
        self.said.model.clone_from(&started.model);
        self.said.session_id.clone_from(&started.session_id);
        if let (Some(Turn { session_id: Some(known), .. }), Some(id)) = (&self.turn, &started.session_id) {
            _ = known.set(id.clone());
        }
        if let Some(server) = self.server() {
            match started.mcp_servers.iter().find(|status| status.name == server) {
                Some(status) if status.status == "connected" => {}
                Some(status) => return Err(not_connected(status)),
                None => return Err(unknown(server)),
            }
        }
        let is_missing = |tool: &&String| !is_among(tool, &started.tools, self.server());
        self.plan.awaited.iter().find(is_missing).map_or(Ok(()), |tool| Err(no_such_tool(tool)))
    }

    /// Answers a request of the CLI.
    fn answer(&mut self, id: String, asked: Ask) -> Result<(), ClaudeCodeError> {
        if self.work.len() > MAX_ASKED {
            let reason = format!("it asks more than {MAX_ASKED} things and reads no answer");
            return Err(ClaudeCodeError::CliResponseParse { reason });
        }
        let answered = match asked {
            Ask::Mcp { server, message } => match &self.sdk {
                Some(sdk) if sdk.name() == server => {
                    if sdk.take(&id, &message) {
                        return Ok(());
                    }
                    Ok(json!({ "mcp_response": { "jsonrpc": "2.0", "result": {} } }))
                }
                _ => Err(format!("there is no server `{server}` here")),
            },
            Ask::Hook { callback_id, input } if callback_id != RESTRICTIONS => {
                let hook = place_of(&callback_id).and_then(|place| self.hooks.get(place)).cloned();
                let Some(hook) = hook else {
                    self.send(answer(&id, Err(format!("there is no hook `{callback_id}` here"))));
                    return Ok(());
                };
                let restrictions = self.plan.restrictions.clone();
                let (control, server) = (self.control.clone(), self.server().map(str::to_owned));
                let (asked, wait) = (id.clone(), self.waits.begin());
                let calling = self.work.spawn(async move {
                    let _wait = wait;
                    let answered = hook.answer(&input, &restrictions, server.as_deref()).await;
                    _ = control.write(answer(&id, Ok(answered)).as_bytes(), b"", b"").await;
                });
                self.said.asked.insert(asked, calling);
                return Ok(());
            }
            Ask::Hook { input, .. } => {
                let (id, answer) = self.plan.restrictions.before_use(&input, self.server());
                self.said.asked_about.extend(id);
                Ok(answer)
            }
            Ask::Permission(question) => {
                let decider = self.turn.as_ref().and_then(|turn| turn.decider.clone());
                let restrictions = self.plan.restrictions.clone();
                let (control, server) = (self.control.clone(), self.server().map(str::to_owned));
                let (asked, wait) = (id.clone(), self.waits.begin());
                let deciding = self.work.spawn(async move {
                    let _wait = wait;
                    let permission = decide(decider, &restrictions, server.as_deref(), &question).await;
                    let line = answer(&id, Ok(permission.to_answer(&question.input)));
                    _ = control.write(line.as_bytes(), b"", b"").await;
                });
                self.said.asked.insert(asked, deciding);
                return Ok(());
            }
            Ask::Question(question) => {
                let on_ask = self.turn.as_ref().and_then(|turn| turn.on_ask.clone());
                let (control, asked, wait) = (self.control.clone(), id.clone(), self.waits.begin());
                let asking = self.work.spawn(async move {
                    let _wait = wait;
                    let line = answer(&id, Ok(ask(on_ask, question).await));
                    _ = control.write(line.as_bytes(), b"", b"").await;
                });
                self.said.asked.insert(asked, asking);
                return Ok(());
            }
            Ask::Unknown { subtype } => Err(format!("toolbridge does not answer `{subtype}`")),
        };
        self.send(answer(&id, answered));
        Ok(())
    }
}
