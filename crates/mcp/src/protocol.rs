//! The protocol's half: rmcp behind a pair of channels.
//!
//! rmcp answers everything but `tools/call` and `tools/list`, and knows the versions. Requests go through
//! it one at a time, so what follows an `initialize` finds it done; their answers are written on the side.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientJsonRpcMessage, CompleteRequestMethod,
    CompleteRequestParams, CompleteResult, ConstString, CustomRequest, CustomResult, ErrorCode,
    Implementation, JsonRpcMessage, ListPromptsRequestMethod, ListPromptsResult,
    ListResourceTemplatesRequestMethod, ListResourceTemplatesResult, ListResourcesRequestMethod,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ProtocolVersion, ServerCapabilities,
    ServerConfig, ServerJsonRpcMessage, ServerResult,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::Transport;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use toolbridge_core::RawJson;

use crate::line::Outgoing;
use crate::rpc::{Era, RpcError};

/// Requests that may wait for rmcp, and answers of it that may wait for a client that does not read.
const WAITING_REQUESTS: usize = 64;

/// How the server introduces itself.
#[derive(Debug, Clone)]
pub struct ServerInfo {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What a model should know before it uses the tools.
    pub instructions: Option<String>,
}

impl Default for ServerInfo {
    fn default() -> Self {
        Self {
            name: "toolbridge".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            instructions: Some("These tools run inside a live process, with its state.".into()),
        }
    }
}

/// rmcp, running; dropping it ends it.
pub(crate) struct Protocol {
    requests: mpsc::Sender<ClientJsonRpcMessage>,
    state: Arc<State>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    /// The client has called `initialize` and got its answer.
    initialized: AtomicBool,
    /// A request has been answered.
    answered: Notify,
    /// Answers that are made and not written.
    unwritten: AtomicUsize,
}

/// The part of a request's `_meta` that says which protocol it speaks.
#[derive(Default, Deserialize)]
struct VersionMeta<'a> {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<ProtocolVersion>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<&'a RawValue>,
}

impl Protocol {
    pub(crate) fn start(info: ServerInfo, outgoing: impl Outgoing) -> Self {
        let (requests, incoming) = mpsc::channel(WAITING_REQUESTS);
        let state = Arc::new(State::default());
        let channel = Channel { incoming, outgoing, state: Arc::clone(&state) };
        let task = tokio::spawn(async move {
            match rmcp::serve_server(Handler { info }, channel).await {
                Ok(running) => _ = running.waiting().await,
                Err(error) => tracing::debug!(%error, "the client left before it initialized"),
            }
        });
        Self { requests, state, task }
    }

    /// The shape of results for a request with this `_meta`; `None` when the protocol forbids the request,
    /// and rmcp is to say why.
    pub(crate) fn era(&self, meta: Option<&RawJson>) -> Option<Era> {
        let initialized = self.state.initialized.load(Ordering::Relaxed);
        let meta: VersionMeta<'_> = match meta {
            // The keys are too long to be spelt with escapes by accident.
            Some(meta) if memchr::memmem::find(meta.as_bytes(), b"modelcontextprotocol/").is_some() => {
                serde_json::from_str(meta.as_str()).ok()?
            }
            _ => VersionMeta::default(),
        };
        let Some(version) = meta.version else { return initialized.then_some(Era::Initialize) };
        if !ProtocolVersion::KNOWN_VERSIONS.contains(&version) {
            return None;
        }
        let stateless = version.as_str() >= ProtocolVersion::V_2026_07_28.as_str();
        let capable = || {
            meta.capabilities.is_some_and(|capabilities| {
                serde_json::from_str::<ClientCapabilities>(capabilities.get()).is_ok()
            })
        };
        // A request that does not lean on `initialize` must bring everything itself.
        if (stateless || !initialized) && !capable() {
            return None;
        }
        Some(if stateless { Era::Stateless } else { Era::Initialize })
    }

    /// Lets rmcp answer a request, and waits until it has made the answer.
    ///
    /// # Errors
    ///
    /// When rmcp cannot read it, or has too many waiting.
    pub(crate) async fn request(&mut self, line: &[u8]) -> Result<(), RpcError> {
        /// It answers at once, unless it is itself stuck with a client that does not read.
        const PATIENCE: Duration = Duration::from_secs(1);
        let request = serde_json::from_slice(line)
            .map_err(|error| RpcError::invalid_params(format!("the request cannot be read: {error}")))?;
        // rmcp itself would make answers without end for a client that does not read them.
        let is_full = self.state.unwritten.load(Ordering::Relaxed) >= WAITING_REQUESTS;
        if is_full || self.requests.try_send(request).is_err() {
            let reason = format!("{WAITING_REQUESTS} requests wait for an answer, which is the limit");
            return Err(RpcError::invalid_request(reason));
        }
        _ = tokio::time::timeout(PATIENCE, self.state.answered.notified()).await;
        Ok(())
    }

    /// Lets rmcp write what it still has to.
    pub(crate) async fn finish(&mut self) {
        // Without a sender its input has ended.
        self.requests = mpsc::channel(1).0;
        _ = (&mut self.task).await;
    }

    /// Hands rmcp a notification. Before `initialize` there is nothing it could be about.
    pub(crate) fn notify(&self, line: &[u8]) {
        if !self.state.initialized.load(Ordering::Relaxed) {
            return;
        }
        match serde_json::from_slice(line) {
            Ok(notification) => _ = self.requests.try_send(notification),
            Err(error) => tracing::debug!(%error, "ignored a notification that cannot be read"),
        }
    }
}

