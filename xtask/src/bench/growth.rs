//! Whether a call costs the same however many tools, calls and sessions there are.

use anyhow::Result;

use super::call::Call;
use super::client::Client;
use super::contender::Contender;
use super::effort::Effort;
use super::machine::OneCpu;
use super::parent::Session;
use super::process::Process;
use super::program::Programs;
use super::round_trip::{SMALL_BYTES, turns};
use super::sample::{Figure, Samples};
use super::stage::Stage;

/// Calls in a batch.
const BATCH: usize = 20;

/// One point of a curve: how many there were, a call's time, and other values with their names.
pub(crate) struct Point {
    pub(crate) count: usize,
    pub(crate) call: Figure,
    /// The floor's call at the same moment.
    pub(crate) floor: Figure,
    /// In the order of the curve's `columns`; what has no unit counts something.
    pub(crate) values: Vec<f64>,
}

/// A curve.
pub(crate) struct Curve {
    pub(crate) key: &'static str,
    /// What grows.
    pub(crate) of: &'static str,
    /// The other values of its points.
    pub(crate) columns: &'static [Column],
    pub(crate) points: Vec<Point>,
}

/// A value beside a call's time.
pub(crate) struct Column {
    pub(crate) key: &'static str,
    pub(crate) label: &'static str,
    pub(crate) is_bytes: bool,
}

const fn column(key: &'static str, label: &'static str, is_bytes: bool) -> Column {
    Column { key, label, is_bytes }
}

const TOOLS_COLUMNS: [Column; 2] =
    [column("bridge_bytes", "bridge", true), column("parent_bytes", "parent", true)];
const CALLS_COLUMNS: [Column; 4] = [
    column("bridge_bytes", "bridge", true),
    column("parent_bytes", "parent", true),
    column("bridge_fds", "descriptors of the bridge", false),
    column("parent_fds", "descriptors of the parent", false),
];
const SESSIONS_COLUMNS: [Column; 3] = [
    column("bridges_bytes", "all bridges", true),
    column("parent_bytes", "parent", true),
    column("parent_fds", "descriptors of the parent", false),
];

/// Each curve with a parent that has done nothing before, and with everybody on one CPU: whom the kernel puts
/// where would be more than anything that grows.
pub(crate) fn measure(programs: &Programs, effort: &Effort) -> Result<Vec<Curve>> {
    let _one_cpu = OneCpu::new()?;
    let stage = || Stage::set(programs, &[]);
    Ok(vec![
        over_tools(&mut stage()?, effort.growth_tools, effort.growth_rounds)?,
        over_calls(&mut stage()?, effort.growth_calls)?,
        over_sessions(&mut stage()?, effort.growth_sessions, effort.growth_rounds)?,
    ])
}

fn bridge_of(stage: &Stage<'_>, session: &Session) -> Result<Client> {
    let mut client = Client::new(Process::start("bridge+parent", stage.bridge(session))?);
    client.open()?;
    client.learn(&Call::text(SMALL_BYTES))?;
    Ok(client)
}

fn floor_of(stage: &mut Stage<'_>) -> Result<Client> {
    let mut floor = stage.client(Contender::Floor)?;
    floor.learn(&Call::text(SMALL_BYTES))?;
    Ok(floor)
}

fn resident(client: &Client) -> Result<f64> {
    client.process().map_or(Ok(0.0), |process| Ok(process.resident_bytes()?.into()))
}

#[expect(clippy::cast_precision_loss, reason = "there are never that many descriptors")]
fn descriptors(process: Option<&Process>) -> Result<f64> {
    process.map_or(Ok(0.0), |process| Ok(process.descriptors()? as f64))
}

/// Calls all clients in turn, in batches; the figure of each.
fn in_turn(clients: &mut [Client], rounds: usize) -> Result<Vec<Option<Figure>>> {
    let mut samples: Vec<Samples> = clients.iter().map(|_| Samples::default()).collect();
    for round in 0..rounds {
        for turn in turns(round, clients.len()) {
            clients[turn].call(false)?;
            for _ in 0..BATCH {
                samples[turn].add(clients[turn].call(false)?.as_secs_f64());
            }
        }
    }
    Ok(samples.into_iter().map(Samples::figure).collect())
}

