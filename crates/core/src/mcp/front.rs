//! The front: reads messages, runs calls, writes answers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::json::{Span, members};
use crate::trace::{Outcome, Process, Tracer, What};
use crate::{
    Budget, CallEvent, CallMeta, CancellationToken, Changes, Dispatcher, Progress, RawJson, RunningCall,
    ServerInfo, ToolCall, ToolError, ToolList, ToolResult, ToolSource,
};
use bytes::Bytes;
use rmcp::ErrorData;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};
use tracing::Instrument as _;

use crate::mcp::line::{Incoming, LineTooLong, MAX_LINE_BYTES, Outgoing};
use crate::mcp::list::write_list;
use crate::mcp::protocol::Protocol;
use crate::mcp::question::{Entrance, MAX_QUESTIONS, OpenQuestions, Round, WaitingRoom, no_such_call};
use crate::mcp::rpc::{
    Call, Era, IdKey, Message, Retry, RpcId, error_line, in_one_line, invalid_params, invalid_request, read,
    result_head,
};
use crate::mcp::subscription::{LIST_CHANGED, Subscriptions};

/// The number of calls that run at a time; further ones wait. Each may cost a descriptor, and the limit of a
/// process is often 1,024.
pub const MAX_CALLS_IN_FLIGHT: usize = 512;

/// The number of calls that run or wait at a time; further ones are refused. Messages are always read, so that
/// calls can be cancelled.
pub const MAX_CALLS: usize = 8 * MAX_CALLS_IN_FLIGHT;

/// How many bytes of large messages are held at a time until their arguments have been passed on; further calls are
/// refused.
pub const MAX_ARGUMENT_BYTES: usize = 256 * 1024 * 1024;

/// The number of protocol answers that may wait for a client that does not read; further requests are refused.
const MAX_REPLIES: usize = 64;

/// How long running calls may take after the client has closed its end.
pub const LAST_CALLS: Duration = Duration::from_secs(1);

/// How long answers may take to be written after that.
pub const LAST_ANSWERS: Duration = Duration::from_secs(3);

/// Additional members of a list in 2026-07-28: it may change with the next start, and is for this client only.
pub const LIST_CACHE_HINTS: &str = r#","ttlMs":0,"cacheScope":"private""#;

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
/// # use std::sync::Arc;
/// # mod toolbridge { pub use toolbridge_core::*; }
/// # use toolbridge::{NoArgs, Toolset};
/// use toolbridge::mcp::{LineReader, LineWriter, ServerInfo, serve};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tools = Toolset::builder().tool("hello", "Greets", async |_: NoArgs| "hello").build()?;
/// let (client, server) = tokio::io::duplex(4096);
/// let (read, write) = tokio::io::split(server);
/// drop(client);
/// serve(Arc::new(tools), ServerInfo::default(), LineReader::new(read), LineWriter::new(write)).await?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// When reading or writing fails. It is not an error if the client stops reading its answers.
pub async fn serve(
    source: Arc<dyn ToolSource>,
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
    source: Arc<dyn ToolSource>,
    Serving { info, tracer, session_id }: Serving,
    mut incoming: impl Incoming,
    outgoing: impl Outgoing,
) -> Result<(), ServeError> {
    tracer.note(|| What::FrontStart { tools: source.tools().len() as u64 });
    let _end = FrontEnd(tracer.clone());
    let mut front = Front {
        list: None,
        changes: None,
        subscriptions: Subscriptions::default(),
        notifying: Arc::new(Semaphore::new(1)),
        has_pending_change: false,
        protocol: Protocol::new(info, session_id).lasting(),
        shared: Arc::new(Shared {
            dispatcher: Dispatcher::new(source, tracer).at_most(MAX_CALLS_IN_FLIGHT),
            outgoing,
            under_way: Mutex::default(),
            arguments: Budget::new(MAX_ARGUMENT_BYTES),
            questions: OpenQuestions::default(),
            waiting: WaitingRoom::new(MAX_QUESTIONS),
        }),
        replies: Arc::new(Semaphore::new(MAX_REPLIES)),
        tasks: JoinSet::new(),
    };
    loop {
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
            () = next_change(front.changes.as_mut()) => front.list_changed(),
        }
    }
    front.finish().await;
    Ok(())
}

