//! The hosts, and what happens to them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context as _, Result};
use fastrand::Rng;
use rustix::process::Signal;

use crate::account::{Account, Count};
use crate::host::{Host, HostKind, Place, eventually, lock};
use crate::random::{millis, pick, weighed};

/// The programs of the hosts. Those at the beginning live as long as the run, and are looked at for what they keep.
const KINDS: [HostKind; 6] =
    [HostKind::Demo, HostKind::Parent, HostKind::Demo, HostKind::Demo, HostKind::Demo, HostKind::Parent];
const LONG_LIVED: usize = 2;

/// More than this is not explained by what lies between pieces of memory that are in use.
const GROWTH_KIB: u64 = 8 * 1024;

/// What is done to a host, and how often.
const FATES: [(usize, Count); 5] = [
    (4, Count::HostsKilled),
    (2, Count::HostsTerminated),
    (2, Count::HostsClosed),
    (2, Count::HostsHalted),
    (1, Count::HostsStopped),
];
const FATES_OF_LONG_LIVED: [(usize, Count); 2] = [(3, Count::HostsHalted), (1, Count::HostsStopped)];

/// What a long-lived host has when nobody calls it.
struct Calm {
    descriptors: usize,
    /// After each round.
    resident_kib: Vec<u64>,
}

pub(crate) struct House<'a> {
    pub(crate) place: &'a Place,
    pub(crate) account: &'a Account,
    hosts: Vec<Mutex<Arc<Host>>>,
    /// How many hosts have taken another's place.
    successors: AtomicUsize,
    calm: Mutex<Vec<Calm>>,
}

impl<'a> House<'a> {
    pub(crate) fn open(place: &'a Place, account: &'a Account) -> Result<Self> {
        let start = |(slot, kind)| Host::start(place, kind, format!("host {slot}.0")).map(Arc::new);
        let hosts: Vec<_> = KINDS.into_iter().enumerate().map(start).collect::<Result<_>>()?;
        let calm = hosts[..LONG_LIVED]
            .iter()
            .map(|host| Ok(Calm { descriptors: host.descriptors()?, resident_kib: Vec::new() }));
        let calm = Mutex::new(calm.collect::<Result<_>>()?);
        let hosts = hosts.into_iter().map(Mutex::new).collect();
        Ok(Self { place, account, hosts, successors: AtomicUsize::new(0), calm })
    }

    /// Some host that runs, or did a moment ago.
    pub(crate) fn pick(&self, random: &mut Rng) -> Arc<Host> {
        Arc::clone(&lock(pick(random, &self.hosts)))
    }

    pub(crate) fn slots(&self) -> std::ops::Range<usize> {
        0..self.hosts.len()
    }

    /// Lets things happen to one host, and to those that take its place, until then.
    pub(crate) fn trouble(&self, slot: usize, random: &mut Rng, until: Instant) -> Result<()> {
        loop {
            let pause = millis(random, 200..=if slot < LONG_LIVED { 10_000 } else { 4000 });
            if Instant::now() + pause >= until {
                return Ok(());
            }
            std::thread::sleep(pause);
            let host = Arc::clone(&lock(&self.hosts[slot]));
            let fate = weighed(random, if slot < LONG_LIVED { &FATES_OF_LONG_LIVED[..] } else { &FATES });
            if let Err(wrong) = self.befall(&host, fate, random) {
                self.account.wrong(&wrong, &[&host.name]);
            }
            if host.troubles.has_ended() {
                self.replace(slot, &host)?;
            }
        }
    }

    /// Starts another host in place of one that has ended, which also removes what that one has left.
    fn replace(&self, slot: usize, ended: &Host) -> Result<()> {
        let name = format!("host {slot}.{}", self.successors.fetch_add(1, Ordering::Relaxed) + 1);
        let next = Host::start(self.place, ended.kind, name)?;
        self.account.note(&next.name, "started");
        *lock(&self.hosts[slot]) = Arc::new(next);
        if let Err(error) = eventually("what a host has left is gone", || Ok(!ended.has_files())) {
            self.account.left(format!("{}: {error}", ended.name), &[&ended.name]);
        }
        Ok(())
    }

    /// Looks at the long-lived hosts, which nobody calls any more; says how they are.
    pub(crate) fn look(&self) -> Result<String> {
        let mut text = Vec::new();
        for (calm, host) in lock(&self.calm).iter_mut().zip(&self.hosts) {
            let host = Arc::clone(&lock(host));
            let back =
                eventually("its descriptors are as before", || Ok(host.descriptors()? <= calm.descriptors));
            if back.is_err() {
                let (now, before) = (host.descriptors()?, calm.descriptors);
                self.account
                    .left(format!("{} has {now} descriptors and had {before}", host.name), &[&host.name]);
            }
            let now = host.resident_kib()?;
            calm.resident_kib.push(now);
            text.push(format!("{} descriptors and {} MiB", host.descriptors()?, now / 1024));
        }
        Ok(text.join(", "))
    }

    /// Ends all hosts, and looks whether anything is left of anybody.
    pub(crate) fn close(self) -> Result<()> {
        let Self { place, account, .. } = self;
        for calm in lock(&self.calm).iter() {
            // The first rounds show how much it needs.
            let first = &calm.resident_kib[..calm.resident_kib.len().div_ceil(3)];
            let before = first.iter().max().context("no round")?;
            let now = calm.resident_kib.last().context("no round")?;
            if *now > before + GROWTH_KIB {
                account.left(format!("a host has {now} KiB of memory and had {before}"), &[]);
            }
        }
        let end = |host: &Host, signal| {
            host.stop(signal).unwrap_or_else(|wrong| account.wrong(&wrong, &[&host.name]));
        };
        for host in &self.hosts {
            end(&lock(host), None);
        }
        // What was killed last is left to the next start.
        let last = Host::start(place, HostKind::Demo, "the last host".into())?;
        let is_own = |name: &String| [&last.socket, &last.schema].iter().any(|path| path.ends_with(name));
        // If not, the files are named below.
        _ = eventually("only a live session has files", || Ok(place.files()?.iter().all(is_own)));
        end(&last, Some(Signal::TERM));
        for left in place.files()? {
            account.left(format!("the file `{left}`"), &[]);
        }
        for left in place.processes()? {
            account.left(format!("the process {left}"), &[]);
        }
        Ok(())
    }

    fn befall(&self, host: &Host, fate: Count, random: &mut Rng) -> Result<()> {
        // The benchmark's parent knows of no signal.
        let is_deaf = host.kind == HostKind::Parent && fate == Count::HostsTerminated;
        let fate = if is_deaf { Count::HostsClosed } else { fate };
        self.account.add(fate, 1);
        self.account.note(&host.name, fate.to_string());
        match fate {
            Count::HostsKilled => host.kill()?,
            Count::HostsTerminated => return host.stop(Some(Signal::TERM)),
            Count::HostsClosed => return host.stop(None),
            Count::HostsHalted => host.halt(millis(random, 20..=400))?,
            _ => host.halt(millis(random, 2500..=4000))?,
        }
        self.account.note(&host.name, "that is over");
        Ok(())
    }
}
