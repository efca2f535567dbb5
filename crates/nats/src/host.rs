//! A host: a process that offers its tools under a name.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::service::{Request, Service, ServiceExt as _};
use async_nats::{ConnectOptions, HeaderMap, Message};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{BoxStream, SelectAll, select};
use percent_encoding::percent_decode_str;
use tokio::time::{sleep, timeout};
use tokio_util::sync::DropGuard;
use tokio_util::task::TaskTracker;
use toolbridge_core::ToolSource;
use toolbridge_core::call::CancellationToken;
use toolbridge_core::source::{Changes, Dispatcher};
use toolbridge_core::tool::ServerInfo;
use toolbridge_core::trace::{Process, Tracer, trace_path};
use tracing::Instrument as _;

use crate::NatsError;
use crate::connection::NatsConnection;
use crate::received_call::ReceivedCall;
use crate::wire::{Hello, KIND, QUEUE, Subjects, header, kind};

/// The default limit of parallel calls.
const MAX_CALLS: usize = 512;

/// The limit of running and waiting calls for plain clients, as a multiple of the calls that may run.
const MAX_WAITING: usize = 8;

/// By default, how long running calls have when the host is drained.
const DRAIN: Duration = Duration::from_secs(30);

/// How long cancelled calls have to end.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a host that is leaving still answers the calls of callers that do not know it yet.
const LINGER: Duration = Duration::from_millis(500);

/// How long the server has to confirm the subscriptions.
const ROUND_TRIP: Duration = Duration::from_secs(10);

/// A host before its start; made by [`Host::builder`].
#[derive(Debug)]
#[must_use = "it does nothing before it is started"]
pub struct HostBuilder {
    source: Arc<dyn ToolSource>,
    name: String,
    url: String,
    host: Option<String>,
    options: ConnectOptions,
    info: ServerInfo,
    trace: Option<PathBuf>,
    max_calls: usize,
    drain: Duration,
}

impl HostBuilder {
    /// The NATS server, by default `nats://127.0.0.1:4222`; several are separated by commas. It may have a user
    /// and a password, or a token: `nats://user:password@host`, `nats://token@host`.
    pub fn at(mut self, url: impl Into<String>) -> Self {
        self.url = url.into();
        self
    }

    /// This host's name, by which callers can address it; by default the machine's name.
    pub fn host(mut self, name: impl Into<String>) -> Self {
        self.host = Some(name.into());
        self
    }

