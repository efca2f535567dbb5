//! The connection to a running server.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::ipc::child::Group;
use crate::trace::Outcome;
use crate::{CallContext, CallMeta, RawJson, ToolCall, ToolError, ToolList};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam, ClientRequest,
    ErrorData, ListToolsRequest, PaginatedRequestParams, RequestId, RequestMetaObject, ServerPeerInfo,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient, ServiceError};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::client::exchange::{Exchange, Raw};
use crate::client::lines::Stdin;
use crate::client::list::{MAX_PAGES, Page, tool_list};

/// How long to wait for the reason of a connection's end.
const END_REASON_TIMEOUT: Duration = Duration::from_secs(3);

/// One connection, until it ends. All calls go through it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) server: Arc<str>,
    pub(crate) peer: Peer<RoleClient>,
    pub(crate) exchange: Arc<Exchange>,
    /// Requests whose answer is no longer needed.
    pub(crate) unwanted: mpsc::UnboundedSender<RequestId>,
    /// Receives the reason when a connection without a process stops working.
    pub(crate) broken: mpsc::UnboundedSender<String>,
    /// The reason of the end, once it has ended.
    pub(crate) end: watch::Receiver<Option<Arc<str>>>,
    /// The process, if there is one.
    pub(crate) child: Option<ChildEnd>,
}

/// What calls need to know of a server's process.
#[derive(Debug)]
pub(crate) struct ChildEnd {
    pub(crate) group: Arc<Group>,
    /// Weak: dropping the connection closes stdin.
    pub(crate) stdin: Weak<Stdin>,
}

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestError {
    /// The server answered with an error.
    #[error("it answered with the error {}: {}", .0.code.0, .0.message)]
    Refused(ErrorData),
    /// The server has ended.
    #[error("it ended: {why}")]
    Ended {
        why: Arc<str>,
        /// Whether the server has read nothing of the request.
        is_unread: bool,
    },
    /// Any other failure.
    #[error("{0}")]
    Failed(String),
}

impl Connection {
    /// Whether the connection has ended, even if the reason is not known yet.
    pub(crate) fn is_over(&self) -> bool {
        self.end.borrow().is_some() || self.child.as_ref().is_some_and(|child| child.group.has_ended())
    }

    /// The server info.
    pub(crate) fn info(&self) -> Option<Arc<ServerPeerInfo>> {
        self.peer.peer_info()
    }

    /// Calls a tool. Dropping the future cancels the call and notifies the server.
    ///
    /// Returns `None` when the server has ended without having read the call.
    pub(crate) async fn call(
        &self,
        call: ToolCall,
        context: CallContext,
    ) -> Option<Result<RawJson, ToolError>> {
        let ToolCall { name, arguments, meta } = call;
        let progress = meta.progress_token.is_some().then(|| context.clone());
        context.mark_sent();
        let answer = if let Some(child) = &self.child {
            self.pass(child, &name, &arguments, about(&meta), progress).await
        } else {
            // rmcp also sends some of the arguments as headers, if the server asks for that.
            let mut params = CallToolRequestParams::new(name.clone());
            params.arguments = arguments.decode().ok();
            let mut request = CallToolRequest::new(params);
            request.extensions.insert(Raw { arguments: Some(arguments), progress });
            self.ask(ClientRequest::CallToolRequest(request), about(&meta)).await
        };
        context.mark_answered();
        let server = &self.server;
        Some(match answer {
            Ok(result) => result.into_result().map_err(|flaw| {
                let reason = format!("what the MCP server `{server}` sent cannot be used: {flaw}");
                ToolError::Output { tool: name, reason }
            }),
            Err(RequestError::Refused(error)) => Err(ToolError::new(
                "McpError",
                format!("MCP server `{server}` answered with the error {}: {}", error.code.0, error.message),
            )),
            Err(RequestError::Ended { is_unread: true, .. }) => return None,
            Err(RequestError::Ended { why, .. }) => Err(failed(format!(
                "MCP server `{server}` ended while the call was under way, and is started again: {why}"
            ))),
            Err(RequestError::Failed(why)) => Err(failed(format!("MCP server `{server}`: {why}"))),
        })
    }

