//! The connection to a running server.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientRequest, ErrorData, ListToolsRequest,
    PaginatedRequestParams, RequestMetaObject, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RoleClient, ServiceError};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::client::ServerFault;
use crate::client::http::HttpError;
use crate::client::interceptor::{Interceptor, text_of};
use crate::process::child::Group;
use crate::tool::lock::lock;
use crate::trace::Outcome;
use crate::{Budget, CallContext, CallMeta, CancellationToken, RawJson, ToolCall, ToolError, ToolList};

/// How long to wait for the reason of a connection's end.
const END_REASON_TIMEOUT: Duration = Duration::from_secs(3);

/// The limit of pages in a list of tools; a longer list is treated as an endless one.
const MAX_PAGES: usize = 1000;

/// A server's process that leaves more bytes of messages unread gets no further calls.
const MAX_UNREAD_BYTES: usize = 256 * 1024 * 1024;

/// The limit of results that the callers have not read.
const MAX_RESULT_BYTES: usize = 128 * 1024 * 1024;

/// One connection, until it ends.
#[derive(Debug)]
pub(crate) struct ServerConnection {
    pub(crate) server: Arc<str>,
    pub(crate) peer: Peer<RoleClient>,
    pub(crate) interceptor: Arc<Interceptor>,
    /// The reason of its end, once it has ended.
    pub(crate) end: watch::Sender<Option<Arc<str>>>,
    /// The process, if there is one.
    pub(crate) process: Option<Arc<Group>>,
    results: Budget,
}

/// Why a request has no result: what the server did.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    #[error("answered with the error {}: {}", .0.code.0, .0.message)]
    Refused(ErrorData),
    #[error("ended while the call was under way, and is started again: {0}")]
    Ended(Arc<str>),
    #[error("ended before it was asked: {0}")]
    Unsent(Arc<str>),
    #[error("cannot be used: {0}")]
    Failed(String),
}

impl From<RequestError> for ServerFault {
    fn from(error: RequestError) -> Self {
        Self::Protocol(format!("it {error}"))
    }
}

impl ServerConnection {
    pub(crate) fn new(
        server: Arc<str>,
        peer: Peer<RoleClient>,
        interceptor: Arc<Interceptor>,
        process: Option<Arc<Group>>,
    ) -> Self {
        let (end, results) = (watch::Sender::default(), Budget::new(MAX_RESULT_BYTES));
        Self { server, peer, interceptor, end, process, results }
    }

    /// Whether the connection has ended, even if the reason is not known yet.
    pub(crate) fn is_over(&self) -> bool {
        self.end.borrow().is_some() || self.process.as_ref().is_some_and(|process| process.has_ended())
    }

    /// Calls a tool; `None` if the server ended before the call was written to it. Dropping the future cancels the call
    /// and notifies the server.
    pub(crate) async fn call(
        &self,
        call: ToolCall,
        context: CallContext,
    ) -> Option<Result<RawJson, ToolError>> {
        let ToolCall { name, arguments, meta } = call;
        let unread = self.interceptor.unread.load(Ordering::Relaxed);
        if unread > MAX_UNREAD_BYTES {
            let text = format!(
                "MCP server `{}` has not read {unread} bytes of earlier calls; try again when it has",
                self.server
            );
            return Some(Err(failed(text)));
        }
        let mut params = CallToolRequestParams::new(name.clone());
        match arguments.decode() {
            Ok(arguments) => params.arguments = Some(arguments),
            Err(error) => {
                let text = format!("the arguments cannot be passed on: {error}");
                return Some(Err(ToolError::new("McpError", text)));
            }
        }
        let progress = meta.progress_token.is_some().then(|| context.clone());
        context.mark_sent();
        let answer = self.request(CallToolRequest::new(params).into(), about(&meta), progress).await;
        context.mark_answered();
        let server = &self.server;
        Some(match answer {
            Ok(result) => match result.into_result() {
                Ok(result) => self.held(result),
                Err(flaw) => {
                    let reason = format!("what the MCP server `{server}` sent cannot be used: {flaw}");
                    Err(ToolError::Output { tool: name, reason })
                }
            },
            Err(error @ RequestError::Refused(_)) => {
                Err(ToolError::new("McpError", format!("MCP server `{server}` {error}")))
            }
            Err(RequestError::Unsent(_)) => return None,
            Err(error) => Err(failed(format!("MCP server `{server}` {error}"))),
        })
    }

    /// Counts a result until it has been read.
    fn held(&self, result: RawJson) -> Result<RawJson, ToolError> {
        let (server, size) = (&self.server, result.as_bytes().len());
        self.results.hold(result, size).ok_or_else(|| {
            let limit =
                format!("{MAX_RESULT_BYTES} bytes of its results wait to be read, which is the limit");
            failed(format!("the result of MCP server `{server}` is dropped: {limit}; this one has {size}"))
        })
    }