impl Drop for Protocol {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What rmcp takes for a transport.
struct Channel<O> {
    incoming: mpsc::Receiver<ClientJsonRpcMessage>,
    outgoing: O,
    state: Arc<State>,
}

impl<O: Outgoing> Transport<RoleServer> for Channel<O> {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let JsonRpcMessage::Response(response) = &message
            && matches!(response.result, ServerResult::InitializeResult(_))
        {
            self.state.initialized.store(true, Ordering::Relaxed);
        }
        // Made is enough: whether the client reads it is no reason to keep the next message waiting.
        let is_answer = matches!(message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_));
        if is_answer {
            self.state.answered.notify_one();
            self.state.unwritten.fetch_add(1, Ordering::Relaxed);
        }
        let (outgoing, state) = (self.outgoing.clone(), Arc::clone(&self.state));
        async move {
            let sent = outgoing.send(b"", &serde_json::to_vec(&message)?, b"").await;
            if is_answer {
                state.unwritten.fetch_sub(1, Ordering::Relaxed);
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.incoming.recv().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

#[derive(Clone)]
struct Handler {
    info: ServerInfo,
}

/// What comes here says a protocol version that we could not read or serve, and rmcp passed over it.
fn odd_version<T>() -> Result<T, ErrorData> {
    let message = "the protocol version or the client's capabilities in `_meta` cannot be used";
    Err(ErrorData::invalid_params(message, None))
}

/// rmcp answers these with empty lists by default; we offer neither prompts nor resources.
fn not_offered<M: ConstString, T>() -> Result<T, ErrorData> {
    Err(ErrorData::method_not_found::<M>())
}

impl rmcp::ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let config = ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new(&self.info.name, &self.info.version));
        match &self.info.instructions {
            Some(instructions) => config.with_instructions(instructions),
            None => config,
        }
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS)
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        odd_version()
    }

    /// By default an empty list: a model would have no tools, and nobody would know why.
    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        odd_version()
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        not_offered::<CompleteRequestMethod, _>()
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        not_offered::<ListPromptsRequestMethod, _>()
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        not_offered::<ListResourcesRequestMethod, _>()
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        not_offered::<ListResourceTemplatesRequestMethod, _>()
    }

    /// rmcp takes a known method whose parameters it cannot read for an unknown one.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        const OFFERED: [&str; 5] = ["initialize", "ping", "server/discover", "tools/call", "tools/list"];
        if OFFERED.contains(&request.method.as_str()) {
            let message = format!("the parameters of `{}` cannot be read", request.method);
            return Err(ErrorData::invalid_params(message, None));
        }
        let message = format!("unknown method `{}`", request.method);
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, message, None))
    }
}
