//! Which calls may overlap.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedMutexGuard};
use tracing::Instrument as _;

use crate::call::panic::caught;
use crate::{CallContext, RawJson, ToolCall, ToolError, ToolSource};

/// How long a handler may run after its call has ended before calls that wait for its turn fail.
const GRACE: Duration = Duration::from_secs(1);

/// Runs the calls of one session: those of exclusive tools one at a time, in the order they came, all
/// others side by side.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lane(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    turns: Arc<tokio::sync::Mutex<()>>,
    /// The tool whose call has ended while its handler still runs, because it blocks its thread.
    overdue: Mutex<Option<Arc<str>>>,
    changed: Notify,
}

/// The right to run. It is shared by the call and the code that runs its handler, and ends when both have dropped
/// it.
pub(crate) type Turn = Arc<OwnedMutexGuard<()>>;

impl Lane {
    /// Calls a tool of `source` when this call's turn has come, and then `begin` has ended. It fails if the tool fails, if the result is not one
    /// that every client can read, or if the turn does not come because a handler whose call has ended does not
    /// return.
    pub(crate) async fn call(
        &self,
        source: &dyn ToolSource,
        call: ToolCall,
        mut context: CallContext,
        begin: impl Future<Output = ()>,
    ) -> Result<RawJson, ToolError> {
        let tool = call.name.clone();
        let _call = if source.tools().get(&tool).is_some_and(|tool| tool.exclusive) {
            let turn = self.turn(&tool).await?;
            context.give_turn(Arc::clone(&turn));
            Some(InTurn { lane: self, tool: tool.clone(), turn })
        } else {
            None
        };
        begin.await;
        context.mark_began();
        let span = context.span();
        // Toolsets catch their handlers' panics; a panic in any other source must not end its front either.
        match caught(async { source.call(call, context).await }.instrument(span)).await {
            // The results of every source and front pass this check.
            Ok(Ok(result)) => {
                result.into_result().map_err(|flaw| ToolError::Output { tool, reason: flaw.to_string() })
            }
            Ok(Err(error)) => Err(error),
            Err(message) => Err(ToolError::Panicked { tool, message }),
        }
    }

    async fn turn(&self, tool: &str) -> Result<Turn, ToolError> {
        tokio::select! {
            biased;
            turn = Arc::clone(&self.0.turns).lock_owned() => {
                *self.overdue() = None;
                Ok(Arc::new(turn))
            }
            by = self.blocked() => Err(ToolError::Busy { tool: tool.into(), by: (*by).into() }),
        }
    }

    /// Waits until a handler has run for too long after its call ended; returns its tool.
    async fn blocked(&self) -> Arc<str> {
        loop {
            let changed = self.0.changed.notified();
            let by = self.overdue().clone();
            match by {
                None => changed.await,
                Some(by) => {
                    tokio::time::sleep(GRACE).await;
                    // The same call, not only the same tool.
                    if self.overdue().as_ref().is_some_and(|now| Arc::ptr_eq(now, &by)) {
                        return by;
                    }
                }
            }
        }
    }

    fn overdue(&self) -> std::sync::MutexGuard<'_, Option<Arc<str>>> {
        self.0.overdue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that has its turn.
struct InTurn<'a> {
    lane: &'a Lane,
    tool: String,
    turn: Turn,
}

impl Drop for InTurn<'_> {
    fn drop(&mut self) {
        if Arc::strong_count(&self.turn) > 1 {
            *self.lane.overdue() = Some(self.tool.as_str().into());
            self.lane.0.changed.notify_waiters();
        }
    }
}
