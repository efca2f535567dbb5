//! Runs the calls of MCP clients, whatever carries their messages.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::ErrorData;
use tokio::sync::{Semaphore, mpsc, oneshot};
use uuid::Uuid;

use crate::mcp::question::{OpenQuestions, Round};
use crate::mcp::rpc::{CallParams, Era, IdKey, RpcId, invalid_params, invalid_request, write_list};
use crate::tool::lock::lock;
use crate::trace::What;
use crate::{
    CallEvent, CallMeta, CancellationToken, Dispatcher, Progress, RawJson, RunningCall, ToolCall, ToolError,
    ToolList, ToolResult,
};

/// How long a call waits for the client to retry it with the answers.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60 * 60);

/// How the messages about one request reach its client.
pub(crate) trait Responder: Send + Sync + 'static {
    /// Sends a message that comes before the answer.
    fn line(&self, line: String) -> impl Future<Output = io::Result<()>> + Send;

    /// Sends the answer; it is written when this completes.
    fn answer(&self, id: &RpcId, era: Era, result: RawJson) -> impl Future<Output = io::Result<()>> + Send;

    /// Waits until messages can no longer be sent.
    fn closed(&self) -> impl Future<Output = ()> + Send;

    /// What the client of a cancelled call is told, if anything.
    fn cancelled_answer(&self) -> Option<ToolError> {
        None
    }

    /// Lets the front observe a call of `tool`.
    fn watched(&self, _tool: &str, call: RunningCall<'static>) -> RunningCall<'static> {
        call
    }
}

/// The calls and questions of one client.
#[derive(Debug, Default)]
pub(crate) struct OpenCalls {
    /// Removing a call decides its fate: either it is answered or it is cancelled.
    calls: Mutex<HashMap<IdKey, CancellationToken>>,
    pub(crate) questions: OpenQuestions,
}

impl OpenCalls {
    fn begin(&self, id: &RpcId, call: &CancellationToken) -> Result<(), ErrorData> {
        let mut calls = lock(&self.calls);
        if calls.contains_key(&id.key) {
            return Err(invalid_request(format!("a call with id {} is under way", id.raw)));
        }
        calls.insert(id.key.clone(), call.clone());
        Ok(())
    }

    fn claim(&self, id: &IdKey) -> Option<CancellationToken> {
        lock(&self.calls).remove(id)
    }

    /// Cancels a call, unless it is being answered; returns whether there was one.
    pub(crate) fn cancel(&self, id: &IdKey) -> bool {
        self.claim(id).inspect(CancellationToken::cancel).is_some()
    }
}

/// A request for a call, or for its continuation.
#[derive(Debug)]
pub(crate) struct CallRequest<R> {
    pub(crate) era: Era,
    pub(crate) id: RpcId,
    /// For its progress, if the client wants it.
    pub(crate) progress_token: Option<RawJson>,
    pub(crate) responder: Arc<R>,
    /// The client's calls.
    pub(crate) open: Arc<OpenCalls>,
    /// Ends the call.
    pub(crate) cancelled: CancellationToken,
}

/// Why a call does not run.
pub(crate) enum Refused {
    /// Too many calls run or wait.
    Full(String),
    /// The request is wrong.
    Wrong(ErrorData),
}

impl From<Refused> for ErrorData {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full(text) => invalid_request(text),
            Refused::Wrong(error) => error,
        }
    }
}

/// Runs the calls of a server. `K` tells its clients apart.
#[derive(Debug)]
pub(crate) struct CallRunner<R, K> {
    pub(crate) dispatcher: Dispatcher,
    /// Limits the calls that run or wait.
    slots: Arc<Semaphore>,
    max_calls: usize,
    /// Calls that wait until their clients retry, by the state that identifies each.
    waiting: Mutex<HashMap<String, WaitingCall<R, K>>>,
    max_waiting: usize,
    /// Cancelled when no client will retry.
    pub(crate) ended: CancellationToken,
}

/// A retry of a call, with the answers.
type Retry<R> = (CallRequest<R>, RawJson);

#[derive(Debug)]
struct WaitingCall<R, K> {
    tool: String,
    client: K,
    retried: oneshot::Sender<Retry<R>>,
}

