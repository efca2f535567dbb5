//! `watch_tools`: notifies a bridge that the list of tools has changed.
//!
//! An extension: it is only sent to parents whose file names identify them as ours, on a separate connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{RawJson, ToolError};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, Semaphore, watch};

use crate::ipc::message::{Parts, Reply, write_reply};
use crate::ipc::{IpcError, MAX_CONNECTIONS};

pub(crate) const WATCH_TOOLS: &str = "watch_tools";

/// How many connections may wait for a change. The others are for calls.
const MAX_WATCHERS: usize = MAX_CONNECTIONS / 2;

/// A parent's answer to `watch_tools`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Watched {
    /// Different for each list of tools. The schema file is at least as new.
    pub(crate) revision: u64,
    /// How many calls the parent has begun to answer.
    #[serde(default)]
    pub(crate) calls: u64,
}

/// Requests a revision other than `known`; without it, the current one immediately.
pub(crate) fn write_watch(known: Option<u64>) -> Parts {
    let params = known.map_or(RawJson::empty_object(), |revision| {
        RawJson::of(&serde_json::json!({ "revision": revision })).expect("a number can always be written")
    });
    let head = format!(r#"{{"method":"{WATCH_TOOLS}","params":"#).into_bytes();
    Parts { head, payload: params, tail: b"}".to_vec() }
}

/// Reads the answer.
pub(crate) fn read_watched(frame: &Bytes) -> Result<Watched, IpcError> {
    #[derive(Deserialize)]
    struct Answer {
        result: Watched,
    }
    match serde_json::from_slice(frame) {
        Ok(Answer { result }) => Ok(result),
        Err(_) => Err(IpcError::Invalid { reason: "the parent does not say when its tools change".into() }),
    }
}

/// What the watchers of a server wait for.
#[derive(Debug, Clone)]
pub(crate) struct Watchers {
    /// `None` if there is no schema file.
    revision: Option<watch::Receiver<u64>>,
    calls: Arc<AtomicU64>,
    places: Arc<Semaphore>,
    hang_up: Arc<Notify>,
}

impl Watchers {
    pub(crate) fn new(revision: Option<watch::Receiver<u64>>) -> Self {
        let places = Arc::new(Semaphore::new(MAX_WATCHERS));
        Self { revision, calls: Arc::default(), places, hang_up: Arc::default() }
    }

    /// Counts a call.
    pub(crate) fn count(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Closes the connections of all watchers, because calls need the descriptors.
    pub(crate) fn hang_up(&self) {
        self.hang_up.notify_waiters();
    }

    /// Waits until the revision differs from `known`; `None` if the connection is to be closed.
    pub(crate) async fn answer(&self, known: Option<u64>) -> Option<Parts> {
        let refuse = |error| Some(write_reply(Reply::Error(error)));
        let Some(mut revision) = self.revision.clone() else {
            return refuse(ToolError::new(
                "UnknownMethodError",
                "this socket has no schema file that could change",
            ));
        };
        let Ok(_place) = self.places.try_acquire() else {
            let text = format!("{MAX_WATCHERS} connections wait for a change, which is the limit");
            return refuse(ToolError::new("IPCError", text));
        };
        let changed = tokio::select! {
            changed = revision.wait_for(|now| Some(*now) != known) => changed.map(|now| *now),
            () = self.hang_up.notified() => return None,
        };
        // The sender is dropped when the session ends.
        let revision = changed.ok()?;
        let watched = Watched { revision, calls: self.calls.load(Ordering::Relaxed) };
        let payload = RawJson::of(&watched).expect("numbers can always be written");
        Some(Parts { head: br#"{"result":"#.to_vec(), payload, tail: b"}".to_vec() })
    }
}
