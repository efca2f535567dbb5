//! Answers the calls that arrive on a socket.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::trace::{Outcome, Process, Tracer};
use crate::{
    Budget, CallEvent, CancellationToken, Client, Dispatcher, RawJson, RunningCall, ToolError, ToolSource,
};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use crate::ipc::IpcError;
use crate::ipc::connection::Connection;
use crate::ipc::fork::Private;
use crate::ipc::frame::check_size;
use crate::ipc::message::{Ask, BadRequest, Parts, Reply, Request, read_request, write_reply};
use crate::ipc::outbox::{Outbox, Place};
use crate::ipc::questions::{News, Questions};
use crate::ipc::watch::Watchers;

/// Connections served at a time; further ones wait unaccepted.
pub const MAX_CONNECTIONS: usize = 1024;

/// How many bytes of large requests are held at a time, over all connections; further ones wait.
const MAX_REQUEST_BYTES: usize = 256 * 1024 * 1024;

/// The pause after a failed accept, for example when the process has no descriptor or memory left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves a tool source on a Unix socket.
///
/// Each connection carries one call at a time. Calls on different connections run in parallel, except for those of
/// exclusive tools, which take turns. Closing a connection cancels its call.
#[derive(Debug, Clone)]
pub struct Server {
    dispatcher: Dispatcher,
    requests: Budget,
    answers: Outbox,
    watchers: Watchers,
}

impl Server {
    /// A server for `source`.
    pub fn new(source: Arc<dyn ToolSource>) -> Self {
        Self::traced(source, Tracer::without_file(Process::Parent), None)
    }

    /// The same; reports each call to `tracer`, and notifies bridges of each new `revision` of the schema file.
    pub(crate) fn traced(
        source: Arc<dyn ToolSource>,
        tracer: Tracer,
        revision: Option<watch::Receiver<u64>>,
    ) -> Self {
        let requests = Budget::new(MAX_REQUEST_BYTES);
        let (dispatcher, watchers) = (Dispatcher::new(source, tracer), Watchers::new(revision));
        Self { dispatcher, requests, answers: Outbox::default(), watchers }
    }

    /// Serves `listener` until `stop` is cancelled; then ends all calls and connections.
    pub async fn serve(&self, listener: UnixListener, stop: CancellationToken) {
        self.serve_private(Private::new(listener), stop).await;
    }

