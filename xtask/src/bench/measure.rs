//! What is measured, and how often.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::call::Call;
use super::client::Client;
use super::contender::{Contender, MANY_TOOLS, Schema, Stage};
use super::machine::OneCpu;
use super::peer::Peer;
use super::program::Programs;
use super::sample::{Figure, Samples};

/// 100 bytes are what most calls are like; 9 MB nearly what the protocol allows.
const SMALL_BYTES: usize = 100;
const MEDIUM_BYTES: usize = 10_000;
const LARGE_BYTES: usize = 1_000_000;
const LARGEST_BYTES: usize = 9_000_000;

/// Calls at the beginning of a batch that are made and not counted: the caches still belong to the
/// contender before.
const LEAD_IN: usize = 2;

/// A process that has had nothing to do for so long is idle, and has given back what it wants to give back.
const IDLE: Duration = Duration::from_millis(1500);

/// How many calls a batch counts, and how many batches each contender has.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    batch: usize,
    rounds: usize,
}

/// How much is done for each row.
pub(crate) struct Effort {
    starts: usize,
    small: Plan,
    medium: Plan,
    large: Plan,
    largest: Plan,
    /// Here a batch is timed as a whole.
    parallel: Plan,
    memory: usize,
}

impl Effort {
    pub(crate) const FULL: Self = Self {
        starts: 300,
        small: Plan { batch: 50, rounds: 400 },
        medium: Plan { batch: 50, rounds: 200 },
        large: Plan { batch: 5, rounds: 80 },
        largest: Plan { batch: 3, rounds: 30 },
        parallel: Plan { batch: 640, rounds: 60 },
        memory: 3,
    };
    pub(crate) const QUICK: Self = Self {
        starts: 10,
        small: Plan { batch: 50, rounds: 10 },
        medium: Plan { batch: 50, rounds: 4 },
        large: Plan { batch: 3, rounds: 4 },
        largest: Plan { batch: 1, rounds: 3 },
        parallel: Plan { batch: 640, rounds: 3 },
        memory: 1,
    };
}

/// What a row's figures are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Seconds for one run.
    Time,
    /// Seconds for one call of many; shown as calls in a second.
    Rate,
    /// Bytes.
    Memory,
}

/// One line of the report.
pub(crate) struct Row {
    pub(crate) key: &'static str,
    pub(crate) label: String,
    pub(crate) unit: Unit,
    /// In the order of [`Contender::ALL`]; `None` where a contender has nothing to compare.
    pub(crate) figures: [Option<Figure>; 3],
}

impl Row {
    fn new(key: &'static str, label: impl Into<String>, unit: Unit, samples: [Samples; 3]) -> Self {
        Self { key, label: label.into(), unit, figures: samples.map(Samples::figure) }
    }

    pub(crate) fn figure(&self, contender: Contender) -> Option<Figure> {
        self.figures[contender as usize]
    }

    /// How many times the floor's median a contender's is.
    pub(crate) fn ratio(&self, contender: Contender) -> Option<f64> {
        Some(self.figure(contender)?.median / self.figure(Contender::Floor)?.median)
    }
}

/// Measures everything there is to measure.
pub(crate) fn everything(programs: &Programs, effort: &Effort) -> Result<Vec<Row>> {
    let mut rows = on_one_cpu(programs, effort)?;
    let stage = Stage::set(programs)?;
    let mut clients = stage.clients()?;
    for (key, label, mut call, plan) in [
        ("text_100_b_any_cpu", "100 B on any CPU", Call::text(SMALL_BYTES), effort.small),
        ("text_10_kb_any_cpu", "10 KB on any CPU", Call::text(MEDIUM_BYTES), effort.medium),
        ("text_1_mb", "1 MB text", Call::text(LARGE_BYTES), effort.large),
        ("text_9_mb", "9 MB text", Call::text(LARGEST_BYTES), effort.largest),
        ("structured_1_mb", "1 MB structured", Call::structured(LARGE_BYTES), effort.large),
    ] {
        rows.push(round_trips(&mut clients, key, label, &mut call, plan)?);
    }
    for (key, in_flight) in [("in_flight_1", 1), ("in_flight_8", 8), ("in_flight_64", 64)] {
        rows.push(parallel(&mut clients, key, in_flight, effort.parallel)?);
    }
    for client in clients {
        client.finish()?;
    }
    rows.push(starts(&stage, effort.starts)?);
    rows.push(starts_with_many_tools(&stage, effort.starts / 3)?);
    rows.extend(memory(&stage, effort.memory)?);
    Ok(rows)
}

/// Small calls, one at a time, with everybody on one CPU.
///
/// One call at a time means that only one of the processes has something to do. What two CPUs would add
/// is the time it takes to wake a sleeping one, which is more than all else and differs from run to run.
fn on_one_cpu(programs: &Programs, effort: &Effort) -> Result<Vec<Row>> {
    let _one_cpu = OneCpu::new()?;
    let stage = Stage::set(programs)?;
    let mut clients = stage.clients()?;
    let mut small = Call::text(SMALL_BYTES);
    let mut rows = vec![
        round_trips(&mut clients, "text_100_b", "100 B text", &mut small, effort.small)?,
        round_trips(&mut clients, "text_10_kb", "10 KB text", &mut Call::text(MEDIUM_BYTES), effort.medium)?,
    ];
    // A large call must not leave anything behind that slows down the small ones after it.
    for bytes in [LARGEST_BYTES, LARGE_BYTES] {
        for client in &mut clients {
            client.call(&mut Call::text(bytes), true)?;
        }
    }
    rows.push(round_trips(
        &mut clients,
        "text_100_b_after_large",
        "100 B after 9 and 1 MB",
        &mut small,
        effort.small,
    )?);
    Ok(rows)
}

