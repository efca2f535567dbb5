//! A host: a process that offers its tools under a name.

use std::collections::HashMap;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::service::endpoint::Endpoint;
use async_nats::service::{Service, ServiceExt as _};
use async_nats::{Request, RequestError, RequestErrorKind, Subject, Subscriber};
use bytes::Bytes;
use futures_util::stream::SelectAll;
use futures_util::{FutureExt as _, StreamExt as _};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use toolbridge_core::trace::{Process, Tracer};
use toolbridge_core::{Budget, CancellationToken, Dispatcher, ServerInfo, ToolError, ToolList, ToolSource};
use tracing::Instrument as _;

use crate::answer::Arrived;
use crate::link::Link;
use crate::parts::{Cutter, part_bytes, room};
use crate::run::run;
use crate::subject::{QUEUE, Subjects};
use crate::table::{KEPT, Place, Room, Table};
use crate::wire::{Asked, Speaker, Told, check_inbox};
use crate::{Access, NatsError, listing};

/// The default limit of parallel calls.
const MAX_CALLS: usize = 512;

/// The limit for large arguments, over all calls.
const MAX_REQUEST_BYTES: usize = 256 * 1024 * 1024;

/// By default, how long running calls have when the host is drained.
const DRAIN: Duration = Duration::from_secs(30);

/// How long cancelled calls have to end.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a host that is leaving still answers questions about calls.
const LINGER: Duration = Duration::from_millis(500);

/// How long the server has to confirm the subscriptions.
const ROUND_TRIP: Duration = Duration::from_secs(10);

/// Makes this process a host of `name`: it offers the tools of `source` there, together with all other hosts of that name.
///
/// It is a NATS service, with an endpoint for each tool: `nats micro` shows the tools and their statistics,
/// and any client can call with `nats request toolbridge.NAME.call.TOOL '{}'`.
///
/// ```no_run
/// # mod toolbridge { pub use toolbridge_core::*; pub mod nats { pub use toolbridge_nats::*; } }
/// # use toolbridge::{NoArgs, Toolset};
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// let tools = Toolset::builder().tool("hello", "Greets", async |_: NoArgs| "hello").build()?;
/// let host = toolbridge::nats::serve(tools, "greeters").max_calls(8).at("nats://127.0.0.1:4222").await?;
/// tokio::signal::ctrl_c().await?;
/// host.drain().await;
/// # Ok(()) }
/// ```
pub fn serve(source: impl ToolSource, name: impl Into<String>) -> HostBuilder {
    HostBuilder {
        source: Arc::new(source),
        name: name.into(),
        url: "nats://127.0.0.1:4222".into(),
        host: None,
        access: Access::new(),
        info: ServerInfo::default(),
        tracer: Tracer::without_file(Process::Server),
        max_calls: MAX_CALLS,
        drain: DRAIN,
    }
}

/// A host before its start; made by [`serve`], started by `.await`.
#[derive(Debug)]
#[must_use = "it does nothing before it is awaited"]
pub struct HostBuilder {
    source: Arc<dyn ToolSource>,
    name: String,
    url: String,
    host: Option<String>,
    access: Access,
    info: ServerInfo,
    tracer: Tracer,
    max_calls: usize,
    drain: Duration,
}

impl HostBuilder {
    /// The NATS server, by default `nats://127.0.0.1:4222`; several are separated by commas.
    pub fn at(mut self, url: impl Into<String>) -> Self {
        self.url = url.into();
        self
    }

    /// This host's name, by which callers can address it; by default the machine's name.
    pub fn host(mut self, name: impl Into<String>) -> Self {
        self.host = Some(name.into());
        self
    }

    /// The credentials for the server.
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// The host's server info. If hosts describe a tool differently, the newest version is used.
    pub fn info(mut self, info: ServerInfo) -> Self {
        self.info = info;
        self
    }

    /// Traces each call.
    pub fn tracer(mut self, tracer: Tracer) -> Self {
        self.tracer = tracer;
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

    async fn start(self) -> Result<Host, NatsError> {
        let subjects = Subjects::new(&self.name)?;
        let name = self.host.unwrap_or_else(machine_name);
        let link = self.access.connect(&self.url, format!("toolbridge host {name} of {}", self.name)).await?;
        let instance: String = std::iter::repeat_with(fastrand::alphanumeric).take(16).collect();
        let ended = CancellationToken::new();
        let shared = Arc::new(Shared {
            speaker: Speaker::written(&instance, &name),
            dispatcher: Dispatcher::new(self.source, self.tracer),
            table: Table::new(self.max_calls),
            cutter: Cutter::default(),
            requests: Budget::new(MAX_REQUEST_BYTES),
            closing: ended.child_token(),
            stopped: ended.child_token(),
            tasks: TaskTracker::new(),
            waiting: AtomicUsize::new(0),
            plain: AtomicU64::new(0),
            max_calls: self.max_calls,
            info: self.info,
            started: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            link,
            subjects,
            name,
            instance,
            ended,
        });
        let host = Host { shared: Arc::clone(&shared), drain: self.drain };
        shared.subscribe().await?;
        Ok(host)
    }
}

impl IntoFuture for HostBuilder {
    type Output = Result<Host, NatsError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.start())
    }
}

