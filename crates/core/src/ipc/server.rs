//! Answers the calls that arrive on a socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::trace::{Outcome, Tracer};
use crate::{
    Budget, CallEvent, Caller, CancellationToken, Dispatcher, RawJson, RunningCall, ToolError, ToolSource,
};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tracing::Instrument as _;

use crate::ipc::IpcError;
use crate::ipc::connection::Connection;
use crate::ipc::fork::ForkGuard;
use crate::ipc::frame::check_size;
use crate::ipc::message::{
    BadRequest, Parts, Reply, Request, Watched, read_request, write_reply, write_watched,
};
use crate::ipc::questions::Questions;

/// Connections served at a time; further ones wait unaccepted.
const MAX_CONNECTIONS: usize = 1024;

/// How many connections may wait for a change of the tools. The others are for calls.
const MAX_WATCHERS: usize = MAX_CONNECTIONS / 2;

/// How many bytes of large requests are held at a time, over all connections; further ones wait.
const MAX_REQUEST_BYTES: usize = 256 * 1024 * 1024;

/// How many bytes of large answers are held at a time until they are read; a further one becomes an error.
const MAX_ANSWER_BYTES: usize = 512 * 1024 * 1024;

/// The pause after a failed accept, for example when the process has no descriptor or memory left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves a tool source on a Unix socket.
///
/// Each connection carries one call at a time. Calls on different connections run in parallel, except for those of
/// exclusive tools, which take turns. Closing a connection cancels its call.
#[derive(Debug, Clone)]
pub(crate) struct Server(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    dispatcher: Dispatcher,
    requests: Budget,
    answers: Budget,
    /// The revision of the schema file.
    revision: watch::Receiver<u64>,
    watchers: Semaphore,
    /// How many calls have begun.
    calls: AtomicU64,
}

impl Server {
    /// A server for `source` that reports each call to `tracer`, and notifies bridges of each new `revision` of the
    /// schema file.
    pub(crate) fn new(source: Arc<dyn ToolSource>, tracer: Tracer, revision: watch::Receiver<u64>) -> Self {
        Self(Arc::new(Shared {
            dispatcher: Dispatcher::new(source, tracer),
            requests: Budget::new(MAX_REQUEST_BYTES),
            answers: Budget::new(MAX_ANSWER_BYTES),
            revision,
            watchers: Semaphore::new(MAX_WATCHERS),
            calls: AtomicU64::new(0),
        }))
    }

    /// Serves `listener` until `stop` is cancelled; then ends all calls and connections.
    pub(crate) async fn serve(self, listener: (ForkGuard, UnixListener), stop: CancellationToken) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.1.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                    Ok((stream, _)) => {
                        let shared = Arc::clone(&self.0);
                        connections.spawn(async move { shared.serve_one(stream).await }.in_current_span());
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection, trying again");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        }
        // New connections are refused from here on.
        drop(listener);
        connections.shutdown().await;
    }
}

impl Shared {
    async fn serve_one(&self, stream: UnixStream) {
        match self.converse(stream).await {
            Ok(()) => {}
            // A peer may close at any time, so this is no warning.
            Err(IpcError::Io { error } | IpcError::Unsent { error }) => {
                tracing::debug!(%error, "connection lost");
            }
            Err(error) => tracing::warn!(%error, "connection ended"),
        }
    }

