//! One call, on the caller's side.

use std::collections::HashSet;
use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use async_nats::{HeaderMap, Message, Request, RequestErrorKind, StatusCode};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use toolbridge_core::trace::Outcome;
use toolbridge_core::{CallContext, Progress, RawJson, ToolCall, ToolError};

use crate::listing::is_repeatable;
use crate::parts::{Assembly, MAX_MESSAGE_BYTES, NotTaken, part, part_bytes, room};
use crate::subject::Address;
use crate::tools::{Caller, Unwanted};
use crate::wire::{Asked, Lane, Meta, Speaker, Told, read_error, set_traceparent};

/// How long a call may be silent before the caller asks the hosts for it. Hosts send beats more often.
const ASK_AFTER: Duration = Duration::from_secs(1);

/// How long a call may be silent before its host is considered dead.
pub(crate) const LOST_AFTER: Duration = Duration::from_millis(2600);

/// How often silence is checked.
const TICK: Duration = Duration::from_millis(200);

/// How long the connection may be down before pending calls fail.
const OFFLINE: Duration = Duration::from_secs(30);

/// How long a new call waits for a lost connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// How long hosts have to reconnect after a connection was lost.
const HOSTS_PATIENCE: Duration = Duration::from_secs(3);

/// How many hosts are tried before the call waits for room.
const MAX_TRIES: usize = 4;

/// How often a call that did not arrive is retried.
const MAX_AGAIN: usize = 5;

/// The outcome of a call at one host.
enum Went {
    Answered(Result<RawJson, ToolError>),
    /// No host takes such calls.
    NoHost,
    /// The host is full; the call did not run.
    Busy(Lane, Speaker),
    /// The host no longer takes such calls; this one did not run.
    Gone(Speaker),
    /// It arrived at no host, and did not run.
    NotArrived,
    /// It may have run.
    Lost(Option<Speaker>, String),
}

impl Caller {
    /// Calls a tool.
    pub(crate) async fn call(&self, call: &ToolCall, context: &CallContext) -> Result<RawJson, ToolError> {
        let union = self.union();
        let Some(tool) = union.list.get(&call.name) else {
            return Err(if self.directory().is_empty() {
                self.no_host(None)
            } else {
                union.list.not_found(&call.name)
            });
        };
        let hosts = union.hosts.get(&call.name).map_or(&[][..], |hosts| hosts);
        match &self.address {
            Address::All => self.call_all(call, context, hosts, is_repeatable(tool)).await,
            Address::One(host) => self.call_at(call, context, Choice::only(host), is_repeatable(tool)).await,
            Address::Any => {
                let must_choose = union.disagreements.iter().any(|about| about.tool == call.name);
                let choice = Choice { hosts, must_choose, is_fixed: false };
                self.call_at(call, context, choice, is_repeatable(tool)).await
            }
        }
    }

    async fn call_all(
        &self,
        call: &ToolCall,
        context: &CallContext,
        hosts: &[String],
        is_repeatable: bool,
    ) -> Result<RawJson, ToolError> {
        if self.directory().is_empty() {
            return Err(self.no_host(None));
        }
        let one = |host: &String| {
            let host = [host.clone()];
            async move {
                let answer = self.call_at(call, context, Choice::only(&host[0]), is_repeatable).await;
                let [host] = host;
                (host, answer)
            }
        };
        crate::fan_out::join(&futures_util::future::join_all(hosts.iter().map(one)).await)
    }

    /// Calls one of several hosts, until one has answered.
    async fn call_at(
        &self,
        call: &ToolCall,
        context: &CallContext,
        choice: Choice<'_>,
        is_repeatable: bool,
    ) -> Result<RawJson, ToolError> {
        let mut tried: Vec<String> = Vec::new();
        let (mut again, mut may_repeat) = (0, is_repeatable);
        let mut host = choice.first();
        loop {
            let subject = match &host {
                Some(host) => self.subjects.at(host, &call.name),
                None => self.subjects.any(&call.name),
            };
            match self.attempt(subject, call, context).await {
                Went::Answered(answer) => return answer,
                Went::Busy(lane, by) => {
                    tried.push(by.host);
                    host = match choice.another(&tried) {
                        Some(another) if tried.len() < MAX_TRIES => Some(another),
                        _ => {
                            tried.clear();
                            let with_room = self.waiting.wait(lane).await;
                            with_room.filter(|host| choice.has(host)).or_else(|| choice.first())
                        }
                    };
                    continue;
                }
                // After a lost connection, hosts may reconnect later than this process.
                Went::NoHost if self.link.status.is_back_for_less_than(HOSTS_PATIENCE) => sleep(TICK).await,
                Went::NoHost => {
                    let Some(gone) = host.take() else { return Err(self.no_host(None)) };
                    self.host_is_gone(&gone);
                    if choice.is_fixed {
                        return Err(self.no_host(Some(&gone)));
                    }
                    tried.push(gone);
                    again += 1;
                }
                Went::Gone(by) => {
                    self.process_is_gone(&by.instance);
                    tried.push(by.host);
                    again += 1;
                }
                Went::NotArrived => again += 1,
                Went::Lost(by, why) => {
                    self.look_around();
                    if !may_repeat {
                        return Err(in_doubt(&call.name, by.as_ref(), &why, is_repeatable));
                    }
                    tracing::warn!(tool = call.name, why, "a call was lost, and is retried");
                    may_repeat = false;
                    tried.extend(by.map(|by| by.host));
                }
            }
            if again > MAX_AGAIN {
                let text = format!("no host took the call of tool `{}`; it did not run", call.name);
                return Err(failed(text));
            }
            host = choice
                .another(&tried)
                .filter(|_| choice.must_choose || !tried.is_empty())
                .or_else(|| choice.first());
        }
    }

