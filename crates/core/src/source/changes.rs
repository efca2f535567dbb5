//! Lists of tools that change.

use std::sync::Mutex;

use tokio::sync::watch;

use crate::ToolList;
use crate::tool::lock::lock;

/// Notifies when a source's list of tools has changed.
#[derive(Debug, Clone, Default)]
pub struct Changes(Vec<watch::Receiver<()>>);

impl Changes {
    /// For a list that never changes.
    #[must_use]
    pub fn never() -> Self {
        Self::default()
    }

    /// Whether no further change is possible.
    #[must_use]
    pub fn is_never(&self) -> bool {
        self.0.is_empty()
    }

    /// The changes that `receiver` is notified of.
    #[must_use]
    pub fn of(receiver: watch::Receiver<()>) -> Self {
        Self(vec![receiver])
    }

    /// Changes of either source.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Waits for the next change since the last call, or since this value was made. Several changes may be reported
    /// as one. Never returns when no further change is possible.
    pub async fn next(&mut self) {
        loop {
            if self.0.is_empty() {
                return std::future::pending().await;
            }
            let waiting = self.0.iter_mut().map(|watch| Box::pin(watch.changed()));
            let (changed, index, _) = futures_util::future::select_all(waiting).await;
            match changed {
                Ok(()) => return,
                // Its sender was dropped: this source cannot change any more.
                Err(_) => _ = self.0.swap_remove(index),
            }
        }
    }
}

/// A list derived from those of other sources; derived again when one of them has changed.
#[derive(Debug, Default)]
pub struct DerivedList(Mutex<(Vec<ToolList>, ToolList)>);

impl DerivedList {
    /// Returns what `make` derives from `lists`, cached until one of them is another list.
    pub fn get(&self, lists: Vec<ToolList>, make: impl FnOnce(&[ToolList]) -> ToolList) -> ToolList {
        let mut kept = lock(&self.0);
        let (from, list) = &mut *kept;
        if from.len() != lists.len() || from.iter().zip(&lists).any(|(old, new)| !old.is(new)) {
            *list = make(&lists);
            *from = lists;
        }
        list.clone()
    }
}
