//! One call, on the host's side.

use std::sync::Arc;
use std::time::Duration;

use async_nats::service::{Request, error};
use async_nats::{HeaderMap, PublishError};
use bytes::Bytes;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use toolbridge_core::ToolError;
use toolbridge_core::call::{Answer, CancellationToken};
use toolbridge_core::source::CallEvent;
use toolbridge_core::tool::{RawJson, ToolCall};

use crate::host::HostState;
use crate::wire::{error_headers, headers, kind, read_meta, status, too_large};

/// How often a host sends a beat for a running call.
const BEAT: Duration = Duration::from_millis(600);

/// The bytes of an answer's headers.
const ANSWER_HEADER_BYTES: usize = "NATS/1.0\r\nToolbridge: answer\r\n\r\n".len();

/// A received call.
pub(crate) struct ReceivedCall {
    pub(crate) host: Arc<HostState>,
    pub(crate) request: Request,
    /// The reply subject.
    pub(crate) id: String,
    pub(crate) tool: String,
    /// Its caller expects one message.
    pub(crate) is_plain: bool,
    pub(crate) cancelled: CancellationToken,
}

impl ReceivedCall {
    /// Runs the call and answers it, unless its caller cancels it.
    pub(crate) async fn run(&self) {
        let meta = read_meta(&self.request.message);
        let call = self.arguments().map(|arguments| ToolCall { name: self.tool.clone(), arguments, meta });
        let mut running = match call.and_then(|call| self.host.dispatcher.call(call, None)) {
            Ok(running) => running.map(|outcome| self.checked(outcome)),
            Err(error) => return self.fail(&error).await,
        };
        running.at_host(&self.host.name);
        let mut beats = interval_at(Instant::now() + BEAT, BEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let outcome = loop {
            tokio::select! {
                biased;
                () = self.cancelled.cancelled() => return self.end().await,
                event = running.next() => match event {
                    CallEvent::Progress(report) => {
                        self.tell(kind::PROGRESS, serde_json::to_vec(&report).unwrap_or_default().into());
                    }
                    // Nobody said that there is somebody to ask.
                    CallEvent::Question(asked) => asked.answer(Ok(Answer::Nobody)),
                    CallEvent::Done(outcome) => break outcome,
                },
                _ = beats.tick() => self.tell(kind::BEAT, Bytes::new()),
            }
        };
        match outcome {
            Ok(result) => {
                let answer = self.request.respond_with_headers(Ok(result.to_bytes()), headers(kind::ANSWER));
                log_failure(answer.await);
            }
            Err(error) => self.fail(&error).await,
        }
        running.written();
    }

    fn arguments(&self) -> Result<RawJson, ToolError> {
        let text = &self.request.message.payload;
        let bad = |reason| ToolError::Arguments { tool: self.tool.clone(), path: "/".into(), reason };
        if text.is_empty() {
            return Ok(RawJson::empty_object());
        }
        match RawJson::parse(text.clone()) {
            Ok(arguments) if arguments.is_object() => Ok(arguments),
            Ok(_) => Err(bad("they are not an object".into())),
            Err(error) => Err(bad(format!("they are not JSON: {error}"))),
        }
    }

    /// The outcome; an error if it is too large for a message.
    fn checked(&self, outcome: Result<RawJson, ToolError>) -> Result<RawJson, ToolError> {
        let limit = self.host.connection.client.max_payload();
        match outcome {
            Ok(result) if result.as_bytes().len() + ANSWER_HEADER_BYTES > limit => {
                Err(too_large("result", &self.tool, &result, limit))
            }
            outcome => outcome,
        }
    }

    /// Sends a message before the answer, which plain clients do not expect. It never waits.
    fn tell(&self, kind: &str, payload: Bytes) {
        if !self.is_plain {
            self.host.connection.post(self.id.clone(), headers(kind), payload);
        }
    }

    async fn fail(&self, error: &ToolError) {
        let headers = error_headers(error, self.host.connection.client.max_payload());
        self.respond(headers, error::Error { status: status(error), code: 500 }).await;
    }

    /// The end of a cancelled call. Its caller hears of it only if this host itself has cancelled it.
    async fn end(&self) {
        if self.host.ended.is_cancelled() {
            self.refuse(kind::ENDED, "this host has ended while the call was running").await;
        }
    }

    pub(crate) async fn refuse(&self, kind: &str, reason: &str) {
        self.respond(headers(kind), error::Error { status: reason.into(), code: 503 }).await;
    }

    async fn respond(&self, headers: HeaderMap, error: error::Error) {
        log_failure(self.request.respond_with_headers(Err(error), headers).await);
    }
}

fn log_failure(sent: Result<(), PublishError>) {
    if let Err(error) = sent {
        tracing::warn!(%error, "an answer could not be sent");
    }
}
