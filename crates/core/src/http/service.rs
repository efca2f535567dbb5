//! The service: answers one request at a time with one response.

use std::convert::Infallible;
use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::header::HeaderValue;
use hyper::{HeaderMap, Method, Request, StatusCode};
use rmcp::ErrorData;
use rmcp::model::ErrorCode;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::http::auth::{Authorizer, Principal};
use crate::http::body::{self, Response, empty, json};
use crate::http::call::{CallResponse, Runner};
use crate::http::header::{self, version_of};
use crate::http::metrics::Metrics;
use crate::http::origin::AllowedOrigins;
use crate::http::refusal::Refusal;
use crate::http::server::{Limits, Server};
use crate::http::session::{HttpSession, Sessions};
use crate::http::stream::ChangeStream;
use crate::mcp::call::{CallRequest, Refused};
use crate::mcp::front::{LAST_CALLS, LIST_CACHE_HINTS, MAX_ARGUMENT_BYTES};
use crate::mcp::protocol::Protocol;
use crate::mcp::rpc::{CallParams, Era, Message, RpcId, answer_parts, invalid_params, read, read_meta};
use crate::mcp::subscription::{LIST_CHANGED, Subscriptions};
use crate::trace::Tracer;
use crate::{Budget, CallMeta, CancellationToken, Dispatcher, RawJson, ServerInfo};

/// The number of calls that may run or wait, per call that may run.
const WAITING: usize = 8;

/// The number of calls that may wait for answers, of clients without sessions.
const MAX_ASKING: usize = 1024;

/// The limit of all large answers that clients have not read yet.
const MAX_ANSWER_BYTES: usize = 256 << 20;

pub(crate) const NO_ROOM: &str = "the answer is lost: answers that clients have not read yet have reached the memory limit; try again later";

/// An MCP server as a tower service, for any path of any server; made by [`Server::service`].
/// Clones share the same state.
#[derive(Debug, Clone)]
pub struct McpService(pub(crate) Arc<HttpServer>);

#[derive(Debug)]
pub(crate) struct HttpServer {
    pub(crate) runner: Arc<Runner>,
    calls: TaskTracker,
    info: ServerInfo,
    allowed: AllowedOrigins,
    authorizer: Authorizer,
    pub(crate) limits: Limits,
    pub(crate) has_metrics: bool,
    sessions: Sessions,
    bodies: Budget,
    /// For answers until they are sent.
    pub(crate) answers: Budget,
    pub(crate) metrics: Metrics,
    /// Cancelled when no new requests are accepted.
    pub(crate) closing: CancellationToken,
}

impl McpService {
    pub(crate) fn new(server: Server, tracer: Tracer) -> Self {
        let Server { source, info, allowed, authorizer, has_metrics, limits, .. } = server;
        let dispatcher = Dispatcher::new(source, tracer).at_most(limits.running);
        Self(Arc::new(HttpServer {
            runner: Arc::new(Runner::new(dispatcher, WAITING * limits.running, MAX_ASKING)),
            calls: TaskTracker::new(),
            info,
            allowed,
            authorizer,
            limits,
            has_metrics,
            sessions: Sessions::new(limits.sessions, limits.session_idle),
            bodies: Budget::new(MAX_ARGUMENT_BYTES),
            answers: Budget::new(MAX_ANSWER_BYTES),
            metrics: Metrics::default(),
            closing: CancellationToken::new(),
        }))
    }

    /// Answers a request; its path does not matter.
    pub async fn handle<B>(&self, request: Request<B>) -> Response
    where
        B: hyper::body::Body<Error: Display>,
    {
        self.0.answer(request).await.unwrap_or_else(Response::from)
    }

