//! The tests' Python environments, under `target/`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};

use crate::project::{Project, run};

/// The interpreters to look for.
pub const INTERPRETERS: &[&str] = &["python3", "python3.11", "python3.12", "python3.13", "python"];

/// The same, newest first, so that more than one version is tested where there are several.
const NEWEST_FIRST: &[&str] = &["python3.13", "python3.12", "python3", "python3.11", "python"];

/// A virtual environment: its folder under `target/`, and its packages from `PyPI`, with pinned versions, so
/// that runs are reproducible.
pub struct Environment {
    /// The folder under `target/`.
    pub folder: &'static str,
    /// The file that pins its packages, relative to the root.
    pub requirements: &'static str,
    /// The interpreters to look for; the first that is new enough is used.
    pub interpreters: &'static [&'static str],
}

/// The official MCP client, and the real CLI.
pub const CLIENT: Environment =
    Environment { folder: "venv", requirements: "tests/python/requirements.txt", interpreters: INTERPRETERS };

/// The newest pydantic-ai, and the tools that build and check the Python package.
pub const NEWEST: Environment = Environment {
    folder: "venv-newest",
    requirements: "crates/python/tests/requirements/newest.txt",
    interpreters: INTERPRETERS,
};

/// The oldest supported pydantic-ai.
pub const OLDEST: Environment = Environment {
    folder: "venv-oldest",
    requirements: "crates/python/tests/requirements/oldest.txt",
    interpreters: NEWEST_FIRST,
};

impl Environment {
    /// Creates the environment if it is missing or its requirements have changed; returns its interpreter.
    ///
    /// # Errors
    ///
    /// When there is no Python 3.11 or newer, or the packages cannot be installed.
    pub fn install(&self, project: &Project) -> Result<PathBuf> {
        let requirements = project.root.join(self.requirements);
        let wanted = std::fs::read_to_string(&requirements)
            .with_context(|| format!("cannot read {}", self.requirements))?;
        let venv = project.target.join(self.folder);
        let python = venv.join("bin/python");
        let stamp = venv.join("requirements.txt");
        if python.exists() && std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
            return Ok(python);
        }
        _ = std::fs::remove_dir_all(&venv);
        run(Command::new(uv(project)?)
            .args(["venv", "--quiet", "--python", found(self.interpreters)?])
            .arg(&venv))?;
        run(install(project, &python)?.arg("-r").arg(requirements))?;
        std::fs::write(stamp, wanted)?;
        Ok(python)
    }
}

/// `pip install` for that interpreter, by uv, which takes a quarter of the CPU time.
///
/// # Errors
///
/// When uv cannot be installed.
pub fn install(project: &Project, python: &Path) -> Result<Command> {
    let mut command = Command::new(uv(project)?);
    // As pip does: modules are compiled, and the system's certificates are trusted.
    command
        .args(["pip", "install", "--quiet", "--compile-bytecode", "--system-certs", "--python"])
        .arg(python);
    Ok(command)
}

/// The package on `PyPI`.
const UV: &str = "uv==0.13.8";

/// Installs uv under `target/`, unless it exists; returns its path.
fn uv(project: &Project) -> Result<PathBuf> {
    // Environments are installed at the same time.
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _installing = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = project.target.join("uv");
    let stamp = folder.join("requirements.txt");
    if !std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == UV) {
        _ = std::fs::remove_dir_all(&folder);
        run(Command::new(found(INTERPRETERS)?).args(["-m", "venv"]).arg(&folder))?;
        let mut pip = Command::new(folder.join("bin/python"));
        run(pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", UV]))?;
        std::fs::write(stamp, UV)?;
    }
    Ok(folder.join("bin/uv"))
}

/// The first interpreter that is new enough.
fn found(interpreters: &[&'static str]) -> Result<&'static str> {
    let mut interpreters = interpreters.iter().copied();
    let found = interpreters.find(|name| is_new_enough(name));
    found.context("the tests need Python 3.11 or newer: install it, with its venv module")
}

fn is_new_enough(python: &str) -> bool {
    let check = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))";
    Command::new(python).args(["-c", check]).output().is_ok_and(|output| output.status.success())
}
