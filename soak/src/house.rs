//! All hosts, and their faults.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context as _, Result};
use fastrand::Rng;
use rustix::process::Signal;

use crate::account::{Account, Count};
use crate::host::{Host, HostKind, Place, eventually, lock};
use crate::random::{millis, pick, weighed};

/// The programs of the hosts. The first ones live as long as the run, and are checked for leaks.
const KINDS: [HostKind; 6] =
    [HostKind::Demo, HostKind::Parent, HostKind::Demo, HostKind::Demo, HostKind::Demo, HostKind::Parent];
const LONG_LIVED: usize = 2;

/// Growth above this is not explained by fragmentation.
const GROWTH_KIB: u64 = 8 * 1024;

/// The faults of a host, and their weights.
const FATES: [(usize, Count); 5] = [
    (4, Count::HostsKilled),
    (2, Count::HostsTerminated),
    (2, Count::HostsClosed),
    (2, Count::HostsHalted),
    (1, Count::HostsStopped),
];
const FATES_OF_LONG_LIVED: [(usize, Count); 2] = [(3, Count::HostsHalted), (1, Count::HostsStopped)];

/// The resources of a long-lived host while it is not called.
struct Calm {
    descriptors: usize,
    /// After each round.
    resident_kib: Vec<u64>,
}

pub(crate) struct House<'a> {
    pub(crate) place: &'a Place,
    pub(crate) account: &'a Account,
    hosts: Vec<Mutex<Arc<Host>>>,
    /// The number of replaced hosts.
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

    /// A host that runs, or did a moment ago.
    pub(crate) fn pick(&self, random: &mut Rng) -> Arc<Host> {
        Arc::clone(&lock(pick(random, &self.hosts)))
    }

    pub(crate) fn slots(&self) -> std::ops::Range<usize> {
        0..self.hosts.len()
    }

    /// Injects faults into one host, and into its successors, until that time.
    pub(crate) fn trouble(&self, slot: usize, random: &mut Rng, until: Instant) -> Result<()> {
        loop {
            let pause = millis(random, 200..=if slot < LONG_LIVED { 10_000 } else { 4000 });
            if Instant::now() + pause >= until {
                return Ok(());
            }
            std::thread::sleep(pause);
            let host = Arc::clone(&lock(&self.hosts[slot]));
            let fate = weighed(random, if slot < LONG_LIVED { &FATES_OF_LONG_LIVED[..] } else { &FATES });
            if let Err(wrong) = self.inject(&host, fate, random) {
                self.account.wrong(&wrong, &[&host.name]);
            }
            if host.troubles.has_ended() {
                self.replace(slot, &host)?;
            }
        }
    }

    /// Starts another host in place of one that has ended, which also removes the files of that one.
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

    /// Checks the long-lived hosts while they are not called; returns a summary.
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

    /// Ends all hosts, and checks that nothing is left.
    pub(crate) fn close(self) -> Result<()> {
        let Self { place, account, .. } = self;
        for calm in lock(&self.calm).iter() {
            // The first rounds show its normal use.
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
        // The next start removes the files of hosts that were killed last.
        let last = Host::start(place, HostKind::Demo, "the last host".into())?;
        let is_own = |name: &String| [&last.socket, &last.schema].iter().any(|path| path.ends_with(name));
        // On a timeout, the files are reported below.
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

    fn inject(&self, host: &Host, fate: Count, random: &mut Rng) -> Result<()> {
        // The benchmark's parent does not handle signals.
        let ignores_signals = host.kind == HostKind::Parent && fate == Count::HostsTerminated;
        let fate = if ignores_signals { Count::HostsClosed } else { fate };
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