async fn next_change(changes: Option<&mut Changes>) {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

/// Records the end of the front in the trace when dropped.
struct FrontEnd(Tracer);

impl Drop for FrontEnd {
    fn drop(&mut self) {
        self.0.note(|| What::FrontEnd);
    }
}

struct Front<O> {
    /// The answer to `tools/list`, and the list it was written from.
    list: Option<(ToolList, RawJson)>,
    /// Followed once the client has requested the list or subscribed.
    changes: Option<Changes>,
    subscriptions: Subscriptions,
    /// Held while the client is notified of a change.
    notifying: Arc<Semaphore>,
    /// The list has changed again meanwhile.
    has_pending_change: bool,
    protocol: Protocol,
    shared: Arc<Shared<O>>,
    /// Limits the protocol answers that wait for a client that does not read.
    replies: Arc<Semaphore>,
    /// Running calls, and answers being written; a task ends with an error if it could not write.
    tasks: JoinSet<io::Result<()>>,
}

/// A requested call.
struct Job {
    era: Era,
    id: RpcId,
    running: RunningCall<'static>,
    token: Option<RawJson>,
    /// Its tool.
    tool: u64,
}

/// What running calls share.
struct Shared<O> {
    dispatcher: Dispatcher,
    outgoing: O,
    /// Removing a call from this map decides its fate: either it is answered or it is cancelled.
    under_way: Mutex<HashMap<IdKey, AbortHandle>>,
    arguments: Budget,
    /// Questions of tools that the client has not answered yet.
    questions: OpenQuestions,
    /// Calls that continue when the client retries; each with its tool and its task.
    waiting: WaitingRoom<(u64, AbortHandle), Retried>,
}

/// A retry of a call by the client.
struct Retried {
    id: RpcId,
    progress_token: Option<RawJson>,
    responses: RawJson,
}

impl<O: Outgoing> Front<O> {
    fn take(&mut self, line: Result<Bytes, LineTooLong>) {
        let Ok(line) = line else {
            let message = format!("a message is over the limit of {MAX_LINE_BYTES} bytes");
            return self.refuse(None, &invalid_request(message));
        };
        let (id, refusal) = match read(&line) {
            Ok(Message::Call(id, call)) => match self.protocol.era(call.meta.as_ref()) {
                Ok(era) => return self.call(era, id, call),
                Err(error) => (Some(id), error),
            },
            Ok(Message::List { id, meta, has_cursor }) => match self.protocol.era(meta.as_ref()) {
                Ok(_) if has_cursor => {
                    (Some(id), invalid_params("the list has one page, so there is no such `cursor`"))
                }
                Ok(era) => {
                    let (shared, list) = (Arc::clone(&self.shared), self.list());
                    shared.note_list(&id, &list);
                    self.write(async move { shared.answer(&id, era, LIST_CACHE_HINTS, &list).await });
                    return self.follow();
                }
                Err(error) => (Some(id), error),
            },
            Ok(Message::Request { id, method, meta }) => match self.reply(&id, &method, meta.as_ref(), &line)
            {
                Ok(()) => return,
                Err(error) => (Some(id), error),
            },
            Ok(Message::Cancel(key)) => {
                if let Some(call) = self.shared.claim(&key) {
                    call.abort();
                } else {
                    self.subscriptions.close(&key);
                }
                return;
            }
            Ok(Message::Response { id, outcome }) => {
                return self.shared.questions.take(id.as_ref(), outcome.as_ref());
            }
            Ok(Message::Notification) => return,
            Err(refusal) => refusal,
        };
        self.refuse(id.as_ref(), &refusal);
    }

    /// Answers a request other than `tools/call` and `tools/list`.
    fn reply(
        &mut self,
        id: &RpcId,
        method: &str,
        meta: Option<&RawJson>,
        line: &[u8],
    ) -> Result<(), ErrorData> {
        let Ok(unwritten) = Arc::clone(&self.replies).try_acquire_owned() else {
            let reason = format!("{MAX_REPLIES} requests wait for an answer, which is the limit");
            return Err(invalid_request(reason));
        };
        if method == "subscriptions/listen" && self.protocol.era(meta)? == Era::Stateless {
            let acknowledged = self.subscriptions.open(id, line)?;
            self.tell(acknowledged);
            self.follow();
            return Ok(());
        }
        let result = self.protocol.answer(method, meta, line)?;
        let (shared, id) = (Arc::clone(&self.shared), id.clone());
        self.write(async move {
            let _unwritten = unwritten;
            shared.answer(&id, Era::Initialize, "", &result).await
        });
        Ok(())
    }

    /// The current answer to `tools/list`.
    fn list(&mut self) -> RawJson {
        let tools = self.shared.dispatcher.source().tools();
        match &self.list {
            Some((of, list)) if of.is(&tools) => list.clone(),
            _ => {
                let list = write_list(&tools);
                self.list.insert((tools, list)).1.clone()
            }
        }
    }

    /// Starts to notify the client of changes. Called after the first answer, because a source may need a request
    /// of its own to learn of changes.
    fn follow(&mut self) {
        let source = self.shared.dispatcher.source();
        self.changes.get_or_insert_with(|| source.changes());
        // It may have changed before the client was to be notified.
        if self.list.as_ref().is_some_and(|(of, _)| !of.is(&source.tools())) {
            self.list_changed();
        }
    }

    /// Notifies the client that the list has changed; only once, however often it changes while the client does not
    /// read.
    fn list_changed(&mut self) {
        self.has_pending_change = true;
        let Ok(notifying) = Arc::clone(&self.notifying).try_acquire_owned() else { return };
        self.has_pending_change = false;
        let mut lines: Vec<_> =
            self.protocol.is_initialized().then(|| LIST_CHANGED.to_owned()).into_iter().collect();
        lines.extend(self.subscriptions.tools_changed());
        let shared = Arc::clone(&self.shared);
        self.write(async move {
            let _notifying = notifying;
            for line in lines {
                shared.outgoing.send(None, [line.as_bytes(), b"", b""]).await?;
            }
            Ok(())
        });
    }

    /// Sends a message that is not a response.
    fn tell(&mut self, line: String) {
        let shared = Arc::clone(&self.shared);
        self.write(async move { shared.outgoing.send(None, [line.as_bytes(), b"", b""]).await });
    }

    fn refuse(&mut self, id: Option<&RpcId>, error: &ErrorData) {
        tracing::debug!(code = error.code.0, message = &*error.message, "refused a message");
        let (shared, line) = (Arc::clone(&self.shared), error_line(id, error));
        let id = id.map(|id| id.raw.clone());
        self.write(async move { shared.outgoing.send(id.as_ref(), [line.as_bytes(), b"", b""]).await });
    }

    /// Writes in a separate task: a client that does not read must not keep us from reading. If too much is
    /// pending, the message is dropped.
    fn write(&mut self, writing: impl Future<Output = io::Result<()>> + Send + 'static) {
        if self.tasks.len() < 2 * MAX_CALLS {
            self.tasks.spawn(writing);
        }
    }

    fn call(&mut self, era: Era, id: RpcId, mut call: Call) {
        let (client, can_ask) = (self.protocol.client(), self.protocol.can_ask(era));
        let meta = CallMeta { client, can_ask, ..read_meta(call.meta.take()) };
        if let Some(retry) = call.retry.take()
            && era == Era::Stateless
        {
            if let Err(error) = self.retry(&id, &call.name, *retry, meta) {
                self.refuse(Some(&id), &error);
            }
            return;
        }
        let (shared, line_bytes) = (Arc::clone(&self.shared), call.line_bytes);
        let (tool, token) = (tool_key(&call.name), meta.progress_token.clone());
        let mut call = ToolCall { name: call.name, arguments: call.arguments, meta };
        // The lock is held until the call is in the table: a call that ends early looks itself up there.
        let mut under_way = shared.lock();
        let error = if self.tasks.len() >= MAX_CALLS {
            invalid_request(format!("{MAX_CALLS} calls are under way, which is the limit"))
        } else if under_way.contains_key(&id.key) {
            invalid_request(format!("a call with id {} is under way", id.raw))
        } else {
            let arguments = std::mem::replace(&mut call.arguments, RawJson::empty_object());
            let Some(arguments) = shared.arguments.hold(arguments, line_bytes) else {
                let text = format!(
                    "calls under way hold {MAX_ARGUMENT_BYTES} bytes of messages, which is the limit"
                );
                shared.dispatcher.refuse(&call, Some(id.key.as_str()), "IPCError");
                let result = error_result(&ToolError::new("IPCError", text).called(Outcome::TransportError));
                let shared = Arc::clone(&shared);
                return self.write(async move { shared.answer(&id, era, "", &result).await });
            };
            call.arguments = arguments;
            match shared.dispatcher.call(call, Some(id.key.as_str())) {
                Ok(running) => {
                    let key = id.key.clone();
                    let job = Job { era, id, running, token, tool };
                    let run = Arc::clone(&shared).run(job);
                    under_way.insert(key, self.tasks.spawn(run.in_current_span()));
                }
                Err(error) => {
                    drop(under_way);
                    self.refuse(Some(&id), &invalid_params(error.to_string()));
                }
            }
            return;
        };
        drop(under_way);
        shared.dispatcher.refuse(&call, Some(id.key.as_str()), "InvalidRequestError");
        self.refuse(Some(&id), &error);
    }

    /// Continues a call that waits for answers.
    fn retry(&self, id: &RpcId, tool: &str, retry: Retry, meta: CallMeta) -> Result<(), ErrorData> {
        let mut under_way = self.shared.lock();
        let Entry::Vacant(place) = under_way.entry(id.key.clone()) else {
            return Err(invalid_request(format!("a call with id {} is under way", id.raw)));
        };
        let ((_, task), resume) =
            self.shared.waiting.leave(&retry.state, |(its, _)| *its == tool_key(tool))?;
        place.insert(task);
        let (progress_token, responses) = (meta.progress_token, retry.responses);
        if resume.send(Retried { id: id.clone(), progress_token, responses }).is_err() {
            under_way.remove(&id.key);
            return Err(no_such_call());
        }
        Ok(())
    }

    /// After the client has closed its end: gives running calls a moment to finish, and answers a little
    /// longer to be written.
    async fn finish(&mut self) {
        self.shared.questions.close();
        self.shared.waiting.close();
        if !self.calls_end_within(LAST_CALLS).await {
            tracing::debug!("calls were still under way when the client ended");
            for (_, call) in self.shared.lock().drain() {
                call.abort();
            }
        }
        let rest = async {
            self.calls_end_within(LAST_ANSWERS).await;
            _ = self.shared.outgoing.finish().await;
        };
        _ = tokio::time::timeout(LAST_ANSWERS, rest).await;
    }

    async fn calls_end_within(&mut self, limit: Duration) -> bool {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        tokio::time::timeout(limit, all).await.is_ok()
    }
}

/// Identifies a tool by a hash of its name, to avoid a copy: hardly any call ever waits for an answer.
fn tool_key(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// Reads a call's `_meta`. The values are copied: the line may be large, and the call may take long.
pub fn read_meta(meta: Option<RawJson>) -> CallMeta {
    let Some(meta) = meta else { return CallMeta::default() };
    let keys = ["claudecode/toolUseId", "progressToken", "traceparent"];
    // An invalid or duplicate member must neither fail the call nor hide the other members.
    let [tool_use_id, progress_token, traceparent] = match members(meta.as_str(), &keys) {
        Ok(found) => found.unwrap_or_default(),
        Err(_) => keys.map(|key| members(meta.as_str(), &[key]).ok().flatten().and_then(|[value]| value)),
    };
    let text = |member: Option<Span<'_>>| member?.decode::<String>().ok();
    // MCP allows strings and numbers.
    let is_token = |token: &Span<'_>| {
        token.get().starts_with(|first: char| first == '"' || first == '-' || first.is_ascii_digit())
    };
    CallMeta {
        tool_use_id: text(tool_use_id),
        progress_token: progress_token
            .filter(is_token)
            .and_then(|token| RawJson::parse(token.get().to_owned()).ok()),
        // W3C trace context.
        traceparent: text(traceparent).and_then(|text| text.parse().ok()),
        client: None,
        can_ask: false,
    }
}

/// The result that tells a client of a failed call.
#[must_use]
pub fn error_result(error: &ToolError) -> RawJson {
    ToolResult::error(format!("{error} (type: {})", error.type_name())).to_json()
}

/// The notification of a call's progress.
#[must_use]
pub fn progress_line(token: &RawJson, report: &Progress) -> String {
    let report = serde_json::to_string(report).expect("numbers and strings can always be written");
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},{}}}"#,
        &report[1..]
    )
}

