//! Runs one client after the other, each acting at random.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fastrand::Rng;
use serde_json::json;

use crate::account::Count;
use crate::call::Call;
use crate::client::{Client, End};
use crate::host::{Host, HostKind, LIMIT};
use crate::house::House;
use crate::random::{millis, pick, weighed};

/// The next action of a client.
#[derive(Clone, Copy)]
enum Step {
    Ask,
    AskMany,
    Read,
    StopReading,
    AskEndless,
    AskAndCancel,
    CancelSomething,
}

const STEPS: [(usize, Step); 7] = [
    (60, Step::Ask),
    (6, Step::AskMany),
    (12, Step::Read),
    (3, Step::StopReading),
    (6, Step::AskEndless),
    (5, Step::AskAndCancel),
    (8, Step::CancelSomething),
];

const ENDS: [(usize, (End, Count)); 5] = [
    (25, (End::Done, Count::BridgesDone)),
    (20, (End::Closed, Count::BridgesClosed)),
    (15, (End::HungUp, Count::BridgesHungUp)),
    (10, (End::Terminated, Count::BridgesTerminated)),
    (30, (End::Killed, Count::BridgesKilled)),
];

pub(crate) struct Seat<'a> {
    pub(crate) number: usize,
    pub(crate) house: &'a House<'a>,
    pub(crate) random: Rng,
}

impl Seat<'_> {
    /// Runs one client after the other until that time.
    pub(crate) fn run(&mut self, round: u32, until: Instant) {
        for life in 0.. {
            if Instant::now() >= until {
                break;
            }
            let host = self.house.pick(&mut self.random);
            let name = format!("client {}.{round}.{life}", self.number);
            if let Err(wrong) = self.live(Arc::clone(&host), &name, until) {
                self.house.account.wrong(&wrong, &[&name, &host.name]);
            }
        }
    }

    fn live(&mut self, host: Arc<Host>, name: &str, until: Instant) -> Result<()> {
        let House { place, account, .. } = self.house;
        let program = if self.random.usize(..2) == 0 { &place.toolbridge } else { &place.bridge };
        let mut client = Client::start(place, program, host, account, name.into())?;
        let started = Instant::now();
        self.act(&mut client, until)?;
        if client.has_ended {
            let status = client.wait()?;
            account.add(Count::BridgesStranded, 1);
            let is_explained = client.host.troubles.explain(started, Instant::now());
            ensure!(is_explained, "the bridge ended by itself with {status}");
            return Ok(());
        }
        let (end, count) = weighed(&mut self.random, &ENDS);
        self.prepare(&mut client, end)?;
        account.add(count, 1);
        client.end(end)
    }

    fn act(&mut self, client: &mut Client<'_>, until: Instant) -> Result<()> {
        client.ask(|_| Call::hello())?;
        client.read_until(Instant::now() + LIMIT, |client| client.waiting() == 0)?;
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        // The limit of its pending requests.
        let width = weighed(&mut self.random, &[(3, 1), (6, 8), (1, 32)]);
        for _ in 0..self.random.usize(1..=100) {
            let is_over = client.has_ended || Instant::now() >= until;
            if is_over || client.host.troubles.has_ended() && self.random.usize(..10) == 0 {
                break;
            }
            self.step(client)?;
            client.read_until(Instant::now() + LIMIT * 2, |client| client.waiting() < width)?;
        }
        Ok(())
    }

    fn step(&mut self, client: &mut Client<'_>) -> Result<()> {
        let host = Arc::clone(&client.host);
        let random = &mut self.random;
        match weighed(random, &STEPS) {
            Step::Ask => _ = client.ask(|name| Call::any(random, &host, name))?,
            Step::AskMany => {
                for _ in 0..random.usize(2..=20) {
                    client.ask(|name| Call::any(random, &host, name))?;
                }
            }
            Step::Read => {
                let until = Instant::now() + millis(random, 0..=100);
                client.read_until(until, |_| false)?;
            }
            Step::StopReading => {
                for _ in 0..random.usize(0..=10) {
                    client.ask(|name| {
                        if host.kind == HostKind::Demo {
                            Call::blob(random)
                        } else {
                            Call::any(random, &host, name)
                        }
                    })?;
                }
                std::thread::sleep(millis(random, 100..=1000));
            }
            Step::AskEndless if host.kind == HostKind::Demo && client.endless().len() < 5 => {
                client.ask(|_| Call::endless(false))?;
            }
            // An exclusive call blocks others, so it is cancelled soon.
            Step::AskAndCancel if host.kind == HostKind::Demo => {
                let id = client.ask(|_| Call::endless(true))?;
                client.read_until(Instant::now() + millis(random, 0..=100), |_| false)?;
                client.cancel(id)?;
            }
            Step::CancelSomething | Step::AskEndless | Step::AskAndCancel => {
                let calls = client.calls();
                if !calls.is_empty() {
                    client.cancel(*pick(random, &calls))?;
                }
            }
        }
        Ok(())
    }

    /// Prepares an end: a normal one waits for all answers, others come in the middle of calls.
    fn prepare(&mut self, client: &mut Client<'_>, end: End) -> Result<()> {
        if end == End::Done {
            for id in client.endless() {
                client.cancel(id)?;
            }
            return client.read_until(Instant::now() + LIMIT * 2, |client| client.waiting() == 0);
        }
        if client.host.kind == HostKind::Demo && self.random.usize(..2) == 0 {
            client.ask(|_| Call::endless(true))?;
        }
        if self.random.usize(..2) == 0 {
            std::thread::sleep(Duration::from_micros(self.random.usize(0..=20_000) as u64));
        }
        Ok(())
    }
}
