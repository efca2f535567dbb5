//! The report's tables.

use super::contender::Contender;
use super::goal::Verdict;
use super::growth::Curve;
use super::report::Report;
use super::row::{Row, Unit};
use super::sample::Figure;
use super::table::Table;

const NOTHING: &str = "–";

impl Report {
    /// Every figure of every contender, one to a line.
    pub(crate) fn rows_table(&self) -> Table {
        let head = ["what", "who", "median", "p99", "n", "× floor", "× best peer"];
        let mut table = Table::with_texts(2, "Calls, start, memory", &head);
        for row in &self.rows {
            let mut label = row.label;
            for (contender, figure) in &row.figures {
                table.add([
                    std::mem::take(&mut label).to_owned(),
                    contender.name().to_owned(),
                    row.unit.show(figure.median),
                    tail(row, figure),
                    figure.runs.to_string(),
                    times(row.to_floor(*contender)),
                    times(row.to_best_peer(*contender)),
                ]);
            }
        }
        table
    }

    /// The medians alone: a line for each row, a column for each contender.
    pub(crate) fn medians_table(&self) -> Table {
        let mut head = vec![""];
        head.extend(self.contenders.iter().map(|one| one.name()));
        let mut table = Table::new("Medians", &head);
        for row in &self.rows {
            let cell = |contender: &Contender| match row.figure(*contender) {
                None => NOTHING.to_owned(),
                Some(figure) => row.unit.show(figure.median),
            };
            table.add(std::iter::once(row.label.to_owned()).chain(self.contenders.iter().map(cell)));
        }
        table
    }

    /// The goals, and whether they are reached.
    pub(crate) fn goals_table(&self) -> Table {
        let mut head = vec!["goal", "who", "against", "at most"];
        head.extend(self.earlier.iter().map(|_| "a run before"));
        head.extend(["measured", "reached"]);
        let mut table = Table::with_texts(3, "Goals", &head);
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

    /// All but the rows and the goals.
    pub(crate) fn other_tables(&self) -> Vec<Table> {
        let mut tables = vec![self.python_table(), self.first_call_table()];
        tables.extend(self.growth.iter().map(curve_table));
        tables.push(self.documents_table());
        tables
    }

    fn python_table(&self) -> Table {
        let title = "A Python tool: our whole way beside the floor and Python's own work in its interpreter";
        let head = [
            "what",
            "floor",
            "json",
            "pydantic-ai",
            "ours",
            "p99",
            "n",
            "× floor+json",
            "× floor+pydantic-ai",
        ];
        let mut table = Table::new(title, &head);
        for row in &self.python {
            table.add([
                row.label.to_owned(),
                time(row.floor.median),
                time(row.json.median),
                time(row.pydantic_ai.median),
                time(row.ours.median),
                time(row.ours.p99),
                row.ours.runs.to_string(),
                times(Some(row.to_json())),
                times(Some(row.to_pydantic_ai())),
            ]);
        }
        table
    }

    fn first_call_table(&self) -> Table {
        let head = ["part", "median", "p99", "n", "floor", "× floor"];
        let mut table = Table::new("The first call: what a user waits for", &head);
        for part in &self.first_call {
            table.add([
                part.label.to_owned(),
                time(part.figure.median),
                time(part.figure.p99),
                part.figure.runs.to_string(),
                part.floor.map_or(NOTHING.into(), |floor| time(floor.median)),
                times(part.floor.map(|floor| part.figure.median / floor.median)),
            ]);
        }
        table
    }

    /// The document tools, and beside them the plain system calls for the same bytes.
    fn documents_table(&self) -> Table {
        let head = ["what", "median", "p99", "n", "plain", "× plain"];
        let mut table = Table::new("The document tools, beside plain system calls for the same bytes", &head);
        for row in &self.documents {
            table.add([
                row.label.to_owned(),
                time(row.ours.median),
                time(row.ours.p99),
                row.ours.runs.to_string(),
                row.plain.map_or(NOTHING.into(), |plain| time(plain.median)),
                times(row.plain.map(|plain| row.ours.median / plain.median)),
            ]);
        }
        table
    }
}

fn curve_table(curve: &Curve) -> Table {
    let title = match curve.key {
        "tools" => "Growth: a call of 100 B in a session with so many tools",
        "calls" => "Growth: a call of 100 B, by decade of the calls made in one session",
        _ => "Growth: a call of 100 B with so many sessions in one process, each with its bridge",
    };
    let mut head = vec![curve.of, "a call", "p99", "n", "floor", "× floor"];
    head.extend(curve.columns.iter().map(|column| column.label));
    let mut table = Table::new(title, &head);
    for point in &curve.points {
        let values = curve.columns.iter().zip(&point.values).map(|(column, value)| {
            if column.is_bytes { Unit::Memory.show(*value) } else { format!("{value:.0}") }
        });
        let cells = [
            format!("{}{}", if curve.key == "calls" { "to " } else { "" }, grouped(point.count)),
            time(point.call.median),
            time(point.call.p99),
            point.call.runs.to_string(),
            time(point.floor.median),
            times(Some(point.call.median / point.floor.median)),
        ];
        table.add(cells.into_iter().chain(values));
    }
    table
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

/// A few runs of something that hardly differs have no hundredth part.
fn tail(row: &Row, figure: &Figure) -> String {
    if row.unit == Unit::Memory { NOTHING.into() } else { row.unit.show(figure.p99) }
}

/// A number with a comma between thousands.
pub(crate) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// In how many of the runs a goal was reached.
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
    fn a_goal_counts_as_reached_when_it_was_in_all_runs() {
        let goal = Verdict {
            what: "",
            who: "",
            measured: 1.0,
            limit: 1.3,
            unit: "×",
            against: "floor",
            is_promise: false,
        };
        for (measured, want) in [
            (vec![Some(1.0), Some(1.3)], "yes"),
            (vec![Some(1.4), None, Some(1.3)], "1 of 2"),
            (vec![None, Some(1.4)], "no"),
        ] {
            assert_eq!(reached(&goal, &measured), want);
        }
    }
}
