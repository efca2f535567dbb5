//! One line for each call.

use super::Style;
use super::timeline::Call;
use super::unit::{maybe, size, time};
use crate::excerpt::fit;

/// The columns after the names: title and width.
const COLUMNS: [(&str, usize); 6] =
    [("args", 8), ("result", 8), ("bridge", 9), ("queue", 9), ("tool", 9), ("total", 9)];

pub(super) fn table(calls: &[&Call], style: &Style) -> String {
    if calls.is_empty() {
        return "no calls\n".into();
    }
    let widest = |text: fn(&Call) -> usize, least, most| {
        calls.iter().map(|call| text(call)).max().unwrap_or_default().clamp(least, most)
    };
    let names = widest(|call| call.tool.chars().count(), 4, 24);
    let ids = widest(|call| call.id().chars().count(), 2, 14);
    let mut text = format!("{:>9}  {}  {}", "start", fit("tool", names), fit("id", ids));
    for (title, width) in COLUMNS {
        text += &format!("{title:>width$}");
    }
    text += "  outcome\n";
    for call in calls {
        let total = if call.is_finished() { time(call.total_ns) } else { "–".into() };
        let numbers = [
            size(call.arguments_bytes),
            maybe(call.result_bytes, size),
            maybe(call.bridge_ns, time),
            maybe(call.queue_ns, time),
            maybe(call.tool_ns, time),
            total,
        ];
        text += &format!("{:>9}  {}  {}", time(call.start_ns), fit(&call.tool, names), fit(call.id(), ids));
        for (cell, (_, width)) in numbers.iter().zip(COLUMNS) {
            text += &format!("{cell:>width$}");
        }
        let ending = if call.is_ok() { call.ending() } else { style.paint("31", &call.ending()) };
        text += &format!("  {ending}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::both_sides;
    use super::super::timeline::Timeline;
    use super::*;

    #[test]
    fn a_call_is_one_line() {
        let timeline = Timeline::of(&both_sides());
        let style = Style { width: 100, colour: false };
        let calls: Vec<_> = timeline.calls.iter().collect();
        assert_eq!(
            table(&calls, &style),
            "    start  tool  id    args  result   bridge    queue     tool    total  outcome\n     \
             1 µs  add   –     10 B    20 B   450 ns    50 ns   500 ns     1 µs  ok\n"
        );
        assert_eq!(table(&[], &style), "no calls\n");
    }
}
