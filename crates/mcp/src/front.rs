//! The front: reads messages, starts calls, writes answers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::task::JoinSet;
use toolbridge_core::json::{Span, members};
use toolbridge_core::trace::{CallTrace, Process, Tracer, What};
use toolbridge_core::{
    Budget, CallMeta, CancellationToken, Dispatcher, Progress, RawJson, Step, ToolCall, ToolError,
    ToolResult, ToolSource,
};
use tracing::Instrument as _;

use crate::line::{Incoming, LineTooLong, MAX_LINE_BYTES, Outgoing};
use crate::list::write_list;
use crate::protocol::{Protocol, ServerInfo};
use crate::rpc::{Call, Era, IdKey, Message, RpcError, RpcId, in_one_line, read, result_head};

/// Calls that run at a time; further ones wait for their turn. Each may cost a descriptor, and a process
/// often has 1,024.
pub const MAX_CALLS_IN_FLIGHT: usize = 512;

/// Calls that run or wait at a time; further ones are refused. Messages are read all the while, so that a
/// call can be cancelled.
const MAX_CALLS: usize = 8 * MAX_CALLS_IN_FLIGHT;

/// Large messages held at a time until their arguments have been passed on; calls beyond that are refused.
const MAX_ARGUMENT_BYTES: usize = 256 * 1024 * 1024;

/// How long calls under way may go on after the client has said its last word.
const LAST_CALLS: Duration = Duration::from_secs(1);

/// And how long answers that are being written.
const LAST_ANSWERS: Duration = Duration::from_secs(3);

/// What 2026-07-28 wants to know of a list besides: it may change with the next start, and is for this
/// client alone.
const LIST_CACHE_HINTS: &str = r#","ttlMs":0,"cacheScope":"private""#;

/// Why serving ended before the client did.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Reading failed.
    #[error("cannot read from the client: {0}")]
    Read(io::Error),
    /// Writing failed, though the client is there: it would wait for its answer for ever.
    #[error("cannot write to the client: {0}")]
    Write(io::Error),
}

/// Serves `source` to one client until its messages end; then gives calls under way a moment to finish.
///
/// Dropping the future cancels every call under way.
///
/// ```
/// # use std::sync::Arc;
/// # use toolbridge_core::{NoArgs, Toolset};
/// use toolbridge_mcp::{LineReader, LineWriter, ServerInfo, serve};
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
/// When reading or writing fails. A client that no longer reads its answers is no error, but an end.
pub async fn serve(
    source: Arc<dyn ToolSource>,
    info: ServerInfo,
    incoming: impl Incoming,
    outgoing: impl Outgoing,
) -> Result<(), ServeError> {
    serve_traced(source, info, incoming, outgoing, Tracer::without_file(Process::Server)).await
}

/// The same as [`serve`], telling `tracer` what happens.
///
/// # Errors
///
/// When reading or writing fails.
pub async fn serve_traced(
    source: Arc<dyn ToolSource>,
    info: ServerInfo,
    mut incoming: impl Incoming,
    outgoing: impl Outgoing,
    tracer: Tracer,
) -> Result<(), ServeError> {
    tracer.note(|| What::FrontStart { tools: source.tools().len() as u64 });
    let _end = FrontEnd(tracer.clone());
    let (failed, mut failure) = mpsc::unbounded_channel();
    let outgoing = Watched { outgoing, failed };
    let mut front = Front {
        list: write_list(&source.tools()),
        protocol: Protocol::start(info, outgoing.clone()),
        shared: Arc::new(Shared {
            dispatcher: Dispatcher::new(source, tracer),
            outgoing,
            under_way: Mutex::default(),
            running: Semaphore::new(MAX_CALLS_IN_FLIGHT),
            arguments: Budget::new(MAX_ARGUMENT_BYTES),
        }),
        calls: JoinSet::new(),
    };
    loop {
        tokio::select! {
            biased;
            Some(error) = failure.recv() => return match error.kind() {
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Ok(()),
                _ => Err(ServeError::Write(error)),
            },
            Some(_) = front.calls.join_next() => {}
            message = incoming.next() => match message.map_err(ServeError::Read)? {
                Some(message) => front.take(message).await,
                None => break,
            }
        }
    }
    front.finish().await;
    Ok(())
}

/// What goes out, for answers and for rmcp. When something cannot be sent, the front hears of it: somebody waits for the
/// answer that was lost.
#[derive(Clone)]
struct Watched<O> {
    outgoing: O,
    failed: mpsc::UnboundedSender<io::Error>,
}

impl<O> Watched<O> {
    /// Tells the front of a failure, and the sender only of its kind.
    fn tell(&self, error: io::Error) -> io::Error {
        let kind = error.kind();
        _ = self.failed.send(error);
        kind.into()
    }
}

impl<O: Outgoing> Outgoing for Watched<O> {
    async fn send(&self, head: &[u8], payload: &[u8], tail: &[u8]) -> io::Result<()> {
        self.outgoing.send(head, payload, tail).await.map_err(|error| self.tell(error))
    }

