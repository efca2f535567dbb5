//! Joins the events of both sides of each call into one timeline.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use toolbridge::trace::{self, CallEnd, Event, Process, What};

/// The content of a trace. Times are in nanoseconds since its first event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Timeline {
    /// The time of the first event, in nanoseconds since 1970.
    pub(super) began_ns: u64,
    /// The time from the first event to the last.
    pub(super) length_ns: u64,
    pub(super) calls: Vec<Call>,
    pub(super) marks: Vec<Mark>,
}

/// One call, with the times of the process that received it first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Call {
    /// The call's number in the order of start, from 1.
    pub(super) number: usize,
    pub(super) start_ns: u64,
    pub(super) total_ns: u64,
    pub(super) tool: String,
    pub(super) tool_use_id: Option<String>,
    pub(super) request_id: Option<String>,
    pub(super) trace_id: String,
    pub(super) arguments_bytes: u64,
    pub(super) result_bytes: Option<u64>,
    /// As in the trace; or `unfinished`, if the trace has no end for it.
    pub(super) outcome: String,
    pub(super) error_type: Option<String>,
    pub(super) bridge_pid: Option<u32>,
    /// The process that runs the tool.
    pub(super) tool_pid: Option<u32>,
    /// The time in the bridge, in the socket, and for reading and writing at both ends.
    pub(super) bridge_ns: Option<u64>,
    /// How long the call waited for its turn in the tool's process.
    pub(super) queue_ns: Option<u64>,
    /// How long the tool ran.
    pub(super) tool_ns: Option<u64>,
    pub(super) parts: Vec<Stretch>,
}

pub(super) const UNFINISHED: &str = "unfinished";

impl Call {
    pub(super) fn is_finished(&self) -> bool {
        self.outcome != UNFINISHED
    }

    pub(super) fn is_ok(&self) -> bool {
        self.outcome == "ok"
    }

    /// Whether only times and ids differ.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let key = |call: &Self| (call.tool.clone(), call.ending(), call.arguments_bytes, call.result_bytes);
        key(self) == key(other)
    }

    /// The model's id, or else the client's.
    pub(super) fn id(&self) -> &str {
        self.tool_use_id.as_deref().or(self.request_id.as_deref()).unwrap_or("–")
    }

    /// How it ended, with the error's class name.
    pub(super) fn ending(&self) -> String {
        match &self.error_type {
            Some(error_type) => format!("{} ({error_type})", self.outcome),
            None => self.outcome.clone(),
        }
    }
}

/// A part of a call's time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stretch {
    pub(super) kind: Phase,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// In the bridge, or between the two processes.
    Bridge,
    /// Waiting for its turn.
    Queue,
    /// In the tool.
    Tool,
    /// In the tool's process, without further detail.
    Parent,
}

/// An event that is not a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) at_ns: u64,
    pub(super) what: String,
    pub(super) pid: u32,
}

/// The events of one process about one call.
#[derive(Debug)]
struct Side<'a> {
    process: Process,
    pid: u32,
    start: u64,
    call: &'a trace::Call,
    end: Option<&'a CallEnd>,
}

impl Side<'_> {
    /// Converts an offset from the call's arrival to a time.
    fn at(&self, offset: impl FnOnce(&CallEnd) -> Option<u64>) -> Option<u64> {
        self.end.and_then(offset).map(|offset| self.start.saturating_add(offset))
    }

    fn over(&self) -> Option<u64> {
        self.at(|end| Some(end.total_ns))
    }
}

impl Timeline {
    pub(super) fn of(events: &[Event]) -> Self {
        let sides = sides(events);
        let starts = events.iter().map(|event| event.ts_ns).chain(sides.iter().map(|side| side.start));
        let zero = starts.min().unwrap_or_default();
        let ends = events.iter().map(|event| event.ts_ns).chain(sides.iter().filter_map(Side::over));
        let last = ends.max().unwrap_or_default();

        let place_of: HashMap<_, _> =
            sides.iter().enumerate().map(|(place, side)| (side.call.span_id.as_str(), place)).collect();
        // A call made by a tool is a call of its own, even though its trace names the tool's call as its
        // parent.
        let outer_of = |side: &Side<'_>| {
            let sender = side.call.parent_span_id.as_deref().filter(|_| side.process == Process::Parent)?;
            place_of.get(sender).copied().filter(|outer| sides[*outer].process == Process::Bridge)
        };
        let mut inner_of = HashMap::new();
        for (place, side) in sides.iter().enumerate() {
            if let Some(outer) = outer_of(side) {
                inner_of.insert(outer, place);
            }
        }
        let outermost = sides.iter().enumerate().filter(|(_, side)| outer_of(side).is_none());
        let mut calls: Vec<_> = outermost
            .map(|(place, side)| call(side, inner_of.get(&place).map(|inner| &sides[*inner]), zero, last))
            .collect();
        calls.sort_by_key(|call| call.start_ns);
        for (place, call) in calls.iter_mut().enumerate() {
            call.number = place + 1;
        }
        let mut marks: Vec<_> = events.iter().filter_map(|event| mark(event, zero)).collect();
        marks.sort_by_key(|mark| mark.at_ns);
        Self { began_ns: zero, length_ns: last - zero, calls, marks }
    }
}

