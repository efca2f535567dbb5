//! Routes hosts' messages to the calls of a caller.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_nats::{Message, Subscriber};
use futures_util::StreamExt as _;
use tokio::sync::mpsc;

/// The inboxes of a caller, which share one subscription.
#[derive(Debug)]
pub(crate) struct Router {
    prefix: String,
    next: AtomicU64,
    open: Mutex<HashMap<u64, mpsc::UnboundedSender<Message>>>,
}

/// The inbox of one call.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) name: String,
    pub(crate) messages: mpsc::UnboundedReceiver<Message>,
    number: u64,
    router: Arc<Router>,
}

impl Router {
    pub(crate) fn new(prefix: String) -> Self {
        Self { prefix, next: AtomicU64::new(0), open: Mutex::default() }
    }

    /// The subject to subscribe to.
    pub(crate) fn subject(&self) -> String {
        format!("{}.*", self.prefix)
    }

    pub(crate) fn open(self: &Arc<Self>) -> Inbox {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, messages) = mpsc::unbounded_channel();
        self.lock().insert(number, sender);
        Inbox { name: format!("{}.{number}", self.prefix), messages, number, router: Arc::clone(self) }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, mpsc::UnboundedSender<Message>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Routes each message, until the subscription ends.
    pub(crate) async fn route(self: Arc<Self>, mut subscription: Subscriber) {
        while let Some(message) = subscription.next().await {
            let number = message.subject.rsplit('.').next().and_then(|number| number.parse().ok());
            // A late message has no inbox any more.
            if let Some(number) = number
                && let Some(inbox) = self.lock().get(&number)
            {
                _ = inbox.send(message);
            }
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.router.lock().remove(&self.number);
    }
}