    async fn finish(&self) -> io::Result<()> {
        self.outgoing.finish().await.map_err(|error| self.tell(error))
    }
}

/// Says in the trace that the front has ended, however it did.
struct FrontEnd(Tracer);

impl Drop for FrontEnd {
    fn drop(&mut self) {
        self.0.note(|| What::FrontEnd);
    }
}

struct Front<O> {
    list: RawJson,
    protocol: Protocol,
    shared: Arc<Shared<O>>,
    calls: JoinSet<()>,
}

/// What calls under way need.
struct Shared<O> {
    dispatcher: Dispatcher,
    outgoing: O,
    /// Whoever takes a call out of here has the last word about it: an answer, or a cancellation.
    under_way: Mutex<HashMap<IdKey, CancellationToken>>,
    running: Semaphore,
    arguments: Budget,
}

impl<O: Outgoing> Front<O> {
    async fn take(&mut self, line: Result<Bytes, LineTooLong>) {
        let received = self.shared.dispatcher.tracer().clock();
        let Ok(line) = line else {
            let message = format!("a message is over the limit of {MAX_LINE_BYTES} bytes");
            return self.refuse(None, &RpcError::invalid_request(message));
        };
        match read(&line) {
            Ok(Message::Call(id, call)) => match self.protocol.era(call.meta.as_ref()) {
                Some(era) => self.call(era, id, call, received),
                None => self.ask_protocol(&id, &line).await,
            },
            Ok(Message::List { id, meta, has_cursor }) => match self.protocol.era(meta.as_ref()) {
                Some(_) if has_cursor => {
                    let error =
                        RpcError::invalid_params("the list has one page, so there is no such `cursor`");
                    self.refuse(Some(&id), &error);
                }
                Some(era) => {
                    let (shared, list) = (Arc::clone(&self.shared), self.list.clone());
                    shared.note_list(&id, &list);
                    self.write(async move { _ = shared.answer(&id, era, LIST_CACHE_HINTS, &list).await });
                }
                None => self.ask_protocol(&id, &line).await,
            },
            Ok(Message::Cancel(key)) => match self.shared.claim(&key) {
                Some(call) => call.cancel(),
                None => self.protocol.notify(&line),
            },
            Ok(Message::Request { id }) => self.ask_protocol(&id, &line).await,
            Ok(Message::Notification) => self.protocol.notify(&line),
            Ok(Message::Response) => tracing::debug!("ignored an answer to nothing we asked"),
            Err((id, error)) => self.refuse(id.as_ref(), &error),
        }
    }

    async fn ask_protocol(&mut self, id: &RpcId, line: &[u8]) {
        if let Err(error) = self.protocol.request(line).await {
            self.refuse(Some(id), &error);
        }
    }

    fn refuse(&mut self, id: Option<&RpcId>, error: &RpcError) {
        tracing::debug!(code = error.code, message = error.message, "refused a message");
        let (shared, line) = (Arc::clone(&self.shared), error.to_line(id));
        self.write(async move { _ = shared.write(line.as_bytes(), b"", b"").await });
    }

    /// Writes on the side: a client that does not read must not keep us from reading. One that has let so
    /// much pile up gets no more.
    fn write(&mut self, writing: impl Future<Output = ()> + Send + 'static) {
        if self.calls.len() < 2 * MAX_CALLS {
            self.calls.spawn(writing);
        }
    }

    fn call(&mut self, era: Era, id: RpcId, mut call: Call, received: Option<Instant>) {
        let meta = read_meta(call.meta.take());
        let parts = (call.name.as_str(), &call.arguments, &meta);
        let mut trace = self.shared.dispatcher.trace(received, parts, Some(id.key.as_str()));
        let mut why = "InvalidRequestError";
        let tools = self.shared.dispatcher.source().tools();
        let error = if tools.get(&call.name).is_none() {
            why = "ToolNotFoundError";
            RpcError::invalid_params(tools.not_found(&call.name).to_string())
        } else if self.calls.len() >= MAX_CALLS {
            RpcError::invalid_request(format!("{MAX_CALLS} calls are under way, which is the limit"))
        } else {
            let cancelled = CancellationToken::new();
            match self.shared.lock().entry(id.key.clone()) {
                Entry::Vacant(place) => {
                    place.insert(cancelled.clone());
                    let run = Arc::clone(&self.shared).run(era, id, call, meta, cancelled, trace);
                    self.calls.spawn(run.in_current_span());
                    return;
                }
                Entry::Occupied(_) => {
                    RpcError::invalid_request(format!("a call with id {} is under way", id.raw))
                }
            }
        };
        if let Some(trace) = &mut trace {
            trace.refused(why);
        }
        self.refuse(Some(&id), &error);
    }

    /// After the client's last word: calls under way have a moment, answers being written a little more.
    async fn finish(&mut self) {
        if !self.calls_end_within(LAST_CALLS).await {
            tracing::debug!("calls were still under way when the client ended");
            for (_, call) in self.shared.lock().drain() {
                call.cancel();
            }
        }
        let rest = async {
            self.calls_end_within(LAST_ANSWERS).await;
            self.protocol.finish().await;
            _ = self.shared.outgoing.finish().await;
        };
        _ = tokio::time::timeout(LAST_ANSWERS, rest).await;
    }

