//! Runs calls and writes their responses.

use std::sync::Arc;
use std::time::Duration;

use crate::json::members;
use crate::mcp::wire::{
    Call, Entrance, Era, ErrorData, Retry, Round, RpcId, error_result, in_one_line, invalid_params,
    invalid_request, no_such_call, progress_line, result_head,
};
use crate::trace::Outcome;
use crate::{
    Asked, CallEvent, CallMeta, CancellationToken, Progress, RawJson, RunningCall, Share, ToolCall, ToolError,
};
use bytes::Bytes;
use futures_util::stream;
use hyper::StatusCode;
use tokio::sync::mpsc;
use tracing::Instrument as _;

use crate::http::auth::Principal;
use crate::http::body::{Response, STILL_HERE, event, events, json};
use crate::http::metrics::Counted;
use crate::http::refusal::Refusal;
use crate::http::service::{NO_ROOM, Shared};
use crate::http::session::Session;
use crate::http::stream::KEEP_ALIVE;

/// A call that takes longer is answered with a stream, whose comments keep the connection alive.
const QUICK: Duration = Duration::from_secs(5);

/// A call and how to answer it.
pub(crate) struct Request {
    pub(crate) era: Era,
    pub(crate) id: RpcId,
    pub(crate) call: Call,
    pub(crate) meta: CallMeta,
    pub(crate) session: Option<Arc<Session>>,
    /// `None` if the client cannot retry the call.
    pub(crate) known: Option<Known>,
}

/// Identifies a call that waits for answers: only the same principal may supply them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Known {
    pub(crate) tool: String,
    pub(crate) principal: Principal,
}

/// A retry of a call by the client.
#[derive(Debug)]
pub(crate) struct Retried {
    id: RpcId,
    progress_token: Option<RawJson>,
    responses: RawJson,
    request: CancellationToken,
    says: mpsc::Sender<Said>,
}

/// What a call sends to its client.
#[derive(Debug)]
pub(crate) enum Said {
    /// Progress, or a question.
    Line(Bytes),
    /// The answer, and its share of the memory for answers.
    Answer(Bytes, Share),
}

/// Runs a call. The response is a single message if the call is quick and reports no progress, otherwise a
/// stream of events. If the client closes the request, this future or the response's body is dropped; without a
/// session, that cancels the call.
pub(crate) async fn answer(shared: &Arc<Shared>, asked: Request) -> Result<Response, Refusal> {
    let Request { era, id, call, meta, session, known } = asked;
    let token = meta.progress_token.clone();
    let call = ToolCall { name: call.name, arguments: call.arguments, meta };
    let refused = || shared.dispatcher.refuse(&call, Some(id.key.as_str()), "InvalidRequestError");
    let Ok(place) = Arc::clone(&shared.places).try_acquire_owned() else {
        refused();
        let text = format!("{} calls are under way, which is the limit", shared.most_calls());
        return Err(Refusal::busy(text));
    };
    let parent = session.as_ref().map_or(&shared.ended, |session| &session.ended);
    let (cancelled, request) = (parent.child_token(), parent.child_token());
    if let Some(session) = &session
        && !session.begin(&id.key, request.clone())
    {
        refused();
        let text = format!("a call with id {} is under way", id.raw);
        return Err(Refusal::new(StatusCode::OK, invalid_request(text)));
    }
    let tool = call.name.clone();
    let call = match shared.dispatcher.call(call, Some(id.key.as_str())) {
        Ok(call) => call,
        Err(error) => {
            if let Some(session) = &session {
                session.claim(&id.key);
            }
            return Err(Refusal::new(StatusCode::OK, invalid_params(error.to_string())));
        }
    };
    let counted = shared.metrics.begin(&tool);
    let (says, said) = mpsc::channel(4);
    // A call of a session goes on without its request: MCP has them cancelled by `notifications/cancelled` alone.
    let open = session.is_none().then(|| OpenRequest(request.clone()));
    let reply = Reply { said, _open: open };
    let run = Run {
        shared: Arc::clone(shared),
        era,
        id,
        session,
        cancelled,
        request,
        says,
        known,
        last_report: None,
    };
    let running = async move {
        let _place = place;
        run.run(call, token, counted).await;
    };
    tokio::spawn(running.in_current_span());
    Ok(reply.response().await)
}

/// Continues a call that waits for answers.
pub(crate) fn retry(
    shared: &Shared,
    known: &Known,
    id: RpcId,
    retry: Retry,
    progress_token: Option<RawJson>,
) -> Result<Reply, ErrorData> {
    let (_, resume) = shared.waiting.leave(&retry.state, |its| its == known)?;
    let (says, said) = mpsc::channel(4);
    let request = shared.ended.child_token();
    let reply = Reply { said, _open: Some(OpenRequest(request.clone())) };
    let retried = Retried { id, progress_token, responses: retry.responses, request, says };
    resume.send(retried).map_err(|_| no_such_call())?;
    Ok(reply)
}

/// A request without a session; dropping it cancels the call.
struct OpenRequest(CancellationToken);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// The messages for the client.
pub(crate) struct Reply {
    said: mpsc::Receiver<Said>,
    _open: Option<OpenRequest>,
}