    /// The error that no host is available.
    fn no_host(&self, host: Option<&str>) -> ToolError {
        let name = &self.subjects.name;
        let host = match &self.address {
            Address::One(host) => Some(&**host),
            _ => host,
        };
        let at = host.map_or_else(|| name.clone(), |host| format!("{name}@{host}"));
        let text = format!("no host offers `{at}` at the moment; the call did not run");
        ToolError::new("NoHostError", text).called(Outcome::TransportError)
    }

    /// Makes a single attempt.
    async fn attempt(&self, subject: String, call: &ToolCall, context: &CallContext) -> Went {
        if !self.link.is_up_within(CONNECT_PATIENCE).await {
            let text = format!("not connected to NATS at `{}`; the call did not run", self.link.url);
            return Went::Answered(Err(failed(text)));
        }
        let whole = call.arguments.to_bytes();
        if whole.len() > MAX_MESSAGE_BYTES {
            let reason = format!("they have {} bytes, the limit is {MAX_MESSAGE_BYTES}", whole.len());
            let tool = call.name.clone();
            return Went::Answered(Err(ToolError::Arguments { tool, path: "/".into(), reason }));
        }
        let client = &self.link.client;
        let mut left = self.left.subscribe();
        let mut inbox = self.router.open();
        let headers = headers(call, &inbox.name);
        let size = part_bytes(client.max_payload());
        let is_cut = whole.len() > room(client.max_payload());
        let payload = if is_cut { part(&whole, size, 0) } else { whole.clone() };
        let mut attempt = Attempt::new(self, context, inbox.name.clone());
        context.mark_sent();
        let request = Request::new().headers(headers).payload(payload);
        let mut reply = pin!(client.send_request(subject, request));
        let mut is_replied = false;
        let (took, acks) = mpsc::channel(16);
        let mut acks = is_cut.then_some(acks);
        let mut sending: Option<Sending<'_>> = None;
        let went = loop {
            let message = tokio::select! {
                biased;
                reply = &mut reply, if !is_replied => match reply {
                    Ok(message) => {
                        is_replied = true;
                        message
                    }
                    Err(error) if error.kind() == RequestErrorKind::NoResponders => break Went::NoHost,
                    Err(error) => break Went::Answered(Err(failed(format!("the call cannot be sent: {error}")))),
                },
                Some(message) = inbox.messages.recv() => message,
                sent = all_sent(&mut sending) => {
                    sending = None;
                    if sent.is_err() {
                        break Went::Lost(attempt.by.clone(), "the host did not accept the arguments".into());
                    }
                    continue;
                }
                Ok(()) = left.changed() => {
                    // The call may have been on its way to the process that left. Its own messages arrive
                    // before the answers to this question.
                    attempt.absent = left.borrow_and_update().iter().cloned().collect();
                    if attempt.by.is_none() {
                        attempt.ask().await;
                    }
                    continue;
                }
                () = sleep(TICK) => match attempt.look().await {
                    Some(went) => break went,
                    None => continue,
                },
            };
            if message.status == Some(StatusCode::NO_RESPONDERS) && attempt.is_nowhere(None) {
                break Went::NotArrived;
            }
            let Some(told) = message.headers.as_ref().and_then(Told::read) else { continue };
            if let Told::Ack(count) = told {
                attempt.hear(&message);
                _ = took.try_send(count);
                if let (Some(by), Some(mut acks)) = (&attempt.by, acks.take()) {
                    let (subject, inbox) = (self.subjects.to(&by.instance), inbox.name.clone());
                    let whole = &whole;
                    sending = Some(Box::pin(async move {
                        let send = |place, part: Bytes| {
                            let headers = Asked::Part(place).headers(&inbox);
                            let sent = client.publish_with_headers(subject.clone(), headers, part);
                            async { _ = sent.await }
                        };
                        self.cutter.send(whole, size, 1, &mut acks, send).await
                    }));
                }
                continue;
            }
            if let Some(went) = attempt.take(told, &message).await {
                break went;
            }
        };
        if !matches!(went, Went::Lost(..)) {
            attempt.unanswered.is_done = true;
        }
        context.mark_answered();
        if let (Went::Answered(_), Some(by)) = (&went, &attempt.by) {
            context.answered_by(&by.host);
        }
        went
    }
}

