//! The figures, for people and for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::contender::Contender;
use super::documents::DocumentsRow;
use super::machine::Machine;
use super::measure::{Row, Unit};
use super::sample::Figure;

/// What the figures mean; a figure without it says nothing.
const EXPLANATION: &str = "\
floor          a static C program in place of the bridge: it relays bytes and looks at none of them.
               Its parent answers each line with as little work as possible.
bridge         `toolbridge bridge`; its parent answers each frame with as little work as possible.
bridge+parent  `toolbridge bridge`; its parent is `toolbridge demo --serve`, whose `echo` is a typed handler.

All of them carry the same bytes, take turns in small batches, and have each answer checked.
×              times the floor's median
text           one call at a time; the text goes there and comes back. The first three rows have everybody
               on one CPU, the others leave that to the kernel: waking a sleeping CPU takes longer than a
               small call, and differs from run to run.
structured     one call at a time; an array of small objects goes there, a text of 100 B comes back.
in flight      so many calls under way, in calls per second; p99 is the rate of the slowest batches.
start          from the start of the process to the answer to tools/list; of the floor, to the first call
               relayed.
memory         resident, with the executable's own pages; when idle for 1.5 s after a 9 MB call.
";

/// What should be reached.
struct Goal {
    row: &'static str,
    contender: Contender,
    limit: Limit,
}

enum Limit {
    /// Times the floor's median.
    Ratio(f64),
    Megabytes(f64),
}

const GOALS: [Goal; 12] = [
    Goal { row: "start", contender: Contender::Bridge, limit: Limit::Ratio(3.0) },
    Goal { row: "text_100_b", contender: Contender::Bridge, limit: Limit::Ratio(1.3) },
    Goal { row: "text_100_b", contender: Contender::BridgeAndParent, limit: Limit::Ratio(1.8) },
    Goal { row: "text_10_kb", contender: Contender::Bridge, limit: Limit::Ratio(1.7) },
    // Whom the kernel puts on which CPU decides as much as we do here; it is what a user sees, though.
    Goal { row: "text_100_b_any_cpu", contender: Contender::Bridge, limit: Limit::Ratio(1.3) },
    Goal { row: "text_100_b_any_cpu", contender: Contender::BridgeAndParent, limit: Limit::Ratio(1.8) },
    Goal { row: "text_10_kb_any_cpu", contender: Contender::Bridge, limit: Limit::Ratio(1.7) },
    Goal { row: "text_1_mb", contender: Contender::Bridge, limit: Limit::Ratio(2.5) },
    Goal { row: "text_9_mb", contender: Contender::Bridge, limit: Limit::Ratio(2.0) },
    Goal { row: "structured_1_mb", contender: Contender::Bridge, limit: Limit::Ratio(1.3) },
    Goal { row: "memory_fresh", contender: Contender::Bridge, limit: Limit::Megabytes(4.0) },
    Goal { row: "memory_used", contender: Contender::Bridge, limit: Limit::Megabytes(4.0) },
];

impl Goal {
    /// What was measured, where it was.
    fn measured(&self, row: &Row) -> Option<f64> {
        match self.limit {
            Limit::Ratio(_) => row.ratio(self.contender),
            Limit::Megabytes(_) => Some(row.figure(self.contender)?.median / 1e6),
        }
    }

    fn limit(&self) -> f64 {
        match self.limit {
            Limit::Ratio(limit) | Limit::Megabytes(limit) => limit,
        }
    }

    fn unit(&self) -> &'static str {
        match self.limit {
            Limit::Ratio(_) => "×",
            Limit::Megabytes(_) => " MB",
        }
    }
}

pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) quick: bool,
    pub(crate) rows: Vec<Row>,
    pub(crate) documents: Vec<DocumentsRow>,
}

impl Report {
    /// Goals with their rows and what was measured for them.
    fn goals(&self) -> impl Iterator<Item = (&'static Goal, &Row, f64)> {
        GOALS.iter().filter_map(|goal| {
            let row = self.rows.iter().find(|row| row.key == goal.row)?;
            Some((goal, row, goal.measured(row)?))
        })
    }

    pub(crate) fn to_text(&self) -> String {
        let mut text = format!(
            "\n{}, {} cores, {}, load {} before{}\n\n{EXPLANATION}\n",
            self.machine.cpu,
            self.machine.cores,
            self.machine.kernel,
            self.machine.load,
            if self.quick { "; a quick run, so its figures are rough" } else { "" },
        );
        text.push_str(&self.table());
        text.push('\n');
        text.push_str(&self.documents_table());
        text.push('\n');
        for (goal, row, measured) in self.goals() {
            let (limit, unit) = (goal.limit(), goal.unit());
            let reached = if measured <= limit { "reached" } else { "not reached" };
            let (label, contender) = (row.label.trim(), goal.contender.name());
            let (measured, limit) = (format!("{measured:.2}{unit}"), format!("{limit:.1}{unit}"));
            line(
                &mut text,
                &format!("goal  {label:<24} {contender:<14} {measured:>8} ≤ {limit:<8} {reached}"),
            );
        }
        text
    }

