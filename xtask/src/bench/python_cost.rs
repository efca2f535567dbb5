//! A Python tool through our bridge, beside what the call costs Python itself.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::call::Call;
use super::contender::Contender;
use super::effort::{Effort, Plan};
use super::environment::Runtime;
use super::machine::OneCpu;
use super::process::Process;
use super::program::Programs;
use super::round_trip::{LARGE_BYTES, MEDIUM_BYTES, SMALL_BYTES, one_at_a_time};
use super::sample::{Figure, Samples};
use super::stage::Stage;
use super::template::FIRST_ID;

/// How often Python measures itself for each time the others take their turns.
const SHARES: usize = 5;

/// One kind of call.
pub(crate) struct PythonRow {
    pub(crate) key: &'static str,
    pub(crate) label: &'static str,
    pub(crate) floor: Figure,
    /// Decoding, calling and encoding with Python's `json`, in the interpreter alone.
    pub(crate) json: Figure,
    /// The same work by pydantic-ai's tool manager, in the interpreter alone.
    pub(crate) pydantic_ai: Figure,
    /// The whole way, through our bridge.
    pub(crate) ours: Figure,
}

impl PythonRow {
    /// Our way beside a relay that costs nothing and Python's own work.
    pub(crate) fn to_json(&self) -> f64 {
        self.ours.median / (self.floor.median + self.json.median)
    }

    /// The same, for somebody who uses pydantic-ai anyway.
    pub(crate) fn to_pydantic_ai(&self) -> f64 {
        self.ours.median / (self.floor.median + self.pydantic_ai.median)
    }
}

/// One kind of call, and how often it is made.
type Kind = (&'static str, &'static str, Call, Plan);

/// Measures a few kinds of calls; small ones with everybody on one CPU, as everywhere.
pub(crate) fn measure(
    programs: &Programs,
    contenders: &[Contender],
    effort: &Effort,
) -> Result<Vec<PythonRow>> {
    eprintln!("measuring: what Python itself costs");
    let mut rows = {
        let _one_cpu = OneCpu::new()?;
        let kinds = [
            ("text_100_b", "100 B text", Call::text(SMALL_BYTES), effort.small),
            ("text_10_kb", "10 KB text", Call::text(MEDIUM_BYTES), effort.medium),
        ];
        beside(&mut Stage::set(programs, contenders)?, kinds)?
    };
    let kinds = [
        ("text_100_b_any_cpu", "100 B on any CPU", Call::text(SMALL_BYTES), effort.small),
        ("text_1_mb", "1 MB text", Call::text(LARGE_BYTES), effort.large),
        ("structured_1_mb", "1 MB structured, both ways", Call::items_both_ways(LARGE_BYTES), effort.large),
    ];
    rows.extend(beside(&mut Stage::set(programs, contenders)?, kinds)?);
    Ok(rows)
}

/// The floor and ours in turn, Python itself in between.
fn beside(stage: &mut Stage<'_>, kinds: impl IntoIterator<Item = Kind>) -> Result<Vec<PythonRow>> {
    let command = stage.programs.python(Runtime::Toolbridge, "own_cost.py")?;
    let mut python = Process::start("own_cost.py", command)?;
    python.connection().line()?;
    let mut clients = Vec::new();
    for contender in [Contender::Floor, Contender::BridgeAndPython] {
        clients.push((contender, stage.client(contender)?));
    }
    let mut rows = Vec::new();
    for (key, label, call, plan) in kinds {
        let (mut with_json, mut with_pydantic) = (Samples::default(), Samples::default());
        let runs = (plan.batch * plan.rounds / SHARES / 10).max(3);
        let arguments: Value = serde_json::from_str(&call.arguments(FIRST_ID))?;
        let request = format!("{}\n", json!({ "tool": call.tool(), "arguments": arguments, "runs": runs }));
        let ask = |python: &mut Process| -> Result<Value> {
            python.connection().send(request.as_bytes())?;
            serde_json::from_slice(python.connection().line()?).context("own_cost.py")
        };
        // Warm.
        ask(&mut python)?;
        let mut take = |python: &mut Process| -> Result<()> {
            let said = ask(python)?;
            for (key, samples) in [("json", &mut with_json), ("pydantic_ai", &mut with_pydantic)] {
                let seconds = said[key].as_array().into_iter().flatten().filter_map(Value::as_f64);
                seconds.for_each(|seconds| samples.add(seconds));
            }
            Ok(())
        };
        for _ in 0..SHARES / 2 {
            take(&mut python)?;
        }
        let row = one_at_a_time(&mut clients, key, label, &call, plan)?;
        for _ in 0..SHARES.div_ceil(2) {
            take(&mut python)?;
        }
        let figure = |contender| row.figure(contender).context("nothing was measured");
        rows.push(PythonRow {
            key,
            label,
            floor: figure(Contender::Floor)?,
            ours: figure(Contender::BridgeAndPython)?,
            json: with_json.figure().context("own_cost.py measured nothing")?,
            pydantic_ai: with_pydantic.figure().context("own_cost.py measured nothing")?,
        });
    }
    for (_, client) in clients {
        client.finish()?;
    }
    Ok(rows)
}