    /// Lists all tools.
    pub(crate) async fn list(&self) -> Result<ToolList, RequestError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Page {
            tools: Vec<RawJson>,
            next_cursor: Option<String>,
        }
        let (mut tools, mut cursor) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let request = ListToolsRequest::with_param(params).into();
            let page = match self.request(request, RequestMetaObject::new(), None).await {
                // A server without tools may not know `tools/list`.
                Err(RequestError::Refused(_)) if !self.has_tools() => return Ok(ToolList::default()),
                page => page?,
            };
            let page: Page = page.decode().map_err(|error| {
                RequestError::Failed(format!("its list of tools cannot be read: {error}"))
            })?;
            tools.extend(page.tools);
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(ToolList::of_listed(&self.server, &tools));
            }
        }
        Err(RequestError::Failed(format!("its list of tools has more than {MAX_PAGES} pages")))
    }

    fn has_tools(&self) -> bool {
        self.peer.peer_info().is_none_or(|info| info.capabilities.tools.is_some())
    }

    async fn request(
        &self,
        request: ClientRequest,
        meta: RequestMetaObject,
        progress: Option<CallContext>,
    ) -> Result<RawJson, RequestError> {
        let options = PeerRequestOptions::no_options().with_meta(meta);
        let (answer, was_written) = match self.peer.send_request_with_option(request, options).await {
            Ok(handle) => self.answer(handle, progress).await,
            Err(error) => (Err(error), false),
        };
        match answer {
            Ok(result) => text_of(result).map_err(|error| RequestError::Failed(error.to_string())),
            Err(ServiceError::McpError(error)) => Err(RequestError::Refused(error)),
            Err(ServiceError::TransportSend(error)) => {
                let why = match error.error.downcast_ref() {
                    Some(HttpError::Client(error)) => error.to_string(),
                    _ => error.error.to_string(),
                };
                // The next call makes a new connection.
                self.end.send_if_modified(|end| end.replace(why.as_str().into()).is_none());
                Err(RequestError::Failed(format!("{why}; reconnecting")))
            }
            Err(_) if was_written || self.process.is_none() => {
                Err(RequestError::Ended(self.why_ended().await))
            }
            Err(_) => Err(RequestError::Unsent(self.why_ended().await)),
        }
    }

    /// Waits for the answer to a request, and says whether it was written to the server's process. Dropping the future
    /// cancels the request.
    async fn answer(
        &self,
        mut handle: RequestHandle<RoleClient>,
        progress: Option<CallContext>,
    ) -> (Result<ServerResult, ServiceError>, bool) {
        let (dropped, interceptor) = (CancellationToken::new(), Arc::clone(&self.interceptor));
        let _guard = dropped.clone().drop_guard();
        if let Some(context) = progress {
            lock(&interceptor.reports).insert(handle.progress_token.clone(), context);
        }
        let waiting = tokio::spawn(async move {
            let answer = tokio::select! {
                biased;
                answer = &mut handle.rx => Some(answer),
                () = dropped.cancelled() => None,
            };
            lock(&interceptor.reports).remove(&handle.progress_token);
            let was_written = lock(&interceptor.written).remove(&handle.id);
            let answer = match answer {
                Some(answer) => answer.unwrap_or(Err(ServiceError::TransportClosed)),
                None => handle.cancel(None).await.and(Err(ServiceError::TransportClosed)),
            };
            (answer, was_written)
        });
        waiting.await.unwrap_or((Err(ServiceError::TransportClosed), true))
    }

    /// The reason of the connection's end, once it is known.
    async fn why_ended(&self) -> Arc<str> {
        let mut end = self.end.subscribe();
        let known = timeout(END_REASON_TIMEOUT, end.wait_for(Option::is_some)).await;
        let why = known.ok().and_then(Result::ok).and_then(|why| why.clone());
        why.unwrap_or_else(|| "the connection was closed".into())
    }
}

/// The `_meta` of a call.
fn about(meta: &CallMeta) -> RequestMetaObject {
    let mut about = RequestMetaObject::new();
    if let Some(parent) = &meta.traceparent {
        about.set_traceparent(parent.to_string());
    }
    if let Some(id) = &meta.tool_use_id {
        about.insert("claudecode/toolUseId".into(), id.clone().into());
    }
    about
}

/// The error of a call that did not reach its tool, or whose answer was lost.
pub(crate) fn failed(message: String) -> ToolError {
    ToolError::new("McpServerError", message).called(Outcome::TransportError)
}
