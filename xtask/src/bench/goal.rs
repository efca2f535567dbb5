//! What should be reached, and whether it is.

use super::contender::Contender;
use super::python_cost::PythonRow;
use super::row::Row;

/// A goal for a row.
struct Goal {
    row: &'static str,
    contender: Contender,
    limit: Limit,
}

#[derive(Clone, Copy)]
enum Limit {
    /// Times the floor's median.
    Ratio(f64),
    Megabytes(f64),
}

const fn ratio(row: &'static str, contender: Contender, limit: f64) -> Goal {
    Goal { row, contender, limit: Limit::Ratio(limit) }
}

const GOALS: [Goal; 12] = [
    ratio("start", Contender::Bridge, 3.0),
    ratio("text_100_b", Contender::Bridge, 1.3),
    ratio("text_100_b", Contender::BridgeAndParent, 1.8),
    ratio("text_10_kb", Contender::Bridge, 1.7),
    // Whom the kernel puts on which CPU decides as much as we do here; it is what a user sees, though.
    ratio("text_100_b_any_cpu", Contender::Bridge, 1.3),
    ratio("text_100_b_any_cpu", Contender::BridgeAndParent, 1.8),
    ratio("text_10_kb_any_cpu", Contender::Bridge, 1.7),
    ratio("text_1_mb", Contender::Bridge, 2.5),
    ratio("text_9_mb", Contender::Bridge, 2.0),
    // There and back, as all other rows.
    ratio("structured_1_mb", Contender::Bridge, 1.3),
    Goal { row: "memory_fresh", contender: Contender::Bridge, limit: Limit::Megabytes(4.0) },
    Goal { row: "memory_used", contender: Contender::Bridge, limit: Limit::Megabytes(4.0) },
];

/// A Python tool through our bridge: times the floor and Python's own work together.
const PYTHON_LIMIT: f64 = 1.5;

/// A goal beside what was measured.
pub(crate) struct Verdict {
    pub(crate) what: &'static str,
    pub(crate) who: &'static str,
    pub(crate) measured: f64,
    pub(crate) limit: f64,
    /// `×`, or ` MB`.
    pub(crate) unit: &'static str,
    pub(crate) against: &'static str,
}

impl Verdict {
    pub(crate) fn is_reached(&self) -> bool {
        self.measured <= self.limit
    }
}

/// The goals whose rows were measured.
pub(crate) fn verdicts(rows: &[Row], python: &[PythonRow]) -> Vec<Verdict> {
    let of_rows = GOALS.iter().filter_map(|goal| {
        let row = rows.iter().find(|row| row.key == goal.row)?;
        let (measured, limit, unit, against) = match goal.limit {
            Limit::Ratio(limit) => (row.to_floor(goal.contender)?, limit, "×", "floor"),
            Limit::Megabytes(limit) => (row.figure(goal.contender)?.median / 1e6, limit, " MB", ""),
        };
        Some(Verdict { what: row.label, who: goal.contender.name(), measured, limit, unit, against })
    });
    let of_python = python.iter().map(|row| Verdict {
        what: row.label,
        who: Contender::BridgeAndPython.name(),
        measured: row.to_json(),
        limit: PYTHON_LIMIT,
        unit: "×",
        against: "floor + Python's own",
    });
    of_rows.chain(of_python).collect()
}

#[cfg(test)]
mod tests {
    use super::super::row::Unit;
    use super::super::sample::{Figure, Samples};
    use super::*;

    #[test]
    fn a_goal_is_reached_at_its_limit_and_not_above_it() {
        let row = |bridge: f64| {
            let of = |contender, value| {
                let mut samples = Samples::default();
                samples.add(value);
                (contender, samples)
            };
            let figures = [of(Contender::Floor, 10.0), of(Contender::Bridge, bridge)];
            Row::new("text_10_kb", "10 KB text", Unit::Time, figures)
        };
        for (bridge, want) in [(17.0, true), (17.1, false)] {
            let found = verdicts(&[row(bridge)], &[]);
            assert_eq!(found.len(), 1, "only what was measured");
            assert_eq!(found[0].is_reached(), want);
        }
    }

    #[test]
    fn a_python_tool_is_compared_with_the_relay_and_its_own_work() {
        let figure = |median| Figure { median, p99: median, runs: 1 };
        let (floor, json, pydantic_ai, ours) = (figure(10.0), figure(30.0), figure(90.0), figure(60.0));
        let row = PythonRow { key: "k", label: "l", floor, json, pydantic_ai, ours };
        let found = verdicts(&[], std::slice::from_ref(&row));
        assert!((found[0].measured - 1.5).abs() < 1e-9 && found[0].is_reached());
        assert!((row.to_pydantic_ai() - 0.6).abs() < 1e-9);
    }
}
