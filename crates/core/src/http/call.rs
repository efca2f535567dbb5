//! How a call's messages reach a client over HTTP.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use hyper::StatusCode;
use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;

use crate::http::auth::Principal;
use crate::http::body::{Response, STILL_HERE, event, events, json};
use crate::http::serve::give_memory_back;
use crate::http::service::{HttpServer, NO_ROOM};
use crate::http::session::HttpSession;
use crate::mcp::call::{CallRunner, Responder, error_result};
use crate::mcp::rpc::{Era, RpcId, answer_parts};
use crate::tool::lock::lock;
use crate::trace::Outcome;
use crate::{CancellationToken, RawJson, RunningCall, Share, ToolError};

/// A call that takes longer is answered with a stream, whose comments keep the connection alive.
const QUICK: Duration = Duration::from_secs(5);

/// Runs the calls of all clients; only the same principal may continue a call that waits for answers.
pub(crate) type Runner = CallRunner<ByResponse, Principal>;

/// Sends a call's messages in the response to its request.
#[derive(Debug)]
pub(crate) struct ByResponse {
    server: Arc<HttpServer>,
    session: Option<Arc<HttpSession>>,
    messages: mpsc::Sender<Outbound>,
    /// The answer's share of the memory, taken as soon as the call ends: it may wait behind a report that is not read.
    share: Arc<Mutex<Option<Share>>>,
}

/// A message for the client.
#[derive(Debug)]
enum Outbound {
    /// Progress, or a question.
    Line(Bytes),
    /// The answer, and its share of the memory for answers.
    Answer(Bytes, Share),
}

impl Responder for ByResponse {
    async fn line(&self, line: String) -> io::Result<()> {
        // Fails if the client has closed the request, which is no reason to end a session's call.
        _ = self.messages.send(Outbound::Line(line.into())).await;
        Ok(())
    }

    async fn answer(&self, id: &RpcId, era: Era, result: RawJson) -> io::Result<()> {
        let taken = lock(&self.share).take();
        let share = taken.or_else(|| self.server.answers.now(result.as_bytes().len()));
        let answer = match &share {
            Some(_) => answer_parts(id, era, "", &result),
            None => answer_parts(id, era, "", &error_result(&server_busy())),
        };
        let answer = answer.concat();
        // The answer may wait for its client, and only the answer is counted.
        drop(result);
        let share = share.unwrap_or_default();
        if self.messages.send(Outbound::Answer(answer.into(), share)).await.is_err() {
            // The client left long ago, so what its connection gave back did not have this in it.
            tokio::task::spawn_blocking(give_memory_back);
        }
        Ok(())
    }

    async fn closed(&self) {
        self.messages.closed().await;
    }

    fn cancelled_answer(&self) -> Option<ToolError> {
        let has_ended = self.server.runner.ended.is_cancelled();
        has_ended.then(|| ToolError::new("ServerEndedError", "the server has ended"))
    }

    fn watched(&self, tool: &str, call: RunningCall<'static>) -> RunningCall<'static> {
        let counted = self.server.metrics.begin(tool);
        let (answers, shared) = (self.server.answers.clone(), Arc::clone(&self.share));
        call.map(move |outcome| {
            let outcome = outcome.and_then(|result| {
                let share = answers.now(result.as_bytes().len()).ok_or_else(server_busy)?;
                *lock(&shared) = Some(share);
                Ok(result)
            });
            counted.ended(Outcome::of(&outcome));
            outcome
        })
    }
}

impl Drop for ByResponse {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            session.touch();
        }
    }
}

fn server_busy() -> ToolError {
    ToolError::new("ServerBusyError", NO_ROOM)
}

/// The response to a request for a call.
pub(crate) struct CallResponse {
    messages: mpsc::Receiver<Outbound>,
    /// Cancels the call of a request without a session when the client closes the request: this, or the body made of
    /// it, is dropped then. A session's call goes on: MCP has it cancelled by `notifications/cancelled` alone.
    _closed: Option<DropGuard>,
}

impl CallResponse {
    /// The response, and what fills it.
    pub(crate) fn new(
        server: &Arc<HttpServer>,
        session: Option<Arc<HttpSession>>,
        cancelled: &CancellationToken,
    ) -> (Self, Arc<ByResponse>) {
        let (sender, messages) = mpsc::channel(4);
        let closed = session.is_none().then(|| cancelled.clone().drop_guard());
        let reply =
            ByResponse { server: Arc::clone(server), session, messages: sender, share: Arc::default() };
        (Self { messages, _closed: closed }, Arc::new(reply))
    }

    /// A single message if the call is quick and reports no progress, otherwise a stream of events.
    pub(crate) async fn response(mut self) -> Response {
        let first = match tokio::time::timeout(QUICK, self.messages.recv()).await {
            Ok(Some(Outbound::Answer(answer, share))) => return json(StatusCode::OK, share.hold(answer)),
            Ok(Some(Outbound::Line(line))) => Some(event(&line)),
            // A cancelled call has no answer, so the stream ends without one.
            Ok(None) => None,
            Err(_) => Some(STILL_HERE),
        };
        let rest = stream::unfold(self, |mut response| async {
            let event = match response.messages.recv().await? {
                Outbound::Line(line) => event(&line),
                Outbound::Answer(answer, share) => {
                    // Nothing comes after it, also if the call goes on with another request.
                    response.messages.close();
                    share.hold(event(&answer))
                }
            };
            Some((event, response))
        });
        events(stream::iter(first).chain(rest))
    }
}