/// This machine's name.
fn machine_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "host".into() } else { name }
}

/// This process as a host. Dropping it ends the host at once and cancels its calls; [`drain`](Self::drain)
/// lets them finish.
#[derive(Debug)]
pub struct Host {
    shared: Arc<Shared>,
    drain: Duration,
}

impl Host {
    /// The host's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The NATS servers, without secrets.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.shared.link.url
    }

    /// The number of running calls.
    #[must_use]
    pub fn running(&self) -> usize {
        self.shared.table.running()
    }

    /// Stops taking calls, lets running calls finish, and then closes the connection. Calls that take too
    /// long are cancelled, and their callers get an error.
    pub async fn drain(&self) {
        let shared = &self.shared;
        let connected = shared.link.status.since();
        let lost_nothing = !shared.link.status.is_back_for_less_than(KEPT);
        shared.closing.cancel();
        // After this round trip the server sends no more calls; those it has sent before may be lost.
        shared.stopped.cancelled().await;
        _ = shared.round_trip().await;
        // This makes callers ask at once for calls without a sign of life.
        shared.tell(&News { event: Happened::Leaving, ..shared.news() }).await;
        let lingered = tokio::time::sleep(LINGER);
        shared.tasks.close();
        let all_ended = async {
            while shared.table.running() > 0 {
                let freed = shared.table.freed.notified();
                if shared.table.running() > 0 {
                    _ = timeout(Duration::from_millis(100), freed).await;
                }
            }
        };
        if timeout(self.drain, all_ended).await.is_err() {
            tracing::warn!(calls = shared.table.running(), "calls that take too long are cancelled");
        }
        lingered.await;
        shared.ended.cancel();
        let all_said = timeout(CANCEL_TIMEOUT, shared.tasks.wait()).await.is_ok();
        if all_said && lost_nothing && shared.link.status.since() == connected {
            shared.tell(&News { event: Happened::Left, ..shared.news() }).await;
        }
        _ = timeout(CANCEL_TIMEOUT, shared.link.client.flush()).await;
        _ = shared.link.client.drain().await;
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.shared.ended.cancel();
    }
}

/// State shared by all tasks of a host.
pub(crate) struct Shared {
    pub(crate) link: Link,
    pub(crate) subjects: Subjects,
    /// The host's name.
    pub(crate) name: String,
    /// A unique id of this process.
    pub(crate) instance: String,
    /// Both, as written in a header.
    pub(crate) speaker: String,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) table: Table,
    pub(crate) cutter: Cutter,
    pub(crate) requests: Budget,
    /// Cancelled when no more calls are taken.
    pub(crate) closing: CancellationToken,
    /// Cancelled when the service is no longer registered.
    stopped: CancellationToken,
    /// Cancelled when all tasks end.
    pub(crate) ended: CancellationToken,
    pub(crate) max_calls: usize,
    tasks: TaskTracker,
    /// The number of calls of plain clients that wait for room.
    waiting: AtomicUsize,
    /// The number of calls of plain clients so far.
    plain: AtomicU64,
    info: ServerInfo,
    started: Duration,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("name", &self.subjects.name)
            .field("host", &self.name)
            .finish_non_exhaustive()
    }
}

/// What a host announces to all callers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct News {
    pub(crate) event: Happened,
    pub(crate) instance: String,
    pub(crate) host: String,
    /// The free room.
    #[serde(default)]
    pub(crate) parallel: usize,
    #[serde(default)]
    pub(crate) exclusive: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Happened {
    /// The host is live, or its tools have changed.
    Changed,
    /// It takes no more calls.
    Leaving,
    /// It has answered all of its calls, and ends: calls without an answer did not run there.
    Left,
    /// It has room again.
    Room,
}

impl Shared {
    /// A name for a call without an inbox.
    pub(crate) fn own_name(&self) -> String {
        format!("plain {}", self.plain.fetch_add(1, Ordering::Relaxed))
    }

    /// The number of calls that wait for room here.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(crate) async fn wait_for_room(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // Another call may take the room first, and a notification wakes only one waiter.
        _ = timeout(Duration::from_millis(100), self.table.freed.notified()).await;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    fn news(&self) -> News {
        let (instance, host) = (self.instance.clone(), self.name.clone());
        News { event: Happened::Changed, instance, host, parallel: 0, exclusive: 0 }
    }

