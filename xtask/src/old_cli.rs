//! Old versions of the Claude Code CLI, under `target/`, for the tests that run with every version.

use std::path::{Path, PathBuf};

use anyhow::Result;
use xtask::project::Project;

use crate::node;

/// These are Node programs. The newest is a native executable, and comes from `PyPI`.
pub(crate) const VERSIONS: [&str; 2] = [OLDEST, "2.1.50"];

pub(crate) const OLDEST: &str = "2.0.0";

/// Names the CLI to test with.
pub(crate) const VARIABLE: &str = "TOOLBRIDGE_TEST_CLAUDE";

/// Installs one of them, with the Node from the tests' Python packages; returns its executable.
pub(crate) fn install(project: &Project, python: &Path, version: &str) -> Result<PathBuf> {
    let folder = project.target.join("cli").join(version);
    let program = folder.join("claude");
    if program.exists() {
        return Ok(program);
    }
    node::install(python, &folder, &[&format!("@anthropic-ai/claude-code@{version}")])?;
    node::launcher(python, &program, &folder.join("node_modules/@anthropic-ai/claude-code/cli.js"))?;
    Ok(program)
}