/// The sides of all calls, in the order in which they first appear.
fn sides(events: &[Event]) -> Vec<Side<'_>> {
    let mut sides: Vec<Side<'_>> = Vec::new();
    let mut places = HashMap::new();
    for event in events {
        let (call, end, start) = match &event.what {
            What::CallStart(call) => (call, None, event.ts_ns),
            // Its start may be missing from the trace.
            What::CallEnd(end) => (&end.call, Some(end), event.ts_ns.saturating_sub(end.total_ns)),
            _ => continue,
        };
        let place = *places.entry(call.span_id.as_str()).or_insert_with(|| {
            sides.push(Side { process: event.process, pid: event.pid, start, call, end: None });
            sides.len() - 1
        });
        sides[place].end = sides[place].end.or(end);
    }
    sides
}

fn call(outer: &Side<'_>, inner: Option<&Side<'_>>, zero: u64, last: u64) -> Call {
    let bridge = (outer.process == Process::Bridge).then_some(outer);
    // The side of the tool's process, if that process wrote to the trace.
    let home = if bridge.is_some() { inner } else { Some(outer) };
    let end = outer.end.or_else(|| inner.and_then(|inner| inner.end));
    let over = outer.over().or_else(|| inner.and_then(Side::over)).unwrap_or(last).max(outer.start);

    let mut parts = Vec::new();
    let mut at = outer.start;
    let mut part = |kind, to: u64| {
        let to = to.clamp(at, over);
        if to > at {
            parts.push(Stretch { kind, from_ns: at - zero, to_ns: to - zero });
        }
        at = to;
    };
    if let Some(home) = home {
        part(Phase::Bridge, home.start);
        if let Some(began) = home.at(|end| end.began_ns) {
            part(Phase::Queue, began);
            let ended = home.at(|end| end.ended_ns).or(home.over()).unwrap_or(over);
            part(Phase::Tool, ended);
        } else if home.end.is_none() {
            part(Phase::Parent, outer.at(|end| end.answered_ns.or(end.ended_ns)).unwrap_or(over));
        }
    } else if let Some(sent) = outer.at(|end| end.sent_ns) {
        part(Phase::Bridge, sent);
        part(Phase::Parent, outer.at(|end| end.answered_ns.or(end.ended_ns)).unwrap_or(over));
    }
    part(Phase::Bridge, over);

    let spent =
        |kind| parts.iter().filter(|part| part.kind == kind).map(|part| part.to_ns - part.from_ns).sum();
    let has_run = home.is_some_and(|home| home.end.is_some_and(|end| end.began_ns.is_some()));
    Call {
        number: 0,
        start_ns: outer.start - zero,
        total_ns: over - outer.start,
        tool: outer.call.tool.clone(),
        tool_use_id: outer.call.tool_use_id.clone(),
        request_id: outer.call.request_id.clone(),
        trace_id: outer.call.trace_id.clone(),
        arguments_bytes: outer.call.arguments_bytes,
        result_bytes: end.and_then(|end| end.result_bytes),
        outcome: end.map_or(UNFINISHED, |end| end.outcome.as_str()).to_owned(),
        error_type: end.and_then(|end| end.error_type.clone()),
        bridge_pid: bridge.map(|bridge| bridge.pid),
        tool_pid: home.map(|home| home.pid),
        bridge_ns: end.map(|_| spent(Phase::Bridge)),
        queue_ns: has_run.then(|| spent(Phase::Queue)),
        tool_ns: has_run.then(|| spent(Phase::Tool)),
        parts,
    }
}

fn mark(event: &Event, zero: u64) -> Option<Mark> {
    let process = event.process.as_str();
    let what = match &event.what {
        What::SessionStart { tools, .. } => format!("session with {tools} tools starts"),
        What::SessionEnd { .. } => "session ends".into(),
        What::FrontStart { tools } => format!("{process} starts, {tools} tools"),
        What::FrontEnd => format!("{process} ends"),
        What::ToolsList { tools, .. } => format!("{process} lists {tools} tools"),
        _ => return None,
    };
    Some(Mark { at_ns: event.ts_ns - zero, what, pid: event.pid })
}
