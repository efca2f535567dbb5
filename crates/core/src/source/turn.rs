//! The turns of exclusive tools.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use crate::ToolError;
use crate::call::context::Turn;

/// How long a handler may run after its call has ended before calls that wait for its turn fail.
const GRACE: Duration = Duration::from_secs(1);

/// The calls of a session's exclusive tools run one at a time, in the order they came.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    turns: Arc<Mutex<()>>,
    /// The tool whose call has ended while its handler still runs, because it blocks its thread.
    overdue: watch::Sender<Option<Arc<str>>>,
}

impl Turns {
    /// Waits for the turn of a call of `tool`.
    ///
    /// # Errors
    ///
    /// When it does not come because a handler whose call has ended does not return.
    pub(crate) async fn take(&self, tool: &str) -> Result<InTurn<'_>, ToolError> {
        tokio::select! {
            biased;
            turn = Arc::clone(&self.turns).lock_owned() => {
                self.overdue.send_if_modified(|overdue| overdue.take().is_some());
                Ok(InTurn { turns: self, tool: tool.into(), turn: Arc::new(turn) })
            }
            by = self.blocked() => Err(ToolError::Busy { tool: tool.into(), by: (*by).into() }),
        }
    }

    /// Waits until a handler has run for too long after its call ended; returns its tool.
    async fn blocked(&self) -> Arc<str> {
        let mut overdue = self.overdue.subscribe();
        loop {
            let by = overdue.borrow_and_update().clone();
            match by {
                Some(by) if timeout(GRACE, overdue.changed()).await.is_err() => return by,
                Some(_) => {}
                // The sender is alive as long as `self`.
                None => _ = overdue.changed().await,
            }
        }
    }
}

/// A call that has its turn.
pub(crate) struct InTurn<'a> {
    turns: &'a Turns,
    tool: Arc<str>,
    pub(crate) turn: Turn,
}

impl Drop for InTurn<'_> {
    fn drop(&mut self) {
        if Arc::strong_count(&self.turn) > 1 {
            self.turns.overdue.send_replace(Some(Arc::clone(&self.tool)));
        }
    }
}
