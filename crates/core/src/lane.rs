//! Which calls may overlap.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedMutexGuard};
use tracing::Instrument as _;

use crate::panic::caught;
use crate::{CallContext, RawJson, ToolCall, ToolError, ToolSource};

/// How long a handler may go on after its call has ended before those who wait for its turn are told.
const GRACE: Duration = Duration::from_secs(1);

/// Runs the calls of one session: those of exclusive tools one at a time, in the order they came, all
/// others side by side.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lane(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    turns: Arc<tokio::sync::Mutex<()>>,
    /// The tool whose call has ended while its handler goes on, because it blocks its thread.
    overdue: Mutex<Option<String>>,
    news: Notify,
}

/// The right to run. It is shared by the call and by whatever runs its handler, and ends with both.
pub(crate) type Turn = Arc<OwnedMutexGuard<()>>;

impl Lane {
    /// Calls a tool of `source` when it is this call's turn. It fails as the tool does; if its result is none that every
    /// client can read; or if the turn does not come, because a handler whose call has ended does not return.
    pub(crate) async fn call(
        &self,
        source: &dyn ToolSource,
        call: ToolCall,
        mut context: CallContext,
    ) -> Result<RawJson, ToolError> {
        let tool = call.name.clone();
        let _call = if source.tools().get(&tool).is_some_and(|tool| tool.exclusive) {
            let turn = self.turn(&tool).await?;
            context.give_turn(Arc::clone(&turn));
            Some(InTurn { lane: self, tool: tool.clone(), turn })
        } else {
            None
        };
        context.mark_began();
        let span = context.span();
        // Toolsets catch their handlers' panics; any other source must not take its front down either.
        match caught(async { source.call(call, context).await }.instrument(span)).await {
            // The one place that every front's results pass, whatever their source.
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
            by = self.blocked() => Err(ToolError::Busy { tool: tool.into(), by }),
        }
    }

    /// Waits until some handler has gone on for too long after its call ended; which tool's.
    async fn blocked(&self) -> String {
        loop {
            let news = self.0.news.notified();
            let by = self.overdue().clone();
            match by {
                None => news.await,
                Some(by) => {
                    tokio::time::sleep(GRACE).await;
                    if self.overdue().as_ref() == Some(&by) {
                        return by;
                    }
                }
            }
        }
    }

    fn overdue(&self) -> std::sync::MutexGuard<'_, Option<String>> {
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
            *self.lane.overdue() = Some(std::mem::take(&mut self.tool));
            self.lane.0.news.notify_waiters();
        }
    }
}
