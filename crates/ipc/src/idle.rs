//! Connections that are kept for later calls, and how they give way.
//!
//! Each costs the parent a descriptor, and it may have few: with all of them taken it accepts nobody, and a call on a new
//! connection waits for ever beside connections that nobody uses. Only the bridge can close them without a doubt, because
//! only it knows that it is not about to send. So it does, whenever one of its calls is not accepted; and after a while for
//! the sake of other bridges.

use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use crate::peer::unread_bytes;
use crate::remote::Link;

/// As many as a busy client has calls in flight. Making a new one costs more than a small call.
const MAX_IDLE_CONNECTIONS: usize = 64;

/// How long they are kept, all but the one that was used last.
const IDLE_LIFE: Duration = Duration::from_secs(5);

/// A request that nobody has read for so long has probably not been accepted.
const ACCEPT_PATIENCE: Duration = Duration::from_millis(50);

/// How often such a request is looked at, in the end.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A bridge's idle connections, the one that was used last at the end.
#[derive(Debug, Default)]
pub(crate) struct Idle(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    links: Vec<(Instant, Link)>,
    /// Calls that have not been accepted. As long as there are any, nothing is kept.
    hungry: usize,
    /// Whether somebody sees to it that nothing is kept too long.
    is_tended: bool,
}

impl Idle {
    /// A kept connection that is still good, as far as is known.
    pub(crate) fn take(&self) -> Option<Link> {
        let mut kept = self.lock();
        // The parent may have closed it since, or may have sent what nobody asked for.
        std::iter::from_fn(|| kept.links.pop()).map(|(_, link)| link).find(|link| link.connection.is_fresh())
    }

    /// Keeps a connection, if there is room for it.
    pub(crate) fn keep(self: &Arc<Self>, link: Link) {
        let mut kept = self.lock();
        if kept.hungry > 0 || kept.links.len() >= MAX_IDLE_CONNECTIONS {
            return;
        }
        kept.links.push((Instant::now(), link));
        if kept.links.len() > 1 && !std::mem::replace(&mut kept.is_tended, true) {
            tokio::spawn(tend(Arc::downgrade(self)));
        }
    }

    /// Sees to it that a request on the new connection `socket` is accepted, as far as that is up to this bridge. Never
    /// returns; dropped with the call.
    pub(crate) async fn make_room(&self, socket: Option<Arc<OwnedFd>>) -> Infallible {
        if let Some(socket) = socket {
            let mut pause = ACCEPT_PATIENCE;
            sleep(pause).await;
            let mut hungry = None;
            // Until it is read, or as long as the call takes where the system does not say.
            while unread_bytes(&socket) > 0 {
                hungry.get_or_insert_with(|| Hungry::new(self));
                let given_up = std::mem::take(&mut self.lock().links);
                if !given_up.is_empty() {
                    tracing::debug!(count = given_up.len(), "closed idle connections for a call that waits");
                }
                drop(given_up);
                // Nothing more is kept meanwhile.
                pause = (2 * pause).min(LONGEST_PAUSE);
                sleep(pause).await;
            }
            drop(hungry);
        }
        std::future::pending().await
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that has not been accepted.
struct Hungry<'a>(&'a Idle);

impl<'a> Hungry<'a> {
    fn new(idle: &'a Idle) -> Self {
        idle.lock().hungry += 1;
        Self(idle)
    }
}

impl Drop for Hungry<'_> {
    fn drop(&mut self) {
        self.0.lock().hungry -= 1;
    }
}

/// Closes what has been idle for too long, until there is no more to close.
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
