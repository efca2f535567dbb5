//! The layer between a front and a source.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tracing::Instrument as _;

use crate::call::panic::caught;
use crate::call::trace::{CallTrace, Tracer};
use crate::source::running::{Permit, RunningCall};
use crate::source::turn::Turns;
use crate::{CallContext, CancellationToken, RawJson, ToolCall, ToolError, ToolSource};

/// Runs the calls of one session for any front: in turns if their tools are exclusive, at most so many at a time,
/// with their progress, questions and traces. A front only reads and writes its protocol. Clones share the same
/// state.
#[derive(Debug, Clone)]
pub struct Dispatcher {
    source: Arc<dyn ToolSource>,
    turns: Arc<Turns>,
    running: Arc<Semaphore>,
    tracer: Tracer,
}

impl Dispatcher {
    /// A dispatcher for the tools of `source` that reports each call to `tracer`.
    pub fn new(source: impl ToolSource, tracer: Tracer) -> Self {
        let running = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        Self { source: Arc::new(source), turns: Arc::default(), running, tracer }
    }

    /// Limits the calls that run at a time; those that wait for their turn, or for a person, do not count.
    #[must_use]
    pub fn at_most(self, calls: usize) -> Self {
        Self { running: Arc::new(Semaphore::new(calls)), ..self }
    }

    /// The tools.
    #[must_use]
    pub fn source(&self) -> &dyn ToolSource {
        &*self.source
    }

    /// The tracer that each call is reported to.
    #[must_use]
    pub fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// Makes a call, which begins when it is first polled. It reports progress if it has a progress token, and asks
    /// questions if the caller can answer them.
    ///
    /// # Errors
    ///
    /// When there is no such tool.
    pub fn call(
        &self,
        mut call: ToolCall,
        request_id: Option<&str>,
    ) -> Result<RunningCall<'static>, ToolError> {
        let tools = self.source.tools();
        let Some(tool) = tools.get(&call.name) else {
            let error = tools.not_found(&call.name);
            self.refuse(&call, request_id, error.type_name());
            return Err(error);
        };
        let trace = CallTrace::begin(&self.tracer, &call, request_id);
        let cancelled = CancellationToken::new();
        let mut context = CallContext::new(cancelled.clone());
        if let Some(trace) = &trace {
            context.follow(trace);
            call.meta.traceparent = Some(trace.traceparent);
        }
        let listener = context.listen(call.meta.progress_token.is_some(), call.meta.can_ask);
        let permit = Arc::new(Permit::new(Arc::clone(&self.running)));
        let turns = tool.exclusive.then(|| Arc::clone(&self.turns));
        let (source, its) = (Arc::clone(&self.source), Arc::clone(&permit));
        let work = async move {
            let _turn = match &turns {
                Some(turns) => {
                    let turn = turns.take(&call.name).await?;
                    context.give_turn(Arc::clone(&turn.turn));
                    Some(turn)
                }
                None => None,
            };
            its.acquire().await;
            run(&*source, call, context).await
        };
        let mut running = listener.follow(Box::pin(work));
        (running.trace, running.permit, running.cancelled) = (trace, Some(permit), Some(cancelled));
        Ok(running)
    }

    /// Records that a front has refused a call.
    pub fn refuse(&self, call: &ToolCall, request_id: Option<&str>, error_type: &str) {
        if let Some(trace) = CallTrace::begin(&self.tracer, call, request_id) {
            trace.refused(error_type);
        }
    }
}

/// Runs a call now. It fails if the tool fails, or if the result is not one that every client can read.
async fn run(source: &dyn ToolSource, call: ToolCall, context: CallContext) -> Result<RawJson, ToolError> {
    context.mark_began();
    let (tool, span) = (call.name.clone(), context.span());
    // Toolsets catch their handlers' panics; a panic in any other source must not end its front either.
    match caught(async { source.call(call, context).await }.instrument(span)).await {
        // The results of every source and front pass this check.
        Ok(Ok(result)) => result.into_result().map_err(|reason| ToolError::Output { tool, reason }),
        Ok(Err(error)) => Err(error),
        Err(message) => Err(ToolError::Panicked { tool, message }),
    }
}