    /// Lists all tools.
    pub(crate) async fn list(&self) -> Result<ToolList, RequestError> {
        let mut tools = Vec::new();
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let mut request = ListToolsRequest::with_param(params);
            request.extensions.insert(Raw::default());
            let page = self.ask(ClientRequest::ListToolsRequest(request), RequestMetaObject::new()).await?;
            let unread = |error| RequestError::Failed(format!("its list of tools cannot be read: {error}"));
            let page: Page = page.decode().map_err(unread)?;
            tools.extend(page.tools);
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(tool_list(&self.server, &tools));
            }
        }
        Err(RequestError::Failed(format!("its list of tools has more than {MAX_PAGES} pages")))
    }

    /// Lists all tools after a start.
    pub(crate) async fn first_list(&self) -> Result<ToolList, RequestError> {
        let has_tools = self.info().is_none_or(|info| info.capabilities.tools.is_some());
        match self.list().await {
            // A server without tools may not know `tools/list`.
            Err(RequestError::Refused(_)) if !has_tools => Ok(ToolList::default()),
            list => list,
        }
    }

    /// Makes a call without rmcp, whose event loop would take most of a call's time. Only a line has to be
    /// written.
    async fn pass(
        &self,
        child: &ChildEnd,
        name: &str,
        arguments: &RawJson,
        about: RequestMetaObject,
        progress: Option<CallContext>,
    ) -> Result<RawJson, RequestError> {
        let written = self.exchange.call(name, arguments, about, progress);
        let (line, id, answer) = written.map_err(|error| RequestError::Failed(error.to_string()))?;
        let mut waiting = Waiting { connection: self, id: Some(id.clone()) };
        let Some(stdin) = child.stdin.upgrade() else {
            waiting.answered();
            return Err(RequestError::Ended { why: self.why().await, is_unread: true });
        };
        self.exchange.set_offset(&id, stdin.write(line));
        // A waiting call must not keep stdin open.
        drop(stdin);
        let mut end = self.end.clone();
        let answer = tokio::select! {
            biased;
            answer = answer => answer.ok(),
            _ = end.wait_for(Option::is_some) => None,
        };
        let Some(answer) = answer else { return Err(self.ended(waiting).await) };
        waiting.answered();
        answer.map_err(RequestError::Refused)
    }

    /// The error of a request whose connection has ended.
    async fn ended(&self, mut waiting: Waiting<'_>) -> RequestError {
        let why = self.why().await;
        let is_unread = waiting.id.as_ref().is_some_and(|id| self.exchange.is_unread(id));
        waiting.answered();
        RequestError::Ended { why, is_unread }
    }

    async fn ask(&self, request: ClientRequest, meta: RequestMetaObject) -> Result<RawJson, RequestError> {
        let options = PeerRequestOptions::no_options().with_meta(meta);
        let Ok(handle) = self.peer.send_request_with_option(request, options).await else {
            // It was not sent at all.
            return Err(RequestError::Ended { why: self.why().await, is_unread: true });
        };
        let mut waiting = Waiting { connection: self, id: Some(handle.id.clone()) };
        let mut end = self.end.clone();
        let answer = tokio::select! {
            biased;
            answer = handle.rx => Some(answer),
            _ = end.wait_for(Option::is_some) => None,
        };
        match answer {
            Some(Ok(Ok(_))) => {
                waiting.answered().ok_or_else(|| RequestError::Failed("its answer was lost".into()))
            }
            Some(Ok(Err(ServiceError::TransportClosed)) | Err(_)) | None => Err(self.ended(waiting).await),
            Some(Ok(Err(error))) => {
                waiting.answered();
                Err(match error {
                    ServiceError::McpError(error) => RequestError::Refused(error),
                    ServiceError::TransportSend(error) => {
                        let why = crate::client::open::explain(error.error.as_ref());
                        // Over HTTP: the next call makes a new connection.
                        _ = self.broken.send(why.clone());
                        RequestError::Failed(format!("{why}; reconnecting"))
                    }
                    error => RequestError::Failed(error.to_string()),
                })
            }
        }
    }

    /// The reason of the connection's end, once it is known.
    async fn why(&self) -> Arc<str> {
        let mut end = self.end.clone();
        let known = tokio::time::timeout(END_REASON_TIMEOUT, end.wait_for(Option::is_some)).await;
        let why = known.ok().and_then(Result::ok).and_then(|why| why.clone());
        why.unwrap_or_else(|| "the connection was closed".into())
    }

    /// Sends a cancellation for each request whose answer is no longer needed.
    pub(crate) async fn send_cancellations(
        peer: Peer<RoleClient>,
        mut unwanted: mpsc::UnboundedReceiver<RequestId>,
    ) {
        let mut telling = JoinSet::new();
        loop {
            let id = tokio::select! {
                id = unwanted.recv() => id,
                Some(_) = telling.join_next() => continue,
            };
            let Some(id) = id else { return };
            let notification = CancelledNotification::new(CancelledNotificationParam::new(Some(id), None));
            let peer = peer.clone();
            telling.spawn(async move { peer.send_notification(notification.into()).await });
        }
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

/// A request without an answer so far. Dropping it sends a cancellation to the server.
struct Waiting<'a> {
    connection: &'a Connection,
    id: Option<RequestId>,
}

impl Waiting<'_> {
    fn answered(&mut self) -> Option<RawJson> {
        self.connection.exchange.take(&self.id.take()?)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.connection.exchange.take(&id);
            _ = self.connection.unwanted.send(id);
        }
    }
}