/// All sizes at once, each in a session of its own, in turn with the floor.
fn over_tools(stage: &mut Stage<'_>, sizes: &[usize], rounds: usize) -> Result<Curve> {
    eprintln!("measuring: growth of tools");
    let mut clients = vec![floor_of(stage)?];
    let mut parent_bytes = Vec::new();
    for size in sizes {
        let session = stage.parent.start_session(*size)?.session;
        clients.push(bridge_of(stage, &session)?);
        parent_bytes.push(f64::from(stage.parent.process().resident_bytes()?));
    }
    let figures = in_turn(&mut clients, rounds)?;
    let mut points = Vec::new();
    for (((count, client), figure), parent) in
        sizes.iter().zip(&clients[1..]).zip(&figures[1..]).zip(parent_bytes)
    {
        if let (Some(call), Some(floor)) = (*figure, figures[0]) {
            points.push(Point { count: *count, call, floor, values: vec![resident(client)?, parent] });
        }
    }
    for client in clients {
        client.finish()?;
    }
    for _ in sizes {
        stage.parent.stop_session()?;
    }
    Ok(Curve { key: "tools", of: "tools", columns: &TOOLS_COLUMNS, points })
}

/// One session, decade by decade.
fn over_calls(stage: &mut Stage<'_>, last: usize) -> Result<Curve> {
    eprintln!("measuring: growth of calls");
    let session = stage.parent.start_session(super::stage::FEW_TOOLS)?.session;
    let (mut floor, mut client) = (floor_of(stage)?, bridge_of(stage, &session)?);
    let mut points = Vec::new();
    let (mut done, mut decade) = (1, 10);
    while decade <= last {
        let (mut ours, mut floors) = (Samples::default(), Samples::default());
        while done < decade {
            let batch = BATCH.min(decade - done);
            for _ in 0..batch {
                ours.add(client.call(false)?.as_secs_f64());
            }
            for _ in 0..batch {
                floors.add(floor.call(false)?.as_secs_f64());
            }
            done += batch;
        }
        let parent = stage.parent.process();
        let values = vec![
            resident(&client)?,
            parent.resident_bytes()?.into(),
            descriptors(client.process())?,
            descriptors(Some(parent))?,
        ];
        if let (Some(call), Some(floor)) = (ours.figure(), floors.figure()) {
            points.push(Point { count: decade, call, floor, values });
        }
        decade *= 10;
    }
    client.finish()?;
    floor.finish()?;
    stage.parent.stop_session()?;
    Ok(Curve { key: "calls", of: "calls", columns: &CALLS_COLUMNS, points })
}

/// One process with many sessions, each with its bridge; one of them is busy.
fn over_sessions(stage: &mut Stage<'_>, sizes: &[usize], rounds: usize) -> Result<Curve> {
    eprintln!("measuring: growth of sessions");
    let floor = floor_of(stage)?;
    let mut busy = vec![floor];
    let mut idle: Vec<Client> = Vec::new();
    let mut points = Vec::new();
    for size in sizes {
        while busy.len() - 1 + idle.len() < *size {
            let session = stage.parent.start_session(super::stage::FEW_TOOLS)?.session;
            let client = bridge_of(stage, &session)?;
            if busy.len() == 1 { busy.push(client) } else { idle.push(client) }
        }
        let figures = in_turn(&mut busy, rounds)?;
        let mut bridges = 0.0;
        for client in busy[1..].iter().chain(&idle) {
            bridges += client.process().map_or(Ok(0.0), |one| one.proportional_bytes().map(f64::from))?;
        }
        let parent = stage.parent.process();
        let values = vec![bridges, parent.resident_bytes()?.into(), descriptors(Some(parent))?];
        if let [Some(floor), Some(call)] = figures[..] {
            points.push(Point { count: *size, call, floor, values });
        }
    }
    for client in busy.into_iter().chain(idle) {
        client.finish()?;
    }
    for _ in 0..sizes.last().copied().unwrap_or_default() {
        stage.parent.stop_session()?;
    }
    Ok(Curve { key: "sessions", of: "sessions", columns: &SESSIONS_COLUMNS, points })
}
