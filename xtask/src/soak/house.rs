//! The hosts, and what happens to them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context as _, Result};
use rustix::process::Signal;

use super::account::{Account, Count, Wrong};
use super::host::{Host, Kind, Place, eventually, lock};
use super::random::Random;

/// The programs of the hosts. Those at the beginning live as long as the run, and are looked at for what they keep.
const KINDS: [Kind; 6] = [Kind::Demo, Kind::Parent, Kind::Demo, Kind::Demo, Kind::Demo, Kind::Parent];
const LONG_LIVED: usize = 2;

/// More than this is not explained by what lies between pieces of memory that are in use.
const GROWTH_KIB: u64 = 8 * 1024;

/// What is done to a host.
#[derive(Clone, Copy)]
enum Fate {
    Killed,
    Terminated,
    Closed,
    Halted,
    Stopped,
}

const FATES: [(usize, Fate); 5] =
    [(4, Fate::Killed), (2, Fate::Terminated), (2, Fate::Closed), (2, Fate::Halted), (1, Fate::Stopped)];
const FATES_OF_LONG_LIVED: [(usize, Fate); 2] = [(3, Fate::Halted), (1, Fate::Stopped)];

/// What a long-lived host has when nobody calls it.
struct Calm {
    descriptors: usize,
    /// After each round.
    resident_kib: Vec<u64>,
}

pub(crate) struct House {
    hosts: Vec<Mutex<Arc<Host>>>,
    /// How many hosts have taken another's place.
    successors: AtomicUsize,
    calm: Mutex<Vec<Calm>>,
}

impl House {
    pub(crate) fn open(place: &Place) -> Result<Self> {
        let start = |(slot, kind)| Host::start(place, kind, format!("host {slot}.0")).map(Arc::new);
        let hosts: Vec<_> = KINDS.into_iter().enumerate().map(start).collect::<Result<_>>()?;
        let calm = hosts[..LONG_LIVED]
            .iter()
            .map(|host| Ok(Calm { descriptors: host.descriptors()?, resident_kib: Vec::new() }));
        let calm = Mutex::new(calm.collect::<Result<_>>()?);
        let hosts = hosts.into_iter().map(Mutex::new).collect();
        Ok(Self { hosts, successors: AtomicUsize::new(0), calm })
    }

    /// Some host that runs, or did a moment ago.
    pub(crate) fn pick(&self, random: &mut Random) -> Arc<Host> {
        Arc::clone(&lock(random.pick(&self.hosts)))
    }

    pub(crate) fn slots(&self) -> std::ops::Range<usize> {
        0..self.hosts.len()
    }

    /// Lets things happen to one host, and to those that take its place, until then.
    pub(crate) fn trouble(
        &self,
        slot: usize,
        place: &Place,
        account: &Account,
        random: &mut Random,
        until: Instant,
    ) -> Result<()> {
        loop {
            let pause = random.millis(200, if slot < LONG_LIVED { 10_000 } else { 4000 });
            if Instant::now() + pause >= until {
                return Ok(());
            }
            std::thread::sleep(pause);
            let host = Arc::clone(&lock(&self.hosts[slot]));
            let fate = random.weighed(if slot < LONG_LIVED { &FATES_OF_LONG_LIVED[..] } else { &FATES });
            if let Err(wrong) = befall(&host, fate, account, random)? {
                account.wrong(&wrong, &[&host.name]);
            }
            if host.troubles.has_ended() {
                self.replace(slot, &host, place, account)?;
            }
        }
    }

    /// Starts another host in place of one that has ended, which also removes what that one has left.
    fn replace(&self, slot: usize, ended: &Host, place: &Place, account: &Account) -> Result<()> {
        let name = format!("host {slot}.{}", self.successors.fetch_add(1, Ordering::Relaxed) + 1);
        let next = Host::start(place, ended.kind, name)?;
        account.note(&next.name, "started");
        *lock(&self.hosts[slot]) = Arc::new(next);
        if let Err(error) = eventually("what a host has left is gone", || Ok(!ended.has_files())) {
            account.wrong(&Wrong::left(format!("{}: {error}", ended.name)), &[&ended.name]);
        }
        Ok(())
    }

