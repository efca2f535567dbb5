//! Metrics in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::tool::lock::lock;
use crate::trace::Outcome;

/// Counts calls.
#[derive(Debug, Default, Clone)]
pub(crate) struct Metrics(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    under_way: usize,
    tools: BTreeMap<String, OfTool>,
}

#[derive(Debug, Default)]
struct OfTool {
    ended: BTreeMap<Outcome, u64>,
    seconds: Duration,
}

/// A call that is being counted; its outcome is `Cancelled` unless another one is set.
#[derive(Debug)]
pub(crate) struct Counted {
    metrics: Metrics,
    tool: String,
    began: Instant,
    outcome: Outcome,
}

impl Metrics {
    /// Counts a call of a listed tool.
    pub(crate) fn begin(&self, tool: &str) -> Counted {
        lock(&self.0).under_way += 1;
        Counted {
            metrics: self.clone(),
            tool: tool.into(),
            began: Instant::now(),
            outcome: Outcome::Cancelled,
        }
    }

    /// All metrics as text.
    pub(crate) fn text(&self, sessions: usize) -> String {
        let counts = lock(&self.0);
        let mut text = String::new();
        let head = |text: &mut String, name: &str, kind: &str, help: &str| {
            _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        };
        head(&mut text, "toolbridge_calls_total", "counter", "Calls that have ended.");
        for (tool, of) in &counts.tools {
            for (outcome, count) in &of.ended {
                let outcome = outcome.as_str();
                _ = writeln!(text, "toolbridge_calls_total{{tool=\"{tool}\",outcome=\"{outcome}\"}} {count}");
            }
        }
        head(&mut text, "toolbridge_call_seconds", "summary", "How long calls took.");
        for (tool, of) in &counts.tools {
            let (seconds, count) = (of.seconds.as_secs_f64(), of.ended.values().sum::<u64>());
            _ = writeln!(text, "toolbridge_call_seconds_sum{{tool=\"{tool}\"}} {seconds}");
            _ = writeln!(text, "toolbridge_call_seconds_count{{tool=\"{tool}\"}} {count}");
        }
        head(&mut text, "toolbridge_calls_under_way", "gauge", "Calls that run or wait.");
        _ = writeln!(text, "toolbridge_calls_under_way {}", counts.under_way);
        head(&mut text, "toolbridge_sessions", "gauge", "Sessions that are open.");
        _ = writeln!(text, "toolbridge_sessions {sessions}");
        text
    }
}

impl Counted {
    pub(crate) fn ended(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = lock(&self.metrics.0);
        counts.under_way -= 1;
        let of = counts.tools.entry(std::mem::take(&mut self.tool)).or_default();
        *of.ended.entry(self.outcome).or_default() += 1;
        of.seconds += self.began.elapsed();
    }
}
