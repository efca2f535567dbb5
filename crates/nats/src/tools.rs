//! The tools of all hosts of a name, as a source.

use std::collections::VecDeque;
use std::fmt;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use async_nats::{Message, StatusCode, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use toolbridge_core::{CallContext, CallFuture, Changes, ToolCall, ToolList, ToolSource, ToolSpec};
use tracing::Instrument as _;

use crate::directory::{Directory, Disagreement, LiveHost, Pong, Union};
use crate::host::{Happened, News};
use crate::link::Link;
use crate::parts::{Assembly, Cutter, MAX_MESSAGE_BYTES};
use crate::room::Waiting;
use crate::router::{Inbox, Router};
use crate::subject::{Address, Subjects, address};
use crate::wire::{Asked, Lane, Told, read_error};
use crate::{Access, NatsError, listing};

/// How often hosts are pinged.
const PING: Duration = Duration::from_secs(2);

/// How long to wait for hosts at the start: for the first one, and for others after it.
const FIRST: Duration = Duration::from_secs(2);
const OTHERS: Duration = Duration::from_millis(200);

/// How many ended processes are remembered.
const MAX_LEFT: usize = 32;

/// How long a host has to list its tools.
const LIST: Duration = Duration::from_secs(5);

/// The tools of all live hosts of a name. Calls go to any host with room, to one host, or to all.
///
/// ```no_run
/// # mod toolbridge { pub use toolbridge_core::*; pub mod nats { pub use toolbridge_nats::*; } }
/// use toolbridge::nats::Tools;
///
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// let any = Tools::connect("nats://127.0.0.1:4222", "shop").await?;
/// let one = Tools::connect("nats://127.0.0.1:4222", "shop@host-7").await?;
/// let all = Tools::connect("nats://127.0.0.1:4222", "shop@*").await?;
/// # Ok(()) }
/// ```
///
/// Hosts come and go, and the list follows. If no host is left, the list stays as it was, and calls fail at
/// once. A host that dies in the middle of a call is noticed within three seconds. The call is then repeated
/// once if its tool is read-only or idempotent; otherwise it fails with an `InDoubtError`, which says that it
/// may have run.
pub struct Tools {
    caller: Arc<Caller>,
    _tasks: [AbortOnDropHandle<()>; 2],
}

/// Tools before the connection is made; made by [`Tools::connect`], connected by `.await`.
#[derive(Debug)]
#[must_use = "it does nothing before it is awaited"]
pub struct ToolsBuilder {
    url: String,
    name: String,
    address: Address,
    access: Access,
    may_be_empty: bool,
}

impl ToolsBuilder {
    /// Calls only the host of that name.
    pub fn only_host(mut self, host: impl Into<String>) -> Self {
        self.address = Address::One(host.into());
        self
    }

    /// Calls every host that has the tool, and joins their results: each host's blocks below its name, and
    /// all results in an array as the structured content.
    pub fn all_hosts(mut self) -> Self {
        self.address = Address::All;
        self
    }

    /// The credentials for the server.
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Accepts an empty list at the start. Without this, it is an error if no host is live.
    pub fn may_be_empty(mut self) -> Self {
        self.may_be_empty = true;
        self
    }

    async fn connect(self) -> Result<Tools, NatsError> {
        let subjects = Subjects::new(&self.name)?;
        let link = self.access.connect(&self.url, format!("toolbridge caller of {}", self.name)).await?;
        let (client, ended) = (&link.client, |_| NatsError::Ended);
        let router = Arc::new(Router::new(client.new_inbox()));
        let inboxes = client.subscribe(router.subject()).await.map_err(ended)?;
        let news = client.subscribe(subjects.news()).await.map_err(ended)?;
        let routing = tokio::spawn(Arc::clone(&router).route(inboxes).in_current_span());
        let routing = AbortOnDropHandle::new(routing);
        let (unwanted, to_cancel) = mpsc::unbounded_channel();
        let caller = Arc::new(Caller {
            address: self.address,
            directory: Mutex::default(),
            union: RwLock::default(),
            changed: watch::Sender::default(),
            waiting: Waiting::default(),
            cutter: Cutter::default(),
            left: watch::Sender::default(),
            look_around: Notify::new(),
            unwanted,
            link,
            subjects,
            router,
        });
        let mut pongs = caller.router.open();
        caller.discover(&mut pongs, self.may_be_empty).await?;
        let keeping = Arc::clone(&caller).keep(pongs, news, to_cancel);
        let keeping = AbortOnDropHandle::new(tokio::spawn(keeping.in_current_span()));
        Ok(Tools { caller, _tasks: [routing, keeping] })
    }
}

impl IntoFuture for ToolsBuilder {
    type Output = Result<Tools, NatsError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.connect())
    }
}

