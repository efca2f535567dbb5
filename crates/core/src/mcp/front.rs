//! The front for clients that read and write lines.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rmcp::ErrorData;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tracing::Instrument as _;

use crate::mcp::call::{CallRequest, CallRunner, OpenCalls, Responder, error_result};
use crate::mcp::line::{Incoming, LineTooLong, MAX_LINE_BYTES, Outgoing};
use crate::mcp::protocol::Protocol;
use crate::mcp::question::MAX_QUESTIONS;
use crate::mcp::rpc::{
    CallParams, Era, Message, RpcId, answer_parts, error_line, invalid_params, invalid_request, read,
    read_meta,
};
use crate::mcp::subscription::{LIST_CHANGED, Subscriptions};
use crate::trace::{Outcome, Process, Tracer, What};
use crate::{
    Budget, CallMeta, Changes, Dispatcher, RawJson, ServerInfo, ToolCall, ToolError, ToolList, ToolSource,
};

/// The number of calls that run at a time; further ones wait. Each may cost a descriptor, and the limit of a
/// process is often 1,024.
pub const MAX_CALLS_IN_FLIGHT: usize = 512;

/// The number of calls that run or wait at a time; further ones are refused. Messages are always read, so that
/// calls can be cancelled.
pub(crate) const MAX_CALLS: usize = 8 * MAX_CALLS_IN_FLIGHT;

/// How many bytes of large messages are held at a time until their arguments have been passed on; further calls are
/// refused.
pub(crate) const MAX_ARGUMENT_BYTES: usize = 256 * 1024 * 1024;

/// The number of protocol answers that may wait for a client that does not read; further requests are refused.
const MAX_REPLIES: usize = 64;

/// How long running calls may take after the client has closed its end.
pub(crate) const LAST_CALLS: Duration = Duration::from_secs(1);

/// How long answers may take to be written after that.
pub(crate) const LAST_ANSWERS: Duration = Duration::from_secs(3);

/// Additional members of a list in 2026-07-28: it may change with the next start, and is for this client only.
pub(crate) const LIST_CACHE_HINTS: &str = r#","ttlMs":0,"cacheScope":"private""#;

/// Why serving ended before the client's input did.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Reading failed.
    #[error("cannot read from the client: {0}")]
    Read(io::Error),
    /// Writing failed although the client is connected; it would wait for its answer forever.
    #[error("cannot write to the client: {0}")]
    Write(io::Error),
}

/// Serves `source` to one client until its input ends; then running calls get a moment to finish.
///
/// Dropping the future cancels all running calls.
///
/// ```
/// # use toolbridge_core as toolbridge;
/// # use toolbridge::{NoArgs, Toolset};
/// use toolbridge::mcp::{LineReader, LineWriter, serve};
/// use toolbridge::tool::ServerInfo;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tools = Toolset::builder().tool("hello", "Greets", async |_: NoArgs| "hello").build()?;
/// let (client, server) = tokio::io::duplex(4096);
/// let (read, write) = tokio::io::split(server);
/// drop(client);
/// serve(tools, ServerInfo::default(), LineReader::new(read), LineWriter::new(write)).await?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// When reading or writing fails. It is not an error if the client stops reading its answers.
pub async fn serve(
    source: impl ToolSource,
    info: ServerInfo,
    incoming: impl Incoming,
    outgoing: impl Outgoing,
) -> Result<(), ServeError> {
    let tracer = Tracer::without_file(Process::Server);
    serve_with(source, Serving { info, tracer, session_id: None }, incoming, outgoing).await
}

/// Settings of [`serve_with`].
#[derive(Debug)]
pub struct Serving {
    /// How the server introduces itself.
    pub info: ServerInfo,
    /// Receives trace events.
    pub tracer: Tracer,
    /// The CLI's session id, if the client is the CLI; handlers can read it.
    pub session_id: Option<String>,
}

