//! The report's tables.

use crate::contender::Contender;
use crate::goal::Verdict;
use crate::growth::Curve;
use crate::report::Report;
use crate::row::{Beside, Row, Unit};
use crate::sample::Figure;
use crate::search::ENGINES;
use crate::table::Table;

const NOTHING: &str = "–";

impl Report {
    /// Every figure of every contender, one per row.
    pub(crate) fn rows_table(&self) -> Table {
        let head = ["what", "who", "median", "p99", "n", "× floor", "× best peer"];
        let mut table = Table::new(2, "Calls, start, memory", &head);
        for row in self.rows.iter().chain(&self.http) {
            let mut label = row.label;
            for (contender, figure) in &row.figures {
                table.add([
                    std::mem::take(&mut label).to_owned(),
                    contender.name.to_owned(),
                    row.unit.show(figure.median),
                    // Memory hardly varies over a few runs, so a p99 is not meaningful.
                    if row.unit == Unit::Memory { NOTHING.into() } else { row.unit.show(figure.p99) },
                    figure.runs.to_string(),
                    times(row.to_floor(*contender)),
                    times(row.to_best_peer(*contender)),
                ]);
            }
        }
        table
    }

    /// Only the medians of these rows: a row for each, a column for each contender.
    pub(crate) fn medians_table(&self, title: &'static str, rows: &[Row]) -> Table {
        let is_in = |one: &Contender| rows.iter().any(|row| row.figure(*one).is_some());
        let columns: Vec<_> = self.contenders.iter().copied().filter(is_in).collect();
        let mut head = vec![""];
        head.extend(columns.iter().map(|one| one.name));
        let mut table = Table::new(1, title, &head);
        for row in rows {
            let cell = |contender: &Contender| {
                row.figure(*contender).map_or(NOTHING.into(), |figure| row.unit.show(figure.median))
            };
            table.add(std::iter::once(row.label.to_owned()).chain(columns.iter().map(cell)));
        }
        table
    }

    /// The goals, and whether they are met.
    pub(crate) fn goals_table(&self) -> Table {
        let mut head = vec!["goal", "who", "against", "at most"];
        head.extend(self.earlier.iter().map(|_| "a run before"));
        head.extend(["measured", "reached"]);
        let mut table = Table::new(3, "Goals", &head);
        for goal in self.goals() {
            let mut measured: Vec<_> = self.earlier.iter().map(|run| run.measured(&goal)).collect();
            measured.push(Some(goal.measured));
            let mut cells = vec![
                goal.what.to_owned(),
                goal.who.to_owned(),
                goal.against.to_owned(),
                format!("{:.1}{}", goal.limit, goal.unit),
            ];
            let show = |value: &Option<f64>| {
                value.map_or(NOTHING.into(), |value| format!("{value:.2}{}", goal.unit))
            };
            cells.extend(measured.iter().map(show));
            cells.push(reached(&goal, &measured));
            table.add(cells);
        }
        table
    }

    /// All tables but those of rows and goals.
    pub(crate) fn other_tables(&self) -> Vec<Table> {
        let first = "The first call: what a user waits for";
        let documents = "The document tools, beside plain system calls for the same bytes";
        let http = "Over HTTP: medians of servers that have the tools in them";
        let proxy = "Another server through `toolbridge serve`, beside the same server without it";
        let nats =
            "Over NATS: a call, beside a request and a reply without us, beside HTTP, and with more hosts";
        let talk = "From a prompt to the model, beside the vendor's SDK for Python";
        let mut tables = vec![
            self.medians_table(http, &self.http),
            beside_table(proxy, "what", "direct", self.proxy.iter().map(|(_, row)| row)),
            beside_table(nats, "what", "beside", &self.nats),
            beside_table(talk, "what", "SDK", &self.talk),
            self.python_table(),
            beside_table(first, "part", "floor", &self.first_call),
        ];
        tables.extend(self.growth.iter().map(curve_table));
        tables.push(beside_table(documents, "what", "plain", &self.documents));
        tables.push(self.search_table());
        tables
    }

    fn search_table(&self) -> Table {
        let title = "Searching many files, beside engines of others";
        let head = [&["what"], &ENGINES[..], &["× best"]].concat();
        let mut table = Table::new(1, title, &head);
        for row in &self.search {
            let show = |value: f64| row.unit.map_or_else(|| format!("{value:.3}"), |unit| unit.show(value));
            let others = row.values[1..].iter().flatten().copied();
            // Of times and sizes the least is the best, of the rest the most.
            let best = match row.unit {
                Some(_) => others.min_by(f64::total_cmp),
                None => others.max_by(f64::total_cmp),
            };
            let ratio = row.values[0].zip(best).map(|(ours, best)| ours / best);
            let values = row.values.iter().map(|value| value.map_or(NOTHING.into(), show));
            table.add(std::iter::once(row.label.clone()).chain(values).chain([times(ratio)]));
        }
        table
    }