/// Whether it is what MCP has as a progress token: a string or a number, and therefore on one line.
fn is_token(token: &RawJson) -> bool {
    matches!(token.as_bytes().first(), Some(b'"' | b'-' | b'0'..=b'9'))
}

/// The headers of a call.
fn headers(call: &ToolCall, inbox: &str) -> HeaderMap {
    let mut headers = Asked::Call(call.arguments.as_bytes().len()).headers(inbox);
    let meta = Meta {
        tool_use_id: call.meta.tool_use_id.clone(),
        progress_token: call.meta.progress_token.clone().filter(is_token),
        client: call.meta.client.as_deref().cloned(),
    };
    meta.write(&mut headers);
    if let Some(parent) = &call.meta.traceparent {
        set_traceparent(&mut headers, parent.to_string());
    }
    headers
}

type Sending<'a> = Pin<Box<dyn Future<Output = Result<(), NotTaken>> + Send + 'a>>;

async fn all_sent(sending: &mut Option<Sending<'_>>) -> Result<(), NotTaken> {
    match sending {
        Some(sending) => sending.await,
        None => pending().await,
    }
}

/// The hosts that may be called.
#[derive(Clone, Copy)]
struct Choice<'a> {
    /// The hosts that have the tool as it is listed.
    hosts: &'a [String],
    /// Other hosts describe the tool differently, so NATS must not choose.
    must_choose: bool,
    is_fixed: bool,
}

impl<'a> Choice<'a> {
    fn only(host: &'a String) -> Self {
        Self { hosts: std::slice::from_ref(host), must_choose: true, is_fixed: true }
    }

    fn first(&self) -> Option<String> {
        if self.must_choose { fastrand::choice(self.hosts).cloned() } else { None }
    }

    /// A host that was not tried.
    fn another(&self, tried: &[String]) -> Option<String> {
        let left: Vec<_> = self.hosts.iter().filter(|host| !tried.contains(host)).collect();
        fastrand::choice(left).cloned()
    }

    fn has(&self, host: &str) -> bool {
        !self.must_choose || self.hosts.iter().any(|own| own == host)
    }
}

/// A pending call.
struct Attempt<'a> {
    caller: &'a Caller,
    context: &'a CallContext,
    unanswered: Unanswered<'a>,
    /// The host that has the call, once that is known.
    by: Option<Speaker>,
    made: Instant,
    heard: Instant,
    asked: Instant,
    /// The processes that were live when the call was made.
    known: Arc<[String]>,
    /// The processes that do not have the call.
    absent: HashSet<String>,
    assembly: Option<Assembly>,
}

impl<'a> Attempt<'a> {
    fn new(caller: &'a Caller, context: &'a CallContext, inbox: String) -> Self {
        let now = Instant::now();
        Self {
            caller,
            context,
            unanswered: Unanswered { caller, inbox, instance: None, is_done: false },
            by: None,
            made: now,
            heard: now,
            asked: now,
            known: Arc::clone(&caller.union().instances),
            absent: HashSet::new(),
            assembly: None,
        }
    }

    /// Notes that the host is alive.
    fn hear(&mut self, message: &Message) {
        self.heard = Instant::now();
        if self.by.is_none() {
            self.by = message.headers.as_ref().and_then(Speaker::read);
            self.unanswered.instance = self.by.as_ref().map(|by| by.instance.clone());
        }
    }

    /// Whether no process has the call: neither the ones that were live when it was made, nor the ones that
    /// have come since. `absent` is another process that does not have it.
    fn is_nowhere(&mut self, absent: Option<String>) -> bool {
        self.absent.extend(absent);
        let now = Arc::clone(&self.caller.union().instances);
        let mut known = self.known.iter().chain(&*now);
        self.by.is_none() && !self.known.is_empty() && known.all(|known| self.absent.contains(known))
    }

