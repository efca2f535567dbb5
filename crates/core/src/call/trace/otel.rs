//! Connects a call's span with OpenTelemetry.

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, TraceContextExt as _, TraceFlags, TraceState};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::TraceParent;

/// Makes the span a child of the caller's span; returns the ids under which it is exported, if it is.
pub(super) fn exported_as(span: &Span, parent: Option<TraceParent>) -> Option<TraceParent> {
    if let Some(TraceParent { trace_id, span_id, flags }) = parent {
        let flags = TraceFlags::new(flags);
        let remote = SpanContext::new(trace_id.into(), span_id.into(), flags, true, TraceState::default());
        // Fails when spans are not exported, and then there is nothing to do.
        _ = span.set_parent(Context::new().with_remote_span_context(remote));
    }
    let context = span.context();
    let own = context.span().span_context().clone();
    own.is_valid().then(|| TraceParent {
        trace_id: u128::from_be_bytes(own.trace_id().to_bytes()),
        span_id: u64::from_be_bytes(own.span_id().to_bytes()),
        flags: own.trace_flags().to_u8(),
    })
}
