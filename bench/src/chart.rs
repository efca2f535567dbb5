//! Bar charts and line charts.

use crate::axis::Axis;
use crate::svg::Svg;

const WIDTH: f64 = 760.0;
const MARGIN: f64 = 20.0;
const TITLE: f64 = 44.0;

/// A bar: whose it is, its class, its value, and the value as text.
pub(crate) struct Bar {
    pub(crate) name: &'static str,
    pub(crate) class: &'static str,
    pub(crate) value: f64,
    pub(crate) shown: String,
}

/// Bars under a heading.
pub(crate) struct Group {
    pub(crate) heading: &'static str,
    pub(crate) bars: Vec<Bar>,
}

/// Groups of bars on one logarithmic axis; ticks are written by `show`.
pub(crate) fn bars(title: &str, groups: &[Group], show: impl Fn(f64) -> String) -> String {
    const NAMES: f64 = 120.0;
    const VALUES: f64 = 80.0;
    const BAR: f64 = 16.0;
    const HEADING: f64 = 28.0;
    let values = groups.iter().flat_map(|group| &group.bars).map(|bar| bar.value);
    let axis = Axis::log(values, WIDTH - NAMES - VALUES - MARGIN);
    let heights = groups.iter().map(|group| HEADING + BAR * bar_count(group));
    let bottom = TITLE + heights.sum::<f64>() + 8.0;
    let mut svg = Svg::new(WIDTH, bottom + 28.0);
    svg.text(MARGIN, 26.0, "title", title);
    for tick in axis.ticks.iter().copied() {
        let x = NAMES + axis.place(tick);
        svg.line((x, TITLE), (x, bottom), "grid");
        svg.text(x, bottom + 16.0, "note middle", &show(tick));
    }
    let mut y = TITLE;
    for group in groups {
        svg.text(MARGIN, y + 18.0, "heading", group.heading);
        y += HEADING;
        for bar in &group.bars {
            let length = axis.place(bar.value).max(1.0);
            svg.text(NAMES - 8.0, y + 11.0, "end", bar.name);
            svg.rect((NAMES, y + 1.0), (length, BAR - 4.0), bar.class);
            svg.text(NAMES + length + 6.0, y + 11.0, "note", &bar.shown);
            y += BAR;
        }
    }
    svg.finish(title)
}

fn bar_count(group: &Group) -> f64 {
    u32::try_from(group.bars.len()).unwrap_or(u32::MAX).into()
}

/// A line: its name, its class, and its points.
pub(crate) struct Series {
    pub(crate) name: &'static str,
    pub(crate) class: &'static str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Lines over one vertical axis from zero, whose ticks are written by `show`.
pub(crate) struct Panel {
    pub(crate) heading: &'static str,
    pub(crate) series: Vec<Series>,
    pub(crate) show: fn(f64) -> String,
}

/// Panels above one another, over one logarithmic horizontal axis.
pub(crate) fn lines(title: &str, along: &str, panels: &[Panel]) -> String {
    const LEFT: f64 = 90.0;
    const RIGHT: f64 = 150.0;
    const PANEL: f64 = 130.0;
    const GAP: f64 = 36.0;
    let along_values = panels.iter().flat_map(|panel| &panel.series).flat_map(|series| &series.points);
    let horizontal = Axis::log(along_values.map(|(x, _)| *x), WIDTH - LEFT - RIGHT);
    let mut top = TITLE + 8.0;
    let height = panels.iter().map(|_| PANEL + GAP).sum::<f64>() + top + 16.0;
    let mut svg = Svg::new(WIDTH, height);
    svg.text(MARGIN, 26.0, "title", title);
    for panel in panels {
        let bottom = top + PANEL;
        let vertical = Axis::linear(
            panel.series.iter().flat_map(|series| &series.points).map(|(_, y)| *y),
            PANEL - 20.0,
        );
        svg.text(LEFT, top + 4.0, "heading", panel.heading);
        for tick in vertical.ticks.iter().copied() {
            let y = bottom - vertical.place(tick);
            svg.line((LEFT, y), (WIDTH - RIGHT, y), "grid");
            svg.text(LEFT - 8.0, y + 4.0, "note end", &(panel.show)(tick));
        }
        for tick in horizontal.ticks.iter().copied() {
            svg.text(LEFT + horizontal.place(tick), bottom + 18.0, "note middle", &format!("{tick:.0}"));
        }
        let mut label = f64::INFINITY;
        let mut by_height: Vec<&Series> = panel.series.iter().collect();
        let last = |series: &Series| series.points.last().map_or(0.0, |(_, y)| *y);
        by_height.sort_by(|one, other| last(one).total_cmp(&last(other)));
        for series in by_height {
            let place = |(x, y): &(f64, f64)| (LEFT + horizontal.place(*x), bottom - vertical.place(*y));
            svg.curve(&series.points.iter().map(place).collect::<Vec<_>>(), series.class);
            // Names of lines that lie close to each other stand above each other.
            if let Some((x, y)) = series.points.last().map(place) {
                label = y.min(label - 15.0);
                svg.text(x + 10.0, label + 4.0, "", series.name);
            }
        }
        top = bottom + GAP;
    }
    svg.text((LEFT + WIDTH - RIGHT) / 2.0, top + 2.0, "note middle", along);
    svg.finish(title)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_of_ten_times_the_value_is_one_power_longer() {
        let bar = |name, value| Bar { name, class: "ours", value, shown: format!("{value}") };
        let group = Group { heading: "calls", bars: vec![bar("small", 10.0), bar("large", 100.0)] };
        let chart = bars("Title", &[group], |tick| format!("{tick}"));
        let width = |chart: &str| -> Vec<f64> {
            let all = chart.split("<rect ").skip(1).map(|rect| rect.split("width=\"").nth(1).unwrap());
            all.map(|rest| rest.split('"').next().unwrap().parse().unwrap()).collect()
        };
        assert_eq!(width(&chart), [1.0, 540.0], "the axis begins at 10");
        assert!(chart.contains(">small</text>") && chart.contains(">calls</text>"));
    }

    #[test]
    fn every_line_has_its_name_and_its_points() {
        let series = |name, y: f64| Series { name, class: "ours", points: vec![(1.0, y), (100.0, y)] };
        let panel = Panel {
            heading: "a call",
            series: vec![series("one", 10.0), series("two", 10.5)],
            show: |value| format!("{value}"),
        };
        let chart = lines("Title", "tools", &[panel]);
        assert_eq!(chart.matches("<circle").count(), 4);
        assert!(
            chart.contains(">one</text>") && chart.contains(">two</text>") && chart.contains(">tools</text>")
        );
    }
}
