//! Runs calls and writes their responses.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use hyper::StatusCode;
use tokio::sync::mpsc;
use toolbridge_core::json::members;
use toolbridge_core::trace::{CallTrace, Outcome};
use toolbridge_core::{CallMeta, CancellationToken, Progress, RawJson, Step, ToolCall, ToolError};
use toolbridge_mcp::wire::{
    Call, Era, IdKey, RpcId, error_result, in_one_line, invalid_params, invalid_request, progress_line,
    result_head,
};
use tracing::Instrument as _;

use crate::body::{Response, STILL_HERE, event, events, json};
use crate::refusal::Refusal;
use crate::service::Shared;
use crate::session::Session;
use crate::stream::KEEP_ALIVE;

/// A call that takes longer is answered with a stream, whose comments keep the connection alive.
const QUICK: Duration = Duration::from_secs(5);

/// A call, and how it is to be answered.
pub(crate) struct Asked {
    pub(crate) era: Era,
    pub(crate) id: RpcId,
    pub(crate) call: Call,
    pub(crate) meta: CallMeta,
    pub(crate) received: Option<Instant>,
    pub(crate) session: Option<Arc<Session>>,
}

/// What a call sends to its client.
enum Said {
    Progress(Bytes),
    Answer(Bytes),
}

/// Runs a call. It is answered with one message if it is quick and reports no progress, and otherwise with a stream
/// of events. When the client closes the request, this future or the response's body is dropped, and the call is
/// cancelled.
pub(crate) async fn answer(shared: &Arc<Shared>, asked: Asked) -> Result<Response, Refusal> {
    let Asked { era, id, call, meta, received, session } = asked;
    let parts = (call.name.as_str(), &call.arguments, &meta);
    let mut trace = shared.dispatcher.trace(received, parts, Some(id.key.as_str()));
    let mut refused = |why| {
        if let Some(trace) = &mut trace {
            trace.refused(why);
        }
    };
    let tools = shared.dispatcher.source().tools();
    if tools.get(&call.name).is_none() {
        refused("ToolNotFoundError");
        return Err(Refusal::new(StatusCode::OK, invalid_params(tools.not_found(&call.name).to_string())));
    }
    let Ok(place) = Arc::clone(&shared.places).try_acquire_owned() else {
        refused("InvalidRequestError");
        let text = format!("{} calls are under way, which is the limit", shared.most_calls());
        return Err(Refusal::busy(text));
    };
    let parent = session.as_ref().map_or(&shared.ended, |session| &session.ended);
    let cancelled = parent.child_token();
    if let Some(session) = &session
        && !session.begin(&id.key, cancelled.clone())
    {
        refused("InvalidRequestError");
        let text = format!("a call with id {} is under way", id.raw);
        return Err(Refusal::new(StatusCode::OK, invalid_request(text)));
    }
    let (says, said) = mpsc::channel(4);
    let reply = Reply {
        said,
        _request: OpenRequest { cancelled: cancelled.clone(), of: session.clone().zip(Some(id.key.clone())) },
    };
    let run = Run { shared: Arc::clone(shared), era, id, session, cancelled, says };
    let running = async move {
        let _place = place;
        run.run(call, meta, trace).await;
    };
    tokio::spawn(running.in_current_span());
    Ok(reply.response().await)
}

/// The client's request; if it is dropped before the call has ended, the call is cancelled.
struct OpenRequest {
    cancelled: CancellationToken,
    of: Option<(Arc<Session>, IdKey)>,
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        match &self.of {
            Some((session, id)) => _ = session.claim(id).inspect(CancellationToken::cancel),
            None => self.cancelled.cancel(),
        }
    }
}

/// The client's end of a call.
struct Reply {
    said: mpsc::Receiver<Said>,
    _request: OpenRequest,
}

