//! Traces: one line of JSON for each event, and the same as spans of `tracing`. Payloads are never included.
//!
//! A [`Tracer`] belongs to a front: the parent's end of a socket, or the bridge's MCP server. It writes to a file
//! ([`TraceFile`]) that both processes share, and opens a span for each call. A call is followed
//! through its front by its [`RunningCall`](crate::RunningCall); [`TraceParent`] connects the two sides of a call, on the wire and in the file. When tracing
//! is off, a call costs a check of two flags: no clock is read and nothing is allocated.

mod call;
mod event;
mod file;
#[cfg(feature = "otel")]
mod otel;
mod tracer;

pub use crate::tool::outcome::Outcome;
pub use crate::tool::traceparent::TraceParent;
pub(crate) use call::{CallTrace, Mark, Marks};
pub use event::{Call, CallEnd, Event, Process, What};
pub use file::{TraceError, TraceFile, trace_path};
pub use tracer::Tracer;

/// Names the trace file, unless the program sets another one.
pub const TRACE_VARIABLE: &str = "TOOLBRIDGE_TRACE";

/// The target and the name of the spans.
pub const SPAN_TARGET: &str = "toolbridge::call";
