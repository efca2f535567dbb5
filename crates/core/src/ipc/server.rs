//! Answers the calls that arrive on a socket.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use crate::trace::{Outcome, Tracer};
use crate::{
    Asked, Budget, CallEvent, Caller, CancellationToken, Dispatcher, RawJson, RunningCall, ToolError,
    ToolSource,
};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use crate::ipc::IpcError;
use crate::ipc::connection::IpcConnection;
use crate::ipc::fork::ForkGuard;
use crate::ipc::frame::{FrameReader, check_size};
use crate::ipc::message::{
    BridgeMessage, ParentMessage, Watched, read_bridge_message, write_parent_message, write_watched,
};

/// Connections served at a time; further ones wait unaccepted.
const MAX_CONNECTIONS: usize = 1024;

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
#[derive(Debug)]
pub(crate) struct IpcServer {
    dispatcher: Dispatcher,
    requests: Budget,
    answers: Budget,
    /// The revision of the schema file.
    revision: watch::Receiver<u64>,
    /// How many calls have begun.
    calls: AtomicU64,
}

impl IpcServer {
    /// A server for `source` that reports each call to `tracer`, and notifies bridges of each new `revision` of the
    /// schema file.
    pub(crate) fn new(source: Arc<dyn ToolSource>, tracer: Tracer, revision: watch::Receiver<u64>) -> Self {
        Self {
            dispatcher: Dispatcher::new(source, tracer),
            requests: Budget::new(MAX_REQUEST_BYTES),
            answers: Budget::new(MAX_ANSWER_BYTES),
            revision,
            calls: AtomicU64::new(0),
        }
    }

    /// Serves `listener` until `stop` is cancelled; then ends all calls and connections.
    pub(crate) async fn serve(self, listener: (ForkGuard, UnixListener), stop: CancellationToken) {
        let server = Arc::new(self);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.1.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                    Ok((stream, _)) => {
                        let server = Arc::clone(&server);
                        connections.spawn(async move { server.serve_one(stream).await }.in_current_span());
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
        let mut connection = IpcConnection::new(stream, self.requests.clone())?;
        let mut caller = Arc::new(Caller { pid, ..Caller::default() });
        loop {
            let message = match connection.reader.read_frame().await {
                Ok(Some(frame)) => read_bridge_message(&frame),
                Ok(None) => return Ok(()),
                Err(IpcError::Io { error }) => return Err(error.into()),
                Err(error) => Err(error),
            };
            match message {
                Ok(BridgeMessage::Watch(known)) => {
                    let watched = tokio::select! {
                        watched = self.watched(known) => watched,
                        () = connection.reader.closed() => return Ok(()),
                    };
                    connection.send(&write_watched(watched)).await?;
                }
                // It arrived after the end of its call.
                Ok(BridgeMessage::Answer(..)) => {}
                Ok(BridgeMessage::Call(mut call, introduced)) => {
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
                            let mut running = running.map(|outcome| self.within_limits(&name, outcome));
                            let Some(outcome) = follow(&mut connection, &mut running).await? else {
                                tracing::debug!(tool = name, "call cancelled: its connection closed");
                                return Ok(());
                            };
                            connection.send(&write_parent_message(outcome.into())).await?;
                            running.written();
                        }
                        Err(error) => {
                            connection.send(&write_parent_message(ParentMessage::Error(error))).await?;
                        }
                    }
                }
                Ok(BridgeMessage::Refused(error)) => {
                    connection.send(&write_parent_message(ParentMessage::Error(error))).await?;
                }
                Err(error) => {
                    // After this error the connection is closed: where the next message begins is unknown.
                    let last = ToolError::new(error.type_name(), error.to_string());
                    connection.send(&write_parent_message(ParentMessage::Error(last))).await?;
                    _ = connection.writer.shutdown().await;
                    connection.reader.drain().await;
                    return Err(error);
                }
            }
        }
    }

    /// Waits until the schema file's revision differs from `known`.
    async fn watched(&self, known: Option<u64>) -> Watched {
        let mut revision = self.revision.clone();
        match revision.wait_for(|now| Some(*now) != known).await.map(|now| *now) {
            Ok(revision) => Watched { revision, calls: self.calls.load(Ordering::Relaxed) },
            // The session has ended, and so will this connection.
            Err(_) => std::future::pending().await,
        }
    }

    /// Counts an answer until it has been read; replaces it with an error if it is too large or there is no room.
    fn within_limits(&self, tool: &str, outcome: Result<RawJson, ToolError>) -> Result<RawJson, ToolError> {
        let size = write_parent_message(outcome.clone().into()).size();
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
    connection: &mut IpcConnection,
    running: &mut RunningCall<'_>,
) -> Result<Option<Result<RawJson, ToolError>>, IpcError> {
    let (mut questions, mut last) = (BTreeMap::new(), 0);
    loop {
        let message = tokio::select! {
            biased;
            event = running.next() => match event {
                CallEvent::Progress(report) => ParentMessage::Progress(Some(report)),
                CallEvent::Question(asked) => {
                    last += 1;
                    let question = asked.question.clone();
                    questions.insert(last, asked);
                    ParentMessage::Ask(last, Some(question))
                }
                CallEvent::Done(outcome) => return Ok(Some(outcome)),
            },
            withdrawn = pass_answers(&mut questions, &mut connection.reader) => match withdrawn? {
                Some(id) => ParentMessage::Ask(id, None),
                None => return Ok(None),
            },
        };
        running.during(connection.send(&write_parent_message(message))).await?;
    }
}

/// Passes answers of the bridge to the handler until a question is withdrawn, and returns its number; `None` if the
/// bridge has closed the connection. While there are no questions, what the bridge sends is left unread. Cancel-safe.
async fn pass_answers(
    questions: &mut BTreeMap<u64, Asked>,
    reader: &mut FrameReader<OwnedReadHalf>,
) -> Result<Option<u64>, IpcError> {
    while !questions.is_empty() {
        let withdrawn = poll_fn(|context| {
            let withdrawn = questions
                .iter_mut()
                .find_map(|(id, asked)| asked.poll_withdrawn(context).is_ready().then_some(*id));
            withdrawn.map_or(Poll::Pending, Poll::Ready)
        });
        let frame = tokio::select! {
            biased;
            id = withdrawn => {
                questions.remove(&id);
                return Ok(Some(id));
            }
            frame = reader.read_frame() => frame?,
        };
        let Some(frame) = frame else { return Ok(None) };
        let BridgeMessage::Answer(id, answer) = read_bridge_message(&frame)? else {
            let reason = "while a tool asks, only an `answer` can follow".into();
            return Err(IpcError::Invalid { reason });
        };
        // An unknown id belongs to a question that was withdrawn before its answer arrived.
        if let Some(asked) = questions.remove(&id) {
            match answer {
                Ok(answer) => asked.answer(Ok(answer)),
                Err(reason) => asked.fail(reason),
            }
        }
    }
    reader.closed().await;
    Ok(None)
}