    fn python_table(&self) -> Table {
        let title = "A Python tool: our whole way beside the floor and Python's own work in its interpreter";
        let head = "what|floor|json|pydantic-ai|ours|p99|n|× floor+json|× floor+pydantic-ai";
        let mut table = Table::new(1, title, &head.split('|').collect::<Vec<_>>());
        for row in &self.python {
            let values = [row.floor, row.json, row.pydantic_ai].map(|figure| time(figure.median));
            let ratios = [row.to_json(), row.to_pydantic_ai()].map(|ratio| times(Some(ratio)));
            let label = std::iter::once(row.label.to_owned());
            table.add(label.chain(values).chain(shown(&row.ours)).chain(ratios));
        }
        table
    }
}

/// Our figures compared with those of `other`.
fn beside_table<'a>(
    title: &'static str,
    what: &str,
    other: &str,
    rows: impl IntoIterator<Item = &'a Beside>,
) -> Table {
    let mut table = Table::new(1, title, &[what, "median", "p99", "n", other, &format!("× {other}")]);
    for row in rows {
        let compared = compared(&row.ours, row.other.as_ref());
        table.add(std::iter::once(row.label.to_owned()).chain(compared));
    }
    table
}

fn curve_table(curve: &Curve) -> Table {
    let mut head = vec![curve.of, "a call", "p99", "n", "floor", "× floor"];
    head.extend(curve.columns.iter().map(|(_, label, _)| label));
    let mut table = Table::new(1, curve.title, &head);
    for point in &curve.points {
        let values = curve.columns.iter().zip(&point.values).map(|((_, _, is_bytes), value)| {
            if *is_bytes { Unit::Memory.show(*value) } else { format!("{value:.0}") }
        });
        let count = format!("{}{}", if curve.of == "calls" { "to " } else { "" }, grouped(point.count));
        table.add(std::iter::once(count).chain(compared(&point.call, Some(&point.floor))).chain(values));
    }
    table
}

/// The median, the p99, and the number of runs.
fn shown(figure: &Figure) -> [String; 3] {
    [time(figure.median), time(figure.p99), figure.runs.to_string()]
}

/// The same, the other median, and the ratio.
fn compared(figure: &Figure, other: Option<&Figure>) -> impl Iterator<Item = String> {
    let median = other.map_or(NOTHING.into(), |other| time(other.median));
    let ratio = times(other.map(|other| figure.median / other.median));
    shown(figure).into_iter().chain([median, ratio])
}

fn time(value: f64) -> String {
    Unit::Time.show(value)
}

fn times(ratio: Option<f64>) -> String {
    match ratio {
        None => NOTHING.into(),
        Some(ratio) if ratio < 0.1 => format!("{ratio:.3}"),
        Some(ratio) if ratio < 100.0 => format!("{ratio:.2}"),
        Some(ratio) => format!("{ratio:.0}"),
    }
}

/// A number with thousands separators.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// In how many of the runs a goal was met.
fn reached(goal: &Verdict, measured: &[Option<f64>]) -> String {
    let runs: Vec<_> = measured.iter().flatten().collect();
    match runs.iter().filter(|value| ***value <= goal.limit).count() {
        0 => "no".into(),
        all if all == runs.len() => "yes".into(),
        some => format!("{some} of {}", runs.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_ratios_have_as_many_digits_as_say_something() {
        assert_eq!(["1", "100", "1,000", "100,000"], [1, 100, 1_000, 100_000].map(grouped));
        assert_eq!(["–", "0.034", "1.25", "120"], [None, Some(0.0341), Some(1.25), Some(120.4)].map(times));
    }

    #[test]
    fn medians_have_a_column_for_those_that_were_measured() {
        let contenders = vec![Contender::Bridge, Contender::Server, Contender::NodeSdk];
        let report = Report { contenders, ..Report::default() };
        let figures = [(Contender::Server, vec![2.0]), (Contender::NodeSdk, vec![4.0])];
        let table = report.medians_table("", &[Row::new("key", "calls", Unit::Time, figures)]);
        assert_eq!(table.head, ["", "server", "node-sdk"]);
        assert_eq!(table.rows, [["calls", "2.00 s", "4.00 s"]]);
    }

    #[test]
    fn a_goal_counts_as_reached_when_it_was_in_all_runs() {
        let goal = Verdict { limit: 1.3, ..Verdict::default() };
        for (measured, want) in [
            (vec![Some(1.0), Some(1.3)], "yes"),
            (vec![Some(1.4), None, Some(1.3)], "1 of 2"),
            (vec![None, Some(1.4)], "no"),
        ] {
            assert_eq!(reached(&goal, &measured), want);
        }
    }
}
