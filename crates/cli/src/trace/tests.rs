//! A small trace, and what is made of it.

use toolbridge::trace::{self, CallEnd, Event, Outcome, Process, What};

use super::timeline::{Phase, Timeline, UNFINISHED};

fn event(process: Process, ts_ns: u64, what: What) -> Event {
    let pid = if process == Process::Bridge { 2 } else { 1 };
    Event { what, ts_ns, process, pid }
}

fn named(span: &str, sender: Option<&str>, tool: &str) -> trace::Call {
    trace::Call {
        trace_id: "t".into(),
        span_id: span.into(),
        parent_span_id: sender.map(Into::into),
        tool: tool.into(),
        arguments_bytes: 10,
        ..trace::Call::default()
    }
}

fn ended(call: trace::Call, total_ns: u64) -> CallEnd {
    CallEnd {
        call,
        outcome: Outcome::Ok,
        error_type: None,
        result_bytes: Some(20),
        began_ns: None,
        sent_ns: None,
        answered_ns: None,
        ended_ns: None,
        written_ns: Some(total_ns),
        total_ns,
    }
}

/// A call through a bridge: 100 ns to the parent, 50 in its queue, 500 in the tool, 350 back.
pub(super) fn both_sides() -> Vec<Event> {
    let (bridge, parent) = (named("b", None, "add"), named("p", Some("b"), "add"));
    let bridge_end = CallEnd {
        began_ns: Some(20),
        sent_ns: Some(90),
        answered_ns: Some(900),
        ended_ns: Some(910),
        ..ended(bridge.clone(), 1000)
    };
    let parent_end = CallEnd { began_ns: Some(50), ended_ns: Some(550), ..ended(parent.clone(), 600) };
    vec![
        event(Process::Parent, 1000, What::SessionStart { session: "s".into(), tools: 1 }),
        event(Process::Bridge, 2000, What::CallStart(bridge)),
        event(Process::Parent, 2100, What::CallStart(parent)),
        event(Process::Parent, 2700, What::CallEnd(parent_end)),
        event(Process::Bridge, 3000, What::CallEnd(bridge_end)),
    ]
}

#[test]
fn both_sides_of_a_call_are_one_call() {
    let timeline = Timeline::of(&both_sides());
    assert_eq!((timeline.began_ns, timeline.length_ns, timeline.marks.len()), (1000, 2000, 1));
    let [call] = &timeline.calls[..] else { panic!("{:?}", timeline.calls) };
    assert_eq!((call.start_ns, call.total_ns, call.outcome.as_str()), (1000, 1000, "ok"));
    assert_eq!((call.bridge_pid, call.tool_pid), (Some(2), Some(1)));
    assert_eq!((call.bridge_ns, call.queue_ns, call.tool_ns), (Some(450), Some(50), Some(500)));
    let parts: Vec<_> = call.parts.iter().map(|part| (part.kind, part.from_ns, part.to_ns)).collect();
    assert_eq!(
        parts,
        [
            (Phase::Bridge, 1000, 1100),
            (Phase::Queue, 1100, 1150),
            (Phase::Tool, 1150, 1650),
            (Phase::Bridge, 1650, 2000),
        ]
    );
}

#[test]
fn a_call_with_an_unfinished_side_is_shown() {
    let events = both_sides();
    // The bridge was killed.
    let killed = Timeline::of(&events[..4]);
    assert_eq!((killed.calls[0].outcome.as_str(), killed.calls[0].tool_ns), ("ok", Some(500)));
    // The parent was killed.
    let lost: Vec<_> = [0, 1, 2, 4].map(|place: usize| events[place].clone()).into();
    let lost = Timeline::of(&lost);
    assert_eq!((lost.calls.len(), lost.calls[0].tool_ns, lost.calls[0].total_ns), (1, None, 1000));
    assert!(lost.calls[0].parts.iter().any(|part| part.kind == Phase::Parent));
    // Both were killed.
    let open = Timeline::of(&events[..3]);
    assert_eq!((open.calls[0].outcome.as_str(), open.calls[0].total_ns), (UNFINISHED, 100));
    // Only the last line is left.
    let end = Timeline::of(&events[4..]);
    assert_eq!((end.calls[0].start_ns, end.calls[0].total_ns), (0, 1000));
}

#[test]
fn a_call_made_by_a_tool_is_a_separate_call() {
    let mut events = both_sides();
    let nested = named("n", Some("p"), "other");
    events.push(event(Process::Bridge, 2300, What::CallEnd(ended(nested.clone(), 100))));
    events.push(event(Process::Parent, 2290, What::CallEnd(ended(named("m", Some("n"), "other"), 50))));
    let timeline = Timeline::of(&events);
    let tools: Vec<_> = timeline.calls.iter().map(|call| call.tool.as_str()).collect();
    assert_eq!(tools, ["add", "other"]);
    assert_eq!(timeline.calls[1].tool_pid, Some(1));
}

#[test]
fn no_events_are_no_calls() {
    let empty = Timeline::of(&[]);
    assert_eq!((empty.calls.len(), empty.length_ns), (0, 0));
}
