//! Opens a connection to a server, and notices its end.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::ToolList;
use crate::ipc::child::Exit;
use rmcp::ClientHandler;
use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProtocolVersion, SubscriptionFilter};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, NotificationContext, Peer, RoleClient,
    serve_client_with_lifecycle,
};
use rmcp::transport::Transport;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::client::ServerError;
use crate::client::connection::{ChildEnd, Connection, RequestError};
use crate::client::exchange::Exchange;
use crate::client::lines::Lines;
use crate::client::process::{Process, exited};
use crate::client::stderr::Stderr;
use crate::client::target::{CommandTarget, Target};

/// How long to wait for the second of two ends, that of the process and that of its stdout.
const SECOND_END_TIMEOUT: Duration = Duration::from_millis(500);

/// The pause before a subscription to changes is retried.
const SUBSCRIBE_AGAIN: Duration = Duration::from_secs(5);

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
    /// The tasks that run as long as the connection.
    pub(crate) helpers: JoinSet<()>,
    end: watch::Sender<Option<Arc<str>>>,
    broken: mpsc::UnboundedReceiver<String>,
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
) -> Result<(Link, ToolList, Option<Process>), ServerError> {
    match target {
        Target::Command(command) => open_command(server, command, limit, greeting)
            .await
            .map(|(link, list, process)| (link, list, Some(process))),
        Target::Url(target) => {
            let connect = async |greeting| {
                let exchange = Arc::default();
                let transport = crate::client::http::connect(server, target, Arc::clone(&exchange))?;
                let begun = begin(server, transport, exchange, None, limit, greeting).await;
                begun.map_err(|error| crate::client::http::server_error(server, target, error, limit))
            };
            let (link, list) = match connect(greeting).await {
                // It does not know `server/discover`.
                Err(ServerError::Protocol { .. }) if greeting == Greeting::Any => {
                    connect(Greeting::Initialize).await
                }
                begun => begun,
            }?;
            Ok((link, list, None))
        }
    }
}

async fn open_command(
    server: &Arc<str>,
    command: &CommandTarget,
    limit: Duration,
    greeting: Greeting,
) -> Result<(Link, ToolList, Process), ServerError> {
    let started = Process::start(command.command());
    let (process, pipes) = started.map_err(|error| command.cannot_start(server, error))?;
    let mut child = Child { exit: process.exit(), stderr: Stderr::follow(Arc::clone(server), pipes.stderr) };
    let exchange = Arc::<Exchange>::default();
    let lines = Lines::new(Arc::clone(server), Arc::clone(&exchange), pipes.stdin, pipes.stdout);
    let begun = {
        let end = ChildEnd { group: process.group(), stdin: lines.stdin() };
        let beginning = begin(server, lines, Arc::clone(&exchange), Some(end), limit, greeting);
        let mut exit = child.exit.clone();
        tokio::select! {
            begun = beginning => begun,
            // Another process may still hold its stdout open, so the stream may not end.
            () = async { exited(&mut exit).await; sleep(SECOND_END_TIMEOUT).await } => {
                Err(BeginError::Init(Box::new(ClientInitializeError::Cancelled)))
            }
        }
    };
    let (mut link, list) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            let server = server.to_string();
            let reason = match error {
                BeginError::Silent => {
                    return Err(ServerError::Silent { server, limit, said: child.stderr.last() });
                }
                BeginError::Init(error) => reason(&error, &exchange),
                BeginError::List(error) => error.to_string(),
            };
            return Err(match child.how().await {
                Some(how) => ServerError::Ended { server, how },
                None => ServerError::Protocol { server, reason },
            });
        }
    };
    link.child = Some(child);
    Ok((link, list, process))
}

/// Why the handshake failed.
pub(crate) enum BeginError {
    Silent,
    Init(Box<ClientInitializeError>),
    List(RequestError),
}

