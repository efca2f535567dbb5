//! The report, for readers and for programs.

mod tables;

use serde_json::{Value, json};

use crate::contender::Contender;
use crate::earlier::Earlier;
use crate::goal::{Measured, Verdict, verdicts};
use crate::growth::Curve;
use crate::machine::Machine;
use crate::python_cost::PythonRow;
use crate::row::{Beside, Row, Unit};
use crate::search::{ENGINES, SearchRow};

/// The meaning of the rows.
const EXPLANATION: [(&str, &str); 11] = [
    ("all", "the same bytes over socket pairs, in small batches that take turns; each answer is checked"),
    ("n", "the number of runs; slow contenders have fewer"),
    (
        "text",
        "one call at a time; the text goes there and comes back. The rows without `any CPU` up to 10 KB have all processes \
         on one CPU: waking a sleeping CPU takes longer than a small call, and differs from run to run",
    ),
    (
        "structured",
        "one call at a time; an array of small objects goes there and comes back (`both ways`, which the goal is for), \
         or only 100 B come back (`one way`)",
    ),
    ("in flight", "that many calls in parallel, in calls per second; p99 is the rate of the slowest batches"),
    (
        "start",
        "from the start of the process to the answer to tools/list; of the floor, to the first call relayed",
    ),
    ("memory", "resident, of the process that the CLI starts; when idle for 1.5 s after a 9 MB call"),
    (
        "over HTTP",
        "one call at a time over a connection that stays open, in a session; every server answers with one JSON message. \
         64 clients have a session and a connection each. Memory is that of the server, idle for 1.5 s after a 1 MB call",
    ),
    (
        "direct",
        "the client speaks with a server, and not with `toolbridge serve`, which has started the same server",
    ),
    (
        "beside",
        "what the label says: a request and a reply on the same NATS server and client without us; our client and server over HTTP; the share of one host",
    ),
    ("sdk", "has no process of its own, so it neither starts nor holds anything"),
];

#[derive(Default)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) versions: Vec<String>,
    pub(crate) notes: Vec<String>,
    pub(crate) contenders: Vec<Contender>,
    pub(crate) rows: Vec<Row>,
    pub(crate) first_call: Vec<Beside>,
    pub(crate) growth: Vec<Curve>,
    pub(crate) python: Vec<PythonRow>,
    pub(crate) documents: Vec<Beside>,
    /// Searching many files, beside others' engines.
    pub(crate) search: Vec<SearchRow>,
    /// Calls over HTTP.
    pub(crate) http: Vec<Row>,
    /// Servers through `toolbridge serve`, compared with direct calls.
    pub(crate) proxy: Vec<(Contender, Beside)>,
    /// Calls over NATS.
    pub(crate) nats: Vec<Beside>,
    /// From a prompt to the model, compared with the vendor's SDK.
    pub(crate) talk: Vec<Beside>,
    /// Earlier runs whose goals are shown too.
    pub(crate) earlier: Vec<Earlier>,
}

impl Report {
    pub(crate) fn goals(&self) -> Vec<Verdict> {
        verdicts(&Measured {
            rows: &self.rows,
            http: &self.http,
            python: &self.python,
            proxy: &self.proxy,
            nats: &self.nats,
            talk: &self.talk,
            search: &self.search,
        })
    }