    pub(crate) async fn serve_private(&self, listener: Private<UnixListener>, stop: CancellationToken) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(_) = connections.join_next() => {}
                accepted = self.accept(listener.get()), if connections.len() < MAX_CONNECTIONS => {
                    let server = self.clone();
                    let conversation = async move {
                        match server.converse(accepted).await {
                            Ok(()) => {}
                            // A peer may close at any time, so this is no warning.
                            Err(IpcError::Io { error } | IpcError::Unsent { error }) => {
                                tracing::debug!(%error, "connection lost");
                            }
                            Err(error) => tracing::warn!(%error, "connection ended"),
                        }
                    };
                    connections.spawn(conversation.in_current_span());
                }
            }
        }
        // New connections are refused from here on.
        drop(listener);
        connections.shutdown().await;
    }

    /// The next connection. After a failure, such as a lack of descriptors, it waits and tries again.
    async fn accept(&self, listener: &UnixListener) -> UnixStream {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => return stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection, trying again");
                    // The connection that cannot be accepted may carry a call, so watchers have to give up their
                    // descriptors.
                    self.watchers.hang_up();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Serves one connection to its end.
    async fn converse(&self, stream: UnixStream) -> Result<(), IpcError> {
        let pid = stream.peer_cred()?.pid().and_then(|pid| pid.try_into().ok());
        let mut connection = Connection::new(stream)?.within(self.requests.clone());
        let mut client = Arc::<Client>::default();
        Arc::make_mut(&mut client).pid = pid;
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
                        answer = self.watchers.answer(known) => answer,
                        () = connection.reader.closed() => None,
                    };
                    let Some(answer) = answer else { return Ok(()) };
                    connection.send(&answer).await?;
                }
                // The answer arrived after the end of its call.
                Ok(Request::Answer) => {}
                Ok(Request::Call(mut call, introduced)) => {
                    if let Some(introduced) = introduced {
                        client = Arc::new(introduced);
                        Arc::make_mut(&mut client).pid = pid;
                    }
                    call.meta.client = Some(Arc::clone(&client));
                    self.watchers.count();
                    let name = call.name.clone();
                    tracing::debug!(tool = name, bytes = call.arguments.as_bytes().len(), "call");
                    let running = match self.dispatcher.call(call, None) {
                        Ok(running) => running,
                        Err(error) => {
                            connection.send(&write_reply(Reply::Error(error))).await?;
                            continue;
                        }
                    };
                    let place = Mutex::new(None);
                    // At once, because the answer may have to wait until a report is read.
                    let mut running = running.map(|outcome| {
                        let reply = write_reply(as_reply(outcome.clone()));
                        let placed = self.put(&name, reply.size())?;
                        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(placed);
                        outcome
                    });
                    let Some(answer) = self.answer(&mut connection, &name, &mut running).await? else {
                        return Ok(());
                    };
                    let place = place.lock().unwrap_or_else(PoisonError::into_inner).take();
                    let place = place.unwrap_or_else(|| self.answers.put_small());
                    connection.send_from(&place, &answer).await?;
                    running.written();
                }
                Err(BadRequest::Refused(error)) => {
                    connection.send(&write_reply(Reply::Error(error))).await?;
                }
                Err(BadRequest::Invalid(error)) => {
                    // After this error the connection is closed: where the next message begins is unknown.
                    let last =
                        write_reply(Reply::Error(ToolError::new(error.type_name(), error.to_string())));
                    connection.send(&last).await?;
                    connection.writer.close().await;
                    connection.reader.drain().await;
                    return Err(error);
                }
            }
        }
    }

    /// Runs a call; `None` if the peer closed the connection, which cancels it.
    async fn answer(
        &self,
        connection: &mut Connection,
        name: &str,
        running: &mut RunningCall<'_>,
    ) -> Result<Option<Parts>, IpcError> {
        tokio::select! {
            biased;
            () = self.answers.room() => {}
            () = connection.reader.closed() => return Ok(None),
        }
        let mut questions = Questions::default();
        loop {
            let event = tokio::select! {
                biased;
                event = running.next() => event,
                news = questions.next(&mut connection.reader) => match news? {
                    News::Answered => continue,
                    News::TakenBack(id) => {
                        let back = write_reply(Reply::Ask(Ask::taken_back(id)));
                        running.during(connection.send(&back)).await?;
                        continue;
                    }
                    News::Closed => {
                        tracing::debug!(tool = name, "call cancelled: its connection closed");
                        return Ok(None);
                    }
                },
            };
            let message = write_reply(match event {
                CallEvent::Progress(report) => Reply::Progress(Some(report)),
                CallEvent::Question(asked) => Reply::Ask(questions.put(asked)),
                CallEvent::Done(outcome) => return Ok(Some(write_reply(as_reply(outcome)))),
            });
            running.during(connection.send(&message)).await?;
        }
    }

    /// Reserves room for an answer; the error replaces it if it is too large or there is no room.
    fn put(&self, tool: &str, size: usize) -> Result<Place, ToolError> {
        let (type_name, reason) = match check_size(size) {
            Ok(()) => match self.answers.put(size) {
                Ok(place) => return Ok(place),
                Err(limit) => {
                    let text = format!(
                        "{limit} bytes of answers wait to be read, which is the limit; this one has {size}"
                    );
                    ("IPCError", text)
                }
            },
            Err(error) => (error.type_name(), error.to_string()),
        };
        let text = format!("the answer of tool `{tool}` cannot be sent: {reason}");
        Err(ToolError::new(type_name, text).called(Outcome::TransportError))
    }
}

fn as_reply(outcome: Result<RawJson, ToolError>) -> Reply {
    match outcome {
        Ok(result) => Reply::Result(result),
        Err(error) => Reply::Error(error),
    }
}