impl<O: Outgoing> Shared<O> {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<IdKey, AbortHandle>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claim(&self, key: &IdKey) -> Option<AbortHandle> {
        self.lock().remove(key)
    }

    fn note_list(&self, id: &RpcId, list: &RawJson) {
        self.dispatcher.tracer().note(|| What::ToolsList {
            request_id: id.key.as_str().chars().take(120).collect(),
            tools: self.dispatcher.source().tools().len() as u64,
            result_bytes: list.as_bytes().len() as u64,
        });
    }

    /// Runs a call and writes its answer. Dropping the future cancels the call.
    async fn run(self: Arc<Self>, mut job: Job) -> io::Result<()> {
        let Some(outcome) = self.outcome(&mut job).await? else { return Ok(()) };
        // From here on the answer is written, and a cancellation comes too late.
        if self.claim(&job.id.key).is_none() {
            return Ok(());
        }
        let result = outcome.unwrap_or_else(|error| error_result(&error));
        self.answer(&job.id, job.era, "", &result).await?;
        job.running.written();
        Ok(())
    }

    /// Runs a call to its result, and forwards its progress and its questions; `None` if its client does
    /// not retry.
    async fn outcome(
        self: &Arc<Self>,
        Job { era, id, running: call, token, tool }: &mut Job,
    ) -> io::Result<Option<Result<RawJson, ToolError>>> {
        let ended = CancellationToken::new();
        let _end = ended.clone().drop_guard();
        loop {
            match (call.next().await, &token) {
                (CallEvent::Progress(report), Some(token)) => {
                    call.during(self.report(token, &report)).await?
                }
                (CallEvent::Progress(_), None) => {}
                (CallEvent::Question(asked), _) if *era == Era::Initialize => {
                    let (shared, ended) = (Arc::clone(self), ended.clone());
                    // In a separate task: the call may continue meanwhile, and the question is cancelled
                    // when the call ends.
                    tokio::spawn(async move {
                        let send = |line: String| {
                            let shared = Arc::clone(&shared);
                            async move { shared.outgoing.send(None, [line.as_bytes(), b"", b""]).await }
                        };
                        shared.questions.ask(asked, ended.cancelled(), send).await;
                    });
                }
                (CallEvent::Question(asked), _) => {
                    let mut round = Round::default();
                    round.add(asked);
                    let mut done = None;
                    while !round.is_over() && done.is_none() {
                        while let Some(asked) = call.try_question() {
                            round.add(asked);
                        }
                        let known = || Some((*tool, self.claim(&id.key)?));
                        let mut seat = match self.waiting.enter(known) {
                            Entrance::Waits(seat) => seat,
                            Entrance::Full(most) => {
                                round.refuse(most);
                                break;
                            }
                            Entrance::Gone => return Ok(None),
                        };
                        let result = round.result(&seat.state);
                        call.during(self.answer(id, *era, "", &result)).await?;
                        let Some(retried) = round.wait(call, &mut seat.retry, &mut done).await else {
                            return Ok(None);
                        };
                        round.take(&retried.responses);
                        (*id, *token) = (retried.id, retried.progress_token);
                    }
                    if done.is_some() {
                        return Ok(done);
                    }
                }
                (CallEvent::Done(outcome), _) => return Ok(Some(outcome)),
            }
        }
    }

