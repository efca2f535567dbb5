//! From the start of a process to its list of tools.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::call::Call;
use super::client::Client;
use super::contender::Contender;
use super::effort::{Effort, Plan};
use super::process::Process;
use super::round_trip::{SMALL_BYTES, turns};
use super::row::{Row, Unit};
use super::sample::Samples;
use super::stage::{FEW_TOOLS, MANY_TOOLS, Stage};

pub(crate) fn measure(stage: &Stage<'_>, effort: &Effort) -> Result<Vec<Row>> {
    // A bridge's parent has no part in its list: it would be the same once more.
    let differs = |one: &Contender| {
        !matches!(one, Contender::BusyFloor | Contender::BridgeAndParent | Contender::BridgeAndPython)
    };
    let few: Vec<_> = stage.contenders.iter().copied().filter(differs).collect();
    let many: Vec<_> = few.iter().copied().filter(|one| !one.is_relay()).collect();
    Ok(vec![
        starts(stage, &few, FEW_TOOLS, ("start", "start to tools/list"), effort.starts)?,
        starts(
            stage,
            &many,
            MANY_TOOLS,
            ("start_1000_tools", "start with 1,000 tools"),
            effort.starts_with_many,
        )?,
    ])
}

fn starts(
    stage: &Stage<'_>,
    contenders: &[Contender],
    tools: usize,
    (key, label): (&'static str, &'static str),
    plan: Plan,
) -> Result<Row> {
    eprintln!("measuring: {label}");
    let mut samples: Vec<Samples> = contenders.iter().map(|_| Samples::default()).collect();
    let mut spent = vec![Duration::ZERO; contenders.len()];
    // The first start reads the executable from the disk.
    for contender in contenders {
        start(stage, *contender, tools)?;
    }
    for round in 0..plan.rounds {
        for turn in turns(round, contenders.len()) {
            if plan.has_turn(round, spent[turn])
                && let Some(took) = start(stage, contenders[turn], tools)?
            {
                spent[turn] += took;
                samples[turn].add(took.as_secs_f64());
            }
        }
    }
    Ok(Row::new(key, label, Unit::Time, contenders.iter().copied().zip(samples)))
}

/// How long a start takes; of the relay, which has no list, to the first call relayed.
fn start(stage: &Stage<'_>, contender: Contender, tools: usize) -> Result<Option<Duration>> {
    let Some(command) = stage.command(contender, tools)? else { return Ok(None) };
    let name = contender.name();
    let call = Call::text(SMALL_BYTES);
    let started = Instant::now();
    let mut client = Client::new(Process::start(name, command)?);
    let took = if contender.is_relay() {
        client.learn(&call)?;
        started.elapsed()
    } else {
        client.initialize()?;
        let list = client.list()?;
        let took = started.elapsed();
        let list: serde_json::Value = serde_json::from_slice(list).context(name)?;
        let listed = list["result"]["tools"].as_array().map_or(0, Vec::len);
        ensure!(listed == tools, "{name}: a list of {listed} tools, not {tools}");
        took
    };
    client.finish()?;
    Ok(Some(took))
}
