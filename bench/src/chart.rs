//! The charts of a report: bars for its rows, lines for its curves.

use std::path::Path;

use anyhow::{Context as _, Result};

use crate::axis::Axis;
use crate::contender::Class;
use crate::growth::{Curve, Point};
use crate::report::Report;
use crate::row::{Row, Unit};
use crate::svg::Svg;

const WIDTH: f64 = 760.0;
const MARGIN: f64 = 20.0;
const TITLE: f64 = 44.0;

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

/// Draws the charts into a folder.
pub(crate) fn draw(report: &Report, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let write = |name: &str, chart: String| {
        let path = folder.join(name);
        std::fs::write(&path, chart).with_context(|| format!("cannot write {}", path.display()))
    };
    for (name, title, keys) in BARS {
        let rows = keys.iter().filter_map(|key| report.rows.iter().find(|row| row.key == *key));
        let rows: Vec<&Row> = rows.collect();
        if !rows.is_empty() {
            write(name, bars(title, &rows))?;
        }
    }
    for curve in &report.growth {
        write(&format!("growth_{}.svg", curve.of), lines(curve))?;
    }
    Ok(())
}

/// A group of bars for each row, on one logarithmic axis.
fn bars(title: &str, rows: &[&Row]) -> String {
    const NAMES: f64 = 120.0;
    const VALUES: f64 = 80.0;
    const BAR: f64 = 16.0;
    const HEADING: f64 = 28.0;
    // A rate is drawn as calls per second: more is longer.
    let length = |row: &Row, median: f64| if row.unit == Unit::Rate { 1.0 / median } else { median };
    let lengths =
        rows.iter().flat_map(|row| row.figures.iter().map(|(_, figure)| length(row, figure.median)));
    let axis = Axis::log(lengths, WIDTH - NAMES - VALUES - MARGIN);
    let heights = rows.iter().map(|row| HEADING + row.figures.iter().map(|_| BAR).sum::<f64>());
    let bottom = TITLE + heights.sum::<f64>() + 8.0;
    let mut svg = Svg::new(WIDTH, bottom + 28.0);
    svg.text(MARGIN, 26.0, "title", title);
    for tick in axis.ticks.iter().copied() {
        let x = NAMES + axis.place(tick);
        svg.line((x, TITLE), (x, bottom), "grid");
        svg.text(x, bottom + 16.0, "note middle", &tick_text(rows[0].unit, tick));
    }
    let mut y = TITLE;
    for row in rows {
        svg.text(MARGIN, y + 18.0, "heading", row.label);
        y += HEADING;
        for (contender, figure) in &row.figures {
            let class = match contender.class {
                Class::Relay => "floor",
                Class::Ours => "ours",
                Class::Peer => "peer",
            };
            let length = axis.place(length(row, figure.median)).max(1.0);
            svg.text(NAMES - 8.0, y + 11.0, "end", contender.name);
            svg.rect((NAMES, y + 1.0), (length, BAR - 4.0), class);
            svg.text(NAMES + length + 6.0, y + 11.0, "note", &row.unit.show(figure.median));
            y += BAR;
        }
    }
    svg.finish(title)
}

/// A power of ten, without needless digits.
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

/// Name, class, and points.
type Line = (&'static str, &'static str, Vec<(f64, f64)>);

