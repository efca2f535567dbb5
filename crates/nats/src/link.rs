//! A connection, and how it is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, Event, ServerError};
use tokio::sync::watch;
use tokio::time::Instant;

/// A connection to a NATS server. A lost one is made again, to another server of the cluster if need be.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) client: Client,
    pub(crate) status: std::sync::Arc<Status>,
    /// The servers, without what may be secret.
    pub(crate) url: String,
}

/// What happened to a connection.
#[derive(Debug)]
pub(crate) struct Status {
    /// Since when it is up, if it is.
    up: watch::Sender<Option<Instant>>,
    /// Whether it was lost at some time.
    was_lost: AtomicBool,
    /// What the server last refused.
    refused: Mutex<Option<String>>,
}

impl Default for Status {
    fn default() -> Self {
        Self {
            up: watch::Sender::new(Some(Instant::now())),
            was_lost: AtomicBool::new(false),
            refused: Mutex::default(),
        }
    }
}

impl Status {
    pub(crate) fn note(&self, event: &Event) {
        match event {
            Event::Connected => _ = self.up.send_replace(Some(Instant::now())),
            Event::Disconnected | Event::Closed => {
                tracing::warn!("the connection to NATS is lost, and is made again");
                self.was_lost.store(true, Ordering::Relaxed);
                self.up.send_replace(None);
            }
            Event::SlowConsumer(_) => {
                tracing::warn!("messages of NATS come faster than they are read, and one is lost");
            }
            Event::ServerError(ServerError::Other(said)) => {
                tracing::warn!(said, "the NATS server refuses something");
                *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(said.clone());
            }
            event => tracing::debug!(%event, "NATS"),
        }
    }

    /// Since when the connection is up; nothing while it is down.
    pub(crate) fn since(&self) -> Option<Instant> {
        *self.up.borrow()
    }

    /// Whether the connection was lost, and is up again for less than that; others may not be back yet.
    pub(crate) fn is_back_for_less_than(&self, time: Duration) -> bool {
        self.was_lost.load(Ordering::Relaxed) && self.since().is_none_or(|since| since.elapsed() < time)
    }

    /// What the server last refused.
    pub(crate) fn refused(&self) -> Option<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Link {
    /// Waits until the connection is up; whether it is, after `limit` at the latest.
    pub(crate) async fn is_up_within(&self, limit: Duration) -> bool {
        if self.client.connection_state() == State::Connected && self.status.since().is_some() {
            return true;
        }
        let mut up = self.status.up.subscribe();
        tokio::time::timeout(limit, up.wait_for(Option::is_some)).await.is_ok_and(|up| up.is_ok())
    }
}