impl Tools {
    /// The tools of `name` at a NATS server, or at several, separated by commas. The name can select hosts:
    /// `shop` is any host, `shop@host-7` is one, `shop@*` is all.
    pub fn connect(url: impl Into<String>, name: impl AsRef<str>) -> ToolsBuilder {
        let (name, address) = address(name.as_ref());
        ToolsBuilder {
            url: url.into(),
            name: name.into(),
            address,
            access: Access::new(),
            may_be_empty: false,
        }
    }

    /// Like [`connect`](Self::connect), with the name after the address: `nats://127.0.0.1:4222/shop@host-7`.
    ///
    /// # Errors
    ///
    /// When there is no name.
    pub fn from_url(url: &str) -> Result<ToolsBuilder, NatsError> {
        let after_scheme = url.find("://").map_or(0, |at| at + 3);
        match url[after_scheme..].rfind('/') {
            // Not one of the slashes of a second address.
            Some(slash)
                if after_scheme + slash + 1 < url.len() && !url[..after_scheme + slash].ends_with('/') =>
            {
                let (servers, name) = url.split_at(after_scheme + slash);
                Ok(Self::connect(servers, &name[1..]))
            }
            _ => Err(NatsError::Url {
                reason: "it has no name at its end, as in nats://127.0.0.1:4222/gpu".into(),
            }),
        }
    }

    /// The name of the tools' hosts.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.caller.subjects.name
    }

    /// The live hosts.
    #[must_use]
    pub fn hosts(&self) -> Vec<LiveHost> {
        self.caller.directory().live()
    }

    /// The tools that hosts describe differently.
    #[must_use]
    pub fn disagreements(&self) -> Vec<Disagreement> {
        self.caller.union().disagreements.clone()
    }
}

impl fmt::Debug for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tools")
            .field("name", &self.name())
            .field("address", &self.caller.address)
            .finish_non_exhaustive()
    }
}

impl ToolSource for Tools {
    fn tools(&self) -> ToolList {
        self.caller.union().list.clone()
    }

    fn changes(&self) -> Changes {
        Changes::of(self.caller.changed.subscribe())
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        Box::pin(async move { self.caller.call(&call, &context).await })
    }
}

/// State shared by all calls.
pub(crate) struct Caller {
    pub(crate) link: Link,
    pub(crate) subjects: Subjects,
    pub(crate) address: Address,
    pub(crate) router: Arc<Router>,
    pub(crate) waiting: Waiting,
    pub(crate) cutter: Cutter,
    directory: Mutex<Directory>,
    union: RwLock<Arc<Union>>,
    changed: watch::Sender<()>,
    /// The latest processes that have ended after answering everything; also notified when one is about to
    /// end.
    pub(crate) left: watch::Sender<VecDeque<String>>,
    /// Notified when hosts should be pinged.
    look_around: Notify,
    unwanted: mpsc::UnboundedSender<Unwanted>,
}

/// A cancelled call.
#[derive(Debug)]
pub(crate) struct Unwanted {
    pub(crate) inbox: String,
    /// The process that has it, if known.
    pub(crate) instance: Option<String>,
}

