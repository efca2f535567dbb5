//! Third-party servers, which `cargo xtask test` installs.

use std::path::PathBuf;

use crate::cli::under_target;

/// `mcp-server-time`, from `PyPI`: a server in Python.
///
/// # Panics
///
/// If it is not installed: a test without it must not pass.
#[must_use]
pub fn time_server() -> PathBuf {
    installed("venv/bin/mcp-server-time")
}

/// `@modelcontextprotocol/server-everything`, from npm: a server for Node.
///
/// # Panics
///
/// If it is not installed: a test without it must not pass.
#[must_use]
pub fn everything_server() -> PathBuf {
    installed("servers/mcp-server-everything")
}

/// `nats-server`, from `PyPI`.
///
/// # Panics
///
/// If it is not installed: a test without it must not pass.
#[must_use]
pub fn nats_server() -> PathBuf {
    installed("nats/bin/nats-server")
}

fn installed(path: &str) -> PathBuf {
    let found = under_target(|target| Some(target.join(path)).filter(|path| path.is_file()));
    found.unwrap_or_else(|| panic!("there is no target/{path}; run `cargo xtask test` once: it installs it"))
}