    pub(crate) async fn tell_room(&self, room: Room) {
        let Room { parallel, exclusive } = room;
        self.tell(&News { event: Happened::Room, parallel, exclusive, ..self.news() }).await;
    }

    async fn tell(&self, news: &News) {
        let text = serde_json::to_vec(news).unwrap_or_default();
        if let Err(error) = self.link.client.publish(self.subjects.news(), text.into()).await {
            tracing::warn!(%error, "callers could not be notified");
        }
    }

    /// Subscribes to all subjects, and starts the tasks that answer.
    async fn subscribe(self: &Arc<Self>) -> Result<(), NatsError> {
        let client = &self.link.client;
        let ended = |_| NatsError::Ended;
        let own = client.subscribe(self.subjects.to(&self.instance)).await.map_err(ended)?;
        let asked = client.subscribe(self.subjects.ask()).await.map_err(ended)?;
        let direct = self.subjects.all_at(&self.name);
        let direct = client.queue_subscribe(direct, QUEUE.into()).await.map_err(ended)?;
        let changes = self.dispatcher.source().changes();
        let tools = self.dispatcher.source().tools();
        let (service, endpoints) = self.register(&tools, 1).await?;
        let control = Arc::clone(self).control(own, asked);
        self.tasks.spawn(control.in_current_span());
        let calls = Arc::clone(self).calls(direct, service, endpoints, changes);
        self.tasks.spawn(calls.in_current_span());
        // The server works in order: once this message has arrived, the subscriptions are active.
        self.round_trip().await.map_err(|error| match self.link.status.refused() {
            Some(reason) => NatsError::Forbidden { reason },
            None if error.kind() == RequestErrorKind::TimedOut => {
                NatsError::Forbidden { reason: "a message to this host itself did not arrive".into() }
            }
            None => NatsError::Ended,
        })?;
        if let Some(reason) = self.link.status.refused() {
            return Err(NatsError::Forbidden { reason });
        }
        self.tell(&self.news()).await;
        Ok(())
    }

    /// Registers the service with an endpoint for each tool.
    async fn register(&self, tools: &ToolList, revision: u64) -> Result<(Service, Vec<Endpoint>), NatsError> {
        let limit = self.link.client.max_payload();
        let bytes = 1024
            + tools.iter().map(|tool| 96 + 3 * tool.name.len() + self.subjects.name.len()).sum::<usize>();
        if bytes > limit {
            return Err(NatsError::TooManyTools { tools: tools.len(), bytes, limit });
        }
        let metadata = HashMap::from([
            ("toolbridge".into(), "1".into()),
            ("instance".into(), self.instance.clone()),
            ("host".into(), self.name.clone()),
            ("revision".into(), revision.to_string()),
            ("started".into(), self.started.as_millis().to_string()),
            ("version".into(), self.info.version.clone()),
        ]);
        let start = |version: String| {
            let service = self.link.client.service_builder().queue_group(QUEUE).metadata(metadata.clone());
            service
                .description(format!("Tools of {}", self.info.name))
                .start(self.subjects.name.clone(), version)
        };
        let service = match start(self.info.version.clone()).await {
            Ok(service) => service,
            // The services API accepts only three numbers; callers read the full version from the metadata.
            Err(_) => start("0.0.0".into()).await.map_err(|_| NatsError::Ended)?,
        };
        let mut endpoints = Vec::with_capacity(tools.len());
        for tool in tools.iter() {
            let endpoint =
                service.endpoint_builder().name(&tool.name).add(self.subjects.any(&tool.name)).await;
            endpoints.push(endpoint.map_err(|_| NatsError::Ended)?);
        }
        Ok((service, endpoints))
    }

    /// Receives calls, and registers the tools again when they have changed.
    async fn calls(
        self: Arc<Self>,
        mut direct: Subscriber,
        service: Service,
        endpoints: Vec<Endpoint>,
        mut changes: toolbridge_core::Changes,
    ) {
        let mut requests: SelectAll<_> = endpoints.into_iter().collect();
        let mut service = Some(service);
        let mut revision = 1;
        loop {
            let arrived = tokio::select! {
                biased;
                () = self.ended.cancelled() => return,
                () = self.closing.cancelled(), if service.is_some() => {
                    // Calls already on their way are still answered, with a refusal: their callers go to
                    // other hosts.
                    if let Some(service) = service.take() {
                        _ = service.stop().await;
                    }
                    // Stopping takes effect when the endpoints are polled.
                    while let Some(Some(request)) = requests.next().now_or_never() {
                        self.begin(Arrived::Service(Box::new(request)));
                    }
                    self.stopped.cancel();
                    continue;
                }
                () = changes.next(), if service.is_some() => {
                    revision += 1;
                    match self.register(&self.dispatcher.source().tools(), revision).await {
                        Ok((new, endpoints)) => {
                            requests.extend(endpoints);
                            if let Some(old) = service.replace(new) {
                                _ = old.stop().await;
                            }
                            self.tell(&self.news()).await;
                        }
                        Err(error) => tracing::error!(%error, "the tools have changed, and cannot be offered"),
                    }
                    continue;
                }
                Some(request) = requests.next(), if !requests.is_empty() => Arrived::Service(Box::new(request)),
                Some(message) = direct.next() => Arrived::Directly(Box::new(message)),
            };
            self.begin(arrived);
        }
    }

