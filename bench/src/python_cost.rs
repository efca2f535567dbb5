//! A Python tool through our bridge, compared with Python's own cost of the call.

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::{Value, json};

use crate::contender::Contender;
use crate::effort::{CallRow, Effort};
use crate::environment::Runtime;
use crate::machine::OneCpu;
use crate::process::Process;
use crate::program::Programs;
use crate::round_trip::one_at_a_time;
use crate::sample::Figure;
use crate::stage::Stage;
use crate::template::FIRST_ID;

/// How many of Python's own runs are made per turn of the others.
const SHARES: usize = 5;

/// One kind of call.
#[derive(Serialize)]
pub(crate) struct PythonRow {
    #[serde(skip)]
    pub(crate) key: &'static str,
    pub(crate) label: &'static str,
    pub(crate) floor: Figure,
    /// Decoding, calling and encoding with Python's `json`, in the interpreter alone.
    pub(crate) json: Figure,
    /// The same work by pydantic-ai's tool manager, in the interpreter alone.
    pub(crate) pydantic_ai: Figure,
    /// The whole call, through our bridge.
    pub(crate) ours: Figure,
}

impl PythonRow {
    /// Our call relative to the relay plus Python's own work.
    pub(crate) fn to_json(&self) -> f64 {
        self.ours.median / (self.floor.median + self.json.median)
    }

    /// The same for users of pydantic-ai.
    pub(crate) fn to_pydantic_ai(&self) -> f64 {
        self.ours.median / (self.floor.median + self.pydantic_ai.median)
    }
}

/// Measures a few kinds of calls; small ones with all processes on one CPU.
pub(crate) fn measure(
    programs: &Programs,
    contenders: &[Contender],
    effort: &Effort,
) -> Result<Vec<PythonRow>> {
    eprintln!("measuring: what Python itself costs");
    let kinds = |keys: &[&'static str]| keys.iter().map(|key| effort.kind(key)).collect::<Vec<_>>();
    let mut rows = {
        let _one_cpu = OneCpu::new()?;
        beside(&mut Stage::set(programs, contenders)?, &kinds(&["text_100_b", "text_10_kb"]))?
    };
    let others = kinds(&["text_100_b_any_cpu", "text_1_mb", "structured_1_mb"]);
    rows.extend(beside(&mut Stage::set(programs, contenders)?, &others)?);
    Ok(rows)
}

/// The floor and ours alternate, with Python's own runs in between.
fn beside(stage: &mut Stage<'_>, kinds: &[CallRow]) -> Result<Vec<PythonRow>> {
    let command = stage.programs.python(Runtime::Toolbridge, "own_cost.py")?;
    let mut python = Process::start("own_cost.py", command)?;
    python.line()?;
    let mut clients = Vec::new();
    for contender in [Contender::Floor, Contender::BridgeAndPython] {
        clients.push((contender, stage.client(contender)?));
    }
    let mut rows = Vec::new();
    for kind in kinds {
        let runs = (kind.plan.batch * kind.plan.rounds / SHARES / 10).max(3);
        let arguments: Value = serde_json::from_str(&kind.call.arguments(FIRST_ID))?;
        let request =
            format!("{}\n", json!({ "tool": kind.call.tool(), "arguments": arguments, "runs": runs }));
        let mut ask = |samples: &mut [Vec<f64>; 2]| -> Result<()> {
            python.send(request.as_bytes())?;
            let said: Value = serde_json::from_slice(python.line()?).context("own_cost.py")?;
            for (key, samples) in ["json", "pydantic_ai"].into_iter().zip(samples) {
                samples.extend(said[key].as_array().into_iter().flatten().filter_map(Value::as_f64));
            }
            Ok(())
        };
        // Warm up.
        ask(&mut Default::default())?;
        let mut own = <[Vec<f64>; 2]>::default();
        (0..SHARES / 2).try_for_each(|_| ask(&mut own))?;
        let row = one_at_a_time(&mut clients, kind)?;
        (SHARES / 2..SHARES).try_for_each(|_| ask(&mut own))?;
        let figure = |contender| row.figure(contender).context("nothing was measured");
        let [json, pydantic_ai] =
            own.map(|samples| Figure::of(samples).context("own_cost.py measured nothing"));
        rows.push(PythonRow {
            key: kind.key,
            label: kind.label,
            floor: figure(Contender::Floor)?,
            ours: figure(Contender::BridgeAndPython)?,
            json: json?,
            pydantic_ai: pydantic_ai?,
        });
    }
    clients.into_iter().try_for_each(|(_, client)| client.finish())?;
    Ok(rows)
}
