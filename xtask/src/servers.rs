//! An MCP server from npm, under `target/`, for tests with servers of others. The one from `PyPI` is in `target/venv`.

use std::path::Path;

use anyhow::Result;
use xtask::project::Project;

use crate::node;

/// A server with tools of many kinds, for tests of clients.
const PACKAGES: &[&str] = &["@modelcontextprotocol/server-everything@2026.8.31"];

/// Installs it as `target/servers/mcp-server-everything`.
pub(crate) fn install(project: &Project, python: &Path) -> Result<()> {
    let folder = project.target.join("servers");
    node::install_once(python, &folder, PACKAGES)?;
    let script = folder.join("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    node::launcher(python, &folder.join("mcp-server-everything"), &script)
}