impl Caller {
    pub(crate) fn directory(&self) -> MutexGuard<'_, Directory> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn union(&self) -> Arc<Union> {
        Arc::clone(&self.union.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn unwanted(&self, call: Unwanted) {
        _ = self.unwanted.send(call);
    }

    pub(crate) fn look_around(&self) {
        self.look_around.notify_one();
    }

    /// Removes a host that has no subscriber.
    pub(crate) fn host_is_gone(&self, host: &str) {
        if self.directory().remove_named(host) {
            self.update();
        }
    }

    /// Removes a process that takes no more calls, or whose tools have changed.
    pub(crate) fn process_is_gone(&self, instance: &str) {
        if self.directory().remove(instance) {
            self.update();
        }
        self.look_around();
    }

    /// Updates the list of tools.
    fn update(&self) {
        let only = match &self.address {
            Address::One(host) => Some(&**host),
            _ => None,
        };
        let mut new = self.directory().union(only);
        if self.address == Address::All {
            // An output schema holds for each host's result, but not for the joined one.
            let mut tools: Vec<ToolSpec> = new.list.to_vec();
            for tool in &mut tools {
                tool.output_schema = None;
            }
            new.list = ToolList::new(tools).unwrap_or_default();
        }
        let old = self.union();
        if new.hosts.is_empty() && new.instances.is_empty() {
            // No host is live: keep the tools, so that calls can report why they fail.
            new.list = old.list.clone();
        }
        for about in new.disagreements.iter().filter(|about| !old.disagreements.contains(about)) {
            let (tool, listed, others) = (&*about.tool, &*about.listed, &about.others);
            tracing::warn!(
                tool,
                listed,
                ?others,
                "hosts describe a tool differently; the newest version is used"
            );
        }
        let is_other = *new.list != *old.list;
        if !is_other {
            new.list = old.list.clone();
        }
        *self.union.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
        if is_other {
            self.changed.send_replace(());
        }
    }

    async fn ping(&self, pongs: &Inbox) {
        let sent =
            self.link.client.publish_with_reply(self.subjects.ping(), pongs.name.clone(), Bytes::new()).await;
        if let Err(error) = sent {
            tracing::warn!(%error, "cannot search for hosts");
        }
    }

    /// Looks for hosts at the start.
    async fn discover(self: &Arc<Self>, pongs: &mut Inbox, may_be_empty: bool) -> Result<(), NatsError> {
        self.ping(pongs).await;
        let mut until = Instant::now() + FIRST;
        let mut listing = JoinSet::new();
        loop {
            let Ok(Some(message)) = timeout_at(until, pongs.messages.recv()).await else { break };
            if message.status == Some(StatusCode::NO_RESPONDERS) {
                break;
            }
            if let Some((instance, revision)) = self.note(&message) {
                let caller = Arc::clone(self);
                listing.spawn(async move { caller.list(instance, revision).await });
            }
            until = until.min(Instant::now() + OTHERS);
        }
        let asked = listing.len();
        let listed = listing.join_all().await.into_iter().filter(|is_listed| *is_listed).count();
        self.update();
        if let Some(reason) = self.link.status.refused() {
            return Err(NatsError::Forbidden { reason });
        }
        let is_there = match &self.address {
            Address::One(host) => self.directory().has_named(host),
            _ => !self.directory().is_empty(),
        };
        if !is_there && !may_be_empty {
            let name = match &self.address {
                Address::One(host) => format!("{}@{host}", self.subjects.name),
                _ => self.subjects.name.clone(),
            };
            return Err(NatsError::NoHost { name });
        }
        if asked > 0 && listed == 0 {
            return Err(NatsError::Silent { name: self.subjects.name.clone() });
        }
        Ok(())
    }

    /// Notes that a host is live; returns the process and revision if its tools are not known.
    fn note(&self, message: &Message) -> Option<(String, u64)> {
        let pong: Pong = serde_json::from_slice(&message.payload).ok()?;
        self.directory().note(&pong)
    }

    /// Requests a process's tools; returns whether it has sent them.
    async fn list(&self, instance: String, revision: u64) -> bool {
        match timeout(LIST, self.ask_for_list(&instance)).await {
            Ok(Ok(list)) => {
                self.directory().set_list(&instance, revision, list);
                self.update();
                true
            }
            Ok(Err(reason)) => {
                tracing::warn!(instance, reason, "the tools of a host cannot be listed");
                false
            }
            Err(_) => {
                tracing::warn!(instance, "a host does not list its tools");
                false
            }
        }
    }

    async fn ask_for_list(&self, instance: &str) -> Result<ToolList, String> {
        let mut inbox = self.router.open();
        let (client, to) = (&self.link.client, self.subjects.to(instance));
        let headers = Asked::Tools.headers(&inbox.name);
        let sent = client.publish_with_headers(to.clone(), headers, Bytes::new()).await;
        sent.map_err(|error| error.to_string())?;
        let mut assembly: Option<Assembly> = None;
        let text = loop {
            let Some(message) = inbox.messages.recv().await else {
                return Err("the connection has ended".into());
            };
            let Some(headers) = &message.headers else { continue };
            match Told::read(headers) {
                Some(Told::Answer) => break message.payload,
                Some(Told::Error) => return Err(read_error(headers).to_string()),
                Some(Told::Part(place, bytes)) if bytes <= MAX_MESSAGE_BYTES => {
                    let assembly_ref = assembly.get_or_insert_with(|| Assembly::new(bytes));
                    let parts = assembly_ref.take(place, &message.payload);
                    let headers = Asked::Ack(parts).headers(&inbox.name);
                    _ = client.publish_with_headers(to.clone(), headers, Bytes::new()).await;
                    if assembly_ref.is_whole() {
                        break assembly.take().map(Assembly::whole).unwrap_or_default();
                    }
                }
                Some(Told::Part(_, bytes)) => return Err(format!("its list has {bytes} bytes")),
                _ => {}
            }
        };
        listing::read(instance, &text).map_err(|error| error.to_string())
    }

    /// Follows the hosts, and sends them cancellations.
    async fn keep(
        self: Arc<Self>,
        mut pongs: Inbox,
        mut news: Subscriber,
        mut to_cancel: mpsc::UnboundedReceiver<Unwanted>,
    ) {
        let mut ticks = interval_at(Instant::now() + PING, PING);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut listing = JoinSet::new();
        loop {
            tokio::select! {
                Some(call) = to_cancel.recv() => self.cancel(call).await,
                Some(message) = news.next() => self.hear(&message),
                _ = ticks.tick() => {
                    // Without a connection, hosts cannot answer.
                    let is_up = self.link.status.since().is_some_and(|since| since.elapsed() > PING);
                    if is_up && self.directory().sweep(Instant::now()) {
                        self.update();
                    }
                    self.ping(&pongs).await;
                }
                () = self.look_around.notified() => self.ping(&pongs).await,
                Some(message) = pongs.messages.recv() => {
                    if message.status == Some(StatusCode::NO_RESPONDERS) {
                        self.directory().clear();
                        self.update();
                    } else if let Some((instance, revision)) = self.note(&message) {
                        let caller = Arc::clone(&self);
                        listing.spawn(async move { caller.list(instance, revision).await });
                    }
                }
                Some(_) = listing.join_next() => {}
            }
        }
    }

    fn hear(&self, message: &Message) {
        let Ok(news) = serde_json::from_slice::<News>(&message.payload) else { return };
        match news.event {
            Happened::Changed => self.look_around(),
            Happened::Leaving => {
                self.process_is_gone(&news.instance);
                self.left.send_modify(|_| {});
            }
            Happened::Left => {
                self.process_is_gone(&news.instance);
                self.left.send_modify(|left| {
                    left.truncate(MAX_LEFT - 1);
                    left.push_front(news.instance);
                });
            }
            Happened::Room => {
                self.waiting.tell(Lane::Parallel, news.parallel, &news.host);
                self.waiting.tell(Lane::Exclusive, news.exclusive, &news.host);
            }
        }
    }

    async fn cancel(&self, call: Unwanted) {
        let to = match &call.instance {
            Some(instance) => self.subjects.to(instance),
            // The process is unknown, so tell all hosts.
            None => self.subjects.ask(),
        };
        let headers = Asked::Cancel.headers(&call.inbox);
        if let Err(error) = self.link.client.publish_with_headers(to, headers, Bytes::new()).await {
            tracing::warn!(%error, "a call could not be cancelled");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_follows_the_address() {
        let rows = [
            ("nats://127.0.0.1:4222/gpu", "nats://127.0.0.1:4222", "gpu", Address::Any),
            ("nats://u:p@h/gpu@host-7", "nats://u:p@h", "gpu", Address::One("host-7".into())),
            ("nats://a,nats://b/gpu@*", "nats://a,nats://b", "gpu", Address::All),
            ("localhost/gpu", "localhost", "gpu", Address::Any),
        ];
        for (url, servers, name, address) in rows {
            let Ok(builder) = Tools::from_url(url) else { panic!("{url}") };
            assert_eq!((&*builder.url, &*builder.name, builder.address), (servers, name, address), "{url}");
        }
        for bad in ["nats://127.0.0.1:4222", "nats://a,nats://b", "nats://127.0.0.1:4222/", "gpu", ""] {
            assert!(Tools::from_url(bad).is_err(), "{bad}");
        }
    }
}
