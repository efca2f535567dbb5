//! Statistics of a run: counts, the last events, and faults.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Error;

use crate::host::lock;

/// How many events are kept.
const EVENTS: usize = 50_000;

/// How many of them are shown with a fault, per client and host.
const SHOWN: usize = 20;

/// How many faults are printed; further ones are only counted.
const PRINTED: u64 = 10;

macro_rules! counts {
    ($($count:ident: $label:literal,)*) => {
        /// What is counted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Count { $($count,)* }

        /// All counts with their labels, in the order of the table.
        const ALL: &[(Count, &str)] = &[$((Count::$count, $label),)*];
    };
}

counts! {
    Calls: "calls",
    Right: "right",
    Explained: "errors that a host's trouble explains",
    Cancelled: "cancelled, and not answered",
    Gone: "under way when their bridge was ended",
    BridgesDone: "bridges ended: in good order",
    BridgesClosed: "bridges ended: stdin closed with calls under way",
    BridgesHungUp: "bridges ended: client gone",
    BridgesTerminated: "bridges ended: SIGTERM",
    BridgesKilled: "bridges ended: kill -9",
    BridgesStranded: "bridges ended: their host was gone before they began",
    HostsClosed: "hosts: stdin closed",
    HostsTerminated: "hosts: SIGTERM",
    HostsKilled: "hosts: kill -9",
    HostsHalted: "hosts: SIGSTOP for a moment, which costs nothing",
    HostsStopped: "hosts: SIGSTOP for seconds",
    Wrong: "wrong",
    Unanswered: "unanswered",
    Left: "left behind",
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ALL[*self as usize].1)
    }
}

/// The statistics of a run, shared by all threads.
pub(crate) struct Account {
    seed: u64,
    started: Instant,
    counts: Vec<AtomicU64>,
    events: Mutex<VecDeque<(Duration, String, String)>>,
}

impl Account {
    pub(crate) fn new(seed: u64) -> Self {
        let counts = ALL.iter().map(|_| AtomicU64::new(0)).collect();
        Self { seed, started: Instant::now(), counts, events: Mutex::default() }
    }

    pub(crate) fn add(&self, count: Count, more: u64) -> u64 {
        self.counts[count as usize].fetch_add(more, Ordering::Relaxed)
    }

    pub(crate) fn get(&self, count: Count) -> u64 {
        self.add(count, 0)
    }

    /// Records an event of a client or host.
    pub(crate) fn note(&self, who: &str, what: impl Into<String>) {
        let mut events = lock(&self.events);
        if events.len() == EVENTS {
            events.pop_front();
        }
        events.push_back((self.started.elapsed(), who.to_owned(), what.into()));
    }

    /// Counts a fault, and prints it with the events before it.
    pub(crate) fn wrong(&self, wrong: &Error, who: &[&str]) {
        let printed = self.bad();
        self.add(wrong.downcast_ref().copied().unwrap_or(Count::Wrong), 1);
        if printed >= PRINTED {
            return;
        }
        let at = self.started.elapsed().as_secs_f64();
        let mut text = format!("WRONG at {at:.3} s, seed {}: {wrong:#}\n", self.seed);
        let events = lock(&self.events);
        for who in who {
            let last: Vec<_> = events.iter().rev().filter(|(_, whose, _)| whose == who).take(SHOWN).collect();
            for (at, who, what) in last.iter().rev() {
                text += &format!("  {:>9.3} s  {who}: {what}\n", at.as_secs_f64());
            }
        }
        eprint!("{text}");
    }

    /// Counts something that was left behind.
    pub(crate) fn left(&self, what: String, who: &[&str]) {
        self.wrong(&Error::msg(what).context(Count::Left), who);
    }

    /// The number of faults.
    pub(crate) fn bad(&self) -> u64 {
        [Count::Wrong, Count::Unanswered, Count::Left].into_iter().map(|count| self.get(count)).sum()
    }

    /// The calls without a counted end.
    pub(crate) fn uncounted(&self) -> u64 {
        let ends = [Count::Right, Count::Explained, Count::Cancelled, Count::Gone];
        self.get(Count::Calls).abs_diff(ends.into_iter().map(|count| self.get(count)).sum())
    }

    pub(crate) fn table(&self) -> String {
        ALL.iter().map(|(count, label)| format!("{:>12}  {label}\n", self.get(*count))).collect()
    }
}
