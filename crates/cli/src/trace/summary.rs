//! A trace in a few numbers.

use std::collections::BTreeMap;

use super::timeline::{Call, Timeline};
use super::unit::{self, size, time};
use crate::excerpt::fit;

/// One of a call's times.
type Time = fn(&Call) -> Option<u64>;

pub(super) fn text(timeline: &Timeline) -> String {
    let calls = &timeline.calls;
    let mut outcomes: BTreeMap<&str, usize> = BTreeMap::new();
    for call in calls {
        *outcomes.entry(&call.outcome).or_default() += 1;
    }
    let counts: Vec<_> = outcomes.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
    let mut text = format!("{} in {}", unit::calls(calls.len()), time(timeline.length_ns));
    if !counts.is_empty() {
        text += &format!(": {}", counts.join(", "));
    }
    let sent: u64 = calls.iter().map(|call| call.arguments_bytes).sum();
    let back: u64 = calls.iter().filter_map(|call| call.result_bytes).sum();
    text += &format!("; {} of arguments, {} of results\n", size(sent), size(back));
    if calls.is_empty() {
        return text;
    }
    text += &format!("{}{:>10}{:>10}{:>10}{:>10}\n", fit("", 8), "p50", "p90", "p99", "longest");
    let rows: [(&str, Time); 4] = [
        ("bridge", |call| call.bridge_ns),
        ("queue", |call| call.queue_ns),
        ("tool", |call| call.tool_ns),
        ("total", |call| call.is_finished().then_some(call.total_ns)),
    ];
    for (name, of) in rows {
        let mut times: Vec<_> = calls.iter().filter_map(of).collect();
        times.sort_unstable();
        text += &fit(name, 8);
        for percent in [50, 90, 99, 100] {
            let cell = percentile(&times, percent).map_or_else(|| "–".into(), time);
            text += &format!("{cell:>10}");
        }
        text.push('\n');
    }
    text
}

/// The least of the sorted values that at least so many percent do not exceed.
pub(super) fn percentile(sorted: &[u64], percent: usize) -> Option<u64> {
    let place = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(place).copied()
}

#[cfg(test)]
mod tests {
    use super::super::tests::both_sides;
    use super::*;

    #[test]
    fn percentiles_are_values_that_occur() {
        let values: Vec<u64> = (1..=10).collect();
        let at = |percent| percentile(&values, percent).unwrap();
        assert_eq!([at(50), at(90), at(99), at(100), at(0)], [5, 9, 10, 10, 1]);
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn the_numbers_are_those_of_the_calls() {
        let text = text(&Timeline::of(&both_sides()));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "1 call in 2 µs: 1 ok; 10 B of arguments, 20 B of results");
        assert_eq!(lines[2], "bridge      450 ns    450 ns    450 ns    450 ns");
        assert_eq!(lines.len(), 6);
    }
}
