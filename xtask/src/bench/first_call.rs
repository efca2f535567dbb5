//! What a user waits for before the first call of a tool has its answer, piece by piece.

use std::time::Instant;

use anyhow::Result;

use super::call::Call;
use super::client::Client;
use super::contender::Contender;
use super::process::Process;
use super::round_trip::SMALL_BYTES;
use super::sample::{Figure, Samples};
use super::stage::{FEW_TOOLS, Stage};

/// A piece of the way, and what it takes.
pub(crate) struct Part {
    pub(crate) key: &'static str,
    pub(crate) label: &'static str,
    pub(crate) figure: Figure,
    /// The floor's, where it has such a part.
    pub(crate) floor: Option<Figure>,
}

#[derive(Default)]
struct Ours {
    register: Samples,
    start: Samples,
    bridge: Samples,
    list: Samples,
    first: Samples,
    later: Samples,
    whole: Samples,
}

#[derive(Default)]
struct Floor {
    first: Samples,
    later: Samples,
}

/// Starts everything anew for each run; ours and the floor take turns.
pub(crate) fn measure(stage: &mut Stage<'_>, runs: usize) -> Result<Vec<Part>> {
    eprintln!("measuring: the first call");
    let (mut ours, mut floor) = (Ours::default(), Floor::default());
    // The first run reads the executables from the disk.
    run_ours(stage, &mut Ours::default())?;
    run_floor(stage, &mut Floor::default())?;
    for _ in 0..runs {
        run_ours(stage, &mut ours)?;
        run_floor(stage, &mut floor)?;
    }
    let parts = [
        ("register", "register 3 tools (library)", ours.register, None),
        ("session", "start the session: files, socket (library)", ours.start, None),
        ("bridge", "start the bridge, read the schema, answer initialize", ours.bridge, None),
        ("list", "answer tools/list", ours.list, None),
        ("first", "connect, first tools/call", ours.first, None),
        ("whole", "all of it", ours.whole, Some(floor.first)),
        ("later", "a tools/call after that", ours.later, Some(floor.later)),
    ];
    Ok(parts
        .into_iter()
        .filter_map(|(key, label, samples, floor)| {
            let (figure, floor) = (samples.figure()?, floor.and_then(Samples::figure));
            Some(Part { key, label, figure, floor })
        })
        .collect())
}

fn run_ours(stage: &mut Stage<'_>, samples: &mut Ours) -> Result<()> {
    let call = Call::text(SMALL_BYTES);
    let started = stage.parent.start_session(FEW_TOOLS)?;
    let command = stage.bridge(&started.session);
    let began = Instant::now();
    let mut client = Client::new(Process::start("bridge+parent", command)?);
    client.initialize()?;
    let initialized = Instant::now();
    client.list()?;
    let (bridge, list) = (initialized - began, initialized.elapsed());
    let first = client.learn(&call)?;
    let later = client.call(true)?;
    client.finish()?;
    stage.parent.stop_session()?;
    let (bridge, list, first) = (bridge.as_secs_f64(), list.as_secs_f64(), first.as_secs_f64());
    samples.register.add(started.register);
    samples.start.add(started.start);
    samples.bridge.add(bridge);
    samples.list.add(list);
    samples.first.add(first);
    samples.later.add(later.as_secs_f64());
    samples.whole.add(started.register + started.start + bridge + list + first);
    Ok(())
}

/// The relay connects when it starts; its first call is all there is to wait for.
fn run_floor(stage: &Stage<'_>, samples: &mut Floor) -> Result<()> {
    let Some(command) = stage.command(Contender::Floor, FEW_TOOLS)? else { return Ok(()) };
    let call = Call::text(SMALL_BYTES);
    let began = Instant::now();
    let mut client = Client::new(Process::start(Contender::Floor.name(), command)?);
    client.learn(&call)?;
    samples.first.add(began.elapsed().as_secs_f64());
    samples.later.add(client.call(true)?.as_secs_f64());
    client.finish()
}