async fn begin<T: Transport<RoleClient> + 'static>(
    server: &Arc<str>,
    transport: T,
    exchange: Arc<Exchange>,
    child: Option<ChildEnd>,
    limit: Duration,
    greeting: Greeting,
) -> Result<(Link, ToolList), BeginError> {
    // Boxed: rmcp's future is large.
    let begun = Box::pin(async {
        let changes = Arc::<Notify>::default();
        let handler = Handler { changes: Arc::clone(&changes) };
        let lifecycle = match greeting {
            Greeting::Initialize => ClientLifecycleMode::Initialize,
            Greeting::Any => {
                let preferred_versions = ProtocolVersion::KNOWN_VERSIONS.iter().rev().cloned().collect();
                match child {
                    Some(_) => ClientLifecycleMode::Auto { preferred_versions, legacy_version: None },
                    // rmcp sends nothing more to a URL before it has answered: without a limit of 10 s.
                    None => ClientLifecycleMode::Discover { preferred_versions },
                }
            }
        };
        let service = serve_client_with_lifecycle(handler, transport, lifecycle).await;
        let service = service.map_err(|error| BeginError::Init(Box::new(error)))?;
        let peer = service.peer().clone();
        let (end, ended) = watch::channel(None);
        let (unwanted, cancelled) = mpsc::unbounded_channel();
        let (broken, is_broken) = mpsc::unbounded_channel();
        let connection = Arc::new(Connection {
            server: Arc::clone(server),
            peer: peer.clone(),
            exchange,
            unwanted,
            broken,
            end: ended,
            child,
        });
        let mut helpers = JoinSet::new();
        helpers.spawn(Connection::send_cancellations(peer.clone(), cancelled));
        let list = connection.first_list().await.map_err(BeginError::List)?;
        let link = Link {
            connection,
            changes,
            helpers,
            end,
            broken: is_broken,
            service: Box::pin(async { _ = service.waiting().await }),
            child: None,
        };
        Ok(link.subscribed(peer, list))
    });
    timeout(limit, begun).await.unwrap_or(Err(BeginError::Silent))
}

impl Link {
    /// From 2026-07-28 on, a client has to subscribe to changes.
    fn subscribed(mut self, peer: Peer<RoleClient>, list: ToolList) -> (Self, ToolList) {
        let is_asked = self.connection.info().is_some_and(|info| {
            let tells = info.capabilities.tools.as_ref().and_then(|tools| tools.list_changed);
            !info.protocol_version.has_initialize() && tells == Some(true)
        });
        if is_asked {
            self.helpers.spawn(subscribe(peer, Arc::clone(&self.changes)));
        }
        (self, list)
    }

    /// How the handshake begins when the server is started again.
    pub(crate) fn greeting(&self) -> Greeting {
        match self.connection.info() {
            Some(info) if info.protocol_version.has_initialize() => Greeting::Initialize,
            _ => Greeting::Any,
        }
    }

    /// Waits for the end of the connection, notifies pending calls, and returns the reason.
    pub(crate) async fn ended(&mut self) -> Arc<str> {
        let why: Arc<str> = self.why_ended().await.into();
        self.end.send_replace(Some(Arc::clone(&why)));
        why
    }

    async fn why_ended(&mut self) -> String {
        let Some(child) = &mut self.child else {
            return tokio::select! {
                Some(why) = self.broken.recv() => why,
                () = &mut self.service => "the connection was closed".into(),
            };
        };
        tokio::select! {
            // Read what is left in its stdout.
            _ = exited(&mut child.exit) => drop(timeout(SECOND_END_TIMEOUT, &mut self.service).await),
            () = &mut self.service => {}
        }
        if let Some(fault) = self.connection.exchange.fault() {
            return fault.to_owned();
        }
        child.how().await.unwrap_or_else(|| "it closed its stdout".into())
    }
}

impl Child {
    /// How the process ended, if it has or is about to.
    async fn how(&mut self) -> Option<String> {
        let status = timeout(SECOND_END_TIMEOUT, exited(&mut self.exit)).await.ok()?;
        let said = self.stderr.last_line_at_end().await;
        Some(match said {
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

/// A short reason for a failed handshake.
pub(crate) fn reason(error: &ClientInitializeError, exchange: &Exchange) -> String {
    if let Some(fault) = exchange.fault() {
        return fault.to_owned();
    }
    match error {
        // Without the payload.
        ClientInitializeError::ExpectedInitResponse(_) | ClientInitializeError::ExpectedInitResult(_) => {
            "its answer to `initialize` is not valid".into()
        }
        ClientInitializeError::ConnectionClosed(_) => "it closed its stdout".into(),
        ClientInitializeError::JsonRpcError(error) => {
            format!("it answered with the error {}: {}", error.code.0, error.message)
        }
        ClientInitializeError::TransportError { error, .. } => explain(error.error.as_ref()),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => reason(fallback, exchange),
        error => error.to_string(),
    }
}

/// The text of a transport error, without secrets.
pub(crate) fn explain(error: &(dyn Error + Send + Sync + 'static)) -> String {
    if let Some(text) = crate::client::http::explain(error) {
        return text;
    }
    error.to_string()
}
