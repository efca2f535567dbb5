//! The machine that the figures are from.

use anyhow::{Context as _, Result};

pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) kernel: String,
}

impl Machine {
    pub(crate) fn read() -> Result<Self> {
        let read = |path: &str| std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"));
        // Some architectures name no model.
        let cpu = read("/proc/cpuinfo")?
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
            .map_or(std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned());
        let cores = std::thread::available_parallelism()?.get();
        let kernel = format!("Linux {}", read("/proc/sys/kernel/osrelease")?.trim());
        Ok(Self { cpu, cores, kernel })
    }
}