    /// The credentials and other settings of the connection, except for its name, its event callback and the
    /// pauses between attempts to reconnect.
    pub fn options(mut self, options: ConnectOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets how the host introduces itself. If hosts describe a tool differently, the newest version is used.
    pub fn info(mut self, info: ServerInfo) -> Self {
        self.info = info;
        self
    }

    /// Writes a trace to a file; without it, `TOOLBRIDGE_TRACE` can name one.
    pub fn trace(mut self, file: impl Into<PathBuf>) -> Self {
        self.trace = Some(file.into());
        self
    }

    /// The limit of parallel calls, by default 512. Further calls go to other hosts; if all are full, callers
    /// wait. Only one exclusive call runs at a time.
    pub fn max_calls(mut self, calls: usize) -> Self {
        self.max_calls = calls.clamp(1, 1 << 20);
        self
    }

    /// How long running calls have when the host is [drained](Host::drain), by default 30 seconds.
    pub fn drain_timeout(mut self, limit: Duration) -> Self {
        self.drain = limit;
        self
    }

    /// Starts the host: connects, and offers the tools until the host is [drained](Host::drain) or dropped.
    ///
    /// # Errors
    ///
    /// When the name is not valid, the trace cannot be written, or the server cannot be reached or refuses the connection or its
    /// subscriptions.
    pub async fn start(self) -> Result<Host, NatsError> {
        let subjects = Subjects::new(&self.name)?;
        let file = trace_path(self.trace.as_deref());
        let tracer = Tracer::open(Process::Server, file.as_deref()).map_err(NatsError::Trace)?;
        let machine = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        let host = self.host.filter(|name| !name.is_empty()).unwrap_or_else(machine);
        let shown = format!("toolbridge host {host} of {}", self.name);
        let connection = NatsConnection::open(self.options, &self.url, shown).await?;
        let ended = CancellationToken::new();
        let shared = Arc::new(HostState {
            connection,
            subjects,
            name: host,
            dispatcher: Dispatcher::new(self.source, tracer).at_most(self.max_calls),
            max_calls: self.max_calls,
            calls: Mutex::default(),
            last_plain: AtomicU64::default(),
            closing: ended.child_token(),
            ended,
            tasks: TaskTracker::new(),
        });
        let host = Host { shared, drain: self.drain };
        let receiver = Receiver::open(&host.shared, self.info).await?;
        let instance = receiver.hello.instance.clone();
        tokio::spawn(receiver.run().in_current_span());
        host.shared.check(&instance).await?;
        Ok(host)
    }
}

/// This process as a host of a name: it offers the tools of a source there, together with all other hosts of that name.
/// Dropping it ends the host at once and cancels its calls; [`drain`](Self::drain) lets them finish.
///
/// It is a NATS service, with an endpoint for each tool: `nats micro` shows the tools and their statistics,
/// and any client can call with `nats request toolbridge.NAME.call.TOOL '{}'`.
///
/// ```no_run
/// # mod toolbridge { pub use toolbridge_core::*; pub use toolbridge_nats as nats; }
/// # use toolbridge::{NoArgs, Toolset};
/// use toolbridge::nats::Host;
///
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// let tools = Toolset::builder().tool("hello", "Greets", async |_: NoArgs| "hello").build()?;
/// let host = Host::builder(tools, "greeters").max_calls(8).at("nats://127.0.0.1:4222").start().await?;
/// tokio::signal::ctrl_c().await?;
/// host.drain().await;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Host {
    shared: Arc<HostState>,
    drain: Duration,
}

impl Host {
    /// A host of `name` with the tools of `source`, before its start.
    pub fn builder(source: impl ToolSource, name: impl Into<String>) -> HostBuilder {
        HostBuilder {
            source: Arc::new(source),
            name: name.into(),
            url: "nats://127.0.0.1:4222".into(),
            host: None,
            options: ConnectOptions::new(),
            info: ServerInfo::default(),
            trace: None,
            max_calls: MAX_CALLS,
            drain: DRAIN,
        }
    }

    /// The host's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The NATS servers, without secrets.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.shared.connection.url
    }

    /// Stops taking calls, lets running calls finish, and then closes the connection. Calls that take too
    /// long are cancelled, and their callers get an error.
    pub async fn drain(&self) {
        let shared = &self.shared;
        shared.closing.cancel();
        shared.tasks.close();
        sleep(LINGER).await;
        if timeout(self.drain, shared.tasks.wait()).await.is_err() {
            tracing::warn!(calls = shared.tasks.len(), "calls that take too long are cancelled");
        }
        shared.ended.cancel();
        _ = timeout(CANCEL_TIMEOUT, shared.tasks.wait()).await;
        _ = timeout(CANCEL_TIMEOUT, shared.connection.client.flush()).await;
        _ = shared.connection.client.drain().await;
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.shared.ended.cancel();
    }
}

/// State shared by all tasks of a host.
#[derive(Debug)]
pub(crate) struct HostState {
    pub(crate) connection: NatsConnection,
    subjects: Subjects,
    /// The host's name.
    pub(crate) name: String,
    pub(crate) dispatcher: Dispatcher,
    max_calls: usize,
    /// The running and waiting calls by reply subject, those of plain clients by a number, and whether they are exclusive.
    calls: Mutex<HashMap<String, (CancellationToken, bool)>>,
    last_plain: AtomicU64,
    /// Cancelled when no more calls are taken.
    pub(crate) closing: CancellationToken,
    /// Cancelled when all tasks end.
    pub(crate) ended: CancellationToken,
    /// The tasks of calls.
    tasks: TaskTracker,
}