impl Reply {
    async fn response(mut self) -> Response {
        let first = match tokio::time::timeout(QUICK, self.said.recv()).await {
            Ok(Some(Said::Answer(answer))) => return json(StatusCode::OK, answer),
            Ok(Some(Said::Progress(line))) => Some(event(&line)),
            // A cancelled call has no answer, so the stream has no event.
            Ok(None) => None,
            Err(_) => Some(STILL_HERE),
        };
        events(stream::unfold((first, self), |(first, mut reply)| async move {
            let event = match first {
                Some(first) => first,
                None => reply.next().await?,
            };
            Some((event, (None, reply)))
        }))
    }

    async fn next(&mut self) -> Option<Bytes> {
        match tokio::time::timeout(KEEP_ALIVE, self.said.recv()).await {
            Ok(Some(Said::Progress(line) | Said::Answer(line))) => Some(event(&line)),
            Ok(None) => None,
            Err(_) => Some(STILL_HERE),
        }
    }
}

/// A running call.
struct Run {
    shared: Arc<Shared>,
    era: Era,
    id: RpcId,
    session: Option<Arc<Session>>,
    cancelled: CancellationToken,
    says: mpsc::Sender<Said>,
}

impl Run {
    /// Runs the call to its answer, or until it is cancelled.
    async fn run(self, call: Call, meta: CallMeta, mut trace: Option<CallTrace>) {
        let mut counted = self.shared.metrics.begin(&call.name);
        let outcome = tokio::select! {
            biased;
            () = self.cancelled.cancelled() => None,
            outcome = self.outcome(call, meta, trace.as_ref()) => Some(outcome),
        };
        let Some(outcome) = outcome else {
            if self.shared.ended.is_cancelled() {
                self.answer(&error_result(&ToolError::new("ServerEndedError", "the server has ended"))).await;
            }
            return;
        };
        if let Some(trace) = &mut trace {
            trace.ended(&outcome);
        }
        // From here on there is an answer, and a cancellation comes too late.
        if self.session.as_ref().is_some_and(|session| session.claim(&self.id.key).is_none()) {
            if let Some(trace) = &mut trace {
                trace.cancelled();
            }
            return;
        }
        counted.ended(match &outcome {
            Ok(result) if says_error(result) => Outcome::ToolError,
            Ok(_) => Outcome::Ok,
            Err(error) => error.outcome(),
        });
        drop(counted);
        self.answer(&outcome.unwrap_or_else(|error| error_result(&error))).await;
        if let Some(trace) = &mut trace {
            trace.written();
        }
    }

    /// Runs the call to its result, and forwards its progress.
    async fn outcome(
        &self,
        call: Call,
        meta: CallMeta,
        trace: Option<&CallTrace>,
    ) -> Result<RawJson, ToolError> {
        let token = meta.progress_token.clone();
        let _running = self.shared.running.acquire().await;
        let call = ToolCall { name: call.name, arguments: call.arguments, meta };
        let mut call = self.shared.dispatcher.run(call, self.cancelled.clone(), trace);
        // A client that does not read its reports does not block the tool: a newer report replaces an older one.
        let mut report: Option<Progress> = None;
        loop {
            tokio::select! {
                biased;
                Ok(room) = self.says.reserve(), if report.is_some() => {
                    if let (Some(report), Some(token)) = (report.take(), &token) {
                        room.send(Said::Progress(progress_line(token, &report).into()));
                    }
                }
                step = call.next() => match step {
                    Step::Progress(newer) => report = Some(newer),
                    Step::Done(outcome) => {
                        if let (Some(report), Some(token)) = (report, &token) {
                            _ = self.says.try_send(Said::Progress(progress_line(token, &report).into()));
                        }
                        return outcome;
                    }
                },
            }
        }
    }

    async fn answer(&self, result: &RawJson) {
        let (head, rest) = result_head(&self.id, self.era, "", result);
        let answer = [head.as_bytes(), &in_one_line(&result.as_bytes()[rest..]), b"}"].concat();
        // Fails if the client has closed the request, and then the answer is not needed.
        _ = self.says.send(Said::Answer(answer.into())).await;
    }
}

/// Whether a result is marked as an error.
fn says_error(result: &RawJson) -> bool {
    let found = members(result.as_str(), &["isError"]);
    matches!(found, Ok(Some([Some(value)])) if value.get() == "true")
}