    /// Looks at the long-lived hosts, which nobody calls any more; says how they are.
    pub(crate) fn look(&self, account: &Account) -> Result<String> {
        let mut text = Vec::new();
        for (calm, host) in lock(&self.calm).iter_mut().zip(&self.hosts) {
            let host = Arc::clone(&lock(host));
            let back =
                eventually("its descriptors are as before", || Ok(host.descriptors()? <= calm.descriptors));
            if back.is_err() {
                let (now, before) = (host.descriptors()?, calm.descriptors);
                let wrong = format!("{} has {now} descriptors and had {before}", host.name);
                account.wrong(&Wrong::left(wrong), &[&host.name]);
            }
            let now = host.resident_kib()?;
            calm.resident_kib.push(now);
            text.push(format!("{} descriptors and {} MiB", host.descriptors()?, now / 1024));
        }
        Ok(text.join(", "))
    }

    /// Ends all hosts, and looks whether anything is left of anybody.
    pub(crate) fn close(self, place: &Place, account: &Account) -> Result<()> {
        for calm in lock(&self.calm).iter() {
            // The first rounds show how much it needs.
            let first = &calm.resident_kib[..calm.resident_kib.len().div_ceil(3)];
            let before = first.iter().max().context("no round")?;
            let now = calm.resident_kib.last().context("no round")?;
            if *now > before + GROWTH_KIB {
                account.wrong(&Wrong::left(format!("a host has {now} KiB of memory and had {before}")), &[]);
            }
        }
        let end = |host: &Host, signal| {
            let ended = host.stop(signal)?;
            ended.unwrap_or_else(|wrong| account.wrong(&wrong, &[&host.name]));
            Ok::<_, anyhow::Error>(())
        };
        for host in &self.hosts {
            end(&lock(host), None)?;
        }
        // What was killed last is left to the next start.
        let last = Host::start(place, Kind::Demo, "the last host".into())?;
        let is_own = |name: &String| [&last.socket, &last.schema].iter().any(|path| path.ends_with(name));
        // If not, the files are named below.
        _ = eventually("only a live session has files", || Ok(place.files()?.iter().all(is_own)));
        end(&last, Some(Signal::TERM))?;
        for left in place.files()? {
            account.wrong(&Wrong::left(format!("the file `{left}`")), &[]);
        }
        for left in place.processes()? {
            account.wrong(&Wrong::left(format!("the process {left}")), &[]);
        }
        Ok(())
    }
}

fn befall(host: &Host, fate: Fate, account: &Account, random: &mut Random) -> Result<Result<(), Wrong>> {
    // The benchmark's parent knows of no signal.
    let fate =
        if host.kind == Kind::Parent && matches!(fate, Fate::Terminated) { Fate::Closed } else { fate };
    let (count, what) = match fate {
        Fate::Killed => (Count::HostsKilled, "is killed"),
        Fate::Terminated => (Count::HostsTerminated, "gets SIGTERM"),
        Fate::Closed => (Count::HostsClosed, "has its stdin closed"),
        Fate::Halted => (Count::HostsHalted, "is stopped for a moment"),
        Fate::Stopped => (Count::HostsStopped, "is stopped for seconds"),
    };
    account.add(count, 1);
    account.note(&host.name, what);
    match fate {
        Fate::Killed => host.kill()?,
        Fate::Terminated => return host.stop(Some(Signal::TERM)),
        Fate::Closed => return host.stop(None),
        Fate::Halted => host.halt(random.millis(20, 400))?,
        Fate::Stopped => host.halt(random.millis(2500, 4000))?,
    }
    account.note(&host.name, "that is over");
    Ok(Ok(()))
}