    fn begin(self: &Arc<Self>, arrived: Arrived) {
        self.tasks.spawn(run(Arc::clone(self), arrived).in_current_span());
    }

    /// Waits until the server has handled all earlier messages.
    async fn round_trip(&self) -> Result<(), RequestError> {
        let headers = Asked::Ping.headers(&self.instance);
        let ping = Request::new().headers(headers).timeout(Some(ROUND_TRIP));
        self.link.client.send_request(self.subjects.to(&self.instance), ping).await.map(drop)
    }

    /// Answers all messages but calls.
    async fn control(self: Arc<Self>, mut own: Subscriber, mut asked: Subscriber) {
        loop {
            let message = tokio::select! {
                biased;
                () = self.ended.cancelled() => return,
                Some(message) = own.next() => message,
                Some(message) = asked.next() => message,
            };
            let Some((asked, inbox)) = message.headers.as_ref().and_then(Asked::read) else { continue };
            if let Err(reason) = check_inbox(inbox) {
                tracing::debug!(reason, "a message is ignored");
                continue;
            }
            match asked {
                Asked::Part(place) => self.table.pass_part(inbox, place, message.payload.clone()),
                Asked::Ack(count) => self.table.pass_ack(inbox, count),
                Asked::Cancel => self.table.cancel(inbox),
                Asked::Where(age) => self.say_where(inbox, Duration::from_millis(age.into())).await,
                Asked::Tools => {
                    let inbox = Subject::from(inbox);
                    self.tasks.spawn(Arc::clone(&self).list(inbox).in_current_span());
                }
                Asked::Ping => {
                    if let Some(reply) = message.reply {
                        _ = self.link.client.publish(reply, Bytes::new()).await;
                    }
                }
                // Calls arrive on other subjects.
                Asked::Call(_) => {}
            }
        }
    }

    async fn say_where(&self, inbox: &str, age: Duration) {
        let (headers, payload) = match self.table.place(inbox, age) {
            Place::Running => (Told::Beat.headers(&self.speaker), Bytes::new()),
            Place::Answered(headers, payload) => (headers, payload),
            Place::Absent => (Told::Absent.headers(&self.speaker), Bytes::new()),
            Place::Over => (Told::Over.headers(&self.speaker), Bytes::new()),
        };
        if let Err(error) = self.link.client.publish_with_headers(inbox.to_owned(), headers, payload).await {
            tracing::warn!(%error, "a caller could not be notified where its call is");
        }
    }

    /// Sends the list of tools, like a result.
    async fn list(self: Arc<Self>, inbox: Subject) {
        let listed = listing::write(&self.dispatcher.source().tools());
        let client = &self.link.client;
        let tell = |headers, payload| client.publish_with_headers(inbox.clone(), headers, payload);
        let told = match listed {
            Ok(text) if text.as_bytes().len() <= room(client.max_payload()) => {
                tell(Told::Answer.headers(&self.speaker), text.to_bytes()).await
            }
            Ok(text) => {
                let whole = text.to_bytes();
                self.table.begin_listing(&inbox);
                let mut acks = self.table.acks(&inbox);
                let size = part_bytes(client.max_payload());
                let part = |place, part| {
                    let told = tell(Told::Part(place, whole.len()).headers(&self.speaker), part);
                    async { _ = told.await }
                };
                _ = self.cutter.send(&whole, size, 0, &mut acks, part).await;
                self.table.end_listing(&inbox);
                Ok(())
            }
            Err(error) => {
                let mut headers = Told::Error.headers(&self.speaker);
                let error = ToolError::new("NatsError", format!("the tools cannot be listed: {error}"));
                crate::wire::write_error(&mut headers, &error, client.max_payload());
                tell(headers, Bytes::new()).await
            }
        };
        if let Err(error) = told {
            tracing::warn!(%error, "a caller could not be notified of the tools");
        }
    }
}
