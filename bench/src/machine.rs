//! The machine of the measurements.

use anyhow::{Context as _, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

#[derive(Default, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
    /// The load average of the last minute.
    pub(crate) load: f64,
}

impl Machine {
    pub(crate) fn read() -> Result<Self> {
        let read = |path: &str| std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
        // Some architectures have no model name.
        let cpu = read("/proc/cpuinfo")?
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
            .map_or(std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned());
        let cores = std::thread::available_parallelism()?.get();
        let kernel = format!("Linux {}", read("/proc/sys/kernel/osrelease")?.trim());
        let load = read("/proc/loadavg")?;
        let load =
            load.split(' ').next().and_then(|load| load.parse().ok()).context("no load in /proc/loadavg")?;
        Ok(Self { cpu, cores, kernel, load })
    }
}

/// Pins this process, and its children, to one CPU until it is dropped.
pub(crate) struct OneCpu {
    before: CpuSet,
}

impl OneCpu {
    pub(crate) fn new() -> Result<Self> {
        let before = sched_getaffinity(None).context("cannot tell which CPUs there are")?;
        // The last one: the first handles the interrupts.
        let last = (0..CpuSet::MAX_CPU).rev().find(|cpu| before.is_set(*cpu)).context("there is no CPU")?;
        let mut one = CpuSet::new();
        one.set(last);
        sched_setaffinity(None, &one).context("cannot keep to one CPU")?;
        Ok(Self { before })
    }
}

impl Drop for OneCpu {
    fn drop(&mut self) {
        if let Err(error) = sched_setaffinity(None, &self.before) {
            eprintln!("warning: the rest is measured on one CPU too: {error}");
        }
    }
}
