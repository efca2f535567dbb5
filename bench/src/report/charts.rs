//! The charts of a report.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::chart::{Bar, Group, Panel, Series, bars, lines};
use crate::contender::{Class, Contender};
use crate::growth::{Curve, Point};
use crate::report::Report;
use crate::row::{Row, Unit};

/// A bar chart: its file, its title, its rows.
const BARS: [(&str, &str, &[&str]); 4] = [
    (
        "round_trips.svg",
        "One call and its answer, median (logarithmic)",
        &["text_100_b", "text_10_kb", "text_1_mb", "text_9_mb", "structured_1_mb"],
    ),
    (
        "in_flight.svg",
        "Calls per second, 100 B (logarithmic)",
        &["in_flight_1", "in_flight_8", "in_flight_64"],
    ),
    (
        "start.svg",
        "From the start to the list of tools, median (logarithmic)",
        &["start", "start_1000_tools"],
    ),
    (
        "memory.svg",
        "Memory of the process that the CLI starts (logarithmic)",
        &["memory_fresh", "memory_used"],
    ),
];

impl Report {
    /// Draws what was measured into a folder.
    pub(crate) fn draw(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let write = |name: &str, chart: String| {
            let path = folder.join(name);
            std::fs::write(&path, chart).with_context(|| format!("cannot write {}", path.display()))
        };
        for (name, title, keys) in BARS {
            let rows = keys.iter().filter_map(|key| self.rows.iter().find(|row| row.key == *key));
            let rows: Vec<&Row> = rows.collect();
            if let Some(first) = rows.first() {
                let groups: Vec<Group> = rows.iter().map(|row| group(row)).collect();
                write(name, bars(title, &groups, |tick| tick_text(first.unit, tick)))?;
            }
        }
        for curve in &self.growth {
            let title = format!("A call of 100 B, as the number of {} grows", curve.of);
            write(&format!("growth_{}.svg", curve.of), lines(&title, curve.of, &panels(curve)))?;
        }
        Ok(())
    }
}

/// A rate is drawn as calls in a second: more is longer.
fn group(row: &Row) -> Group {
    let bars = row.figures.iter().map(|(contender, figure)| Bar {
        name: contender.name,
        class: class(*contender),
        value: if row.unit == Unit::Rate { 1.0 / figure.median } else { figure.median },
        shown: row.unit.show(figure.median),
    });
    Group { heading: row.label, bars: bars.collect() }
}

fn class(contender: Contender) -> &'static str {
    match contender.class {
        Class::Relay => "floor",
        Class::Ours => "ours",
        Class::Peer => "peer",
    }
}

/// A power of ten, without digits that say nothing.
fn tick_text(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Time if value < 0.9e-3 => format!("{:.0} µs", value * 1e6),
        Unit::Time if value < 0.9 => format!("{:.0} ms", value * 1e3),
        Unit::Time => format!("{value:.0} s"),
        Unit::Rate if value < 900.0 => format!("{value:.0}/s"),
        Unit::Rate => format!("{:.0} k/s", value / 1e3),
        Unit::Memory => format!("{} MB", value / 1e6),
    }
}

/// Time above, memory below.
fn panels(curve: &Curve) -> [Panel; 2] {
    let series = |name, class, value: &dyn Fn(&Point) -> f64| {
        let count = |point: &Point| u32::try_from(point.count).unwrap_or(u32::MAX).into();
        let points = curve.points.iter().map(|point| (count(point), value(point)));
        Series { name, class, points: points.collect() }
    };
    let time = vec![
        series("bridge+parent", "ours", &|point| point.call.median),
        series("floor", "floor", &|point| point.floor.median),
    ];
    let bytes = curve.columns.iter().enumerate().filter(|(_, (_, _, is_bytes))| *is_bytes);
    let memory = bytes
        .zip(["ours", "other"])
        .map(|((index, (_, label, _)), class)| series(label, class, &|point| point.values[index]));
    [
        Panel { heading: "a call", series: time, show: |value| format!("{:.0} µs", value * 1e6) },
        Panel { heading: "memory", series: memory.collect(), show: |value| format!("{:.0} MB", value / 1e6) },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        let shown = [1e-5, 1e-3, 1.0].map(|value| tick_text(Unit::Time, value));
        assert_eq!(shown, ["10 µs", "1 ms", "1 s"]);
        assert_eq!(tick_text(Unit::Rate, 1e4), "10 k/s");
        assert_eq!(tick_text(Unit::Memory, 1e5), "0.1 MB");
    }
}
