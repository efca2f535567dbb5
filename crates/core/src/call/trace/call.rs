//! The trace of one call in one process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tracing::Span;
use tracing::field::Empty;

use super::event::{class, short};
use super::{Call, CallEnd, Outcome, SPAN_TARGET, TraceParent, Tracer, What};
use crate::{CallContext, RawJson, ToolCall, ToolError};

/// Timestamps set outside of the front; the code that sets them gets this with the call's context.
#[derive(Debug)]
pub(crate) struct Marks {
    received: Instant,
    pub(crate) span: Span,
    pub(crate) began: Mark,
    pub(crate) sent: Mark,
    pub(crate) answered: Mark,
}

/// A timestamp in nanoseconds; 0 until it is set.
pub(crate) type Mark = AtomicU64;

impl Marks {
    pub(crate) fn set(&self, mark: &Mark) {
        mark.store(self.now(), Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.received.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
    }
}

/// The trace of one call in one process. Dropping it records how the call ended: as cancelled, unless its
/// answer has been written.
#[derive(Debug)]
pub struct CallTrace {
    tracer: Tracer,
    call: Call,
    own: TraceParent,
    marks: Arc<Marks>,
    outcome: Outcome,
    error_type: Option<String>,
    result_bytes: Option<u64>,
    ended: Option<u64>,
    written: Option<u64>,
}

impl CallTrace {
    pub(super) fn new(tracer: Tracer, received: Instant, new: &ToolCall, request_id: Option<&str>) -> Self {
        let process = tracer.process().as_str();
        let (tool, arguments_bytes) = (short(&new.name), new.arguments.as_bytes().len() as u64);
        let around = tracer.around();
        let entered = around.as_ref().map(Span::enter);
        let span = tracing::info_span!(
            target: SPAN_TARGET,
            "tool_call",
            otel.kind = "server",
            otel.status_code = Empty,
            process,
            trace_id = Empty,
            span_id = Empty,
            parent_span_id = Empty,
            tool,
            tool_use_id = Empty,
            request_id = Empty,
            host = Empty,
            arguments_bytes,
            outcome = Empty,
            error_type = Empty,
            result_bytes = Empty,
            began_ns = Empty,
            sent_ns = Empty,
            answered_ns = Empty,
            ended_ns = Empty,
            written_ns = Empty,
            total_ns = Empty,
        );
        drop(entered);
        let parent = new.meta.traceparent;
        let own = exported_as(&span, parent).unwrap_or_else(|| TraceParent::child(parent));
        let call = Call {
            trace_id: format!("{:032x}", own.trace_id),
            span_id: format!("{:016x}", own.span_id),
            parent_span_id: parent.map(|parent| format!("{:016x}", parent.span_id)),
            tool,
            tool_use_id: new.meta.tool_use_id.as_deref().map(short),
            request_id: request_id.map(short),
            arguments_bytes,
        };
        span.record("trace_id", &call.trace_id).record("span_id", &call.span_id);
        let texts = [
            ("parent_span_id", &call.parent_span_id),
            ("tool_use_id", &call.tool_use_id),
            ("request_id", &call.request_id),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                span.record(name, text);
            }
        }
        tracer.note(|| What::CallStart(call.clone()));
        let marks = Marks {
            received,
            span,
            began: Mark::default(),
            sent: Mark::default(),
            answered: Mark::default(),
        };
        Self {
            tracer,
            call,
            own,
            marks: Arc::new(marks),
            outcome: Outcome::Cancelled,
            error_type: None,
            result_bytes: None,
            ended: None,
            written: None,
        }
    }

    /// What the next process needs to be part of the same trace.
    #[must_use]
    pub fn traceparent(&self) -> TraceParent {
        self.own
    }

    /// Lets the code that runs the call with this context set timestamps.
    pub fn follow(&self, context: &mut CallContext) {
        context.follow(Arc::clone(&self.marks));
    }

    /// Records the machine that runs the call, where there are several.
    pub fn at_host(&self, host: &str) {
        self.marks.span.record("host", short(host));
    }

    /// The outcome is known.
    pub fn ended(&mut self, outcome: &Result<RawJson, ToolError>) {
        self.ended = Some(self.marks.now());
        self.outcome = Outcome::of(outcome);
        match outcome {
            // Without the result itself, which may be long, and wait to be read.
            Ok(result) => self.result_bytes = Some(result.as_bytes().len() as u64),
            Err(error) => self.error_type = Some(class(error.type_name()).to_owned()),
        }
    }

    /// The answer has been written.
    pub fn written(mut self) {
        self.written = Some(self.marks.now());
    }

    /// The call was refused.
    pub fn refused(mut self, error_type: &str) {
        self.outcome = Outcome::Refused;
        self.error_type = Some(class(error_type).to_owned());
    }

    fn end(&mut self) -> CallEnd {
        let moment = |mark: &Mark| Some(mark.load(Ordering::Relaxed)).filter(|moment| *moment > 0);
        let total_ns = self.marks.now();
        // Its caller has not got the outcome.
        if self.written.is_none() && self.outcome != Outcome::Refused {
            (self.outcome, self.error_type) = (Outcome::Cancelled, None);
        }
        CallEnd {
            call: std::mem::take(&mut self.call),
            outcome: self.outcome,
            error_type: self.error_type.take(),
            result_bytes: self.result_bytes,
            began_ns: moment(&self.marks.began),
            sent_ns: moment(&self.marks.sent),
            answered_ns: moment(&self.marks.answered),
            ended_ns: self.ended,
            written_ns: self.written,
            total_ns: self.written.unwrap_or(total_ns),
        }
    }
}

#[cfg(feature = "otel")]
use super::otel::exported_as;

/// Without OpenTelemetry, the span is not exported under other ids.
#[cfg(not(feature = "otel"))]
fn exported_as(_: &Span, _: Option<TraceParent>) -> Option<TraceParent> {
    None
}

impl Drop for CallTrace {
    fn drop(&mut self) {
        let end = self.end();
        let span = &self.marks.span;
        span.record("outcome", end.outcome.as_str()).record("total_ns", end.total_ns);
        if end.outcome != Outcome::Ok {
            span.record("otel.status_code", "ERROR");
        }
        if let Some(error_type) = &end.error_type {
            span.record("error_type", error_type);
        }
        let numbers = [
            ("result_bytes", end.result_bytes),
            ("began_ns", end.began_ns),
            ("sent_ns", end.sent_ns),
            ("answered_ns", end.answered_ns),
            ("ended_ns", end.ended_ns),
            ("written_ns", end.written_ns),
        ];
        for (name, number) in numbers {
            if let Some(number) = number {
                span.record(name, number);
            }
        }
        self.tracer.note(|| What::CallEnd(end));
    }
}