impl Reply {
    pub(crate) async fn response(mut self) -> Response {
        let first = match tokio::time::timeout(QUICK, self.said.recv()).await {
            Ok(Some(Said::Answer(answer, share))) => return json(StatusCode::OK, share.hold(answer)),
            Ok(Some(Said::Line(line))) => Some(event(&line)),
            // A cancelled call has no answer, so the stream ends without one.
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
            Ok(Some(Said::Line(line))) => Some(event(&line)),
            Ok(Some(Said::Answer(answer, share))) => Some(share.hold(event(&answer))),
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
    /// Ends the call.
    cancelled: CancellationToken,
    /// Cancelled when the request to be answered is closed, or with the call.
    request: CancellationToken,
    says: mpsc::Sender<Said>,
    known: Option<Known>,
    /// Sent before the answer.
    last_report: Option<String>,
}

impl Run {
    /// Runs the call to its answer, or to its cancellation.
    async fn run(mut self, mut call: RunningCall<'_>, token: Option<RawJson>, mut counted: Counted) {
        let _end = self.cancelled.clone().drop_guard();
        let outcome = self.outcome(&mut call, token).await;
        let Some(outcome) = outcome else {
            if self.shared.ended.is_cancelled() {
                self.answer(error_result(&ToolError::new("ServerEndedError", "the server has ended"))).await;
            }
            return;
        };
        // From here on there is an answer, and a cancellation comes too late.
        if self.session.as_ref().is_some_and(|session| session.claim(&self.id.key).is_none()) {
            return;
        }
        counted.ended(match &outcome {
            Ok(result) if says_error(result) => Outcome::ToolError,
            Ok(_) => Outcome::Ok,
            Err(error) => error.outcome(),
        });
        drop(counted);
        self.answer(outcome.unwrap_or_else(|error| error_result(&error))).await;
        call.written();
    }

    /// Runs the call to its result, and forwards its progress and its questions; `None` if it is cancelled.
    async fn outcome(
        &mut self,
        call: &mut RunningCall<'_>,
        mut token: Option<RawJson>,
    ) -> Option<Result<RawJson, ToolError>> {
        // A client that does not read its reports must not block the tool: a newer report replaces an older
        // one.
        let mut report: Option<Progress> = None;
        loop {
            let event = tokio::select! {
                biased;
                () = self.request.cancelled() => return None,
                Ok(room) = self.says.reserve(), if report.is_some() => {
                    if let (Some(report), Some(token)) = (report.take(), &token) {
                        room.send(Said::Line(progress_line(token, &report).into()));
                    }
                    continue;
                }
                event = call.next() => event,
            };
            match event {
                CallEvent::Progress(newer) => report = Some(newer),
                CallEvent::Question(asked) => {
                    if let Some(session) = &self.session {
                        self.ask(session, asked);
                        continue;
                    }
                    // A call that waits for a user must not block other calls.
                    call.pause();
                    let mut done = None;
                    (token, report) = (self.require(asked, call, &mut done).await?, None);
                    if done.is_some() {
                        return done;
                    }
                    tokio::select! {
                        biased;
                        () = self.request.cancelled() => return None,
                        () = call.resume() => {}
                    }
                }
                CallEvent::Done(outcome) => {
                    self.last_report =
                        report.zip(token).map(|(report, token)| progress_line(&token, &report));
                    return Some(outcome);
                }
            }
        }
    }

    /// Asks on the stream of the call; the answer arrives in another request of the session. The question ends with
    /// the call, or with its stream.
    fn ask(&self, session: &Arc<Session>, asked: Asked) {
        let (session, ended, says) = (Arc::clone(session), self.cancelled.clone(), self.says.clone());
        tokio::spawn(async move {
            let send = |line: String| {
                let says = says.clone();
                async move { says.send(Said::Line(line.into())).await }
            };
            let ended = async {
                tokio::select! {
                    () = ended.cancelled() => {}
                    () = says.closed() => {}
                }
            };
            session.questions.ask(asked, ended, send).await;
        });
    }

    /// Asks by returning a result, and waits until the client retries; the retry is then the request to
    /// answer, and its progress token replaces the old one. `None` if the client does not retry.
    async fn require(
        &mut self,
        asked: Asked,
        call: &mut RunningCall<'_>,
        done: &mut Option<Result<RawJson, ToolError>>,
    ) -> Option<Option<RawJson>> {
        let shared = Arc::clone(&self.shared);
        let (mut round, mut token) = (Round::default(), None);
        round.add(asked);
        while !round.is_over() && done.is_none() {
            while let Some(asked) = call.try_question() {
                round.add(asked);
            }
            let mut seat = match shared.waiting.enter(|| self.known.clone()) {
                Entrance::Waits(seat) => seat,
                Entrance::Full(most) => {
                    round.refuse(most);
                    break;
                }
                Entrance::Gone => return None,
            };
            call.during(self.answer(round.result(&seat.state))).await;
            let retried = tokio::select! {
                biased;
                () = shared.ended.cancelled() => None,
                retried = round.wait(call, &mut seat.retry, done) => retried,
            };
            let Retried { id, progress_token, responses, request, says } = retried?;
            (self.id, self.request, self.says, token) = (id, request, says, progress_token);
            round.take(&responses);
        }
        Some(token)
    }

    async fn answer(&self, result: RawJson) {
        let write = |result: &RawJson| {
            let (head, rest) = result_head(&self.id, self.era, "", result);
            [head.as_bytes(), &in_one_line(&result.as_bytes()[rest..]), b"}"].concat()
        };
        let room = self.shared.answers.now(result.as_bytes().len());
        let answer = match &room {
            Some(_) => write(&result),
            None => write(&error_result(&ToolError::new("ServerBusyError", NO_ROOM))),
        };
        // The answer may wait for its client, and only the answer is counted.
        drop(result);
        let share = room.unwrap_or_default();
        // These fail if the client has closed the request, and then the answer is not needed.
        if let Some(report) = &self.last_report {
            _ = self.says.send(Said::Line(report.clone().into())).await;
        }
        _ = self.says.send(Said::Answer(answer.into(), share)).await;
    }
}

/// Whether a result is marked as an error.
fn says_error(result: &RawJson) -> bool {
    let found = members(result.as_str(), &["isError"]);
    matches!(found, Ok(Some([Some(value)])) if value.get() == "true")
}