impl<R: Responder, K: Clone + PartialEq + Send + Sync + 'static> CallRunner<R, K> {
    pub(crate) fn new(dispatcher: Dispatcher, max_calls: usize, max_waiting: usize) -> Self {
        let (slots, ended) = (Arc::new(Semaphore::new(max_calls)), CancellationToken::new());
        Self { dispatcher, slots, max_calls, waiting: Mutex::default(), max_waiting, ended }
    }

    /// The tools, and the result of `tools/list` for the request `id`.
    pub(crate) fn list(&self, id: &RpcId) -> (ToolList, RawJson) {
        let tools = self.dispatcher.source().tools();
        let list = write_list(&tools);
        self.dispatcher.tracer().note(|| What::list(id.key.as_str(), &tools, &list));
        (tools, list)
    }

    /// Starts a call; the returned future runs it to its answer, or until it is cancelled.
    pub(crate) fn start(
        self: &Arc<Self>,
        call: CallParams,
        meta: CallMeta,
        client: K,
        request: CallRequest<R>,
    ) -> Result<Pin<Box<dyn Future<Output = io::Result<()>> + Send>>, Refused> {
        let tool = call.name.clone();
        let call = ToolCall { name: call.name, arguments: call.arguments, meta };
        let id = Some(request.id.key.as_str());
        let refused = |why| {
            self.dispatcher.refuse(&call, id, "InvalidRequestError");
            Err(why)
        };
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            let text = format!("{} calls are under way, which is the limit", self.max_calls);
            return refused(Refused::Full(text));
        };
        if let Err(error) = request.open.begin(&request.id, &request.cancelled) {
            return refused(Refused::Wrong(error));
        }
        let running = self.dispatcher.call(call, id).map_err(|error| {
            request.open.claim(&request.id.key);
            Refused::Wrong(invalid_params(error.to_string()))
        })?;
        let running = request.responder.watched(&tool, running);
        let task = CallTask { runner: Arc::clone(self), request, tool, client };
        // Boxed right away: the future is large, and would be moved several times.
        Ok(Box::pin(async move {
            let _slot = slot;
            task.run(running).await
        }))
    }

    /// Continues a call of `tool` that waits under `state` for the answers in `responses`.
    pub(crate) fn retry(
        &self,
        tool: &str,
        (state, responses): (String, RawJson),
        client: &K,
        request: CallRequest<R>,
    ) -> Result<(), ErrorData> {
        request.open.begin(&request.id, &request.cancelled)?;
        let (open, id) = (Arc::clone(&request.open), request.id.key.clone());
        let waiting = {
            let mut waiting = lock(&self.waiting);
            let is_its = |its: &WaitingCall<R, K>| its.tool == tool && its.client == *client;
            let found = waiting.get(&state).is_some_and(is_its);
            found.then(|| waiting.remove(&state)).flatten()
        };
        if waiting.is_some_and(|waiting| waiting.retried.send((request, responses)).is_ok()) {
            return Ok(());
        }
        open.claim(&id);
        Err(invalid_params(
            "no call of this tool waits for answers under this `requestState`: it has been answered, has ended, or was \
             never yours; call the tool without `requestState` and `inputResponses`",
        ))
    }
}

/// A call on its way to its answer.
struct CallTask<R, K> {
    runner: Arc<CallRunner<R, K>>,
    /// To be answered; replaced by each retry.
    request: CallRequest<R>,
    tool: String,
    client: K,
}

