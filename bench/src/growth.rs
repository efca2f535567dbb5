//! Whether the cost of a call depends on the number of tools, calls and sessions.

use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::call::Call;
use crate::client::Client;
use crate::contender::Contender;
use crate::effort::{Effort, Plan, SMALL_BYTES};
use crate::machine::OneCpu;
use crate::process::Process;
use crate::program::Programs;
use crate::round_trip::in_turn;
use crate::sample::Figure;
use crate::stage::{FEW_TOOLS, Stage};

/// Calls in a batch.
const BATCH: usize = 20;

/// One point of a curve: the count, a call's time, and other values.
pub(crate) struct Point {
    pub(crate) count: usize,
    pub(crate) call: Figure,
    /// The floor's call at the same time.
    pub(crate) floor: Figure,
    /// In the order of the curve's `columns`.
    pub(crate) values: Vec<f64>,
}

/// A curve.
pub(crate) struct Curve {
    /// What grows; also its key.
    pub(crate) of: &'static str,
    pub(crate) title: &'static str,
    /// The other values of its points.
    pub(crate) columns: &'static [Column],
    pub(crate) points: Vec<Point>,
}

/// A value beside a call's time: key, label, and whether it is in bytes or a count.
pub(crate) type Column = (&'static str, &'static str, bool);

const BRIDGE: Column = ("bridge_bytes", "bridge", true);
const BRIDGES: Column = ("bridges_bytes", "all bridges", true);
const PARENT: Column = ("parent_bytes", "parent", true);
const BRIDGE_FDS: Column = ("bridge_fds", "descriptors of the bridge", false);
const PARENT_FDS: Column = ("parent_fds", "descriptors of the parent", false);

type Measure = fn(&mut Stage<'_>, &Effort) -> Result<Vec<Point>>;

/// All curves, and how each is measured.
const CURVES: [(&str, &str, &[Column], Measure); 3] = [
    (
        "tools",
        "Growth: a call of 100 B, by the number of tools in its session",
        &[BRIDGE, PARENT],
        over_tools,
    ),
    (
        "calls",
        "Growth: a call of 100 B, by decade of the calls made in one session",
        &[BRIDGE, PARENT, BRIDGE_FDS, PARENT_FDS],
        over_calls,
    ),
    (
        "sessions",
        "Growth: a call of 100 B, by the number of sessions in one process, each with its bridge",
        &[BRIDGES, PARENT, PARENT_FDS],
        over_sessions,
    ),
];

/// Each curve with a fresh parent, and with all processes on one CPU: otherwise the placement by the kernel
/// would have a larger effect than any growth.
pub(crate) fn measure(programs: &Programs, effort: &Effort) -> Result<Vec<Curve>> {
    let _one_cpu = OneCpu::new()?;
    let mut curves = Vec::new();
    for (of, title, columns, measure) in CURVES {
        eprintln!("measuring: growth of {of}");
        let points = measure(&mut Stage::set(programs, &[])?, effort)?;
        curves.push(Curve { of, title, columns, points });
    }
    Ok(curves)
}

/// A new session with that many tools, and its bridge.
fn session(stage: &mut Stage<'_>, tools: usize) -> Result<Client> {
    let session = stage.parent.start_session(tools)?.session;
    let mut client = Client::new(Process::start("bridge+parent", stage.bridge(&session))?);
    client.open()?;
    client.learn(&Call::text(SMALL_BYTES))?;
    Ok(client)
}

fn floor(stage: &mut Stage<'_>) -> Result<Client> {
    let mut floor = stage.client(Contender::Floor)?;
    floor.learn(&Call::text(SMALL_BYTES))?;
    Ok(floor)
}

/// Makes a batch of calls.
fn batch(client: &mut Client, calls: usize, samples: &mut Vec<f64>) -> Result<()> {
    (0..calls).try_for_each(|_| client.call(false).map(|took| samples.push(took.as_secs_f64())))
}

fn figure(samples: Vec<f64>) -> Result<Figure> {
    Figure::of(samples).context("nothing was measured")
}

/// Calls all clients in turn, in batches; returns the figure of each.
fn all_in_turn(clients: &mut [Client], rounds: usize) -> Result<Vec<Figure>> {
    let plan = Plan { batch: BATCH, rounds, limit: Duration::MAX };
    let samples = in_turn(plan, clients.len(), |turn, samples| {
        clients[turn].call(false)?;
        batch(&mut clients[turn], BATCH, samples)?;
        Ok(Duration::ZERO)
    })?;
    samples.into_iter().map(figure).collect()
}

/// All sizes at once, each in a separate session, alternating with the floor.
fn over_tools(stage: &mut Stage<'_>, effort: &Effort) -> Result<Vec<Point>> {
    let sizes = effort.growth_tools;
    let mut clients = vec![floor(stage)?];
    let mut parent_bytes = Vec::new();
    for size in sizes {
        clients.push(session(stage, *size)?);
        parent_bytes.push(stage.parent.0.resident_bytes()?);
    }
    let figures = all_in_turn(&mut clients, effort.growth_rounds)?;
    let mut points = Vec::new();
    for (place, count) in sizes.iter().copied().enumerate() {
        let values = vec![clients[place + 1].wire.resident_bytes()?, parent_bytes[place]];
        points.push(Point { count, call: figures[place + 1], floor: figures[0], values });
    }
    clients.into_iter().try_for_each(Client::finish)?;
    Ok(points)
}

/// One session, by powers of ten of calls.
fn over_calls(stage: &mut Stage<'_>, effort: &Effort) -> Result<Vec<Point>> {
    let (mut floor, mut client) = (floor(stage)?, session(stage, FEW_TOOLS)?);
    let mut points = Vec::new();
    let (mut done, mut decade) = (1, 10);
    while decade <= effort.growth_calls {
        let (mut ours, mut floors) = (Vec::new(), Vec::new());
        while done < decade {
            let calls = BATCH.min(decade - done);
            batch(&mut client, calls, &mut ours)?;
            batch(&mut floor, calls, &mut floors)?;
            done += calls;
        }
        let (bridge, parent) = (&client.wire, &stage.parent.0);
        let values = vec![
            bridge.resident_bytes()?,
            parent.resident_bytes()?,
            bridge.descriptors()?,
            parent.descriptors()?,
        ];
        points.push(Point { count: decade, call: figure(ours)?, floor: figure(floors)?, values });
        decade *= 10;
    }
    client.finish()?;
    floor.finish()?;
    Ok(points)
}

/// One process with many sessions, each with its bridge; only one of them is called.
fn over_sessions(stage: &mut Stage<'_>, effort: &Effort) -> Result<Vec<Point>> {
    let mut clients = vec![floor(stage)?];
    let mut points = Vec::new();
    for size in effort.growth_sessions.iter().copied() {
        while clients.len() <= size {
            clients.push(session(stage, FEW_TOOLS)?);
        }
        let figures = all_in_turn(&mut clients[..2], effort.growth_rounds)?;
        let bridges = clients[1..].iter().map(|client| client.wire.proportional_bytes());
        let bridges = bridges.sum::<Result<f64>>()?;
        let parent = &stage.parent.0;
        let values = vec![bridges, parent.resident_bytes()?, parent.descriptors()?];
        points.push(Point { count: size, call: figures[1], floor: figures[0], values });
    }
    clients.into_iter().try_for_each(Client::finish)?;
    Ok(points)
}