/// The contenders' places in a round. Each goes first as often as the others.
fn turns(round: usize, contenders: usize) -> impl Iterator<Item = usize> {
    (0..contenders).map(move |turn| (round + turn) % contenders)
}

/// From the start of a process to its list of tools; the relay has none, and relays a call instead.
///
/// The parent has no part in a bridge's list, so the third contender would be the second once more.
fn starts(stage: &Stage<'_>, runs: usize) -> Result<Row> {
    const COMPARED: [Contender; 2] = [Contender::Floor, Contender::Bridge];
    eprintln!("measuring: start");
    let mut call = Call::text(SMALL_BYTES);
    let mut samples: [Samples; 3] = Default::default();
    for round in 0..=runs {
        for turn in turns(round, COMPARED.len()) {
            let contender = COMPARED[turn];
            let took = match contender {
                Contender::Floor => start_relay(stage, &mut call)?,
                _ => start_bridge(stage, Schema::Demo)?.0,
            };
            // The first start reads the executable from the disk.
            if round > 0 {
                samples[contender as usize].add(took.as_secs_f64());
            }
        }
    }
    Ok(Row::new("start", "start to tools/list", Unit::Time, samples))
}

fn starts_with_many_tools(stage: &Stage<'_>, runs: usize) -> Result<Row> {
    eprintln!("measuring: start with {MANY_TOOLS} tools");
    let mut samples: [Samples; 3] = Default::default();
    for round in 0..=runs {
        let (took, tools) = start_bridge(stage, Schema::Many)?;
        ensure!(tools == MANY_TOOLS, "the bridge lists {tools} tools instead of {MANY_TOOLS}");
        if round > 0 {
            samples[Contender::Bridge as usize].add(took.as_secs_f64());
        }
    }
    Ok(Row::new("start_1000_tools", "start with 1,000 tools", Unit::Time, samples))
}

fn start_relay(stage: &Stage<'_>, call: &mut Call) -> Result<Duration> {
    let command = stage.command(Contender::Floor, Schema::Demo);
    let started = Instant::now();
    let mut client = Client::new(Peer::start(Contender::Floor.name(), command)?);
    client.call(call, true)?;
    let took = started.elapsed();
    client.finish()?;
    Ok(took)
}

/// How long the list took, and how many tools are in it.
fn start_bridge(stage: &Stage<'_>, schema: Schema) -> Result<(Duration, usize)> {
    let command = stage.command(Contender::Bridge, schema);
    let started = Instant::now();
    let mut client = Client::new(Peer::start(Contender::Bridge.name(), command)?);
    let list = client.list_tools()?;
    let took = started.elapsed();
    let list: serde_json::Value = serde_json::from_slice(list).context("the bridge's list is not JSON")?;
    let tools = list["result"]["tools"].as_array().map_or(0, Vec::len);
    ensure!(list["id"] == 2 && tools > 0, "the bridge answers without a list of tools: {list}");
    client.finish()?;
    Ok((took, tools))
}

/// One call at a time.
fn round_trips(
    clients: &mut [Client],
    key: &'static str,
    label: &str,
    call: &mut Call,
    plan: Plan,
) -> Result<Row> {
    eprintln!("measuring: {}", label.trim());
    let mut samples: [Samples; 3] = Default::default();
    for client in &mut *clients {
        for _ in 0..plan.batch {
            client.call(call, true)?;
        }
    }
    for round in 0..plan.rounds {
        for turn in turns(round, clients.len()) {
            for place in 0..LEAD_IN + plan.batch {
                let took = clients[turn].call(call, false)?;
                if place >= LEAD_IN {
                    samples[turn].add(took.as_secs_f64());
                }
            }
        }
    }
    Ok(Row::new(key, label, Unit::Time, samples))
}

/// Many calls at a time.
fn parallel(clients: &mut [Client], key: &'static str, in_flight: usize, plan: Plan) -> Result<Row> {
    let label = format!("{in_flight} in flight, 100 B");
    eprintln!("measuring: {label}");
    let mut call = Call::text(SMALL_BYTES);
    let mut samples: [Samples; 3] = Default::default();
    let calls = u32::try_from(plan.batch)?;
    for round in 0..=plan.rounds {
        for turn in turns(round, clients.len()) {
            let took = clients[turn].calls(&mut call, in_flight, plan.batch)? / calls;
            if round > 0 {
                samples[turn].add(took.as_secs_f64());
            }
        }
    }
    Ok(Row::new(key, label, Unit::Rate, samples))
}

/// What a fresh process holds before its first call, and some time after a large one.
fn memory(stage: &Stage<'_>, runs: usize) -> Result<[Row; 2]> {
    eprintln!("measuring: memory");
    let (mut small, mut largest) = (Call::text(SMALL_BYTES), Call::text(LARGEST_BYTES));
    let (mut fresh, mut used): ([Samples; 3], [Samples; 3]) = Default::default();
    for _ in 0..runs {
        let mut clients = stage.clients()?;
        // The relay has only just been started; its answer says that it is there.
        clients[Contender::Floor as usize].call(&mut small, true)?;
        for (client, samples) in clients.iter_mut().zip(&mut fresh) {
            samples.add(client.peer().resident_bytes()?.into());
            client.call(&mut largest, true)?;
            client.call(&mut small, true)?;
        }
        std::thread::sleep(IDLE);
        for (client, samples) in clients.into_iter().zip(&mut used) {
            samples.add(client.peer().resident_bytes()?.into());
            client.finish()?;
        }
    }
    Ok([
        Row::new("memory_fresh", "memory after start", Unit::Memory, fresh),
        Row::new("memory_used", "memory after a 9 MB call", Unit::Memory, used),
    ])
}
