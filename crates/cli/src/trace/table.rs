//! One line for each call, or for several that are equal.

use super::timeline::Call;
use super::unit::{maybe, size, time};
use super::{Style, longest, name};
use crate::excerpt::fit;

/// The columns after the names: title and width.
const COLUMNS: [(&str, usize); 6] =
    [("args", 8), ("result", 8), ("bridge", 9), ("queue", 9), ("tool", 9), ("total", 9)];

pub(super) fn table(rows: &[&[Call]], style: &Style) -> String {
    if rows.is_empty() {
        return "no calls\n".into();
    }
    let widest = |text: fn(&[Call]) -> usize, least, most| {
        rows.iter().map(|row| text(row)).max().unwrap_or_default().clamp(least, most)
    };
    let names = widest(|row| name(row).chars().count(), 4, 24);
    let ids = widest(|row| longest(row).id().chars().count(), 2, 14);
    let mut text = format!("{:>9}  {}  {}", "start", fit("tool", names), fit("id", ids));
    for (title, width) in COLUMNS {
        text += &format!("{title:>width$}");
    }
    text += "  outcome\n";
    for row in rows {
        let call = longest(row);
        let total = if call.is_finished() { time(call.total_ns) } else { "–".into() };
        let numbers = [
            size(call.arguments_bytes),
            maybe(call.result_bytes, size),
            maybe(call.bridge_ns, time),
            maybe(call.queue_ns, time),
            maybe(call.tool_ns, time),
            total,
        ];
        text += &format!("{:>9}  {}  {}", time(row[0].start_ns), fit(&name(row), names), fit(call.id(), ids));
        for (cell, (_, width)) in numbers.iter().zip(COLUMNS) {
            text += &format!("{cell:>width$}");
        }
        let mut ending = call.ending();
        if row.len() > 1 && call.is_finished() {
            let shortest = row.iter().map(|call| call.total_ns).min().unwrap_or_default();
            ending += &format!(", {} to {}", time(shortest), time(call.total_ns));
        }
        let ending = if call.is_ok() { ending } else { style.paint("31", &ending) };
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
        let rows: Vec<_> = timeline.calls.chunks(1).collect();
        assert_eq!(
            table(&rows, &style),
            "    start  tool  id    args  result   bridge    queue     tool    total  outcome\n     \
             1 µs  add   –     10 B    20 B   450 ns    50 ns   500 ns     1 µs  ok\n"
        );
        assert_eq!(table(&[], &style), "no calls\n");
    }

    #[test]
    fn equal_calls_have_a_range_of_totals_if_they_have_ended() {
        let calls = Timeline::of(&both_sides()).calls;
        let row: Vec<_> = [1000, 3000].map(|total_ns| Call { total_ns, ..calls[0].clone() }).into();
        let open = Timeline::of(&both_sides()[..3]).calls;
        let unfinished: Vec<_> = [1000, 3000].map(|total_ns| Call { total_ns, ..open[0].clone() }).into();
        let text = table(&[&row, &unfinished], &Style { width: 100, colour: false });
        let endings: Vec<_> = text.lines().skip(1).map(|line| line.rsplit("  ").next().unwrap()).collect();
        assert_eq!(endings, ["ok, 1 µs to 3 µs", "unfinished"]);
    }
}
