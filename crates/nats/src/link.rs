//! A connection and its state.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, Event, ServerError};
use tokio::sync::watch;
use tokio::time::Instant;

/// A connection to a NATS server. A lost one is reconnected, to another server of the cluster if necessary.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) client: Client,
    pub(crate) status: std::sync::Arc<Status>,
    /// The servers, without secrets.
    pub(crate) url: String,
}

/// The state of a connection.
#[derive(Debug)]
pub(crate) struct Status {
    /// When it came up, if it is up.
    up: watch::Sender<Option<Instant>>,
    /// Whether it has ever been lost.
    was_lost: AtomicBool,
    /// The last error of the server.
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
                tracing::warn!("the connection to NATS is lost; reconnecting");
                self.was_lost.store(true, Ordering::Relaxed);
                self.up.send_replace(None);
            }
            Event::SlowConsumer(_) => {
                tracing::warn!("messages from NATS arrive faster than they are read; one was lost");
            }
            Event::ServerError(ServerError::Other(said)) => {
                tracing::warn!(said, "the NATS server reported an error");
                *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(said.clone());
            }
            event => tracing::debug!(%event, "NATS"),
        }
    }

    /// When the connection came up; `None` while it is down.
    pub(crate) fn since(&self) -> Option<Instant> {
        *self.up.borrow()
    }

    /// Whether the connection was lost and has been up again for less than `time`; others may not have
    /// reconnected yet.
    pub(crate) fn is_back_for_less_than(&self, time: Duration) -> bool {
        self.was_lost.load(Ordering::Relaxed) && self.since().is_none_or(|since| since.elapsed() < time)
    }

    /// The last error of the server.
    pub(crate) fn refused(&self) -> Option<String> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Link {
    /// Waits until the connection is up, for at most `limit`; returns whether it is.
    pub(crate) async fn is_up_within(&self, limit: Duration) -> bool {
        if self.client.connection_state() == State::Connected && self.status.since().is_some() {
            return true;
        }
        let mut up = self.status.up.subscribe();
        tokio::time::timeout(limit, up.wait_for(Option::is_some)).await.is_ok_and(|up| up.is_ok())
    }
}