    /// Handles a message; returns the outcome if the call is over.
    async fn take(&mut self, told: Told, message: &Message) -> Option<Went> {
        let speaker = message.headers.as_ref().and_then(Speaker::read)?;
        if told == Told::Absent {
            return self.is_nowhere(Some(speaker.instance)).then_some(Went::NotArrived);
        }
        if told == Told::Over && self.by.as_ref().is_none_or(|by| *by != speaker) {
            // Not proof that the call is lost: another host may have it.
            return None;
        }
        self.hear(message);
        match told {
            Told::Answer => Some(Went::Answered(self.read(message.payload.clone()))),
            Told::Error => Some(Went::Answered(Err(message
                .headers
                .as_ref()
                .map_or_else(|| failed("the host answered with an error".into()), read_error)))),
            Told::Part(place, bytes) => self.take_part(place, bytes, &message.payload, &speaker).await,
            Told::Progress => {
                if let Ok(Progress { progress, total, message }) = serde_json::from_slice(&message.payload) {
                    self.context.progress(progress, total, message.as_deref());
                }
                None
            }
            Told::Busy(lane) => Some(Went::Busy(lane, speaker)),
            Told::Gone => Some(Went::Gone(speaker)),
            Told::Over => Some(Went::Lost(Some(speaker), "its answer was lost on the way".into())),
            Told::Beat | Told::Ack(_) | Told::Absent => None,
        }
    }

    fn read(&self, text: Bytes) -> Result<RawJson, ToolError> {
        let host = self.by.as_ref().map_or("?", |by| &by.host);
        RawJson::parse(text).map_err(|error| {
            failed(format!("host `{host}` answered with something that is not JSON: {error}"))
        })
    }

    async fn take_part(&mut self, place: u32, bytes: usize, part: &Bytes, by: &Speaker) -> Option<Went> {
        if bytes > MAX_MESSAGE_BYTES {
            let text = format!("the result has {bytes} bytes, the limit is {MAX_MESSAGE_BYTES}");
            return Some(Went::Answered(Err(failed(text))));
        }
        let assembly = self.assembly.get_or_insert_with(|| Assembly::new(bytes));
        let parts = assembly.take(place, part);
        let is_whole = assembly.is_whole();
        let headers = Asked::Ack(parts).headers(&self.unanswered.inbox);
        let to = self.caller.subjects.to(&by.instance);
        _ = self.caller.link.client.publish_with_headers(to, headers, Bytes::new()).await;
        if !is_whole {
            return None;
        }
        let whole = self.assembly.take()?.whole();
        Some(Went::Answered(self.read(whole)))
    }

    /// Checks whether the call has been silent for too long.
    async fn look(&mut self) -> Option<Went> {
        let lost = |by: Option<Speaker>, why: String| Some(Went::Lost(by, why));
        let Some(since) = self.caller.link.status.since() else {
            let is_over = self.heard.elapsed() > OFFLINE;
            return if is_over {
                lost(self.by.clone(), "the connection to NATS is lost".into())
            } else {
                None
            };
        };
        let silence = self.heard.max(since).elapsed();
        if silence > LOST_AFTER {
            let seconds = silence.as_secs_f64();
            let why = match &self.by {
                Some(by) => format!("nothing was heard from host `{}` for {seconds:.1} s", by.host),
                None => format!("no host acknowledged the call within {seconds:.1} s"),
            };
            return lost(self.by.clone(), why);
        }
        if silence > ASK_AFTER && self.asked.elapsed() > ASK_AFTER {
            self.ask().await;
        }
        None
    }

    /// Asks all hosts where the call is.
    async fn ask(&mut self) {
        self.asked = Instant::now();
        let age = u32::try_from(self.made.elapsed().as_millis()).unwrap_or(u32::MAX);
        let (client, inbox) = (&self.caller.link.client, self.unanswered.inbox.clone());
        let headers = Asked::Where(age).headers(&inbox);
        // With a reply subject, the server itself answers if there are no hosts.
        let ask =
            client.publish_with_reply_and_headers(self.caller.subjects.ask(), inbox, headers, Bytes::new());
        _ = ask.await;
    }
}

/// A call without an answer so far. Dropping it cancels the call at its host.
struct Unanswered<'a> {
    caller: &'a Caller,
    inbox: String,
    instance: Option<String>,
    is_done: bool,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            let inbox = std::mem::take(&mut self.inbox);
            self.caller.unwanted(Unwanted { inbox, instance: self.instance.take() });
        }
    }
}

/// The error of a call that did not reach its tool, or whose answer was lost.
pub(crate) fn failed(message: String) -> ToolError {
    ToolError::new("NatsError", message).called(Outcome::TransportError)
}

fn in_doubt(tool: &str, by: Option<&Speaker>, why: &str, was_repeated: bool) -> ToolError {
    let where_to = by.map_or_else(String::new, |by| format!(" at host `{}`", by.host));
    let twice = if was_repeated { ", and neither was the one before it" } else { "" };
    let text = format!("the call of tool `{tool}`{where_to} was not answered{twice}: {why}; it may have run");
    ToolError::new("InDoubtError", text).called(Outcome::TransportError)
}