impl<R: Responder, K: Clone + PartialEq + Send + Sync + 'static> CallTask<R, K> {
    async fn run(mut self, mut call: RunningCall<'static>) -> io::Result<()> {
        let outcome = self.outcome(&mut call).await?;
        let CallRequest { era, id, responder, open, .. } = &self.request;
        let Some(outcome) = outcome.or_else(|| responder.cancelled_answer().map(Err)) else { return Ok(()) };
        // From here on the answer is written, and a cancellation comes too late.
        if open.claim(&id.key).is_none() {
            return Ok(());
        }
        responder.answer(id, *era, outcome.unwrap_or_else(|error| error_result(&error))).await?;
        call.written();
        Ok(())
    }

    /// Runs the call to its outcome, and passes its progress and its questions on; `None` if it is cancelled.
    async fn outcome(
        &mut self,
        call: &mut RunningCall<'static>,
    ) -> io::Result<Option<Result<RawJson, ToolError>>> {
        // For questions of handlers that block their threads.
        let ended = CancellationToken::new();
        let _end = ended.clone().drop_guard();
        // The requests to the client that it has not answered.
        let (over, mut questions_over) = mpsc::unbounded_channel();
        let mut open_questions = 0_usize;
        loop {
            let cancelled = self.request.cancelled.clone();
            let event = tokio::select! {
                biased;
                () = cancelled.cancelled() => return Ok(None),
                event = call.next() => event,
                Some(()) = questions_over.recv() => {
                    open_questions -= 1;
                    if open_questions == 0 && !call.resumed(&cancelled).await {
                        return Ok(None);
                    }
                    continue;
                }
            };
            match event {
                CallEvent::Done(outcome) => return Ok(Some(outcome)),
                CallEvent::Progress(report) => {
                    let Some(token) = &self.request.progress_token else { continue };
                    let sending = self.request.responder.line(progress_line(token, &report));
                    tokio::select! {
                        biased;
                        () = cancelled.cancelled() => return Ok(None),
                        sent = call.during(sending) => sent?,
                    }
                }
                CallEvent::Question(asked) if self.request.era == Era::Initialize => {
                    let CallRequest { responder, open, .. } = &self.request;
                    let (client, open, ended) = (Arc::clone(responder), Arc::clone(open), ended.clone());
                    // A call that waits for a person must not keep others waiting.
                    call.pause();
                    open_questions += 1;
                    let over = over.clone();
                    // In a separate task: the call may continue meanwhile, and the question is cancelled when the
                    // call ends.
                    tokio::spawn(async move {
                        open.questions.ask(asked, &*client, &ended).await;
                        _ = over.send(());
                    });
                }
                CallEvent::Question(asked) => {
                    call.pause();
                    let mut round = Round::default();
                    round.add(asked);
                    if !self.require(call, round).await? {
                        return Ok(None);
                    }
                    if !call.resumed(&self.request.cancelled).await {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Asks by answering the request, until every question is answered by a retry; returns whether the call goes on.
    async fn require(&mut self, call: &mut RunningCall<'static>, mut round: Round) -> io::Result<bool> {
        loop {
            while let Some(asked) = call.try_question() {
                round.add(asked);
            }
            if round.is_over() {
                return Ok(true);
            }
            let CallRequest { era, id, responder, open, .. } = &self.request;
            let Some((state, retried)) = self.wait() else {
                round.refuse(self.runner.max_waiting);
                return Ok(true);
            };
            if open.claim(&id.key).is_none() {
                return Ok(false);
            }
            // Also if the client has left: closing this request no longer ends the call.
            call.during(responder.answer(id, *era, round.result(&state))).await?;
            let retried = tokio::select! {
                biased;
                () = self.runner.ended.cancelled() => return Ok(false),
                retried = call.during(tokio::time::timeout(MAX_WAIT, retried)) => retried,
            };
            let Ok(Ok((request, responses))) = retried else { return Ok(false) };
            self.request = request;
            round.take(&responses);
        }
    }

    /// Makes the call wait for a retry, if not too many calls do; returns the state that identifies it.
    fn wait(&self) -> Option<(String, oneshot::Receiver<Retry<R>>)> {
        let mut waiting = lock(&self.runner.waiting);
        waiting.retain(|_, waiting| !waiting.retried.is_closed());
        if waiting.len() >= self.runner.max_waiting {
            return None;
        }
        let (retried, retry) = oneshot::channel();
        // 122 random bits from the system, which cannot be guessed.
        let state = Uuid::new_v4().simple().to_string();
        let (tool, client) = (self.tool.clone(), self.client.clone());
        waiting.insert(state.clone(), WaitingCall { tool, client, retried });
        Some((state, retry))
    }
}

/// The result that tells a client of a failed call.
pub(crate) fn error_result(error: &ToolError) -> RawJson {
    ToolResult::error(format!("{error} (type: {})", error.type_name())).to_json()
}

/// The notification of a call's progress.
fn progress_line(token: &RawJson, report: &Progress) -> String {
    let report = serde_json::to_string(report).expect("numbers and strings can always be written");
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},{}}}"#,
        &report[1..]
    )
}