    async fn report(&self, token: &RawJson, report: &Progress) -> io::Result<()> {
        let line = progress_line(token, report);
        self.outgoing.send(None, [line.as_bytes(), b"", b""]).await
    }

    async fn answer(&self, id: &RpcId, era: Era, members: &str, result: &RawJson) -> io::Result<()> {
        let (head, rest) = result_head(id, era, members, result);
        let payload = in_one_line(&result.as_bytes()[rest..]);
        self.outgoing.send(Some(&id.raw), [head.as_bytes(), &payload, b"}"]).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_member_of_the_metadata_does_not_cost_the_others() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let read = |id: &str, token: &str, parent: &str| {
            let meta = format!(
                r#"{{"claudecode/toolUseId":{id},"new":[],"progressToken":{token},"traceparent":{parent}}}"#
            );
            let meta = read_meta(Some(RawJson::parse(meta).unwrap()));
            let token = meta.progress_token.map(|token| token.to_string());
            (meta.tool_use_id, token, meta.traceparent.map(|parent| parent.to_string()))
        };
        let id = Some("toolu_1".to_owned());
        let token = Some("7".to_owned());
        let place = Some(parent.to_owned());
        let quoted = format!("\"{parent}\"");
        assert_eq!(read(r#""toolu_1""#, "7", &quoted), (id.clone(), token.clone(), place.clone()));
        for odd in ["5", "null", "[]", "{}", r#""\ud800""#] {
            assert_eq!(read(r#""toolu_1""#, "7", odd), (id.clone(), token.clone(), None), "{odd}");
            assert_eq!(read(odd, "7", &quoted), (None, token.clone(), place.clone()), "{odd}");
        }
        for odd in ["null", "[]", "{}", "true"] {
            assert_eq!(read(r#""toolu_1""#, odd, &quoted), (id.clone(), None, place.clone()), "{odd}");
        }
        let twice = format!(r#"5,"traceparent":{quoted}"#);
        assert_eq!(read(r#""toolu_1""#, r#""a""#, &twice), (id, Some(r#""a""#.into()), None));
    }
}
