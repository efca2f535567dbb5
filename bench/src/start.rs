//! From the start of a process to its list of tools.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::call::Call;
use crate::client::{Client, tools_in};
use crate::contender::Contender;
use crate::effort::{Effort, Plan, SMALL_BYTES};
use crate::process::Process;
use crate::round_trip::in_turn;
use crate::row::{Row, Unit};
use crate::stage::{FEW_TOOLS, MANY_TOOLS, Stage};

pub(crate) fn measure(stage: &Stage<'_>, effort: &Effort) -> Result<[Row; 2]> {
    // The parent does not affect a bridge's list, so these would repeat it. The transport `sdk` starts
    // nothing.
    let same = [
        Contender::BusyFloor,
        Contender::BridgeAndParent,
        Contender::BeforeAndParent,
        Contender::BridgeAndPython,
        Contender::Sdk,
    ];
    let few: Vec<_> = stage.contenders.iter().copied().filter(|one| !same.contains(one)).collect();
    let many: Vec<_> = few.iter().copied().filter(|one| !one.is_relay()).collect();
    let with_many = ("start_1000_tools", "start with 1,000 tools");
    Ok([
        starts(stage, &few, FEW_TOOLS, ("start", "start to tools/list"), effort.starts)?,
        starts(stage, &many, MANY_TOOLS, with_many, effort.starts_with_many)?,
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
    // The first start reads the executable from disk.
    for contender in contenders {
        start(stage, *contender, tools)?;
    }
    let samples = in_turn(plan, contenders.len(), |turn, samples| {
        let took = start(stage, contenders[turn], tools)?;
        samples.push(took.as_secs_f64());
        Ok(took)
    })?;
    Ok(Row::new(key, label, Unit::Time, contenders.iter().copied().zip(samples)))
}

/// How long a start takes; for the relay, which has no list, until the first relayed call.
fn start(stage: &Stage<'_>, contender: Contender, tools: usize) -> Result<Duration> {
    let name = contender.name;
    let command = stage.command(contender, tools)?.with_context(|| format!("{name}: it has no process"))?;
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
        let listed = tools_in(&serde_json::from_slice(list).context(name)?)?;
        ensure!(listed == tools, "{name}: a list of {listed} tools, not {tools}");
        took
    };
    client.finish()?;
    Ok(took)
}