    /// Metrics in the text format of Prometheus: calls by tool and outcome, their duration, sessions.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.0.metrics.text(self.0.sessions.len())
    }

    /// Shuts the service down: new requests are refused, streams end, and running calls have a second to finish
    /// before they are cancelled.
    pub async fn shutdown(&self) {
        let server = &self.0;
        server.closing.cancel();
        server.calls.close();
        _ = tokio::time::timeout(LAST_CALLS, server.calls.wait()).await;
        server.runner.ended.cancel();
        server.sessions.clear();
    }

    /// Waits until [`shutdown`](Self::shutdown) is called, for a server that has to be told when to stop.
    pub async fn closed(&self) {
        self.0.closing.cancelled().await;
    }

    /// Whether requests are authorized.
    pub(crate) fn is_protected(&self) -> bool {
        !matches!(self.0.authorizer, Authorizer::Anyone)
    }
}

impl<B> tower_service::Service<Request<B>> for McpService
where
    B: hyper::body::Body<Data: Send, Error: Display + Send> + Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.handle(request).await) })
    }
}

impl HttpServer {
    /// Checks whether a request is admitted: its `Host`, its `Origin`, and its authorization.
    pub(crate) async fn admit<B>(&self, request: &Request<B>) -> Result<Principal, Refusal> {
        self.allowed.check(request.uri(), request.headers())?;
        if self.closing.is_cancelled() {
            return Err(Refusal::busy("the server is shutting down").and_close());
        }
        self.authorizer.admit(request.headers()).await
    }

    async fn answer<B>(self: &Arc<Self>, request: Request<B>) -> Result<Response, Refusal>
    where
        B: hyper::body::Body<Error: Display>,
    {
        let (parts, body) = request.into_parts();
        let head = Request::from_parts(parts, ());
        let principal = self.admit(&head).await?;
        let headers = head.headers();
        match *head.method() {
            Method::POST => {
                header::check_post(headers)?;
                let message = body::read(body, self.limits.read, &self.bodies).await?;
                self.take(headers, &principal, &message).await
            }
            Method::GET | Method::DELETE if header::version(headers)?.is_some_and(header::is_stateless) => {
                Err(Refusal::method("POST"))
            }
            Method::GET => {
                header::check_get(headers)?;
                Ok(self.follow(&self.session(headers, &principal)?))
            }
            Method::DELETE => {
                self.sessions.end(&*self.session(headers, &principal)?);
                Ok(empty(StatusCode::NO_CONTENT))
            }
            _ => Err(Refusal::method("GET, POST, DELETE")),
        }
    }

    /// The session that a request belongs to.
    fn session(&self, headers: &HeaderMap, principal: &Principal) -> Result<Arc<HttpSession>, Refusal> {
        let Some(id) = header::one(headers, header::SESSION)? else {
            let text = "the header `Mcp-Session-Id` is needed; the answer to `initialize` has it";
            return Err(Refusal::because(StatusCode::BAD_REQUEST, text));
        };
        self.sessions.get(id, principal).ok_or_else(|| {
            let text = "there is no such session, or it has ended; call `initialize` for another";
            Refusal::server(StatusCode::NOT_FOUND, text)
        })
    }

    /// Handles one message.
    async fn take(
        self: &Arc<Self>,
        headers: &HeaderMap,
        principal: &Principal,
        message: &Bytes,
    ) -> Result<Response, Refusal> {
        match read(message).map_err(|(id, error)| Refusal::new(StatusCode::BAD_REQUEST, error).of(id))? {
            Message::Call(id, call) => {
                self.call(headers, principal, &id, call).await.map_err(|refusal| refusal.of(id))
            }
            Message::List { id, meta, has_cursor } => self
                .list(headers, principal, &id, meta.as_ref(), has_cursor)
                .map_err(|refusal| refusal.of(id)),
            Message::Request { id, method, meta, params } => self
                .request(headers, principal, (&id, &method, meta.as_ref()), params.as_ref())
                .map_err(|refusal| refusal.of(id)),
            Message::Cancel(_) | Message::Notification | Message::Response { .. }
                if header::version(headers)?.is_some_and(header::is_stateless) =>
            {
                // Without a session, a client cancels a call by closing its request.
                Ok(empty(StatusCode::ACCEPTED))
            }
            Message::Cancel(id) => {
                self.session(headers, principal)?.open.cancel(&id);
                Ok(empty(StatusCode::ACCEPTED))
            }
            Message::Response { id, outcome } => {
                self.session(headers, principal)?.open.questions.take(id.as_ref(), outcome.as_ref());
                Ok(empty(StatusCode::ACCEPTED))
            }
            Message::Notification => {
                self.session(headers, principal)?;
                Ok(empty(StatusCode::ACCEPTED))
            }
        }
    }