/// Heading, lines, and the format of the ticks.
type Panel = (&'static str, Vec<Line>, fn(f64) -> String);

/// Time above, memory below, over one logarithmic horizontal axis.
fn lines(curve: &Curve) -> String {
    const LEFT: f64 = 90.0;
    const RIGHT: f64 = 150.0;
    const PANEL: f64 = 130.0;
    const GAP: f64 = 36.0;
    let line = |name, class, value: &dyn Fn(&Point) -> f64| -> Line {
        (name, class, curve.points.iter().map(|point| (count(point), value(point))).collect())
    };
    let time = vec![
        line("bridge+parent", "ours", &|point| point.call.median),
        line("floor", "floor", &|point| point.floor.median),
    ];
    let bytes = curve.columns.iter().enumerate().filter(|(_, (_, _, is_bytes))| *is_bytes);
    let memory = bytes
        .zip(["ours", "other"])
        .map(|((index, (_, label, _)), class)| line(label, class, &|point| point.values[index]));
    let panels: [Panel; 2] = [
        ("a call", time, |value| format!("{:.0} µs", value * 1e6)),
        ("memory", memory.collect(), |value| format!("{:.0} MB", value / 1e6)),
    ];
    let title = format!("A call of 100 B, as the number of {} grows", curve.of);
    let horizontal = Axis::log(curve.points.iter().map(count), WIDTH - LEFT - RIGHT);
    let mut top = TITLE + 8.0;
    let mut svg = Svg::new(WIDTH, 2.0 * (PANEL + GAP) + top + 16.0);
    svg.text(MARGIN, 26.0, "title", &title);
    for (heading, mut lines, show) in panels {
        let bottom = top + PANEL;
        let values = lines.iter().flat_map(|(_, _, points)| points).map(|(_, y)| *y);
        let vertical = Axis::linear(values, PANEL - 20.0);
        svg.text(LEFT, top + 4.0, "heading", heading);
        for tick in vertical.ticks.iter().copied() {
            let y = bottom - vertical.place(tick);
            svg.line((LEFT, y), (WIDTH - RIGHT, y), "grid");
            svg.text(LEFT - 8.0, y + 4.0, "note end", &show(tick));
        }
        for tick in horizontal.ticks.iter().copied() {
            svg.text(LEFT + horizontal.place(tick), bottom + 18.0, "note middle", &format!("{tick:.0}"));
        }
        let mut label = f64::INFINITY;
        let last = |(_, _, points): &Line| points.last().map_or(0.0, |(_, y)| *y);
        lines.sort_by(|one, other| last(one).total_cmp(&last(other)));
        for (name, class, points) in lines {
            let place = |(x, y): &(f64, f64)| (LEFT + horizontal.place(*x), bottom - vertical.place(*y));
            svg.curve(&points.iter().map(place).collect::<Vec<_>>(), class);
            // Move labels of lines that are close to each other apart.
            if let Some((x, y)) = points.last().map(place) {
                label = y.min(label - 15.0);
                svg.text(x + 10.0, label + 4.0, "", name);
            }
        }
        top = bottom + GAP;
    }
    svg.text((LEFT + WIDTH - RIGHT) / 2.0, top + 2.0, "note middle", curve.of);
    svg.finish(&title)
}

fn count(point: &Point) -> f64 {
    u32::try_from(point.count).unwrap_or(u32::MAX).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::Contender;
    use crate::sample::Figure;

    #[test]
    fn a_bar_of_ten_times_the_value_is_one_power_longer() {
        let figures = [(Contender::Floor, vec![10.0]), (Contender::Bridge, vec![100.0])];
        let chart = bars("Title", &[&Row::new("key", "calls", Unit::Time, figures)]);
        let width = |chart: &str| -> Vec<f64> {
            let all = chart.split("<rect ").skip(1).map(|rect| rect.split("width=\"").nth(1).unwrap());
            all.map(|rest| rest.split('"').next().unwrap().parse().unwrap()).collect()
        };
        assert_eq!(width(&chart), [1.0, 540.0], "the axis must begin at 10");
        assert!(chart.contains(">floor</text>") && chart.contains(">calls</text>"));
    }

    #[test]
    fn every_line_has_its_name_and_its_points() {
        let point = |count| {
            let figure = |median| Figure { median, p99: median, runs: 1 };
            Point { count, call: figure(10.5), floor: figure(10.0), values: vec![1e6, 2e6] }
        };
        let columns = &[("one", "one", true), ("two", "two", true)];
        let curve = Curve { of: "tools", title: "", columns, points: vec![point(1), point(100)] };
        let chart = lines(&curve);
        assert_eq!(chart.matches("<circle").count(), 8);
        for name in ["bridge+parent", "floor", "one", "two", "tools"] {
            assert!(chart.contains(&format!(">{name}</text>")), "{name}");
        }
    }

    #[test]
    fn ticks_are_round() {
        let shown = [1e-5, 1e-3, 1.0].map(|value| tick_text(Unit::Time, value));
        assert_eq!(shown, ["10 µs", "1 ms", "1 s"]);
        assert_eq!(tick_text(Unit::Rate, 1e4), "10 k/s");
        assert_eq!(tick_text(Unit::Memory, 1e5), "0.1 MB");
    }
}
