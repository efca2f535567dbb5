//! Opens a connection to a server, and notices its end.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    ClientCapabilities, ClientConfig, ClientJsonRpcMessage, ClientNotification, DiscoverRequest,
    DiscoverRequestParams, Implementation, InitializeRequest, InitializedNotification, JsonRpcMessage,
    NumberOrString, ProtocolVersion, RequestMetaObject, ServerPeerInfo, ServerResult, SubscriptionFilter,
};
use rmcp::service::{Peer, RoleClient, serve_directly};
use rmcp::transport::Transport;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::ToolList;
use crate::client::ServerFault;
use crate::client::connection::{RequestError, ServerConnection};
use crate::client::http::{HttpError, connect};
use crate::client::interceptor::Interceptor;
use crate::client::lines::Lines;
use crate::client::process::{SECOND_END_TIMEOUT, ServerExit, ServerProcess, exited};
use crate::client::target::Target;
use crate::process::child::Group;

/// How long a command may leave `server/discover` unanswered before it gets `initialize` too.
const DISCOVER_PATIENCE: Duration = Duration::from_secs(10);

/// The pause before a subscription to changes is retried.
const SUBSCRIBE_AGAIN: Duration = Duration::from_secs(5);

/// The ids of the first requests; rmcp counts from 0.
const DISCOVER: NumberOrString = NumberOrString::Number(1_000_000);
const INITIALIZE: NumberOrString = NumberOrString::Number(1_000_001);

/// A connection and its tasks. Dropping it closes the connection.
pub(crate) struct Link {
    pub(crate) connection: Arc<ServerConnection>,
    _subscribing: Option<AbortOnDropHandle<()>>,
    /// rmcp's event loop; it ends with the transport, and the transport with it.
    service: Pin<Box<dyn Future<Output = ()> + Send>>,
    exit: Option<ServerExit>,
}

/// Starts a server or connects to it, and lists its tools. Dropping the process ends it.
///
/// The handshake begins with `server/discover`, and continues with `initialize` if the server does not know that;
/// unless `discovers`, only with `initialize`, as in all versions before 2026-07-28.
pub(crate) async fn open(
    server: &Arc<str>,
    target: &Target,
    limit: Duration,
    discovers: bool,
) -> Result<(Link, ToolList, Option<ServerProcess>), ServerFault> {
    let (mut process, mut exit) = (None, None);
    let handshake = match target {
        Target::Url(target) => {
            let interceptor = Arc::new(Interceptor::over_http());
            let transport = connect(target, Arc::clone(&interceptor))?;
            let fault = |error| match error {
                HttpError::Client(error) => ServerFault::Connect { url: target.shown.clone(), error },
                error => ServerFault::Protocol(error.to_string()),
            };
            // rmcp sends nothing more to a URL before it has answered.
            let patience = discovers.then_some(limit);
            timeout(limit, begin(server, transport, interceptor, None, patience, fault)).await
        }
        Target::Command(command) => {
            let started = ServerProcess::start(command.command());
            let (started, pipes) = started.map_err(|error| command.cannot_start(error))?;
            let interceptor = Arc::<Interceptor>::default();
            let lines = Lines::new(Arc::clone(server), Arc::clone(&interceptor), pipes.stdin, pipes.stdout);
            let (group, patience) = (Some(started.group()), discovers.then_some(DISCOVER_PATIENCE));
            let handshake = begin(server, lines, interceptor, group, patience, |never| match never {});
            let mut ends = started.exit();
            exit = Some(ServerExit::new(Arc::clone(server), started.exit(), pipes.stderr));
            process = Some(started);
            // Another process may still hold its stdout open, so the stream may not end.
            let ended = async {
                exited(&mut ends).await;
                sleep(SECOND_END_TIMEOUT).await;
            };
            tokio::select! {
                handshake = timeout(limit, handshake) => handshake,
                () = ended => Ok(Err(closed())),
            }
        }
    };
    let fault = match (handshake, exit) {
        (Ok(Ok((link, list))), exit) => return Ok((Link { exit, ..link }, list, process)),
        (Ok(Err(fault)), Some(mut exit)) => exit.description().await.map_or(fault, ServerFault::Ended),
        (Ok(Err(fault)), None) => fault,
        (Err(_), exit) => ServerFault::Silent { limit, last_line: exit.and_then(|exit| exit.last_line()) },
    };
    if let Some(process) = process {
        // Before it is started again: it may hold a lock or a port.
        let mut exit = process.exit();
        drop(process);
        exited(&mut exit).await;
    }
    Err(fault)
}

fn closed() -> ServerFault {
    ServerFault::Protocol("it closed the connection".into())
}

