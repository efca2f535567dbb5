//! Calls over NATS: compared with a plain request and reply, with HTTP, and with more hosts.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use xtask::nats::install;
use xtask::project::Project;

use crate::effort::{Effort, Plan};
use crate::process::{PATIENCE, Process};
use crate::program::Programs;
use crate::round_trip::in_turn;
use crate::row::Beside;
use crate::stage::FEW_TOOLS;

/// The limit of parallel calls per host, where hosts are counted.
const AT_A_TIME: usize = 8;

/// The ways to make a short call.
const WAYS: [&str; 3] = ["nats", "bare", "http"];

/// The names for one, two and three hosts.
const NAMES: [&str; 3] = ["one", "two", "three"];

/// The rows for the report; each label tells what it is compared with.
pub(crate) fn measure(programs: &Programs, effort: &Effort) -> Result<Vec<Beside>> {
    eprintln!("measuring: NATS");
    let server = Server::start(&install(&Project::find()?, "python3".as_ref())?)?;
    let parent = |args: &[&str]| {
        let mut command = Command::new(&programs.parent);
        command.args(args);
        let mut process = Process::start("bench-parent", command)?;
        let said: Said = serde_json::from_slice(process.line()?)?;
        anyhow::Ok((process, said))
    };
    let url = &server.url;
    let _bare = parent(&["nats", "bare", url])?;
    let _host = parent(&["nats", "host", url, "bench", "a", "512"])?;
    let (_http, said) = parent(&[&FEW_TOOLS.to_string(), "http"])?;
    let (mut caller, _) = parent(&["nats", "call", url, &said.url.context("bench-parent: no URL")?])?;
    let mut lines = short_calls(&mut caller, effort.small)?;

    let calls = AT_A_TIME.to_string();
    let mut hosts = Vec::new();
    for (name, count) in NAMES.iter().zip(1..) {
        for host in 0..count {
            hosts.push(parent(&["nats", "host", url, name, &host.to_string(), &calls])?);
        }
    }
    lines.extend(more_hosts(&mut caller, effort.parallel)?);
    Ok(lines)
}

/// The parent's output.
#[derive(Deserialize)]
struct Said {
    url: Option<String>,
    seconds: Option<f64>,
}

/// Makes the caller make that many calls; returns the time of one.
fn take(caller: &mut Process, way: &str, calls: usize, at_a_time: usize) -> Result<Duration> {
    caller.send(format!("{way} {calls} {at_a_time}\n").as_bytes())?;
    let said: Said = serde_json::from_slice(caller.line()?)?;
    Ok(Duration::from_secs_f64(said.seconds.context("bench-parent: no time")?))
}

/// One call at a time, each way in turn.
fn short_calls(caller: &mut Process, plan: Plan) -> Result<Vec<Beside>> {
    for way in WAYS {
        take(caller, way, 200, 1)?;
    }
    let mut samples = in_turn(plan, WAYS.len(), |turn, samples| {
        let took = take(caller, WAYS[turn], plan.batch, 1)?;
        samples.push((took / u32::try_from(plan.batch)?).as_secs_f64());
        Ok(took)
    })?;
    let (http, bare, ours) = (samples.remove(2), samples.remove(1), samples.remove(0));
    let names =
        [("nats_100_b", "100 B, beside a bare request"), ("nats_100_b_http", "100 B, beside our HTTP")];
    Beside::lines(names, [(ours.clone(), bare), (ours, http)])
}

/// A tool that takes 20 ms, on one, two and three hosts; compared with the time of one host divided by their
/// number.
fn more_hosts(caller: &mut Process, plan: Plan) -> Result<Vec<Beside>> {
    // A dozen full rounds for each host in a sample.
    let calls = |turn: usize| 12 * AT_A_TIME * (turn + 1);
    // More than there is room for, so that every host always has a call.
    let at_a_time = |turn: usize| 3 * AT_A_TIME * (turn + 1) / 2;
    for (turn, name) in NAMES.iter().enumerate() {
        take(caller, name, AT_A_TIME * (turn + 1), AT_A_TIME)?;
    }
    let rounds = plan.rounds.min(8);
    let plan = Plan { batch: 1, rounds, limit: Duration::from_secs(60) };
    let samples = in_turn(plan, NAMES.len(), |turn, samples| {
        let took = take(caller, NAMES[turn], calls(turn), at_a_time(turn))?;
        samples.push((took / u32::try_from(calls(turn))?).as_secs_f64());
        Ok(took)
    })?;
    let shares = (1..=NAMES.len()).map(|hosts| {
        let share = u32::try_from(hosts).map_or(1.0, f64::from);
        samples[0].iter().map(|seconds| seconds / share).collect()
    });
    let names = [
        ("nats_1_host", "20 ms a call, 8 at a time, 1 host"),
        ("nats_2_hosts", "the same, 2 hosts, beside half the time of one"),
        ("nats_3_hosts", "the same, 3 hosts, beside a third of it"),
    ];
    Beside::lines(names, samples.iter().cloned().zip(shares))
}

/// A NATS server; dropping it ends the server.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(program: &Path) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new(program);
        command.args(["-a", "127.0.0.1", "-p", &port.to_string()]).stdin(Stdio::null());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.with_context(|| format!("cannot start {}", program.display()))?;
        let server = Self { child, url: format!("nats://127.0.0.1:{port}") };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            ensure!(began.elapsed() < PATIENCE, "the NATS server does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
