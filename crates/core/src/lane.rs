//! Which calls may overlap.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::panic::caught;
use crate::{CallContext, RawJson, ToolCall, ToolError, ToolSource};

/// Runs the calls of one session: those of exclusive tools one at a time, in the order they came, all
/// others side by side.
#[derive(Debug, Clone, Default)]
pub struct Lane(Arc<Mutex<()>>);

impl Lane {
    /// Calls a tool of `source` when it is this call's turn.
    ///
    /// # Errors
    ///
    /// Whatever the tool answered.
    pub async fn call(
        &self,
        source: &dyn ToolSource,
        call: ToolCall,
        mut context: CallContext,
    ) -> Result<RawJson, ToolError> {
        let mut _turn = None;
        if source.is_exclusive(&call.name) {
            let turn = Arc::new(Arc::clone(&self.0).lock_owned().await);
            context.has_turn(Arc::clone(&turn));
            _turn = Some(turn);
        }
        let tool = call.name.clone();
        // Toolsets catch their handlers' panics; any other source must not take its front down either.
        match caught(async { source.call(call, context).await }).await {
            Ok(Ok(result)) if !result.is_object() => {
                Err(ToolError::Output { tool, reason: "a result must be a JSON object".into() })
            }
            Ok(outcome) => outcome,
            Err(message) => Err(ToolError::Panicked { tool, message }),
        }
    }
}