async fn begin<T: Transport<RoleClient> + 'static>(
    server: &Arc<str>,
    mut transport: T,
    interceptor: Arc<Interceptor>,
    process: Option<Arc<Group>>,
    patience: Option<Duration>,
    fault: impl Fn(T::Error) -> ServerFault,
) -> Result<(Link, ToolList), ServerFault> {
    let us = Implementation::new("toolbridge", env!("CARGO_PKG_VERSION"));
    let us = ClientConfig::new(ClientCapabilities::default(), us)
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE);
    let info = greet(&mut transport, us.clone(), patience, fault).await?;
    let reports_changes = info.capabilities.tools.as_ref().and_then(|tools| tools.list_changed);
    // From 2026-07-28 on, a client has to subscribe to changes.
    let subscribes = !info.protocol_version.has_initialize() && reports_changes == Some(true);
    let service = serve_directly(us, transport, Some(info));
    let peer = service.peer().clone();
    let connection = ServerConnection::new(Arc::clone(server), peer, Arc::clone(&interceptor), process);
    let list = connection.list().await?;
    let subscribing = subscribes.then(|| tokio::spawn(subscribe(connection.peer.clone(), interceptor)));
    let subscribing = subscribing.map(AbortOnDropHandle::new);
    let service = Box::pin(async { _ = service.waiting().await });
    let connection = Arc::new(connection);
    Ok((Link { connection, _subscribing: subscribing, service, exit: None }, list))
}

/// The handshake. It begins with `server/discover` if there is `patience`, after which `initialize` is sent too. rmcp's
/// own gives up when `server/discover` is answered after that; here the first usable answer to one of the two counts.
async fn greet<T: Transport<RoleClient>>(
    transport: &mut T,
    us: ClientConfig,
    patience: Option<Duration>,
    fault: impl Fn(T::Error) -> ServerFault,
) -> Result<ServerPeerInfo, ServerFault> {
    // Some servers return a number as a string.
    let is_late = |id: &NumberOrString| id.to_string() == DISCOVER.to_string();
    let mut late = pin!(sleep(Duration::ZERO));
    if let Some(patience) = patience {
        let mut discover = DiscoverRequest::new(DiscoverRequestParams {});
        let (info, capabilities) = (us.client_info.clone(), us.capabilities.clone());
        let meta = RequestMetaObject::with_client_context(ProtocolVersion::LATEST, info, capabilities);
        discover.extensions.insert(meta);
        transport.send(ClientJsonRpcMessage::request(discover.into(), DISCOVER)).await.map_err(&fault)?;
        late.as_mut().reset(Instant::now() + patience);
    }
    let mut initialize = Some(us);
    loop {
        let message = tokio::select! {
            message = transport.receive() => message.ok_or_else(closed)?,
            () = &mut late, if initialize.is_some() => {
                if let Some(us) = initialize.take() {
                    let request = InitializeRequest::new(us).into();
                    transport.send(ClientJsonRpcMessage::request(request, INITIALIZE)).await.map_err(&fault)?;
                }
                continue;
            }
        };
        match message {
            JsonRpcMessage::Response(response) => match response.result {
                ServerResult::DiscoverResult(found)
                    if found.supported_versions.contains(&ProtocolVersion::LATEST) =>
                {
                    return Ok(ServerPeerInfo::from_discover_result(ProtocolVersion::LATEST, found));
                }
                ServerResult::InitializeResult(result) => {
                    let notification = ClientNotification::from(InitializedNotification::default());
                    transport.send(ClientJsonRpcMessage::notification(notification)).await.map_err(&fault)?;
                    return Ok(result.into());
                }
                _ if is_late(&response.id) => late.as_mut().reset(Instant::now()),
                _ => return Err(ServerFault::Protocol("its answer to `initialize` is not valid".into())),
            },
            JsonRpcMessage::Error(error)
                if initialize.is_some() || error.id.as_ref().is_some_and(is_late) =>
            {
                late.as_mut().reset(Instant::now());
            }
            JsonRpcMessage::Error(error) => return Err(RequestError::Refused(error.error).into()),
            _ => {}
        }
    }
}

impl Link {
    /// Whether the server may know `server/discover` when it is started again.
    pub(crate) fn discovers(&self) -> bool {
        self.connection.peer.peer_info().is_none_or(|info| !info.protocol_version.has_initialize())
    }

    /// Waits for the end of the connection, notifies pending calls, and returns the reason.
    pub(crate) async fn ended(&mut self) -> Arc<str> {
        let mut end = self.connection.end.subscribe();
        let how = match &mut self.exit {
            None => {
                tokio::select! {
                    _ = async { end.wait_for(Option::is_some).await.is_ok() } => {}
                    () = &mut self.service => {}
                }
                end.borrow().as_deref().map(str::to_owned)
            }
            Some(exit) => {
                tokio::select! {
                    // Read what is left in its stdout.
                    _ = exited(&mut exit.exit) => drop(timeout(SECOND_END_TIMEOUT, &mut self.service).await),
                    () = &mut self.service => {}
                }
                exit.description().await
            }
        };
        let why: Arc<str> = how.unwrap_or_else(|| "the connection was closed".into()).into();
        self.connection.end.send_replace(Some(Arc::clone(&why)));
        why
    }
}

async fn subscribe(peer: Peer<RoleClient>, interceptor: Arc<Interceptor>) {
    loop {
        let mut wanted = SubscriptionFilter::default();
        wanted.tools_list_changed = Some(true);
        if let Ok(mut subscription) = peer.listen(wanted).await {
            // Changes before the subscription were not reported; the interceptor sees all others.
            interceptor.tools_changed.notify_one();
            while let Ok(Some(_)) = subscription.next().await {}
        }
        sleep(SUBSCRIBE_AGAIN).await;
    }
}