/// The same as [`serve`], with more settings.
///
/// # Errors
///
/// When reading or writing fails.
pub async fn serve_with(
    source: impl ToolSource,
    Serving { info, tracer, session_id }: Serving,
    mut incoming: impl Incoming,
    outgoing: impl Outgoing,
) -> Result<(), ServeError> {
    tracer.note(|| What::FrontStart { tools: source.tools().len() as u64 });
    let dispatcher = Dispatcher::new(source, tracer).at_most(MAX_CALLS_IN_FLIGHT);
    let mut front = Front {
        runner: Arc::new(CallRunner::new(dispatcher, MAX_CALLS, MAX_QUESTIONS)),
        open: Arc::default(),
        outgoing,
        protocol: Protocol::new(info, session_id).lasting(),
        arguments: Budget::new(MAX_ARGUMENT_BYTES),
        replies: Arc::new(Semaphore::new(MAX_REPLIES)),
        listed: None,
        changes: None,
        subscriptions: Subscriptions::default(),
        notifying: Arc::new(Semaphore::new(1)),
        has_pending_change: false,
        tasks: JoinSet::new(),
    };
    loop {
        let changes = front.changes.as_mut();
        let change = async {
            match changes {
                Some(changes) => changes.next().await,
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(ended) = front.tasks.join_next() => match ended {
                // The client would wait for the lost answer forever, unless it is gone.
                Ok(Err(error)) => return match error.kind() {
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Ok(()),
                    _ => Err(ServeError::Write(error)),
                },
                _ if front.has_pending_change => front.list_changed(),
                _ => {}
            },
            message = incoming.next() => match message.map_err(ServeError::Read)? {
                Some(message) => front.take(message),
                None => break,
            },
            () = change => front.list_changed(),
        }
    }
    front.finish().await;
    Ok(())
}

struct Front<O: Outgoing> {
    runner: Arc<CallRunner<O, ()>>,
    open: Arc<OpenCalls>,
    outgoing: O,
    protocol: Protocol,
    /// For the lines of calls.
    arguments: Budget,
    /// Limits the protocol answers that wait for a client that does not read.
    replies: Arc<Semaphore>,
    /// The list that the client got last.
    listed: Option<ToolList>,
    /// Followed once the client has requested the list or subscribed.
    changes: Option<Changes>,
    subscriptions: Subscriptions,
    /// Held while the client is notified of a change.
    notifying: Arc<Semaphore>,
    /// The list has changed again meanwhile.
    has_pending_change: bool,
    /// Running calls, and answers being written; a task ends with an error if it could not write.
    tasks: JoinSet<io::Result<()>>,
}

impl<O: Outgoing> Drop for Front<O> {
    fn drop(&mut self) {
        self.runner.dispatcher.tracer().note(|| What::FrontEnd);
    }
}

impl<O: Outgoing> Responder for O {
    async fn line(&self, line: String) -> io::Result<()> {
        self.send(None, alone(line)).await
    }

    async fn answer(&self, id: &RpcId, era: Era, result: RawJson) -> io::Result<()> {
        self.send(Some(&id.raw), answer_parts(id, era, "", &result)).await
    }

    /// A client that does not read any more fails its calls.
    async fn closed(&self) {
        pending::<()>().await;
    }
}

/// A message of one part.
fn alone(line: String) -> [Bytes; 3] {
    [line.into(), Bytes::new(), Bytes::new()]
}

impl<O: Outgoing> Front<O> {
    fn take(&mut self, line: Result<Bytes, LineTooLong>) {
        let Ok(line) = line else {
            let message = format!("a message is over the limit of {MAX_LINE_BYTES} bytes");
            return self.refuse(None, &invalid_request(message));
        };
        let (id, taken) = match read(&line) {
            Ok(Message::Call(id, call)) => {
                let taken = self.call(&id, call);
                (Some(id), taken)
            }
            Ok(Message::List { id, meta, has_cursor }) => {
                let taken = self.tools(&id, meta.as_ref(), has_cursor);
                (Some(id), taken)
            }
            Ok(Message::Request { id, method, meta, params }) => {
                let taken = self.reply(&id, &method, meta.as_ref(), params.as_ref());
                (Some(id), taken)
            }
            Ok(Message::Cancel(key)) => {
                if !self.open.cancel(&key) {
                    self.subscriptions.close(&key);
                }
                return;
            }
            Ok(Message::Response { id, outcome }) => {
                return self.open.questions.take(id.as_ref(), outcome.as_ref());
            }
            Ok(Message::Notification) => return,
            Err((id, error)) => (id, Err(error)),
        };
        if let Err(error) = taken {
            self.refuse(id.as_ref(), &error);
        }
    }

    fn call(&mut self, id: &RpcId, mut call: CallParams) -> Result<(), ErrorData> {
        let era = self.protocol.era(call.meta.as_ref())?;
        let (caller, can_ask) = (self.protocol.caller(), self.protocol.can_ask(era));
        let meta = CallMeta { caller, can_ask, ..read_meta(call.meta.take().as_ref()) };
        let request = CallRequest {
            era,
            id: id.clone(),
            progress_token: meta.progress_token.clone(),
            responder: Arc::new(self.outgoing.clone()),
            open: Arc::clone(&self.open),
            cancelled: self.runner.ended.child_token(),
        };
        if let Some(retry) = call.retry.take().filter(|_| era == Era::Stateless) {
            return self.runner.retry(&call.name, retry, &(), request);
        }
        let arguments = std::mem::replace(&mut call.arguments, RawJson::empty_object());
        let Some(arguments) = self.arguments.hold(arguments, call.line_bytes) else {
            let text =
                format!("calls under way hold {MAX_ARGUMENT_BYTES} bytes of messages, which is the limit");
            let error = ToolError::new("IPCError", text).called(Outcome::TransportError);
            let call = ToolCall { name: call.name, arguments: call.arguments, meta };
            self.runner.dispatcher.refuse(&call, Some(id.key.as_str()), error.type_name());
            self.answer(id, era, "", &error_result(&error), None);
            return Ok(());
        };
        call.arguments = arguments;
        let run = self.runner.start(call, meta, (), request)?;
        self.tasks.spawn(run.in_current_span());
        Ok(())
    }

    /// Answers `tools/list`.
    fn tools(&mut self, id: &RpcId, meta: Option<&RawJson>, has_cursor: bool) -> Result<(), ErrorData> {
        let era = self.protocol.era(meta)?;
        if has_cursor {
            return Err(invalid_params("the list has one page, so there is no such `cursor`"));
        }
        let unwritten = self.reply_slot()?;
        let (tools, list) = self.runner.list(id);
        self.listed = Some(tools);
        self.answer(id, era, LIST_CACHE_HINTS, &list, Some(unwritten));
        self.follow();
        Ok(())
    }

    /// Answers a request other than `tools/call` and `tools/list`.
    fn reply(
        &mut self,
        id: &RpcId,
        method: &str,
        meta: Option<&RawJson>,
        params: Option<&RawJson>,
    ) -> Result<(), ErrorData> {
        let unwritten = self.reply_slot()?;
        if method == "subscriptions/listen" && self.protocol.era(meta)? == Era::Stateless {
            let acknowledged = self.subscriptions.open(id, params)?;
            let outgoing = self.outgoing.clone();
            self.write(async move { outgoing.send(None, alone(acknowledged)).await });
            self.follow();
            return Ok(());
        }
        let result = self.protocol.answer(method, meta, params)?;
        self.answer(id, Era::Initialize, "", &result, Some(unwritten));
        Ok(())
    }

    /// Limits the answers that wait until the client reads.
    fn reply_slot(&self) -> Result<OwnedSemaphorePermit, ErrorData> {
        Arc::clone(&self.replies).try_acquire_owned().map_err(|_| {
            invalid_request(format!("{MAX_REPLIES} requests wait for an answer, which is the limit"))
        })
    }

    fn answer(
        &mut self,
        id: &RpcId,
        era: Era,
        members: &str,
        result: &RawJson,
        slot: Option<OwnedSemaphorePermit>,
    ) {
        let parts = answer_parts(id, era, members, result);
        let (outgoing, id) = (self.outgoing.clone(), id.raw.clone());
        self.write(async move {
            let _slot = slot;
            outgoing.send(Some(&id), parts).await
        });
    }

    /// Starts to notify the client of changes. Called after the first answer, because a source may need a request
    /// of its own to learn of changes.
    fn follow(&mut self) {
        let source = self.runner.dispatcher.source();
        self.changes.get_or_insert_with(|| source.changes());
        // It may have changed before the client was to be notified.
        if self.listed.as_ref().is_some_and(|listed| !listed.is(&source.tools())) {
            self.list_changed();
        }
    }

    /// Notifies the client that the list has changed; only once, however often it changes while the client does not
    /// read.
    fn list_changed(&mut self) {
        self.has_pending_change = true;
        let Ok(notifying) = Arc::clone(&self.notifying).try_acquire_owned() else { return };
        self.has_pending_change = false;
        let initialized = self.protocol.is_initialized().then(|| LIST_CHANGED.to_owned());
        let lines: Vec<_> = initialized.into_iter().chain(self.subscriptions.tools_changed()).collect();
        let outgoing = self.outgoing.clone();
        self.write(async move {
            let _notifying = notifying;
            for line in lines {
                outgoing.send(None, alone(line)).await?;
            }
            Ok(())
        });
    }

    fn refuse(&mut self, id: Option<&RpcId>, error: &ErrorData) {
        tracing::debug!(code = error.code.0, message = &*error.message, "refused a message");
        let (outgoing, line) = (self.outgoing.clone(), error_line(id, error));
        let id = id.map(|id| id.raw.clone());
        self.write(async move { outgoing.send(id.as_ref(), alone(line)).await });
    }

    /// Writes in a separate task: a client that does not read must not keep us from reading. If too much is
    /// pending, the message is dropped.
    fn write(&mut self, writing: impl Future<Output = io::Result<()>> + Send + 'static) {
        if self.tasks.len() < 2 * MAX_CALLS {
            self.tasks.spawn(writing);
        }
    }

    /// After the client has closed its end: gives running calls a moment to finish, and answers a little
    /// longer to be written.
    async fn finish(&mut self) {
        self.open.questions.close();
        if !self.calls_end_within(LAST_CALLS).await {
            tracing::debug!("calls were still under way when the client ended");
            self.runner.ended.cancel();
        }
        let rest = async {
            self.calls_end_within(LAST_ANSWERS).await;
            _ = self.outgoing.finish().await;
        };
        _ = tokio::time::timeout(LAST_ANSWERS, rest).await;
    }

    async fn calls_end_within(&mut self, limit: Duration) -> bool {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        tokio::time::timeout(limit, all).await.is_ok()
    }
}