    /// The session or client of a request, and the form of the response.
    fn meet(
        &self,
        headers: &HeaderMap,
        principal: &Principal,
        (method, tool): (&str, Option<&str>),
        meta: Option<&RawJson>,
    ) -> Result<Asker, Refusal> {
        let version = meta.and_then(version_of);
        let is_sessionless = header::check_request(headers, version.as_deref(), method, tool)?;
        let session = if is_sessionless { None } else { Some(self.session(headers, principal)?) };
        let mut asker =
            Asker { session, protocol: Protocol::new(self.info.clone(), None), era: Era::Stateless };
        asker.era = asker.protocol(|protocol| protocol.era(meta)).map_err(|error| asker.refusal(error))?;
        Ok(asker)
    }

    async fn call(
        self: &Arc<Self>,
        headers: &HeaderMap,
        principal: &Principal,
        id: &RpcId,
        mut call: CallParams,
    ) -> Result<Response, Refusal> {
        let tool = Some(call.name.as_str());
        let mut asker = self.meet(headers, principal, ("tools/call", tool), call.meta.as_ref())?;
        if asker.era == Era::Stateless
            && let Some(tool) = self.runner.dispatcher.source().tools().get(&call.name)
        {
            header::check_arguments(headers, tool, &call.arguments)?;
        }
        let era = asker.era;
        let (caller, can_ask) = asker.protocol(|protocol| (protocol.caller(), protocol.can_ask(era)));
        let mut meta = CallMeta { caller, can_ask, ..read_meta(call.meta.take().as_ref()) };
        if meta.traceparent.is_none() {
            let header = headers.get("traceparent").and_then(|parent| parent.to_str().ok());
            meta.traceparent = header.and_then(|parent| parent.parse().ok());
        }
        let session = asker.session.clone();
        let cancelled = session.as_ref().map_or(&self.runner.ended, |session| &session.ended).child_token();
        let open = session.as_ref().map(|session| Arc::clone(&session.open)).unwrap_or_default();
        let (response, responder) = CallResponse::new(self, session, &cancelled);
        let (id, progress_token) = (id.clone(), meta.progress_token.clone());
        let request = CallRequest { era, id, progress_token, responder, open, cancelled };
        let principal = principal.clone();
        if let Some(retry) = call.retry.take().filter(|_| era == Era::Stateless) {
            let retried = self.runner.retry(&call.name, retry, &principal, request);
            retried.map_err(|error| asker.refusal(error))?;
        } else {
            let run = self.runner.start(call, meta, principal, request).map_err(|refused| match refused {
                Refused::Full(text) => Refusal::busy(text),
                Refused::Wrong(error) => Refusal::new(StatusCode::OK, error),
            })?;
            self.calls.spawn(run.in_current_span());
        }
        Ok(response.response().await)
    }

    fn list(
        &self,
        headers: &HeaderMap,
        principal: &Principal,
        id: &RpcId,
        meta: Option<&RawJson>,
        has_cursor: bool,
    ) -> Result<Response, Refusal> {
        let asker = self.meet(headers, principal, ("tools/list", None), meta)?;
        if has_cursor {
            let text = "the list has one page, so there is no such `cursor`";
            return Err(Refusal::new(StatusCode::OK, invalid_params(text)));
        }
        let (tools, list) = self.runner.list(id);
        if let Some(session) = &asker.session {
            session.see(tools);
        }
        self.answered(id, asker.era, LIST_CACHE_HINTS, &list)
    }

