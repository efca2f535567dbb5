//! The Python environment of the tests, under `target/`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// What the tests need from `PyPI`, with versions, so that a run today and a run next year are the same.
const REQUIREMENTS: &str = "tests/python/requirements.txt";

/// Interpreters that may be there, the oldest supported first.
const INTERPRETERS: [&str; 5] = ["python3", "python3.11", "python3.12", "python3.13", "python"];

/// Makes the virtual environment if it is missing or its requirements changed; returns its interpreter.
///
/// # Errors
///
/// When there is no Python 3.11 or newer, or the packages cannot be installed.
pub(crate) fn environment(root: &Path, target: &Path) -> Result<PathBuf> {
    let wanted = std::fs::read_to_string(root.join(REQUIREMENTS))
        .with_context(|| format!("cannot read {REQUIREMENTS}"))?;
    let venv = target.join("venv");
    let python = venv.join("bin/python");
    let stamp = venv.join("requirements.txt");
    if python.exists() && std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(python);
    }
    let system = INTERPRETERS
        .iter()
        .find(|name| is_new_enough(name))
        .context("the tests need Python 3.11 or newer: install it, with its venv module")?;
    _ = std::fs::remove_dir_all(&venv);
    run(Command::new(system).args(["-m", "venv"]).arg(&venv))?;
    run(Command::new(&python)
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
        .arg(root.join(REQUIREMENTS)))?;
    std::fs::write(stamp, wanted)?;
    Ok(python)
}

fn is_new_enough(python: &str) -> bool {
    let check = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))";
    Command::new(python).args(["-c", check]).output().is_ok_and(|output| output.status.success())
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?} failed with {status}");
    Ok(())
}
