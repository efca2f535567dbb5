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
use crate::wire::{Asked, Speaker, Told};
use crate::{Access, NatsError, listing};

/// Calls that run at a time, unless set.
const MAX_CALLS: usize = 512;

/// Large arguments that are held at a time, over all calls.
const MAX_REQUEST_BYTES: usize = 256 * 1024 * 1024;

/// How long calls under way have when the host ends, unless set.
const DRAIN: Duration = Duration::from_secs(30);

/// How long it may take until calls that were cancelled have ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How long a host that has taken its leave answers those who ask for their calls.
const LINGER: Duration = Duration::from_millis(500);

/// How long the server has to show that it has taken the subscriptions.
const ROUND_TRIP: Duration = Duration::from_secs(10);

/// Makes this process a host of `name`: it offers the tools of `source` there, together with all other hosts of that name.
///
/// It is a service of NATS, with an endpoint for each tool: `nats micro` shows what there is and what it did, and any client can
/// call with `nats request toolbridge.NAME.call.TOOL '{}'`.
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

/// A host that is being set up; [`serve`] makes one, and `.await` starts it.
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
    /// The NATS server, `nats://127.0.0.1:4222` unless set; several, with commas in between.
    pub fn at(mut self, url: impl Into<String>) -> Self {
        self.url = url.into();
        self
    }

    /// What this host is called, so that it can be addressed: the machine's name, unless set.
    pub fn host(mut self, name: impl Into<String>) -> Self {
        self.host = Some(name.into());
        self
    }

    /// Who this host is to the server.
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// How the host introduces itself. Where hosts disagree about a tool, the one with the newest version is right.
    pub fn info(mut self, info: ServerInfo) -> Self {
        self.info = info;
        self
    }

    /// Who is told of each call.
    pub fn tracer(mut self, tracer: Tracer) -> Self {
        self.tracer = tracer;
        self
    }

    /// Calls that run at a time, 512 unless set. Further ones are left to other hosts; their callers wait if all are full. Of the
    /// calls that take turns only one is taken.
    pub fn max_calls(mut self, calls: usize) -> Self {
        self.max_calls = calls.clamp(1, 1 << 20);
        self
    }

    /// How long calls under way have when the host is [drained](Host::drain), half a minute unless set.
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

/// What this machine is called.
fn machine_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "host".into() } else { name }
}

/// This process as a host. Dropped, it ends at once, and its calls are cancelled; [`drain`](Self::drain) lets them end.
#[derive(Debug)]
pub struct Host {
    shared: Arc<Shared>,
    drain: Duration,
}

impl Host {
    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The NATS servers, without what may be secret.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.shared.link.url
    }

    /// How many calls run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.shared.table.running()
    }

    /// Takes no more calls, lets those under way end, and then closes the connection. Calls that take too long are cancelled, and
    /// their callers are told.
    pub async fn drain(&self) {
        let shared = &self.shared;
        let connected = shared.link.status.since();
        let lost_nothing = !shared.link.status.is_back_for_less_than(KEPT);
        shared.closing.cancel();
        // When the server has passed this on, it sends no more calls; what it has sent before may be lost.
        shared.stopped.cancelled().await;
        _ = shared.round_trip().await;
        // Callers ask at once for calls of which they have heard nothing yet.
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
        let all_said = timeout(LAST_WORDS, shared.tasks.wait()).await.is_ok();
        if all_said && lost_nothing && shared.link.status.since() == connected {
            shared.tell(&News { event: Happened::Left, ..shared.news() }).await;
        }
        _ = timeout(LAST_WORDS, shared.link.client.flush()).await;
        _ = shared.link.client.drain().await;
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.shared.ended.cancel();
    }
}

/// What all tasks of a host share.
pub(crate) struct Shared {
    pub(crate) link: Link,
    pub(crate) subjects: Subjects,
    /// What the host is called.
    pub(crate) name: String,
    /// This process, and no other.
    pub(crate) instance: String,
    /// Both, as they stand in a header.
    pub(crate) speaker: String,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) table: Table,
    pub(crate) cutter: Cutter,
    pub(crate) requests: Budget,
    /// No more calls are taken.
    pub(crate) closing: CancellationToken,
    /// The service is not registered any more.
    stopped: CancellationToken,
    /// Everything ends.
    pub(crate) ended: CancellationToken,
    pub(crate) max_calls: usize,
    tasks: TaskTracker,
    /// Calls of plain clients that wait for room.
    waiting: AtomicUsize,
    /// Calls of plain clients, counted.
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

/// What a host tells all callers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct News {
    pub(crate) event: Happened,
    pub(crate) instance: String,
    pub(crate) host: String,
    /// The room that there is.
    #[serde(default)]
    pub(crate) parallel: usize,
    #[serde(default)]
    pub(crate) exclusive: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Happened {
    /// It is there, or its tools have changed.
    Changed,
    /// It takes no more calls.
    Leaving,
    /// It has answered every call that it had, and ends: what it has not answered did not run there.
    Left,
    /// It has room again.
    Room,
}

impl Shared {
    /// A name for a call that has no inbox.
    pub(crate) fn own_name(&self) -> String {
        format!("plain {}", self.plain.fetch_add(1, Ordering::Relaxed))
    }

    /// Calls that wait for room here.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(crate) async fn wait_for_room(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // Another one may have been quicker, and not every waiter is told.
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
            tracing::warn!(%error, "callers could not be told");
        }
    }

    /// Subscribes to everything, and starts the tasks that answer.
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
        // The server answers in order: when it has passed this on, it has taken the subscriptions as well.
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
            // The services API takes nothing but three numbers; callers read the other one.
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

    /// Takes calls, and registers the tools anew when they have changed.
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
                    // Those that are on their way are still answered: they go elsewhere.
                    if let Some(service) = service.take() {
                        _ = service.stop().await;
                    }
                    // It ends when its endpoints are looked at.
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

    /// Waits until the server has done everything that it was told before.
    async fn round_trip(&self) -> Result<(), RequestError> {
        let headers = Asked::Ping.headers(&self.instance);
        let ping = Request::new().headers(headers).timeout(Some(ROUND_TRIP));
        self.link.client.send_request(self.subjects.to(&self.instance), ping).await.map(drop)
    }

    /// Answers everything that is no call.
    async fn control(self: Arc<Self>, mut own: Subscriber, mut asked: Subscriber) {
        loop {
            let message = tokio::select! {
                biased;
                () = self.ended.cancelled() => return,
                Some(message) = own.next() => message,
                Some(message) = asked.next() => message,
            };
            let Some((asked, inbox)) = message.headers.as_ref().and_then(Asked::read) else { continue };
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
                // Calls come elsewhere.
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
            tracing::warn!(%error, "a caller could not be told where its call is");
        }
    }

    /// Says which tools there are. It is a call that needs no tool.
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
            tracing::warn!(%error, "a caller could not be told of the tools");
        }
    }
}