    /// Answers a request other than `tools/call` and `tools/list`.
    fn request(
        &self,
        headers: &HeaderMap,
        principal: &Principal,
        (id, method, meta): (&RpcId, &str, Option<&RawJson>),
        params: Option<&RawJson>,
    ) -> Result<Response, Refusal> {
        let version = meta.and_then(version_of);
        if method == "initialize" && !version.as_deref().is_some_and(header::is_stateless) {
            return self.initialize(headers, principal, (id, meta), params);
        }
        let mut asker = self.meet(headers, principal, (method, None), meta)?;
        if method == "subscriptions/listen" && asker.era == Era::Stateless {
            let mut subscription = Subscriptions::default();
            let first = subscription.open(id, params).map_err(|error| asker.refusal(error))?;
            return Ok(ChangeStream {
                first: Some(first.into()),
                changes: self.runner.dispatcher.source().changes(),
                notification: subscription.tools_changed().next().map(Bytes::from),
                ended: self.runner.ended.child_token(),
                closing: self.closing.clone(),
                session: None,
            }
            .response());
        }
        if method == "initialize" {
            let text = "there is no `initialize` in this version: every request carries its own metadata";
            return Err(asker.refusal(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, text, None)));
        }
        let result = asker
            .protocol(|protocol| protocol.answer(method, meta, params))
            .map_err(|error| asker.refusal(error))?;
        self.answered(id, Era::Initialize, "", &result)
    }

    /// Opens a session.
    fn initialize(
        &self,
        headers: &HeaderMap,
        principal: &Principal,
        (id, meta): (&RpcId, Option<&RawJson>),
        params: Option<&RawJson>,
    ) -> Result<Response, Refusal> {
        let mut protocol = Protocol::new(self.info.clone(), None).lasting();
        let result = protocol
            .answer("initialize", meta, params)
            .map_err(|error| Refusal::new(StatusCode::OK, error))?;
        let asked = params.and_then(|params| params.member::<String>("protocolVersion"));
        if let (Some(named), Some(asked)) = (header::named_version(headers)?, asked)
            && named != asked
        {
            let text = format!(
                "the header `MCP-Protocol-Version` names `{named}`, and `initialize` asks for `{asked}`"
            );
            return Err(Refusal::because(StatusCode::BAD_REQUEST, text));
        }
        let Some(session) = self.sessions.open(protocol, principal.clone(), &self.runner.ended) else {
            let text = format!("{} sessions are in use, which is the limit", self.limits.sessions);
            return Err(Refusal::busy(text));
        };
        let mut response = self.answered(id, Era::Initialize, "", &result)?;
        if let Ok(id) = HeaderValue::from_str(&session.id) {
            response.headers_mut().insert(header::SESSION, id);
        }
        Ok(response)
    }

    fn answered(&self, id: &RpcId, era: Era, members: &str, result: &RawJson) -> Result<Response, Refusal> {
        let Some(share) = self.answers.now(result.as_bytes().len()) else {
            return Err(Refusal::busy(NO_ROOM));
        };
        let answer = answer_parts(id, era, members, result).concat();
        Ok(json(StatusCode::OK, share.hold(answer.into())))
    }

    /// The stream of a session, which notifies of changes.
    fn follow(&self, session: &Arc<HttpSession>) -> Response {
        // Before the list is read, so that no change is missed.
        let changes = self.runner.dispatcher.source().changes();
        let (ended, has_changed) = session.open_stream(&self.runner.dispatcher.source().tools());
        ChangeStream {
            first: has_changed.then(|| LIST_CHANGED.into()),
            changes,
            notification: Some(LIST_CHANGED.into()),
            ended,
            closing: self.closing.clone(),
            session: Some(Arc::clone(session)),
        }
        .response()
    }
}

/// The sender of a request.
struct Asker {
    session: Option<Arc<HttpSession>>,
    /// For a request without a session.
    protocol: Protocol,
    era: Era,
}

impl Asker {
    fn protocol<T>(&mut self, then: impl FnOnce(&mut Protocol) -> T) -> T {
        match &self.session {
            Some(session) => session.with_protocol(then),
            None => then(&mut self.protocol),
        }
    }

    /// A protocol error. In sessions the status is always 200; in later versions it depends on the error.
    fn refusal(&self, error: ErrorData) -> Refusal {
        let status = match error.code {
            _ if self.session.is_some() => StatusCode::OK,
            ErrorCode::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
            _ => StatusCode::BAD_REQUEST,
        };
        Refusal::new(status, error)
    }
}
