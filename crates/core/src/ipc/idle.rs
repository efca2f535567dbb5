//! Idle connections that are kept for later calls, and when they are closed.
//!
//! Each of them costs the parent a file descriptor. If the parent runs out of descriptors it cannot accept, and a
//! call on a new connection would wait forever while idle connections are open. Only the bridge can close them
//! safely, because only it knows that it is not about to send on them. So it closes them whenever one of its calls
//! is not accepted, and after a while also for the sake of other bridges.

use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use crate::ipc::peer::unread_bytes;
use crate::ipc::remote::Link;

/// As many as a busy client has calls in flight. Opening a connection costs more than a small call.
const MAX_IDLE_CONNECTIONS: usize = 64;

/// How long idle connections are kept, except for the last used one.
const IDLE_LIFE: Duration = Duration::from_secs(5);

/// A request that has not been read for this long has probably not been accepted.
const ACCEPT_PATIENCE: Duration = Duration::from_millis(50);

/// The longest interval between checks of such a request.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A bridge's idle connections; the last used one is at the end.
#[derive(Debug, Default)]
pub(crate) struct Idle(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    links: Vec<(Instant, Link)>,
    /// How many calls wait to be accepted. While there are any, no connection is kept.
    waiting_for_accept: usize,
    /// Whether a task is running that closes old connections.
    is_tended: bool,
}

impl Idle {
    /// A kept connection that is still usable, as far as is known.
    pub(crate) fn take(&self) -> Option<Link> {
        let mut kept = self.lock();
        // The parent may have closed it meanwhile, or may have sent something unexpected.
        std::iter::from_fn(|| kept.links.pop()).map(|(_, link)| link).find(|link| link.connection.is_fresh())
    }

    /// Keeps a connection, if there is room.
    pub(crate) fn keep(self: &Arc<Self>, link: Link) {
        let mut kept = self.lock();
        if kept.waiting_for_accept > 0 || kept.links.len() >= MAX_IDLE_CONNECTIONS {
            return;
        }
        kept.links.push((Instant::now(), link));
        if kept.links.len() > 1 && !std::mem::replace(&mut kept.is_tended, true) {
            tokio::spawn(tend(Arc::downgrade(self)));
        }
    }

    /// Closes idle connections while a request on the new connection `socket` is not accepted. Never returns; it is
    /// dropped with the call.
    pub(crate) async fn make_room(&self, socket: Option<Arc<OwnedFd>>) -> Infallible {
        if let Some(socket) = socket {
            let mut pause = ACCEPT_PATIENCE;
            sleep(pause).await;
            let mut waiting = None;
            // Until the request is read; on systems that do not report unread bytes, until the call ends.
            while unread_bytes(&socket) > 0 {
                waiting.get_or_insert_with(|| WaitingForAccept::new(self));
                let closed = std::mem::take(&mut self.lock().links);
                if !closed.is_empty() {
                    tracing::debug!(count = closed.len(), "closed idle connections for a call that waits");
                }
                drop(closed);
                // No connection is kept while this call waits.
                pause = (2 * pause).min(LONGEST_PAUSE);
                sleep(pause).await;
            }
            drop(waiting);
        }
        std::future::pending().await
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a call that waits to be accepted.
struct WaitingForAccept<'a>(&'a Idle);

impl<'a> WaitingForAccept<'a> {
    fn new(idle: &'a Idle) -> Self {
        idle.lock().waiting_for_accept += 1;
        Self(idle)
    }
}

impl Drop for WaitingForAccept<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting_for_accept -= 1;
    }
}

/// Closes connections that have been idle for too long; ends when at most one is left.
async fn tend(idle: Weak<Idle>) {
    loop {
        let Some(until) = idle.upgrade().and_then(|idle| {
            let mut kept = idle.lock();
            let old = kept.links.iter().take_while(|(since, _)| since.elapsed() >= IDLE_LIFE).count();
            let old = old.min(kept.links.len().saturating_sub(1));
            kept.links.drain(..old);
            let oldest = kept.links.first().map(|(since, _)| *since + IDLE_LIFE);
            kept.is_tended = kept.links.len() > 1;
            oldest.filter(|_| kept.is_tended)
        }) else {
            return;
        };
        sleep_until(until).await;
    }
}
