//! Lists of tools that change.

use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use crate::ToolList;

/// Says when a source's list of tools has changed.
#[derive(Debug, Clone, Default)]
pub struct Changes(Vec<watch::Receiver<()>>);

impl Changes {
    /// A list that stays as it is.
    #[must_use]
    pub fn never() -> Self {
        Self::default()
    }

    /// Whether nothing can change any more.
    #[must_use]
    pub fn is_never(&self) -> bool {
        self.0.is_empty()
    }

    /// The changes that `receiver` is told of.
    #[must_use]
    pub fn of(receiver: watch::Receiver<()>) -> Self {
        Self(vec![receiver])
    }

    /// These and those.
    #[must_use]
    pub fn and(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }

    /// Waits for the next change since the last call, or since this was made. Several changes may be one. Never returns
    /// when no more can come.
    pub async fn next(&mut self) {
        loop {
            if self.0.is_empty() {
                return std::future::pending().await;
            }
            let waiting = self.0.iter_mut().map(|watch| Box::pin(watch.changed()));
            let (changed, place, _) = futures_util::future::select_all(waiting).await;
            match changed {
                Ok(()) => return,
                // Its source is gone.
                Err(_) => _ = self.0.swap_remove(place),
            }
        }
    }
}

/// A list made from those of other sources; made anew when one of them has changed.
#[derive(Debug, Default)]
pub struct DerivedList(Mutex<(Vec<ToolList>, ToolList)>);

impl DerivedList {
    /// What `make` makes of `lists`.
    pub fn get(&self, lists: Vec<ToolList>, make: impl FnOnce(&[ToolList]) -> ToolList) -> ToolList {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (from, list) = &mut *kept;
        if from.len() != lists.len() || from.iter().zip(&lists).any(|(old, new)| !old.is(new)) {
            *list = make(&lists);
            *from = lists;
        }
        list.clone()
    }
}
