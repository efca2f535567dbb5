//! The trace of one call in one process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use serde::Serialize;
use serde_json::{Map, Value};
use tracing::Span;
use tracing::field::Empty;

use super::event::{class, short};
use super::{Call, CallEnd, Outcome, SPAN_TARGET, TraceParent, Tracer, What};
use crate::{RawJson, ToolCall, ToolError};

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
pub(crate) struct CallTrace {
    tracer: Tracer,
    /// What the next process needs to be part of the same trace.
    pub(crate) traceparent: TraceParent,
    pub(crate) marks: Arc<Marks>,
    end: CallEnd,
}

impl CallTrace {
    /// Starts the trace of a call that has arrived now; `None` if tracing is off.
    pub(crate) fn begin(tracer: &Tracer, new: &ToolCall, request_id: Option<&str>) -> Option<Self> {
        let (received, process) = (tracer.clock()?, tracer.process.as_str());
        let around = tracer.around.read().unwrap_or_else(PoisonError::into_inner).clone();
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
            tool = Empty,
            tool_use_id = Empty,
            request_id = Empty,
            host = Empty,
            arguments_bytes = Empty,
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
        let traceparent = exported_as(&span, parent).unwrap_or_else(|| TraceParent::child(parent));
        let call = Call {
            trace_id: format!("{:032x}", traceparent.trace_id),
            span_id: format!("{:016x}", traceparent.span_id),
            parent_span_id: parent.map(|parent| format!("{:016x}", parent.span_id)),
            tool: short(&new.name),
            tool_use_id: new.meta.tool_use_id.as_deref().map(short),
            request_id: request_id.map(short),
            arguments_bytes: new.arguments.as_bytes().len() as u64,
        };
        if !span.is_disabled() {
            record(&span, &call, &Map::new());
        }
        tracer.note(|| What::CallStart(call.clone()));
        let [began, sent, answered] = [const { Mark::new(0) }; 3];
        let marks = Arc::new(Marks { received, span, began, sent, answered });
        let end = CallEnd { call, ..CallEnd::default() };
        Some(Self { tracer: tracer.clone(), traceparent, marks, end })
    }

    /// The outcome is known.
    pub(crate) fn ended(&mut self, outcome: &Result<RawJson, ToolError>) {
        self.end.ended_ns = Some(self.marks.now());
        self.end.outcome = Outcome::of(outcome);
        match outcome {
            // Without the result itself, which may be long, and wait to be read.
            Ok(result) => self.end.result_bytes = Some(result.as_bytes().len() as u64),
            Err(error) => self.end.error_type = Some(class(error.type_name()).to_owned()),
        }
    }

    /// The answer has been written.
    pub(crate) fn written(mut self) {
        self.end.written_ns = Some(self.marks.now());
    }

    /// The call was refused.
    pub(crate) fn refused(mut self, error_type: &str) {
        self.end.outcome = Outcome::Refused;
        self.end.error_type = Some(class(error_type).to_owned());
    }
}

#[cfg(feature = "otel")]
use super::otel::exported_as;

/// Without OpenTelemetry, the span is not exported under other ids.
#[cfg(not(feature = "otel"))]
fn exported_as(_: &Span, _: Option<TraceParent>) -> Option<TraceParent> {
    None
}

/// Records what a line of the trace says in the span, except for what it `has` already; returns it.
fn record(span: &Span, line: &impl Serialize, has: &Map<String, Value>) -> Map<String, Value> {
    let Ok(Value::Object(members)) = serde_json::to_value(line) else { return Map::new() };
    for (name, value) in members.iter().filter(|(name, _)| !has.contains_key(*name)) {
        match value {
            Value::String(text) => span.record(&**name, text),
            value => span.record(&**name, value.as_u64()),
        };
    }
    members
}

impl Drop for CallTrace {
    fn drop(&mut self) {
        let (end, marks) = (&mut self.end, &self.marks);
        // Its caller has not got the outcome.
        if end.written_ns.is_none() && end.outcome != Outcome::Refused {
            (end.outcome, end.error_type) = (Outcome::Cancelled, None);
        }
        let moment = |mark: &Mark| Some(mark.load(Ordering::Relaxed)).filter(|moment| *moment > 0);
        (end.began_ns, end.sent_ns) = (moment(&marks.began), moment(&marks.sent));
        end.answered_ns = moment(&marks.answered);
        end.total_ns = end.written_ns.unwrap_or_else(|| marks.now());
        if !marks.span.is_disabled() {
            let started = record(&Span::none(), &end.call, &Map::new());
            record(&marks.span, end, &started);
            if end.outcome != Outcome::Ok {
                marks.span.record("otel.status_code", "ERROR");
            }
        }
        self.tracer.note(|| What::CallEnd(self.end.clone()));
    }
}