    fn table(&self) -> String {
        let mut text = String::new();
        let mut names = format!("{:25}", "");
        let mut columns = format!("{:25}", "");
        for contender in Contender::ALL {
            let width = if contender == Contender::Floor { 22 } else { 30 };
            _ = write!(names, "  {:<width$}", contender.name());
            _ = write!(columns, "  {:>11}{:>11}", "median", "p99");
            if contender != Contender::Floor {
                _ = write!(columns, "{:>8}", "×");
            }
        }
        line(&mut text, &names);
        line(&mut text, &format!("{columns}{:>8}", "runs"));
        for row in &self.rows {
            let mut cells = format!("{:25}", row.label);
            for contender in Contender::ALL {
                let figure = row.figure(contender);
                let shown = |value: Option<f64>| value.map_or("–".into(), |value| show(row.unit, value));
                let median = shown(figure.map(|figure| figure.median));
                // A few runs of something that hardly differs have no hundredth part.
                let tail = figure.filter(|_| row.unit != Unit::Memory).map(|figure| figure.p99);
                _ = write!(cells, "  {median:>11}{:>11}", shown(tail));
                if contender != Contender::Floor {
                    let ratio = row.ratio(contender).map_or("–".into(), |ratio| format!("{ratio:.2}"));
                    _ = write!(cells, "{ratio:>8}");
                }
            }
            let runs = row.figures.iter().flatten().map(|figure| figure.runs).max().unwrap_or_default();
            line(&mut text, &format!("{cells}{runs:>8}"));
        }
        text
    }

    /// The document tools, and beside them the plain system calls for the same bytes.
    fn documents_table(&self) -> String {
        let mut text = String::new();
        let head = |name: &str| format!("{name:>11}{:>11}", "p99");
        line(
            &mut text,
            &format!("{:54}{}  {}{:>8}{:>8}", "toolbridge docs", head("ours"), head("plain"), "×", "runs"),
        );
        for row in &self.documents {
            let shown = |figure: Option<Figure>| match figure {
                Some(figure) => {
                    format!("{:>11}{:>11}", show(Unit::Time, figure.median), show(Unit::Time, figure.p99))
                }
                None => format!("{:>11}{:>11}", "–", "–"),
            };
            let ratio =
                row.plain.map_or("–".into(), |plain| format!("{:.2}", row.ours.median / plain.median));
            let (ours, plain) = (shown(Some(row.ours)), shown(row.plain));
            line(&mut text, &format!("{:54}{ours}  {plain}{ratio:>8}{:>8}", row.label, row.ours.runs));
        }
        text
    }

    pub(crate) fn to_json(&self) -> Value {
        let figure =
            |figure: &Figure| json!({ "median": figure.median, "p99": figure.p99, "runs": figure.runs });
        let documents: serde_json::Map<_, _> = (self.documents.iter())
            .map(|row| {
                let figures = json!({ "ours": figure(&row.ours), "plain": row.plain.as_ref().map(figure) });
                (row.key.to_owned(), json!({ "label": row.label, "unit": "seconds", "figures": figures }))
            })
            .collect();
        let rows: serde_json::Map<_, _> =
            self.rows.iter().map(|row| (row.key.to_owned(), json_of(row))).collect();
        let goals = self.goals().map(|(goal, _, measured)| {
            json!({
                "row": goal.row,
                "contender": goal.contender.name(),
                "measured": measured,
                "limit": goal.limit(),
                "unit": if matches!(goal.limit, Limit::Ratio(_)) { "ratio" } else { "MB" },
                "reached": measured <= goal.limit(),
            })
        });
        json!({
            "machine": {
                "cpu": self.machine.cpu,
                "cores": self.machine.cores,
                "kernel": self.machine.kernel,
                "load": self.machine.load,
            },
            "quick": self.quick,
            "explanation": EXPLANATION,
            "rows": rows,
            "documents": documents,
            "goals": goals.collect::<Vec<_>>(),
        })
    }
}

fn json_of(row: &Row) -> Value {
    let mut figures = serde_json::Map::new();
    for contender in Contender::ALL {
        let Some(figure) = row.figure(contender) else { continue };
        let figure = json!({
            "median": figure.median,
            "p99": figure.p99,
            "runs": figure.runs,
            "ratio": row.ratio(contender),
        });
        figures.insert(contender.name().into(), figure);
    }
    let unit = match row.unit {
        Unit::Time => "seconds",
        Unit::Rate => "seconds per call",
        Unit::Memory => "bytes",
    };
    json!({ "unit": unit, "figures": figures })
}

fn show(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Time if value < 1e-3 => format!("{:.1} µs", value * 1e6),
        Unit::Time => format!("{:.2} ms", value * 1e3),
        Unit::Rate => format!("{:.1} k/s", 1e-3 / value),
        Unit::Memory => format!("{:.2} MB", value / 1e6),
    }
}

fn line(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}