    /// One line about the machine.
    fn machine_line(&self) -> String {
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
        for (name, meaning) in self.who().into_iter().chain(EXPLANATION) {
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

    /// The text between the markers of a document.
    pub(crate) fn to_markdown(&self) -> String {
        let mut text = format!("{}.\n\n{}.\n", self.machine_line(), self.versions.join("; "));
        for note in &self.notes {
            text.push_str(&format!("\n**{note}**\n"));
        }
        let list = |items: &[(&str, &str)]| {
            items.iter().map(|(name, meaning)| format!("- **{name}**: {meaning}.\n")).collect::<String>()
        };
        let mut part = |title: &str, body: &str| text.push_str(&format!("\n### {title}\n\n{body}"));
        part("Who is compared", &list(&self.who()));
        part("What is measured", &list(&EXPLANATION));
        part("Goals", &self.goals_table().to_markdown());
        part("Medians", &self.medians_table("Medians", &self.rows).to_markdown());
        for table in self.other_tables().iter().filter(|table| !table.rows.is_empty()) {
            part(table.title, &table.to_markdown());
        }
        let all = self.rows_table().to_markdown();
        let details =
            format!("<details><summary>p99, number of runs, ratios</summary>\n\n{all}\n</details>\n");
        part("All figures of calls, start, memory and HTTP", &details);
        text
    }

    fn who(&self) -> Vec<(&'static str, &'static str)> {
        self.contenders.iter().map(|one| (one.name, one.explanation)).collect()
    }

    /// One object.
    pub(crate) fn to_json(&self) -> Value {
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
            "machine": self.machine,
            "versions": self.versions,
            "notes": self.notes,
            "contenders": object(self.who()),
            "explanation": object(EXPLANATION),
            "rows": object(self.rows.iter().map(|row| (row.key, row_json(row)))),
            "first_call": beside_json(&self.first_call, "floor"),
            "growth": object(self.growth.iter().map(|curve| (curve.of, curve_json(curve)))),
            "python": object(self.python.iter().map(|row| (row.key, python_json(row)))),
            "documents": beside_json(&self.documents, "plain"),
            "search": object(self.search.iter().map(|row| (row.key, search_json(row)))),
            "http": object(self.http.iter().map(|row| (row.key, row_json(row)))),
            "proxy": beside_json(self.proxy.iter().map(|(_, row)| row), "direct"),
            "nats": beside_json(&self.nats, "beside"),
            "talk": beside_json(&self.talk, "sdk"),
            "goals": goals.collect::<Vec<_>>(),
        })
    }
}

fn object<V: Into<Value>>(members: impl IntoIterator<Item = (&'static str, V)>) -> Value {
    members.into_iter().map(|(key, value)| (key, value.into())).collect()
}

fn row_json(row: &Row) -> Value {
    let figures = row.figures.iter().map(|(contender, figure)| {
        let mut value = json!(figure);
        value["to_floor"] = json!(row.to_floor(*contender));
        value["to_best_peer"] = json!(row.to_best_peer(*contender));
        (contender.name, value)
    });
    json!({ "label": row.label, "unit": row.unit, "figures": object(figures) })
}

fn beside_json<'a>(rows: impl IntoIterator<Item = &'a Beside>, other: &str) -> Value {
    object(rows.into_iter().map(|row| {
        let figures = json!({ "ours": row.ours, other: row.other });
        (row.key, json!({ "label": row.label, "unit": Unit::Time, "figures": figures }))
    }))
}

fn search_json(row: &SearchRow) -> Value {
    let figures: Value =
        ENGINES.iter().zip(row.values).map(|(engine, value)| (*engine, json!(value))).collect();
    json!({ "label": row.label, "unit": row.unit, "figures": figures })
}

fn python_json(row: &PythonRow) -> Value {
    let mut value = json!(row);
    value["unit"] = json!(Unit::Time);
    value["to_floor_and_json"] = json!(row.to_json());
    value["to_floor_and_pydantic_ai"] = json!(row.to_pydantic_ai());
    value
}

fn curve_json(curve: &Curve) -> Value {
    let points = curve.points.iter().map(|point| {
        let mut value = json!({ "count": point.count, "call": point.call, "floor": point.floor });
        for ((key, _, _), number) in curve.columns.iter().zip(&point.values) {
            value[*key] = json!(number);
        }
        value
    });
    json!({ "of": curve.of, "unit": Unit::Time, "points": points.collect::<Vec<_>>() })
}