    async fn calls_end_within(&mut self, limit: Duration) -> bool {
        let all = async { while self.calls.join_next().await.is_some() {} };
        tokio::time::timeout(limit, all).await.is_ok()
    }
}

/// What a caller says about its call. It is read into something of its own: the line it stands in may be
/// large, and the call may take long.
fn read_meta(meta: Option<RawJson>) -> CallMeta {
    let Some(meta) = meta else { return CallMeta::default() };
    // An odd member is no reason to refuse a call, nor to lose the others.
    let member = |key| members(meta.as_str(), &[key]).ok().flatten().and_then(|[value]| value);
    let text = |key| member(key)?.decode::<String>().ok();
    // MCP has strings and numbers.
    let is_token = |token: &Span<'_>| {
        token.get().starts_with(|first: char| first == '"' || first == '-' || first.is_ascii_digit())
    };
    CallMeta {
        tool_use_id: text("claudecode/toolUseId"),
        progress_token: member("progressToken")
            .filter(is_token)
            .and_then(|token| RawJson::parse(token.get().to_owned()).ok()),
        // W3C trace context.
        traceparent: text("traceparent").and_then(|text| text.parse().ok()),
    }
}

impl<O: Outgoing> Shared<O> {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<IdKey, CancellationToken>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claim(&self, key: &IdKey) -> Option<CancellationToken> {
        self.lock().remove(key)
    }

    fn note_list(&self, id: &RpcId, list: &RawJson) {
        self.dispatcher.tracer().note(|| What::ToolsList {
            request_id: id.key.as_str().chars().take(120).collect(),
            tools: self.dispatcher.source().tools().len() as u64,
            result_bytes: list.as_bytes().len() as u64,
        });
    }

    /// Runs a call to its answer, or to its cancellation.
    async fn run(
        self: Arc<Self>,
        era: Era,
        id: RpcId,
        call: Call,
        meta: CallMeta,
        cancelled: CancellationToken,
        mut trace: Option<CallTrace>,
    ) {
        let (outcome, _running) = tokio::select! {
            biased;
            () = cancelled.cancelled() => return,
            outcome = self.outcome(call, meta, &cancelled, trace.as_ref()) => outcome,
        };
        if let Some(trace) = &mut trace {
            trace.ended(&outcome);
        }
        // From here on the answer is written, and a cancellation comes too late.
        if self.claim(&id.key).is_none() {
            if let Some(trace) = &mut trace {
                trace.cancelled();
            }
            return;
        }
        let result = outcome.unwrap_or_else(|error| {
            ToolResult::error(format!("{error} (type: {})", error.type_name())).to_json()
        });
        let is_written = self.answer(&id, era, "", &result).await;
        if let Some(trace) = &mut trace
            && is_written
        {
            trace.written();
        }
    }

    /// Runs a call to its result, and passes its progress on. It counts as running until its answer has
    /// been written.
    async fn outcome(
        &self,
        call: Call,
        meta: CallMeta,
        cancelled: &CancellationToken,
        trace: Option<&CallTrace>,
    ) -> (Result<RawJson, ToolError>, Option<SemaphorePermit<'_>>) {
        let token = meta.progress_token.clone();
        let Some(arguments) = self.arguments.hold(call.arguments, call.line_bytes) else {
            let text =
                format!("calls under way hold {MAX_ARGUMENT_BYTES} bytes of messages, which is the limit");
            return (Err(ToolError::new("IPCError", text)), None);
        };
        let running = self.running.acquire().await.ok();
        let call = ToolCall { name: call.name, arguments, meta };
        let mut call = self.dispatcher.run(call, cancelled.clone(), trace);
        loop {
            match (call.next().await, &token) {
                (Step::Progress(report), Some(token)) => self.report(token, &report).await,
                (Step::Progress(_), None) => {}
                (Step::Done(outcome), _) => return (outcome, running),
            }
        }
    }

    async fn report(&self, token: &RawJson, report: &Progress) {
        let report = serde_json::to_string(report).expect("numbers and strings can always be written");
        let head = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},{}}}"#,
            &report[1..]
        );
        _ = self.write(head.as_bytes(), b"", b"").await;
    }

    /// Whether it could be written.
    async fn answer(&self, id: &RpcId, era: Era, members: &str, result: &RawJson) -> bool {
        let (head, rest) = result_head(id, era, members, result);
        self.write(head.as_bytes(), &in_one_line(&result.as_bytes()[rest..]), b"}").await
    }

    async fn write(&self, head: &[u8], payload: &[u8], tail: &[u8]) -> bool {
        let sent = self.outgoing.send(head, payload, tail).await;
        if let Err(error) = &sent {
            tracing::debug!(%error, "the client does not read any more");
        }
        sent.is_ok()
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
