//! The figures, for people and for programs.

use serde_json::{Map, Value, json};

use super::contender::Contender;
use super::documents::DocumentsRow;
use super::earlier::Earlier;
use super::first_call::Part;
use super::goal::{Verdict, verdicts};
use super::growth::Curve;
use super::machine::Machine;
use super::python_cost::PythonRow;
use super::row::{Row, Unit};
use super::sample::Figure;

/// What the rows mean; a figure without it says nothing.
pub(crate) const EXPLANATION: [(&str, &str); 8] = [
    ("all", "the same bytes over socket pairs, in small batches that take turns; each answer is checked"),
    ("n", "how many runs; whoever is slow has fewer"),
    (
        "text",
        "one call at a time; the text goes there and comes back. The rows without `any CPU` up to 10 KB have everybody \
         on one CPU: waking a sleeping CPU takes longer than a small call, and differs from run to run",
    ),
    (
        "structured",
        "one call at a time; an array of small objects goes there and comes back (`both ways`, which the goal is for), \
         or only 100 B come back (`one way`)",
    ),
    ("in flight", "so many calls under way, in calls per second; p99 is the rate of the slowest batches"),
    (
        "start",
        "from the start of the process to the answer to tools/list; of the floor, to the first call relayed",
    ),
    ("memory", "resident, of the process that the CLI starts; when idle for 1.5 s after a 9 MB call"),
    ("sdk", "has no process of its own, so it neither starts nor holds anything"),
];

pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) versions: Vec<String>,
    pub(crate) notes: Vec<String>,
    pub(crate) contenders: Vec<Contender>,
    pub(crate) rows: Vec<Row>,
    pub(crate) first_call: Vec<Part>,
    pub(crate) growth: Vec<Curve>,
    pub(crate) python: Vec<PythonRow>,
    pub(crate) documents: Vec<DocumentsRow>,
    /// Runs whose goals are shown beside this one's.
    pub(crate) earlier: Vec<Earlier>,
}

impl Report {
    pub(crate) fn goals(&self) -> Vec<Verdict> {
        verdicts(&self.rows, &self.python)
    }

    /// One line about the machine.
    pub(crate) fn machine_line(&self) -> String {
        let machine = &self.machine;
        format!("{}, {} cores, {}, load {} before", machine.cpu, machine.cores, machine.kernel, machine.load)
    }

    /// For a terminal.
    pub(crate) fn to_text(&self) -> String {
        let mut text = format!("\n{}\n{}\n", self.machine_line(), self.versions.join("; "));
        for note in &self.notes {
            text.push_str(&format!("note: {note}\n"));
        }
        text.push('\n');
        let who = self.contenders.iter().map(|one| (one.name(), one.explanation()));
        for (name, meaning) in who.chain(EXPLANATION) {
            text.push_str(&format!("{name:<14} {meaning}\n"));
        }
        let mut tables = vec![self.rows_table()];
        tables.extend(self.other_tables());
        tables.push(self.goals_table());
        for table in tables.iter().filter(|table| !table.rows.is_empty()) {
            text.push_str(&format!("\n{}", table.to_text()));
        }
        text
    }

    /// One object.
    pub(crate) fn to_json(&self) -> Value {
        let rows: Map<_, _> = self.rows.iter().map(|row| (row.key.to_owned(), row_json(row))).collect();
        let first_call = self.first_call.iter().map(|part| {
            let figures =
                json!({ "ours": figure_json(&part.figure), "floor": part.floor.as_ref().map(figure_json) });
            (part.key.to_owned(), json!({ "label": part.label, "unit": "seconds", "figures": figures }))
        });
        let growth = self.growth.iter().map(|curve| (curve.key.to_owned(), curve_json(curve)));
        let python = self.python.iter().map(|row| {
            let value = json!({
                "label": row.label,
                "unit": "seconds",
                "floor": figure_json(&row.floor),
                "json": figure_json(&row.json),
                "pydantic_ai": figure_json(&row.pydantic_ai),
                "ours": figure_json(&row.ours),
                "to_floor_and_json": row.to_json(),
                "to_floor_and_pydantic_ai": row.to_pydantic_ai(),
            });
            (row.key.to_owned(), value)
        });
        let documents = self.documents.iter().map(|row| {
            let figures =
                json!({ "ours": figure_json(&row.ours), "plain": row.plain.as_ref().map(figure_json) });
            (row.key.to_owned(), json!({ "label": row.label, "unit": "seconds", "figures": figures }))
        });
        let goals = self.goals().into_iter().map(|goal| {
            json!({
                "row": goal.what,
                "contender": goal.who,
                "against": goal.against,
                "measured": goal.measured,
                "limit": goal.limit,
                "unit": goal.unit.trim(),
                "reached": goal.is_reached(),
            })
        });
        json!({
            "machine": {
                "cpu": self.machine.cpu,
                "cores": self.machine.cores,
                "kernel": self.machine.kernel,
                "load": self.machine.load,
            },
            "versions": self.versions,
            "notes": self.notes,
            "contenders": self.contenders.iter().map(|one| (one.name().to_owned(), one.explanation().into())).collect::<Map<_, _>>(),
            "explanation": EXPLANATION.iter().map(|(name, text)| ((*name).to_owned(), (*text).into())).collect::<Map<_, _>>(),
            "rows": rows,
            "first_call": first_call.collect::<Map<_, _>>(),
            "growth": growth.collect::<Map<_, _>>(),
            "python": python.collect::<Map<_, _>>(),
            "documents": documents.collect::<Map<_, _>>(),
            "goals": goals.collect::<Vec<_>>(),
        })
    }
}

fn figure_json(figure: &Figure) -> Value {
    json!({ "median": figure.median, "p99": figure.p99, "runs": figure.runs })
}

fn row_json(row: &Row) -> Value {
    let figures = row.figures.iter().map(|(contender, figure)| {
        let mut value = figure_json(figure);
        value["to_floor"] = json!(row.to_floor(*contender));
        value["to_best_peer"] = json!(row.to_best_peer(*contender));
        (contender.name().to_owned(), value)
    });
    json!({ "label": row.label, "unit": row.unit.name(), "figures": figures.collect::<Map<_, _>>() })
}

fn curve_json(curve: &Curve) -> Value {
    let points = curve.points.iter().map(|point| {
        let mut value = json!({
            "count": point.count,
            "call": figure_json(&point.call),
            "floor": figure_json(&point.floor),
        });
        for (column, number) in curve.columns.iter().zip(&point.values) {
            value[column.key] = json!(number);
        }
        value
    });
    json!({ "of": curve.of, "unit": Unit::Time.name(), "points": points.collect::<Vec<_>>() })
}
