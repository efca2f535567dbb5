//! Opens a connection to a server, and notices its end.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ClientJsonRpcMessage, ClientNotification, DiscoverRequest,
    DiscoverRequestParams, Implementation, InitializeRequest, InitializedNotification, JsonRpcMessage,
    NumberOrString, ProtocolVersion, RequestMetaObject, ServerPeerInfo, ServerResult, SubscriptionFilter,
};
use rmcp::service::{NotificationContext, Peer, RoleClient, serve_directly};
use rmcp::transport::Transport;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::ToolList;
use crate::client::ServerFault;
use crate::client::connection::{Connection, RequestError};
use crate::client::http::{HttpError, connect};
use crate::client::incoming::Incoming;
use crate::client::lines::Lines;
use crate::client::process::{Process, exited};
use crate::client::stderr::Stderr;
use crate::client::target::Target;
use crate::process::child::{Exit, Group};

/// How long to wait for the second of two ends, that of the process and that of its stdout.
const SECOND_END_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a command may leave `server/discover` unanswered before it gets `initialize` too.
const DISCOVER_PATIENCE: Duration = Duration::from_secs(10);

/// The limit of a server's instructions, which clients give to their model.
const MAX_INSTRUCTIONS_BYTES: usize = 64 * 1024;

/// The pause before a subscription to changes is retried.
const SUBSCRIBE_AGAIN: Duration = Duration::from_secs(5);

/// The ids of the first requests; rmcp counts from 0.
const DISCOVER: NumberOrString = NumberOrString::Number(1_000_000);
const INITIALIZE: NumberOrString = NumberOrString::Number(1_000_001);

/// How the handshake begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// With `server/discover`, then with `initialize` if the server does not know that.
    Any,
    /// With `initialize`, as in all versions before 2026-07-28.
    Initialize,
}

/// A connection and its tasks. Dropping it closes the connection.
pub(crate) struct Link {
    pub(crate) connection: Arc<Connection>,
    /// Notified when the server reports that its tools have changed.
    pub(crate) changes: Arc<Notify>,
    _subscribing: Option<AbortOnDropHandle<()>>,
    /// rmcp's event loop; it ends with the transport, and the transport with it.
    service: Pin<Box<dyn Future<Output = ()> + Send>>,
    child: Option<Child>,
}

/// What tells how a process ended.
struct Child {
    exit: Exit,
    stderr: Stderr,
}

/// Handles messages from the server: only changes of its tools matter.
struct Handler {
    changes: Arc<Notify>,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("toolbridge", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changes.notify_one();
    }
}

/// Starts a server or connects to it, and lists its tools. Dropping the process ends it.
pub(crate) async fn open(
    server: &Arc<str>,
    target: &Target,
    limit: Duration,
    greeting: Greeting,
) -> Result<(Link, ToolList, Option<Process>), ServerFault> {
    let (mut process, mut child) = (None, None);
    let begun = match target {
        Target::Url(target) => {
            let incoming = Arc::new(Incoming::over_http());
            let transport = connect(target, Arc::clone(&incoming))?;
            let fault = |error| match error {
                HttpError::Client(error) => ServerFault::Connect { url: target.shown.clone(), error },
                error => ServerFault::Protocol(error.to_string()),
            };
            // rmcp sends nothing more to a URL before it has answered.
            timeout(limit, begin(server, transport, incoming, None, greeting, limit, fault)).await
        }
        Target::Command(command) => {
            let started = Process::start(command.command());
            let (started, pipes) = started.map_err(|error| command.cannot_start(error))?;
            let incoming = Arc::<Incoming>::default();
            let lines = Lines::new(Arc::clone(server), Arc::clone(&incoming), pipes.stdin, pipes.stdout);
            let (group, patience) = (Some(started.group()), DISCOVER_PATIENCE);
            let begun = begin(server, lines, incoming, group, greeting, patience, |never| match never {});
            let stderr = Stderr::follow(Arc::clone(server), pipes.stderr);
            let mut exit = started.exit();
            (process, child) = (Some(started), Some(Child { exit: exit.clone(), stderr }));
            // Another process may still hold its stdout open, so the stream may not end.
            let ended = async {
                exited(&mut exit).await;
                sleep(SECOND_END_TIMEOUT).await;
            };
            tokio::select! {
                begun = timeout(limit, begun) => begun,
                () = ended => Ok(Err(closed())),
            }
        }
    };
    Err(match (begun, child) {
        (Ok(Ok((link, list))), child) => return Ok((Link { child, ..link }, list, process)),
        (Ok(Err(fault)), Some(mut child)) => child.how().await.map_or(fault, ServerFault::Ended),
        (Ok(Err(fault)), None) => fault,
        (Err(_), child) => ServerFault::Silent { limit, said: child.and_then(|child| child.stderr.last()) },
    })
}

