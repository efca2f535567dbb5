//! One call, on the host's side.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{HeaderMap, Subject};
use bytes::Bytes;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use toolbridge_core::{
    Answer, CallEvent, CallMeta, CancellationToken, RawJson, RunningCall, ToolCall, ToolError,
};

use crate::answer::{Arrived, Reply};
use crate::host::Shared;
use crate::parts::{Assembly, MAX_MESSAGE_BYTES, part_bytes, room};
use crate::subject;
use crate::table::Begin;
use crate::wire::{Asked, Lane, Meta, Told, check_inbox, traceparent, write_error};

/// How often a host sends a beat for a running call.
pub(crate) const BEAT: Duration = Duration::from_millis(600);

/// How long the next part of a call's arguments may take to arrive.
const PART_PATIENCE: Duration = Duration::from_secs(15);

/// The limit of waiting calls from plain clients, as a multiple of the calls that may run: they do not try
/// another host.
const MAX_WAITING: usize = 8;

/// Runs a call and answers it, unless it is cancelled.
pub(crate) async fn run(host: Arc<Shared>, arrived: Arrived) {
    let message = arrived.message();
    let none = HeaderMap::new();
    let headers = message.headers.as_ref().unwrap_or(&none);
    let Some(tool) = message.subject.rsplit('.').next().and_then(subject::text) else { return };
    let client = &host.link.client;
    let (bytes, inbox) = match Asked::read(headers) {
        Some((Asked::Call(bytes), inbox)) => {
            if let Err(reason) = check_inbox(inbox) {
                let reply = Reply { client, speaker: &host.speaker, arrived: &arrived, inbox: None };
                let error = ToolError::new("NatsError", reason);
                let mut headers = Told::Error.headers(&host.speaker);
                write_error(&mut headers, &error, client.max_payload());
                return reply.error(headers, &error).await;
            }
            (bytes, Some(Subject::from(inbox)))
        }
        Some(_) => return,
        // A plain NATS client, without our headers.
        None => (message.payload.len(), None),
    };
    let reply = Reply { client, speaker: &host.speaker, arrived: &arrived, inbox };
    let spec = host.dispatcher.source().tools().get(&tool).map(|spec| spec.exclusive);
    let lane = match spec {
        Some(true) => Lane::Exclusive,
        Some(false) => Lane::Parallel,
        None => return reply.refusal(Told::Gone, "this host has no such tool").await,
    };
    if host.closing.is_cancelled() {
        return reply.refusal(Told::Gone, "this host is ending").await;
    }
    let name = match &reply.inbox {
        Some(inbox) => inbox.to_string(),
        None => host.own_name(),
    };
    let cancelled = loop {
        match host.table.begin(&name, lane, &host.ended) {
            Begin::Now(cancelled) => break cancelled,
            Begin::Never => return,
            Begin::Busy if reply.inbox.is_some() || host.waiting() >= MAX_WAITING * host.max_calls => {
                return reply.refusal(Told::Busy(lane), "this host is full").await;
            }
            Begin::Busy => host.wait_for_room().await,
        }
    };
    let run = Run { host: &host, reply, tool, name, cancelled };
    let answer = tokio::select! {
        biased;
        answer = run.answer(headers, &message.payload, bytes) => answer,
        never = run.beat() => match never {},
    };
    let room = host.table.end(&run.name, lane, answer);
    if let Some(room) = room {
        host.tell_room(room).await;
    }
}

/// A running call.
struct Run<'a> {
    host: &'a Shared,
    reply: Reply<'a>,
    tool: String,
    /// Its inbox, or a name of our own if it has none.
    name: String,
    cancelled: CancellationToken,
}

