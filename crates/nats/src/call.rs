//! One call, on the caller's side.

use std::time::Duration;

use async_nats::{Message, PublishErrorKind, StatusCode};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use toolbridge_core::call::Progress;
use toolbridge_core::tool::{RawJson, ToolCall, ToolSpec};
use toolbridge_core::trace::Outcome;
use toolbridge_core::{CallContext, ToolError};

use crate::directory::Address;
use crate::tools::CallerState;
use crate::wire::{Hello, KIND, call_headers, failed, header, headers, kind, read_error, too_large};

/// How long a call may be silent before it is lost. Hosts send beats more often.
const SILENCE: Duration = Duration::from_millis(2600);

/// How long the connection may be down before pending calls are lost.
const OFFLINE: Duration = Duration::from_secs(30);

/// How long a new call waits for a lost connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// How often to look for hosts that reconnect, and at calls that are silent.
const TICK: Duration = Duration::from_millis(200);

/// How long to wait when all hosts are full, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(200);

/// The outcome of a call at one host.
enum AttemptOutcome {
    Answered(RawJson),
    /// The host is full; the call did not run.
    Busy,
    /// The host is ending, or does not have the tool; the call did not run.
    Gone,
    /// The host is not connected; the call did not run.
    Unreachable,
    /// It may have run.
    Lost(String),
}

impl CallerState {
    /// Calls a tool.
    pub(crate) async fn call(&self, call: &ToolCall, context: &CallContext) -> Result<RawJson, ToolError> {
        let union = self.union();
        if union.list.get(&call.name).is_none() {
            let has_hosts = !self.directory().live().is_empty();
            return Err(if has_hosts { union.list.not_found(&call.name) } else { self.no_host(None) });
        }
        if self.address != Address::All {
            return self.call_one(call, context, None).await;
        }
        let peers = union.hosts.get(&call.name).filter(|peers| !peers.is_empty());
        let peers = peers.ok_or_else(|| self.no_host(None))?;
        let one = async |peer: &Hello| (peer.host.clone(), self.call_one(call, context, Some(peer)).await);
        crate::fan_out::join(&futures_util::future::join_all(peers.iter().map(one)).await)
    }

    /// Calls one host after the other, until one has answered; only `peer`, if given.
    async fn call_one(
        &self,
        call: &ToolCall,
        context: &CallContext,
        peer: Option<&Hello>,
    ) -> Result<RawJson, ToolError> {
        // The hosts that had no room when they were last asked, and those that are not asked again.
        let (mut full, mut out) = (Vec::new(), Vec::new());
        let mut lost = None;
        let mut pause = FIRST_PAUSE;
        loop {
            if !self.connection.is_up_within(CONNECT_PATIENCE).await {
                let url = &self.connection.url;
                return Err(failed(format!("not connected to NATS at `{url}`; the call did not run")));
            }
            let union = self.union();
            let may_answer = |other: &&Hello| {
                peer.is_none_or(|peer| peer.instance == other.instance)
                    && !full.contains(*other)
                    && !out.contains(*other)
            };
            let peers = union.hosts.get(&call.name).into_iter().flatten();
            let Some(host) = fastrand::choice(peers.filter(may_answer).collect::<Vec<_>>()) else {
                if !full.is_empty() {
                    full.clear();
                    sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
                    pause = LAST_PAUSE.min(pause * 2);
                } else if let Some(error) = lost {
                    return Err(error);
                } else if self.directory().has_lost_a_host() {
                    // It may only have lost its connection.
                    self.look_around.notify_one();
                    sleep(TICK).await;
                } else {
                    return Err(self.no_host(peer));
                }
                continue;
            };
            match self.attempt(host, call, context).await? {
                AttemptOutcome::Answered(result) => return Ok(result),
                AttemptOutcome::Busy => full.push(host.clone()),
                AttemptOutcome::Unreachable => self.update(|directory| directory.lose(&host.instance)),
                AttemptOutcome::Gone => {
                    self.update(|directory| directory.lose(&host.instance));
                    out.push(host.clone());
                }
                AttemptOutcome::Lost(why) => {
                    self.look_around.notify_one();
                    let error = in_doubt(&call.name, &host.host, &why, lost.is_some());
                    // Once, and only if it may run twice.
                    if lost.is_some() || !union.list.get(&call.name).is_some_and(is_read_only) {
                        return Err(error);
                    }
                    tracing::warn!(tool = call.name, why, "a call was lost, and is repeated");
                    lost = Some(error);
                    out.push(host.clone());
                }
            }
        }
    }

    /// The name, with the host if only one is meant.
    pub(crate) fn shown_name(&self, peer: Option<&Hello>) -> String {
        let name = &self.subjects.name;
        match (&self.address, peer) {
            (Address::One(host), _) | (_, Some(Hello { host, .. })) => format!("{name}@{host}"),
            (_, None) => name.clone(),
        }
    }

    /// The error that no host can be called.
    fn no_host(&self, peer: Option<&Hello>) -> ToolError {
        let name = self.shown_name(peer);
        let text = format!("no host offers `{name}` at the moment; the call did not run");
        ToolError::new("NoHostError", text).called(Outcome::TransportError)
    }

