//! The calls as bars over time.

use super::timeline::{Call, Phase, Timeline};
use super::unit::time;
use super::{Style, longest, name};
use crate::excerpt::fit;

const NAME_COLUMNS: usize = 18;
const TIME_COLUMNS: usize = 10;

/// The phases of a call in order: kind, name in the legend, character, and colour.
const PHASES: [(Phase, &str, &str, &str); 4] = [
    (Phase::Bridge, "bridge", "░", "90"),
    (Phase::Queue, "queue", "▒", "33"),
    (Phase::Tool, "tool", "█", "36"),
    (Phase::Parent, "parent", "▓", "35"),
];

/// All bars share one scale, from the start of the first of these calls to the end of the last.
pub(super) fn waterfall(timeline: &Timeline, rows: &[&[Call]], style: &Style) -> String {
    let calls: Vec<_> = rows.iter().copied().flatten().collect();
    let columns = style.width.saturating_sub(NAME_COLUMNS + TIME_COLUMNS + 4).max(10);
    let from = calls.iter().map(|call| call.start_ns).min().unwrap_or_default();
    let to = calls.iter().map(|call| call.start_ns + call.total_ns).max().unwrap_or(timeline.length_ns);
    let scale = Scale { from, length: (to - from).max(1), columns };

    let is_drawn = |kind: Phase| calls.iter().flat_map(|call| &call.parts).any(|part| part.kind == kind);
    let legend: Vec<_> = PHASES
        .iter()
        // The last phase appears only for calls with one side missing.
        .filter(|(kind, ..)| *kind != Phase::Parent || is_drawn(*kind))
        .map(|(_, name, ink, colour)| format!("{} {name}", style.paint(colour, ink)))
        .collect();
    let mut text = format!("{}  {}\n", fit("", NAME_COLUMNS), legend.join("  "));
    let (begin, middle, end) = (time(from), time(from + scale.length / 2), time(to));
    let gap = columns.saturating_sub(begin.chars().count() + middle.chars().count() + end.chars().count());
    let axis = format!("{begin}{}{middle}{}{end}", " ".repeat(gap / 2), " ".repeat(gap - gap / 2));
    text += &format!("{}  {axis}\n", fit("", NAME_COLUMNS));
    for row in rows {
        let (bar, call) = (bar(row, &scale, style), longest(row));
        let total = if call.is_finished() { time(call.total_ns) } else { "…".into() };
        let total = if call.is_ok() { total } else { style.paint("31", &total) };
        text += &format!("{}  {bar}  {total}\n", fit(&name(row), NAME_COLUMNS));
    }
    text
}

struct Scale {
    from: u64,
    length: u64,
    columns: usize,
}

impl Scale {
    /// The time at which a column begins.
    fn moment(&self, column: usize) -> u64 {
        let past = u128::from(self.length) * column as u128 / self.columns as u128;
        self.from + u64::try_from(past).unwrap_or(u64::MAX)
    }
}

/// Each column shows the phase that took most of its time. Every call has at least one column.
fn bar(row: &[Call], scale: &Scale, style: &Style) -> String {
    let mut bar = String::new();
    let mut last = 0;
    for column in 0..scale.columns {
        let (from, to) = (scale.moment(column), scale.moment(column + 1));
        let within = |from_ns: u64, to_ns: u64| to_ns.min(to).saturating_sub(from_ns.max(from));
        let most =
            row.iter().flat_map(|call| &call.parts).max_by_key(|part| within(part.from_ns, part.to_ns));
        let is_start = row.iter().any(|call| (from..to).contains(&call.start_ns));
        let is_last = column + 1 == scale.columns && row.iter().any(|call| call.start_ns >= to);
        if let Some(part) = most.filter(|part| within(part.from_ns, part.to_ns) > 0 || is_start || is_last) {
            let (_, _, ink, colour) = PHASES[part.kind as usize];
            bar += &" ".repeat(column - last);
            bar += &style.paint(colour, ink);
            last = column + 1;
        } else if is_start || is_last {
            bar += &" ".repeat(column - last);
            bar.push('·');
            last = column + 1;
        }
    }
    bar + &" ".repeat(scale.columns - last)
}

#[cfg(test)]
mod tests {
    use super::super::tests::both_sides;
    use super::*;

    #[test]
    fn the_longest_part_of_a_column_is_shown() {
        let timeline = Timeline::of(&both_sides());
        let rows: Vec<_> = timeline.calls.chunks(1).collect();
        let style = Style { width: 52, colour: false };
        assert_eq!(
            waterfall(&timeline, &rows, &style),
            "                    ░ bridge  ▒ queue  █ tool\n                    \
             1 µs    2 µs    2 µs\nadd                 ░░▒██████████░░░░░░░  1 µs\n"
        );
    }

    #[test]
    fn the_legend_has_every_phase_that_is_drawn() {
        // The parent was killed: its side of the call has no end.
        let events = both_sides();
        let lost: Vec<_> = [0, 1, 2, 4].map(|place: usize| events[place].clone()).into();
        let timeline = Timeline::of(&lost);
        let rows: Vec<_> = timeline.calls.chunks(1).collect();
        let text = waterfall(&timeline, &rows, &Style { width: 60, colour: false });
        assert!(text.lines().nth(2).unwrap().contains('▓'), "{text}");
        assert!(text.lines().next().unwrap().ends_with("█ tool  ▓ parent"), "{text}");
    }

    #[test]
    fn a_call_without_duration_has_a_column() {
        let mut timeline = Timeline::of(&both_sides());
        let mut short = timeline.calls[0].clone();
        (short.start_ns, short.total_ns) = (2000, 0);
        short.parts.clear();
        timeline.calls.push(short);
        let rows: Vec<_> = timeline.calls.chunks(1).collect();
        let text = waterfall(&timeline, &rows, &Style { width: 60, colour: false });
        assert!(text.lines().nth(3).unwrap().trim_end().ends_with("·  0 ns"), "{text}");
    }
}