    /// Serves one connection to its end.
    async fn converse(&self, stream: UnixStream) -> Result<(), IpcError> {
        let pid = stream.peer_cred()?.pid().and_then(|pid| pid.try_into().ok());
        let mut connection = Connection::new(stream, self.requests.clone())?;
        let mut caller = Arc::new(Caller { pid, ..Caller::default() });
        loop {
            let request = match connection.reader.read_frame().await {
                Ok(Some(frame)) => read_request(&frame),
                Ok(None) => return Ok(()),
                Err(IpcError::Io { error }) => return Err(error.into()),
                Err(error) => Err(BadRequest::Invalid(error)),
            };
            match request {
                Ok(Request::Watch(known)) => {
                    let answer = tokio::select! {
                        answer = self.watched(known) => answer,
                        () = connection.reader.closed() => return Ok(()),
                    };
                    connection.send(&answer).await?;
                }
                // The answer arrived after the end of its call.
                Ok(Request::Answer) => {}
                Ok(Request::Call(mut call, introduced)) => {
                    if let Some(introduced) = introduced {
                        caller = Arc::new(Caller { pid, ..introduced });
                    }
                    call.meta.caller = Some(Arc::clone(&caller));
                    self.calls.fetch_add(1, Ordering::Relaxed);
                    let name = call.name.clone();
                    tracing::debug!(tool = name, bytes = call.arguments.as_bytes().len(), "call");
                    match self.dispatcher.call(call, None) {
                        Ok(running) => {
                            // At once, because the answer may have to wait until a report is read.
                            let mut running = running.map(|outcome| self.held(&name, outcome));
                            let Some(outcome) = follow(&mut connection, &mut running).await? else {
                                tracing::debug!(tool = name, "call cancelled: its connection closed");
                                return Ok(());
                            };
                            connection.send(&write_reply(outcome.into())).await?;
                            running.written();
                        }
                        Err(error) => connection.send(&write_reply(Reply::Error(error))).await?,
                    }
                }
                Err(BadRequest::Refused(error)) => {
                    connection.send(&write_reply(Reply::Error(error))).await?;
                }
                Err(BadRequest::Invalid(error)) => {
                    // After this error the connection is closed: where the next message begins is unknown.
                    let last = ToolError::new(error.type_name(), error.to_string());
                    connection.send(&write_reply(Reply::Error(last))).await?;
                    connection.writer.close().await;
                    connection.reader.drain().await;
                    return Err(error);
                }
            }
        }
    }

    /// Waits until the schema file's revision differs from `known`.
    async fn watched(&self, known: Option<u64>) -> Parts {
        let Ok(_permit) = self.watchers.try_acquire() else {
            let text = format!("{MAX_WATCHERS} connections wait for a change, which is the limit");
            return write_reply(Reply::Error(ToolError::new("IPCError", text)));
        };
        let mut revision = self.revision.clone();
        match revision.wait_for(|now| Some(*now) != known).await.map(|now| *now) {
            Ok(revision) => write_watched(Watched { revision, calls: self.calls.load(Ordering::Relaxed) }),
            // The session has ended, and so will this connection.
            Err(_) => std::future::pending().await,
        }
    }

    /// Counts an answer until it has been read; replaces it with an error if it is too large or there is no room.
    fn held(&self, tool: &str, outcome: Result<RawJson, ToolError>) -> Result<RawJson, ToolError> {
        let size = write_reply(outcome.clone().into()).size();
        let (type_name, reason) = match (check_size(size), outcome) {
            (Err(error), _) => (error.type_name(), error.to_string()),
            (Ok(()), Err(error)) => return Err(error),
            (Ok(()), Ok(result)) => {
                if let Some(result) = self.answers.hold(result, size) {
                    return Ok(result);
                }
                let limit =
                    format!("{MAX_ANSWER_BYTES} bytes of answers wait to be read, which is the limit");
                ("IPCError", format!("{limit}; this one has {size}"))
            }
        };
        let text = format!("the answer of tool `{tool}` cannot be sent: {reason}");
        Err(ToolError::new(type_name, text).called(Outcome::TransportError))
    }
}

/// Runs a call to its end; `None` if the peer closed the connection, which cancels it.
async fn follow(
    connection: &mut Connection,
    running: &mut RunningCall<'_>,
) -> Result<Option<Result<RawJson, ToolError>>, IpcError> {
    let mut questions = Questions::default();
    loop {
        let message = tokio::select! {
            biased;
            event = running.next() => match event {
                CallEvent::Progress(report) => Reply::Progress(Some(report)),
                CallEvent::Question(asked) => questions.put(asked),
                CallEvent::Done(outcome) => return Ok(Some(outcome)),
            },
            message = questions.next(&mut connection.reader) => match message? {
                Some(message) => message,
                None => return Ok(None),
            },
        };
        running.during(connection.send(&write_reply(message))).await?;
    }
}