impl HostState {
    fn calls(&self) -> MutexGuard<'_, HashMap<String, (CancellationToken, bool)>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts, refuses or cancels a call.
    fn take(self: &Arc<Self>, request: Request) {
        let is_plain = match header(&request.message, KIND) {
            None => true,
            Some(kind::CALL) => false,
            Some(kind::CANCEL) => {
                let id = std::str::from_utf8(&request.message.payload).unwrap_or_default();
                if let Some((call, _)) = self.calls().get(id) {
                    call.cancel();
                }
                return;
            }
            Some(_) => return,
        };
        let tool = request.message.subject.rsplit('.').next().unwrap_or_default();
        let call = ReceivedCall {
            host: Arc::clone(self),
            id: match request.message.reply.as_ref() {
                Some(inbox) if !is_plain => inbox.to_string(),
                // Plain clients may use an inbox for several calls, or none, and cannot cancel them.
                _ => format!("plain {}", self.last_plain.fetch_add(1, Ordering::Relaxed)),
            },
            tool: percent_decode_str(tool).decode_utf8_lossy().into_owned(),
            request,
            is_plain,
            cancelled: self.ended.child_token(),
        };
        let started = self.begin(&call);
        let running = async move {
            match started {
                Ok(()) => {
                    call.run().await;
                    call.host.calls().remove(&call.id);
                }
                Err((kind, reason)) => call.refuse(kind, reason).await,
            }
        };
        self.tasks.spawn(running.in_current_span());
    }

    /// Notes a call; an error says why it does not run here. Plain clients do not try another host, so their calls
    /// wait here for a while.
    fn begin(&self, call: &ReceivedCall) -> Result<(), (&'static str, &'static str)> {
        let tools = self.dispatcher.source().tools();
        let Some(tool) = tools.get(&call.tool) else {
            return Err((kind::GONE, "this host has no such tool"));
        };
        if self.closing.is_cancelled() {
            return Err((kind::GONE, "this host is ending"));
        }
        let mut calls = self.calls();
        let exclusive = calls.values().filter(|(_, is_exclusive)| *is_exclusive).count();
        let is_full = if call.is_plain {
            calls.len() >= self.max_calls.saturating_mul(MAX_WAITING)
        } else {
            // Exclusive calls wait for each other, and only one runs; a second one finds another host.
            calls.len() - exclusive.saturating_sub(1) >= self.max_calls || (tool.exclusive && exclusive > 0)
        };
        if is_full {
            return Err((kind::BUSY, "this host is full"));
        }
        calls.insert(call.id.clone(), (call.cancelled.clone(), tool.exclusive));
        Ok(())
    }

    /// Checks that the subscriptions are active: the server works in order, so they are when a message to this
    /// process itself has arrived.
    async fn check(&self, instance: &str) -> Result<(), NatsError> {
        let request = async_nats::Request::new().timeout(Some(ROUND_TRIP));
        let arrived = self.connection.client.send_request(self.subjects.tools(instance), request).await;
        let silence = || "a message to this host itself did not arrive".into();
        match self.connection.refused() {
            None if arrived.is_ok() => Ok(()),
            refused => Err(NatsError::Forbidden { reason: refused.unwrap_or_else(silence) }),
        }
    }
}

/// Receives what callers send.
struct Receiver {
    host: Arc<HostState>,
    service: Service,
    hello: Hello,
    changes: Changes,
    /// The tools as JSON.
    list: Bytes,
    /// The tools that plain clients can call; dropping the value ends a tool's endpoint.
    endpoints: HashMap<String, DropGuard>,
    calls: SelectAll<BoxStream<'static, Request>>,
    /// Questions which hosts there are, and for the tools of this one.
    questions: BoxStream<'static, Message>,
}

