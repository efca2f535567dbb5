//! The time until the first call of a tool is answered, step by step.

use std::time::Instant;

use anyhow::Result;

use crate::call::Call;
use crate::client::Client;
use crate::contender::Contender;
use crate::effort::SMALL_BYTES;
use crate::process::Process;
use crate::row::Beside;
use crate::stage::{FEW_TOOLS, Stage};

/// The steps in order, the total, and a later call; the floor has only the last two.
const PARTS: [(&str, &str); 7] = [
    ("register", "register 3 tools (library)"),
    ("session", "start the session: files, socket (library)"),
    ("bridge", "start the bridge, read the schema, answer initialize"),
    ("list", "answer tools/list"),
    ("first", "connect, first tools/call"),
    ("whole", "all of it"),
    ("later", "a tools/call after that"),
];

/// Starts everything anew for each run, alternating between ours and the floor.
pub(crate) fn measure(stage: &mut Stage<'_>, runs: usize) -> Result<Vec<Beside>> {
    eprintln!("measuring: the first call");
    let mut samples = PARTS.map(|_| (Vec::new(), Vec::new()));
    // The first run reads the executables from disk.
    run_ours(stage)?;
    run_floor(stage)?;
    for _ in 0..runs {
        for ((ours, _), took) in samples.iter_mut().zip(run_ours(stage)?) {
            ours.push(took);
        }
        for ((_, floor), took) in samples[5..].iter_mut().zip(run_floor(stage)?) {
            floor.push(took);
        }
    }
    Beside::lines(PARTS, samples)
}

/// The time in seconds of each part.
fn run_ours(stage: &mut Stage<'_>) -> Result<[f64; 7]> {
    let call = Call::text(SMALL_BYTES);
    let started = stage.parent.start_session(FEW_TOOLS)?;
    let command = stage.bridge(&started.session);
    let began = Instant::now();
    let mut client = Client::new(Process::start("bridge+parent", command)?);
    client.initialize()?;
    let initialized = Instant::now();
    client.list()?;
    let list = initialized.elapsed().as_secs_f64();
    let first = client.learn(&call)?.as_secs_f64();
    let later = client.call(true)?.as_secs_f64();
    client.finish()?;
    stage.parent.stop_session()?;
    let parts = [started.register, started.start, (initialized - began).as_secs_f64(), list, first];
    let [register, start, bridge, list, first] = parts;
    Ok([register, start, bridge, list, first, parts.iter().sum(), later])
}

/// The relay connects when it starts, so its first call is the only step.
fn run_floor(stage: &mut Stage<'_>) -> Result<[f64; 2]> {
    let call = Call::text(SMALL_BYTES);
    let began = Instant::now();
    let mut client = stage.client(Contender::Floor)?;
    client.learn(&call)?;
    let whole = began.elapsed().as_secs_f64();
    let later = client.call(true)?.as_secs_f64();
    client.finish()?;
    Ok([whole, later])
}
