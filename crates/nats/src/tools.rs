//! The tools of all hosts of a name, as a source.

use std::collections::HashMap;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::{ConnectOptions, Message, Request, StatusCode, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{Select, select};
use serde_json::from_slice;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use toolbridge_core::source::{CallFuture, Changes};
use toolbridge_core::tool::{RawJson, ToolCall, ToolList};
use toolbridge_core::{CallContext, ToolSource};
use tracing::Instrument as _;

use crate::NatsError;
use crate::connection::NatsConnection;
use crate::directory::{Address, Directory, LiveHost, Union};
use crate::wire::{Hello, Subjects};

/// How often hosts are asked whether they are live.
const PING: Duration = Duration::from_secs(2);

/// How often at most, when a call finds no host.
const SOON: Duration = Duration::from_millis(100);

/// How long to wait for hosts at the start: for the first one, and for others after it.
const FIRST: Duration = Duration::from_secs(2);
const OTHERS: Duration = Duration::from_millis(200);

/// How long a host has to list its tools.
const LIST: Duration = Duration::from_secs(5);

/// The tools of all live hosts of a name. Calls go to any host with free capacity, to one host, or to all.
///
/// ```no_run
/// # mod toolbridge { pub use toolbridge_core::*; pub use toolbridge_nats as nats; }
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
/// once if its tool is read-only; otherwise it fails with an `InDoubtError`, which says that it
/// may have run.
#[derive(Debug)]
pub struct Tools {
    caller: Arc<CallerState>,
    _following: AbortOnDropHandle<()>,
}

/// Tools before the connection is made; made by [`Tools::connect`], connected by `.await`.
#[derive(Debug)]
#[must_use = "it does nothing before it is awaited"]
pub struct ToolsBuilder {
    url: String,
    name: String,
    address: Address,
    options: ConnectOptions,
    may_be_empty: bool,
}

impl ToolsBuilder {
    /// The credentials and other settings of the connection, except for its name, its event callback and the
    /// pauses between attempts to reconnect.
    pub fn options(mut self, options: ConnectOptions) -> Self {
        self.options = options;
        self
    }

    /// Accepts an empty list at the start. Without this, it is an error if no host is live.
    pub fn may_be_empty(mut self) -> Self {
        self.may_be_empty = true;
        self
    }

    async fn connect(self) -> Result<Tools, NatsError> {
        let subjects = Subjects::new(&self.name)?;
        let shown = format!("toolbridge caller of {}", self.name);
        let connection = NatsConnection::open(self.options, &self.url, shown).await?;
        let (client, ended) = (&connection.client, |_| NatsError::Ended);
        let inbox = client.new_inbox();
        let answers = client.subscribe(format!("{inbox}.*")).await.map_err(ended)?;
        let news = client.subscribe(subjects.news()).await.map_err(ended)?;
        let mut messages = select(answers, news);
        let caller = Arc::new(CallerState {
            address: self.address,
            directory: Mutex::default(),
            changed: watch::Sender::default(),
            look_around: Notify::new(),
            connection,
            subjects,
            inbox,
            pending: Mutex::default(),
        });
        caller.discover(&mut messages, self.may_be_empty).await?;
        let following = Arc::clone(&caller).follow(messages);
        let following = AbortOnDropHandle::new(tokio::spawn(following.in_current_span()));
        Ok(Tools { caller, _following: following })
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
        let (name, address) = Address::of(name.as_ref());
        let options = ConnectOptions::new();
        ToolsBuilder { url: url.into(), name: name.into(), address, options, may_be_empty: false }
    }

    /// Like [`connect`](Self::connect), with the name after the address: `nats://127.0.0.1:4222/shop@host-7`.
    ///
    /// # Errors
    ///
    /// When there is no name.
    pub fn from_url(url: &str) -> Result<ToolsBuilder, NatsError> {
        match url.rsplit_once('/') {
            // Not one of the slashes of an address.
            Some((servers, name)) if !name.is_empty() && !servers.is_empty() && !servers.ends_with('/') => {
                Ok(Self::connect(servers, name))
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

/// What hosts send: to the inboxes of this process, and to all.
type Messages = Select<Subscriber, Subscriber>;

/// The calls without an answer so far, by inbox.
type PendingCalls = HashMap<String, mpsc::UnboundedSender<Message>>;

/// State shared by all calls.
#[derive(Debug)]
pub(crate) struct CallerState {
    pub(crate) connection: NatsConnection,
    pub(crate) subjects: Subjects,
    pub(crate) address: Address,
    /// The begin of all inboxes, which share one subscription.
    pub(crate) inbox: String,
    pending: Mutex<PendingCalls>,
    directory: Mutex<Directory>,
    changed: watch::Sender<()>,
    /// Notified when hosts should be asked whether they are live.
    pub(crate) look_around: Notify,
}

impl CallerState {
    pub(crate) fn directory(&self) -> MutexGuard<'_, Directory> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn pending(&self) -> MutexGuard<'_, PendingCalls> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn union(&self) -> Arc<Union> {
        Arc::clone(&self.directory().union)
    }

    /// Changes what is known of the hosts, and the list of tools with it.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Directory)) {
        let mut directory = self.directory();
        change(&mut directory);
        if directory.combine(&self.address) {
            self.changed.send_replace(());
        }
    }

    /// Asks which hosts there are.
    async fn ping(&self) {
        let (hosts, inbox) = (self.subjects.hosts(), format!("{}.hosts", self.inbox));
        _ = self.connection.client.publish_with_reply(hosts, inbox, Bytes::new()).await;
    }

    /// Looks for hosts at the start.
    async fn discover(
        self: &Arc<Self>,
        messages: &mut Messages,
        may_be_empty: bool,
    ) -> Result<(), NatsError> {
        self.ping().await;
        let mut until = Instant::now() + FIRST;
        let mut listing = JoinSet::new();
        while let Ok(Some(message)) = timeout_at(until, messages.next()).await {
            if message.status == Some(StatusCode::NO_RESPONDERS) {
                break;
            }
            self.hear(message, &mut listing);
            until = until.min(Instant::now() + OTHERS);
        }
        while listing.join_next().await.is_some() {}
        if let Some(reason) = self.connection.refused() {
            return Err(NatsError::Forbidden { reason });
        }
        if !may_be_empty && self.directory().at(&self.address).next().is_none() {
            return Err(NatsError::NoHost { name: self.shown_name(None) });
        }
        Ok(())
    }

    /// Passes a message on to its call. Notes what a host says of itself, and requests its tools if they are not known.
    fn hear(self: &Arc<Self>, message: Message, listing: &mut JoinSet<()>) {
        if let Some(call) = self.pending().get(message.subject.as_str()) {
            _ = call.send(message);
            return;
        }
        let Ok(hello) = from_slice::<Hello>(&message.payload) else { return };
        if hello.is_leaving {
            self.update(|directory| directory.remove(&hello.instance));
        } else if self.directory().note(&hello) {
            listing.spawn(Arc::clone(self).list(hello).in_current_span());
        }
    }

    /// Requests the tools of a host.
    async fn list(self: Arc<Self>, hello: Hello) {
        let request = Request::new().timeout(Some(LIST));
        let asked = self.connection.client.send_request(self.subjects.tools(&hello.instance), request).await;
        let listed = asked.map_err(|error| error.to_string());
        let listed = listed.and_then(|list| from_slice(&list.payload).map_err(|error| error.to_string()));
        match listed {
            Ok::<Vec<RawJson>, _>(listed) => {
                let list = ToolList::of_listed(&hello.host, &listed);
                self.update(|directory| directory.add(hello, list));
            }
            Err(reason) => tracing::warn!(host = hello.host, reason, "a host does not list its tools"),
        }
    }

    /// Follows the hosts.
    async fn follow(self: Arc<Self>, mut messages: Messages) {
        let mut listing = JoinSet::new();
        let mut pinged = Instant::now();
        loop {
            tokio::select! {
                Some(message) = messages.next() => {
                    self.hear(message, &mut listing);
                    continue;
                }
                Some(_) = listing.join_next() => continue,
                // Many calls may want it.
                () = self.look_around.notified() => if pinged.elapsed() < SOON { continue },
                // Without a connection, hosts cannot answer, and they may connect later than this process.
                () = sleep_until(pinged + PING) => if self.connection.up().is_some_and(|up| up.elapsed() > 2 * PING) {
                    self.update(|directory| directory.sweep(Instant::now()));
                },
            }
            pinged = Instant::now();
            self.ping().await;
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