fn closed() -> ServerFault {
    ServerFault::Protocol("it closed the connection".into())
}

async fn begin<T: Transport<RoleClient> + 'static>(
    server: &Arc<str>,
    mut transport: T,
    incoming: Arc<Incoming>,
    process: Option<Arc<Group>>,
    greeting: Greeting,
    patience: Duration,
    fault: impl Fn(T::Error) -> ServerFault,
) -> Result<(Link, ToolList), ServerFault> {
    let changes = Arc::<Notify>::default();
    let handler = Handler { changes: Arc::clone(&changes) };
    let mut info = greet(&mut transport, handler.get_info(), greeting, patience, fault).await?;
    if let Some(text) = info.instructions.as_mut().filter(|text| text.len() > MAX_INSTRUCTIONS_BYTES) {
        let (server, bytes, limit) = (&**server, text.len(), MAX_INSTRUCTIONS_BYTES);
        tracing::warn!(
            server,
            bytes,
            limit,
            "the server's instructions are longer than the limit, and are cut"
        );
        text.truncate((0..=limit).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0));
    }
    let reports_changes = info.capabilities.tools.as_ref().and_then(|tools| tools.list_changed);
    // From 2026-07-28 on, a client has to subscribe to changes.
    let subscribes = !info.protocol_version.has_initialize() && reports_changes == Some(true);
    let service = serve_directly(handler, transport, Some(info));
    let peer = service.peer().clone();
    let (server, end) = (Arc::clone(server), watch::Sender::default());
    let connection = Arc::new(Connection { server, peer: peer.clone(), incoming, end, process });
    let list = connection.list().await?;
    let subscribing = subscribes.then(|| tokio::spawn(subscribe(peer, Arc::clone(&changes))));
    let service = Box::pin(async { _ = service.waiting().await });
    let subscribing = subscribing.map(AbortOnDropHandle::new);
    Ok((Link { connection, changes, _subscribing: subscribing, service, child: None }, list))
}

/// The handshake. rmcp's own gives up when `server/discover` is answered after it has sent `initialize`; here the first
/// usable answer to one of the two counts.
async fn greet<T: Transport<RoleClient>>(
    transport: &mut T,
    us: ClientConfig,
    greeting: Greeting,
    patience: Duration,
    fault: impl Fn(T::Error) -> ServerFault,
) -> Result<ServerPeerInfo, ServerFault> {
    // Some servers return a number as a string.
    let is_late = |id: &NumberOrString| id.to_string() == DISCOVER.to_string();
    let mut late = pin!(sleep(Duration::ZERO));
    if greeting == Greeting::Any {
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
    /// How the handshake begins when the server is started again.
    pub(crate) fn greeting(&self) -> Greeting {
        match self.connection.peer.peer_info() {
            Some(info) if info.protocol_version.has_initialize() => Greeting::Initialize,
            _ => Greeting::Any,
        }
    }

    /// Waits for the end of the connection, notifies pending calls, and returns the reason.
    pub(crate) async fn ended(&mut self) -> Arc<str> {
        let mut end = self.connection.end.subscribe();
        let how = match &mut self.child {
            None => {
                tokio::select! {
                    _ = async { end.wait_for(Option::is_some).await.is_ok() } => {}
                    () = &mut self.service => {}
                }
                end.borrow().as_deref().map(str::to_owned)
            }
            Some(child) => {
                let mut exit = child.exit.clone();
                tokio::select! {
                    // Read what is left in its stdout.
                    _ = exited(&mut exit) => drop(timeout(SECOND_END_TIMEOUT, &mut self.service).await),
                    () = &mut self.service => {}
                }
                child.how().await
            }
        };
        let why: Arc<str> = how.unwrap_or_else(|| "the connection was closed".into()).into();
        self.connection.end.send_replace(Some(Arc::clone(&why)));
        why
    }
}

impl Child {
    /// How the process ended, if it has or is about to.
    async fn how(&mut self) -> Option<String> {
        let status = timeout(SECOND_END_TIMEOUT, exited(&mut self.exit)).await.ok()?;
        Some(match self.stderr.last_line_at_end().await {
            Some(said) => format!("{status}; its last line on stderr was `{said}`"),
            None => format!("{status}, and it said nothing on stderr"),
        })
    }
}

async fn subscribe(peer: Peer<RoleClient>, changes: Arc<Notify>) {
    loop {
        let mut wanted = SubscriptionFilter::default();
        wanted.tools_list_changed = Some(true);
        if let Ok(mut subscription) = peer.listen(wanted).await {
            // Changes before the subscription were not reported.
            changes.notify_one();
            while let Ok(Some(_)) = subscription.next().await {
                changes.notify_one();
            }
        }
        sleep(SUBSCRIBE_AGAIN).await;
    }
}