impl Run<'_> {
    /// Sends a beat at regular intervals.
    async fn beat(&self) -> Infallible {
        let mut beat = interval_at(Instant::now() + BEAT, BEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beat.tick().await;
            self.reply.aside(Told::Beat, Bytes::new()).await;
        }
    }

    /// Runs the call; returns the answer if it is to be kept for a repeated question.
    async fn answer(&self, headers: &HeaderMap, payload: &Bytes, bytes: usize) -> Option<(HeaderMap, Bytes)> {
        let about = Meta::read(headers);
        let meta = CallMeta {
            tool_use_id: about.tool_use_id,
            progress_token: about.progress_token,
            traceparent: traceparent(headers).and_then(|text| text.parse().ok()),
            client: about.client.map(Arc::new),
            // A caller on another machine has nobody here.
            can_ask: false,
        };
        let arguments = tokio::select! {
            biased;
            () = self.cancelled.cancelled() => return self.ended().await,
            arguments = self.arguments(payload, bytes) => arguments?,
        };
        let call = arguments.map(|arguments| ToolCall { name: self.tool.clone(), arguments, meta });
        let mut running = match call.and_then(|call| self.host.dispatcher.call(call, None)) {
            Ok(running) => running.map(|outcome| self.checked(outcome)),
            Err(error) => return self.say(Err(error)).await,
        };
        running.at_host(&self.host.name);
        let Some(outcome) = self.outcome(&mut running).await else { return self.ended().await };
        let answer = self.say(outcome).await;
        running.written();
        answer
    }

    /// The answer of a cancelled call: none, unless this host itself cancelled it.
    async fn ended(&self) -> Option<(HeaderMap, Bytes)> {
        if !self.host.ended.is_cancelled() {
            return None;
        }
        let text = format!("host `{}` has ended while the call was under way", self.host.name);
        self.say(Err(ToolError::new("ServerEndedError", text))).await
    }

    /// The complete arguments; `None` if some do not arrive.
    async fn arguments(&self, payload: &Bytes, bytes: usize) -> Option<Result<RawJson, ToolError>> {
        let text = if bytes <= payload.len() {
            payload.clone()
        } else if bytes > MAX_MESSAGE_BYTES {
            return Some(Err(
                self.wrong_arguments(format!("they have {bytes} bytes, the limit is {MAX_MESSAGE_BYTES}"))
            ));
        } else {
            self.collect(payload, bytes).await?
        };
        if text.is_empty() {
            return Some(Ok(RawJson::empty_object()));
        }
        Some(match RawJson::parse(text) {
            Ok(arguments) if arguments.is_object() => Ok(arguments),
            Ok(_) => Err(self.wrong_arguments("they are not an object".into())),
            Err(error) => Err(self.wrong_arguments(format!("they are not JSON: {error}"))),
        })
    }

    fn wrong_arguments(&self, reason: String) -> ToolError {
        ToolError::Arguments { tool: self.tool.clone(), path: "/".into(), reason }
    }

    /// Collects the parts of the arguments.
    async fn collect(&self, first: &Bytes, bytes: usize) -> Option<Bytes> {
        let mut parts = self.host.table.parts(&self.name);
        let share = self.host.requests.wait(bytes).await;
        let mut assembly = Assembly::new(bytes);
        let mut taken = assembly.take(0, first);
        loop {
            self.reply.aside(Told::Ack(taken), Bytes::new()).await;
            if assembly.is_whole() {
                return Some(share.hold(assembly.whole()));
            }
            let Ok(Some((place, part))) = timeout(PART_PATIENCE, parts.recv()).await else {
                tracing::debug!(tool = self.tool, "the rest of a call did not arrive");
                return None;
            };
            taken = assembly.take(place, &part);
        }
    }

    /// Runs the tool; `None` if the call was cancelled.
    async fn outcome(&self, running: &mut RunningCall<'_>) -> Option<Result<RawJson, ToolError>> {
        loop {
            tokio::select! {
                biased;
                () = self.cancelled.cancelled() => return None,
                event = running.next() => match event {
                    CallEvent::Progress(report) => running.during(self.reply.progress(report)).await,
                    // Nobody said that there is somebody to ask.
                    CallEvent::Question(asked) => asked.answer(Ok(Answer::Nobody)),
                    CallEvent::Done(outcome) => return Some(outcome),
                },
            }
        }
    }

    /// The outcome; an error if it is too large for its caller.
    fn checked(&self, outcome: Result<RawJson, ToolError>) -> Result<RawJson, ToolError> {
        let bytes = outcome.as_ref().map_or(0, |result| result.as_bytes().len());
        let limit = match self.reply.inbox {
            Some(_) => MAX_MESSAGE_BYTES,
            None => room(self.reply.client.max_payload()),
        };
        if bytes > limit {
            let reason = format!("it has {bytes} bytes, the limit is {limit}");
            return Err(ToolError::Output { tool: self.tool.clone(), reason });
        }
        outcome
    }

    /// Sends the outcome to the caller.
    async fn say(&self, outcome: Result<RawJson, ToolError>) -> Option<(HeaderMap, Bytes)> {
        let client = self.reply.client;
        let fits = |result: &RawJson| result.as_bytes().len() <= room(client.max_payload());
        match outcome {
            Ok(result) if fits(&result) => {
                let (headers, payload) = (Told::Answer.headers(&self.host.speaker), result.to_bytes());
                self.reply.result(headers.clone(), payload.clone()).await;
                Some((headers, payload))
            }
            Ok(result) => {
                self.in_parts(&result.to_bytes()).await;
                // The parts were acknowledged; this reply is for the service's statistics.
                self.reply.result(Told::Beat.headers(&self.host.speaker), Bytes::new()).await;
                None
            }
            Err(error) => {
                let mut headers = Told::Error.headers(&self.host.speaker);
                write_error(&mut headers, &error, client.max_payload());
                self.reply.error(headers.clone(), &error).await;
                Some((headers, Bytes::new()))
            }
        }
    }

    async fn in_parts(&self, whole: &Bytes) {
        let mut acks = self.host.table.acks(&self.name);
        let size = part_bytes(self.reply.client.max_payload());
        let tell = |place, part| self.reply.aside(Told::Part(place, whole.len()), part);
        let taken = tokio::select! {
            biased;
            () = self.cancelled.cancelled() => return,
            taken = self.host.cutter.send(whole, size, 0, &mut acks, tell) => taken,
        };
        if taken.is_err() {
            tracing::warn!(tool = self.tool, bytes = whole.len(), "a caller did not receive its answer");
        }
    }
}
