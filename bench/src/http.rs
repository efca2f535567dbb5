//! Calls over Streamable HTTP: ours compared with the servers of others, each with the tools in it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use crate::call::Call;
use crate::client::Client;
use crate::contender::Contender;
use crate::effort::{Effort, LARGE_BYTES, Plan, SMALL_BYTES};
use crate::http_connection::HttpConnection;
use crate::machine::OneCpu;
use crate::memory::IDLE;
use crate::process::Process;
use crate::program::Programs;
use crate::round_trip::{in_turn, one_at_a_time};
use crate::row::{Row, Unit};
use crate::stage::FEW_TOOLS;

/// Parallel clients, each with its own connection and session.
const MANY: usize = 64;

/// All rows of calls over HTTP, and the memory of the servers.
pub(crate) fn measure(programs: &Programs, contenders: &[Contender], effort: &Effort) -> Result<Vec<Row>> {
    let servers = || {
        let servers = contenders.iter().filter(|one| one.is_server());
        servers.map(|one| Server::start(programs, *one)).collect::<Result<Vec<_>>>()
    };
    let mut rows = Vec::new();
    let mut calls = |servers: &[Server], keys: &[&'static str]| -> Result<()> {
        let mut clients = each(servers, Server::connect)?;
        for key in keys {
            rows.push(one_at_a_time(&mut clients, &effort.kind(key))?);
        }
        Ok(())
    };
    {
        let _one_cpu = OneCpu::new()?;
        calls(&servers()?, &["http_100_b", "http_10_kb"])?;
    }
    let on_any_cpu = servers()?;
    calls(&on_any_cpu, &["http_100_b_any_cpu"])?;
    rows.push(many_clients(&on_any_cpu, effort.parallel)?);
    drop(on_any_cpu);
    rows.extend(memory(servers, effort.memory)?);
    Ok(rows)
}

/// A running server; dropping it ends the server.
struct Server {
    contender: Contender,
    process: Process,
    url: String,
}

/// What a server prints when it listens.
#[derive(Deserialize)]
struct Listening {
    url: String,
}

impl Server {
    fn start(programs: &Programs, contender: Contender) -> Result<Self> {
        let mut command = programs.server(contender, FEW_TOOLS)?;
        command.arg("http");
        let mut process = Process::start(contender.name, command)?;
        let said = process.line()?;
        let Listening { url } = serde_json::from_slice(said).context(contender.name)?;
        Ok(Self { contender, process, url })
    }

    /// A client with a session.
    fn connect(&self) -> Result<Client<HttpConnection>> {
        let mut client = Client::new(HttpConnection::open(self.contender.name, &self.url)?);
        client.open()?;
        Ok(client)
    }
}

fn each<T>(servers: &[Server], of: impl Fn(&Server) -> Result<T>) -> Result<Vec<(Contender, T)>> {
    servers.iter().map(|server| Ok((server.contender, of(server)?))).collect()
}

/// Many parallel clients, each with one call at a time; a batch is timed as a whole.
fn many_clients(servers: &[Server], plan: Plan) -> Result<Row> {
    let (key, label) = ("http_64_clients", "64 clients over HTTP, 100 B");
    eprintln!("measuring: {label}");
    let mut all = each(servers, |server| (0..MANY).map(|_| server.connect()).collect::<Result<Vec<_>>>())?;
    let call = Call::text(SMALL_BYTES);
    let mut batches = Vec::new();
    for (_, clients) in &mut all {
        clients.iter_mut().try_for_each(|client| client.learn(&call).map(drop))?;
        let one = together(clients, 2)? / u32::try_from(2 * MANY)?;
        batches.push((plan.batch_of(one) / MANY).max(2));
    }
    let samples = in_turn(plan, all.len(), |turn, samples| {
        let took = together(&mut all[turn].1, batches[turn])?;
        samples.push((took / u32::try_from(batches[turn] * MANY)?).as_secs_f64());
        Ok(took)
    })?;
    Ok(Row::new(key, label, Unit::Rate, all.iter().map(|(one, _)| *one).zip(samples)))
}

/// Each client makes that many calls, all clients in parallel.
///
/// The answers are read in the order of the clients: while one is awaited, the calls of all others are
/// pending.
fn together(clients: &mut [Client<HttpConnection>], calls: usize) -> Result<Duration> {
    let started = Instant::now();
    clients.iter_mut().try_for_each(Client::begin)?;
    for _ in 1..calls {
        for client in &mut *clients {
            client.end()?;
            client.begin()?;
        }
    }
    clients.iter_mut().try_for_each(Client::end)?;
    Ok(started.elapsed())
}

/// After the list of tools, and some time after a large call.
fn memory(servers: impl Fn() -> Result<Vec<Server>>, runs: usize) -> Result<[Row; 2]> {
    eprintln!("measuring: memory over HTTP");
    let large = Call::text(LARGE_BYTES);
    let (mut fresh, mut used) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        let servers = servers()?;
        let resident = |server: &Server| server.process.resident_bytes();
        let mut clients = each(&servers, Server::connect)?;
        fresh.extend(each(&servers, resident)?);
        clients.iter_mut().try_for_each(|(_, client)| client.learn(&large).map(drop))?;
        std::thread::sleep(IDLE);
        used.extend(each(&servers, resident)?);
    }
    let row = |key, label, samples| Row::of_single(key, label, Unit::Memory, samples);
    Ok([
        row("http_memory_fresh", "memory over HTTP, after start", fresh),
        row("http_memory_used", "memory over HTTP, after a 1 MB call", used),
    ])
}