    /// Makes a single attempt; an error is the call's.
    async fn attempt(
        &self,
        host: &Hello,
        call: &ToolCall,
        context: &CallContext,
    ) -> Result<AttemptOutcome, ToolError> {
        let client = &self.connection.client;
        let subject = self.subjects.at(&host.instance, &call.name);
        let (mut pending, mut messages) = PendingCall::new(self, subject.clone());
        let (reply, arguments) = (pending.inbox.clone(), call.arguments.to_bytes());
        context.mark_sent();
        let sent = client.publish_with_reply_and_headers(subject, reply, call_headers(&call.meta), arguments);
        sent.await.map_err(|error| match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => {
                too_large("arguments", &call.name, &call.arguments, client.max_payload())
            }
            _ => failed(format!("the call cannot be sent: {error}")),
        })?;
        let mut last_message = Instant::now();
        let outcome = loop {
            let outcome = tokio::select! {
                biased;
                Some(message) = messages.recv() => {
                    last_message = Instant::now();
                    read(message, &host.host, context)
                }
                () = sleep(TICK) => self.silence(last_message, &host.host, &pending.subject),
            };
            if let Some(outcome) = outcome {
                break outcome;
            }
        };
        pending.is_over = !matches!(outcome, Ok(AttemptOutcome::Lost(_)));
        context.mark_answered();
        if matches!(outcome, Ok(AttemptOutcome::Answered(_)) | Err(_)) {
            context.answered_by(&host.host);
        }
        outcome
    }

    /// What has become of a call whose host was last heard at that time, if it is over.
    fn silence(
        &self,
        last_message: Instant,
        host: &str,
        subject: &str,
    ) -> Option<Result<AttemptOutcome, ToolError>> {
        let (since, limit) = match self.connection.up() {
            // While the connection was down, nothing could arrive.
            Some(up) => (last_message.max(up), SILENCE),
            None => (last_message, OFFLINE),
        };
        let silence = since.elapsed();
        if silence < limit {
            return None;
        }
        Some(match self.connection.refused() {
            // The server does not answer what it does not allow.
            Some(error) if error.contains(subject) => {
                Err(failed(format!("the NATS server does not allow the call: {error}")))
            }
            _ => {
                let seconds = silence.as_secs_f64();
                Ok(AttemptOutcome::Lost(format!("nothing was heard from host `{host}` for {seconds:.1} s")))
            }
        })
    }
}

/// Whether a call may be repeated although it may have run.
fn is_read_only(tool: &ToolSpec) -> bool {
    let hints: Value = tool.annotations.as_ref().and_then(|hints| hints.decode().ok()).unwrap_or_default();
    hints["readOnlyHint"] == true
}

/// Handles a message about a call; returns what has become of the call, if it is over.
fn read(message: Message, host: &str, context: &CallContext) -> Option<Result<AttemptOutcome, ToolError>> {
    if message.status == Some(StatusCode::NO_RESPONDERS) {
        return Some(Ok(AttemptOutcome::Unreachable));
    }
    Some(Ok(match header(&message, KIND)? {
        kind::ANSWER => match RawJson::parse(message.payload) {
            Ok(result) => AttemptOutcome::Answered(result),
            Err(error) => {
                return Some(Err(failed(format!("the answer of host `{host}` is not JSON: {error}"))));
            }
        },
        kind::ERROR => return Some(Err(read_error(&message))),
        kind::BUSY => AttemptOutcome::Busy,
        kind::GONE => AttemptOutcome::Gone,
        kind::ENDED => AttemptOutcome::Lost("the host has ended".into()),
        kind::PROGRESS => {
            let Progress { progress, total, message } = serde_json::from_slice(&message.payload).ok()?;
            context.progress(progress, total, message.as_deref());
            return None;
        }
        _ => return None,
    }))
}

/// A call without an answer so far. Dropping it cancels the call at its host.
struct PendingCall<'a> {
    caller: &'a CallerState,
    subject: String,
    inbox: String,
    is_over: bool,
}

impl<'a> PendingCall<'a> {
    fn new(caller: &'a CallerState, subject: String) -> (Self, mpsc::UnboundedReceiver<Message>) {
        let (sender, messages) = mpsc::unbounded_channel();
        let inbox = format!("{}.{:x}", caller.inbox, fastrand::u64(..));
        caller.pending().insert(inbox.clone(), sender);
        (Self { caller, subject, inbox, is_over: false }, messages)
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        self.caller.pending().remove(&self.inbox);
        if !self.is_over {
            let (subject, inbox) = (std::mem::take(&mut self.subject), std::mem::take(&mut self.inbox));
            self.caller.connection.post(subject, headers(kind::CANCEL), inbox.into());
        }
    }
}

fn in_doubt(tool: &str, host: &str, why: &str, was_repeated: bool) -> ToolError {
    let twice = if was_repeated { ", and neither was the one before it" } else { "" };
    let text =
        format!("the call of tool `{tool}` at host `{host}` was not answered{twice}: {why}; it may have run");
    ToolError::new("InDoubtError", text).called(Outcome::TransportError)
}