impl Receiver {
    async fn open(host: &Arc<HostState>, info: ServerInfo) -> Result<Self, NatsError> {
        let (client, subjects) = (&host.connection.client, &host.subjects);
        let ended = |_| NatsError::Ended;
        let start = |version: String| {
            let service =
                client.service_builder().queue_group(QUEUE).description(format!("Tools of {}", info.name));
            service
                .metadata([("host".into(), host.name.clone())].into())
                .start(subjects.name.clone(), version)
        };
        let service = match start(info.version.clone()).await {
            Ok(service) => service,
            // The services API accepts only semantic versions; callers get the full one.
            Err(_) => start("0.0.0".into()).await.map_err(|_| NatsError::Ended)?,
        };
        let instance: String = std::iter::repeat_with(fastrand::alphanumeric).take(16).collect();
        let asked = client.subscribe(subjects.hosts()).await.map_err(ended)?;
        let own = client.subscribe(subjects.tools(&instance)).await.map_err(ended)?;
        let mut calls = SelectAll::new();
        for to in [&instance, &host.name] {
            let direct = service.endpoint_builder().name("toolbridge-direct").add(subjects.all_at(to)).await;
            calls.push(direct.map_err(|_| NatsError::Ended)?.boxed());
        }
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut receiver = Self {
            hello: Hello {
                instance,
                host: host.name.clone(),
                version: info.version,
                started: u64::try_from(started.as_millis()).unwrap_or_default(),
                revision: 1,
                is_leaving: false,
            },
            changes: host.dispatcher.source().changes(),
            list: Bytes::new(),
            endpoints: HashMap::new(),
            questions: select(asked, own).boxed(),
            host: Arc::clone(host),
            service,
            calls,
        };
        match receiver.offer().await {
            Ok(()) => Ok(receiver),
            Err(error) => {
                // Otherwise the service would keep the connection.
                _ = receiver.service.stop().await;
                Err(error)
            }
        }
    }

    /// Offers the tools as they are now.
    async fn offer(&mut self) -> Result<(), NatsError> {
        let (tools, client) = (self.host.dispatcher.source().tools(), &self.host.connection.client);
        let list = serde_json::to_vec(&*tools).unwrap_or_default();
        // The services API describes all endpoints in one message; if it did not fit, no more would be answered.
        let described = 1024 + tools.iter().map(|tool| 320 + 4 * tool.name.len()).sum::<usize>();
        let (bytes, limit) = (list.len().max(described), client.max_payload());
        if bytes > limit {
            return Err(NatsError::TooManyTools { tools: tools.len(), bytes, limit });
        }
        self.list = list.into();
        self.endpoints.retain(|name, _| tools.get(name).is_some());
        for tool in tools.iter().filter(|tool| !self.endpoints.contains_key(&tool.name)).collect::<Vec<_>>() {
            let endpoint = self.service.endpoint_builder().name(&tool.name);
            let endpoint = endpoint.add(self.host.subjects.any(&tool.name)).await;
            let removed = CancellationToken::new();
            let requests = endpoint.map_err(|_| NatsError::Ended)?;
            self.calls.push(requests.take_until(removed.clone().cancelled_owned()).boxed());
            self.endpoints.insert(tool.name.clone(), removed.drop_guard());
        }
        Ok(())
    }

    async fn run(mut self) {
        let host = Arc::clone(&self.host);
        self.announce();
        loop {
            tokio::select! {
                () = host.ended.cancelled() => break,
                () = host.closing.cancelled(), if !self.hello.is_leaving => {
                    // Plain clients go to other hosts; callers that are too late get a refusal, and do the same.
                    self.endpoints.clear();
                    self.hello.is_leaving = true;
                    self.announce();
                }
                () = self.changes.next(), if !self.hello.is_leaving => match self.offer().await {
                    Ok(()) => {
                        self.hello.revision += 1;
                        self.announce();
                    }
                    Err(error) => tracing::error!(%error, "the tools have changed, and cannot be offered"),
                },
                Some(request) = self.calls.next() => host.take(request),
                Some(question) = self.questions.next() => self.answer(question),
            }
        }
        _ = self.service.stop().await;
    }

    fn hello(&self) -> Bytes {
        serde_json::to_vec(&self.hello).unwrap_or_default().into()
    }

    /// Tells all callers that something has changed.
    fn announce(&self) {
        self.host.connection.post(self.host.subjects.news(), HeaderMap::new(), self.hello());
    }

    fn answer(&self, question: Message) {
        let is_for_all = *question.subject == self.host.subjects.hosts();
        let answer = if is_for_all { self.hello() } else { self.list.clone() };
        if let Some(reply) = question.reply
            && !(is_for_all && self.hello.is_leaving)
        {
            self.host.connection.post(reply, HeaderMap::new(), answer);
        }
    }
}
