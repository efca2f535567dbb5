//! The layer between a front and a source.

use std::sync::Arc;
use std::time::Instant;

use crate::call::trace::{CallTrace, NewCall, Tracer};
use crate::source::lane::Lane;
use crate::{CallContext, CallMeta, CancellationToken, RawJson, ToolCall, ToolError, ToolSource, Underway};

/// Runs the calls of one session for any front: takes turns for exclusive tools, and handles progress,
/// questions, tracing and cancellation. A front only reads and writes its protocol. Clones share the same
/// state.
#[derive(Debug, Clone)]
pub struct Dispatcher {
    source: Arc<dyn ToolSource>,
    lane: Lane,
    tracer: Tracer,
}

impl Dispatcher {
    /// A dispatcher for the tools of `source` that reports each call to `tracer`.
    pub fn new(source: Arc<dyn ToolSource>, tracer: Tracer) -> Self {
        Self { source, lane: Lane::default(), tracer }
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

    /// Starts tracing a call that has arrived, if tracing is on; `received` is the tracer's clock at that moment.
    #[must_use]
    pub fn trace(
        &self,
        received: Option<Instant>,
        (tool, arguments, meta): (&str, &RawJson, &CallMeta),
        request_id: Option<&str>,
    ) -> Option<CallTrace> {
        let arguments_bytes = arguments.as_bytes().len();
        Some(self.tracer.call(received?, NewCall { tool, meta, arguments_bytes, request_id }))
    }

    /// Runs a call when its turn comes. Dropping the returned value cancels the call, and so does `cancelled`.
    pub fn run<'a>(
        &'a self,
        call: ToolCall,
        cancelled: CancellationToken,
        trace: Option<&CallTrace>,
    ) -> Underway<impl Future<Output = Result<RawJson, ToolError>> + use<'a>> {
        self.run_after(call, cancelled, trace, std::future::ready(()))
    }

    /// The same, for a front that limits the calls that run: when the call's turn has come, it waits for `begin`,
    /// so that calls that wait for their turn take no other call's place.
    pub fn run_after<'a, B: Future<Output = ()> + 'a>(
        &'a self,
        mut call: ToolCall,
        cancelled: CancellationToken,
        trace: Option<&CallTrace>,
        begin: B,
    ) -> Underway<impl Future<Output = Result<RawJson, ToolError>> + use<'a, B>> {
        let mut context = CallContext::new(cancelled);
        if let Some(trace) = trace {
            trace.follow(&mut context);
            call.meta.traceparent = Some(trace.traceparent());
        }
        let (progress, questions) = (call.meta.progress_token.is_some(), call.meta.can_ask);
        let heard = (progress || questions).then(|| context.hear(progress, questions));
        Underway::new(self.lane.call(&*self.source, call, context, begin), heard)
    }
}
