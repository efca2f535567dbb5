//! Answers the calls that arrive on a socket.

use std::sync::Arc;
use std::time::Duration;

use crate::trace::{CallTrace, Outcome, Process, Tracer};
use crate::{Budget, CancellationToken, Client, Dispatcher, Step, ToolCall, ToolError, ToolSource};
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
                    let received = self.dispatcher.tracer().clock();
                    let parts = (call.name.as_str(), &call.arguments, &call.meta);
                    let mut trace = self.dispatcher.trace(received, parts, None);
                    let Some((answer, place)) = self.answer(&mut connection, call, trace.as_mut()).await?
                    else {
                        return Ok(());
                    };
                    connection.send_from(&place, &answer).await?;
                    if let Some(trace) = &mut trace {
                        trace.written();
                    }
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

    /// Runs a call; `None` if the peer closed the connection, which cancels it. The answer comes with its reserved
    /// room in the outbox.
    async fn answer(
        &self,
        connection: &mut Connection,
        call: ToolCall,
        mut trace: Option<&mut CallTrace>,
    ) -> Result<Option<(Parts, Place)>, IpcError> {
        tokio::select! {
            biased;
            () = self.answers.room() => {}
            () = connection.reader.closed() => return Ok(None),
        }
        let cancelled = CancellationToken::new();
        let _end = cancelled.clone().drop_guard();
        let name = call.name.clone();
        tracing::debug!(tool = name, bytes = call.arguments.as_bytes().len(), "call");

        let mut questions = Questions::default();
        let work = self.dispatcher.run(call, cancelled, trace.as_deref());
        // At once, because the answer may have to wait until its reports are read.
        let mut work = work.then(|outcome| {
            if let Some(trace) = &mut trace {
                trace.ended(&outcome);
            }
            let reply = write_reply(match outcome {
                Ok(result) => Reply::Result(result),
                Err(error) => Reply::Error(error),
            });
            self.placed(&name, reply, trace)
        });
        loop {
            let step = tokio::select! {
                biased;
                step = work.next() => step,
                news = questions.next(&mut connection.reader) => match news? {
                    News::Answered => continue,
                    News::TakenBack(id) => {
                        let back = write_reply(Reply::Ask(Ask::taken_back(id)));
                        work.during(connection.send(&back)).await?;
                        continue;
                    }
                    News::Closed => {
                        tracing::debug!(tool = name, "call cancelled: its connection closed");
                        return Ok(None);
                    }
                },
            };
            match step {
                Step::Progress(report) => {
                    let report = write_reply(Reply::Progress(Some(report)));
                    work.during(connection.send(&report)).await?;
                }
                Step::Question(asked) => {
                    let ask = write_reply(Reply::Ask(questions.put(asked)));
                    work.during(connection.send(&ask)).await?;
                }
                Step::Done(placed) => return Ok(Some(placed)),
            }
        }
    }

    /// Reserves room for an answer; replaces it with an error if it is too large or there is no room.
    fn placed(&self, tool: &str, reply: Parts, trace: Option<&mut CallTrace>) -> (Parts, Place) {
        let size = reply.size();
        let placed = match check_size(size) {
            Ok(()) => self.answers.put(size).map_err(|limit| {
                let text = format!(
                    "{limit} bytes of answers wait to be read, which is the limit; this one has {size}"
                );
                ("IPCError", text)
            }),
            Err(error) => Err((error.type_name(), error.to_string())),
        };
        let (type_name, reason) = match placed {
            Ok(place) => return (reply, place),
            Err(error) => error,
        };
        let text = format!("the answer of tool `{tool}` cannot be sent: {reason}");
        let error = ToolError::new(type_name, text).called(Outcome::TransportError);
        if let Some(trace) = trace {
            trace.replaced(&error);
        }
        (write_reply(Reply::Error(error)), self.answers.put_small())
    }
}
