//! Downloads for the tests, under `target/`: fetched once, while the compiler runs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

use anyhow::{Result, anyhow};
use xtask::python;

use super::part::Stage;
use crate::conformance::Suite;
use crate::{debian, old_cli, servers};

/// Something to download.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// The official MCP client, and the newest Claude Code CLI.
    Client,
    /// The newest pydantic-ai, and the tools that build and check the Python package.
    Newest,
    /// The oldest pydantic-ai.
    Oldest,
    /// The oldest version of the CLI.
    OldCli,
    /// strace, and what the CLI's sandbox needs.
    Strace,
    /// MCP's conformance suite.
    Conformance,
    /// An MCP server from npm.
    Servers,
}

impl Need {
    /// Fetches it, if it is missing.
    pub(crate) fn install(self, stage: &Stage<'_>) -> Result<()> {
        match self {
            Self::Client => stage.client().map(drop),
            Self::Newest => stage.newest().map(drop),
            Self::Oldest => stage.oldest().map(drop),
            Self::OldCli => stage.old_cli(old_cli::OLDEST).map(drop),
            Self::Strace => stage.path().map(drop),
            Self::Conformance => stage.conformance().map(drop),
            Self::Servers => stage.servers(),
        }
    }
}

/// The installed things. A caller that comes during a download waits for it.
#[derive(Default)]
pub(crate) struct Setup {
    client: Once<PathBuf>,
    newest: Once<PathBuf>,
    oldest: Once<PathBuf>,
    old_cli: [Once<PathBuf>; old_cli::VERSIONS.len()],
    path: Once<OsString>,
    conformance: Once<Suite>,
    servers: Once<()>,
}

/// Errors are kept as text, because several parts may need the same thing.
type Once<T> = OnceLock<Result<T, String>>;

fn once<T: Clone>(cell: &Once<T>, install: impl FnOnce() -> Result<T>) -> Result<T> {
    cell.get_or_init(|| install().map_err(|error| format!("{error:#}")))
        .clone()
        .map_err(|error| anyhow!(error))
}

impl Stage<'_> {
    /// The interpreter of the official MCP client.
    pub(crate) fn client(&self) -> Result<PathBuf> {
        once(&self.setup.client, || python::CLIENT.install(self.project))
    }

    /// The interpreter with the newest pydantic-ai.
    pub(crate) fn newest(&self) -> Result<PathBuf> {
        once(&self.setup.newest, || python::NEWEST.install(self.project))
    }

    /// The interpreter with the oldest pydantic-ai.
    pub(crate) fn oldest(&self) -> Result<PathBuf> {
        once(&self.setup.oldest, || python::OLDEST.install(self.project))
    }

    /// The executable of an old version of the CLI.
    pub(crate) fn old_cli(&self, version: &str) -> Result<PathBuf> {
        let known = old_cli::VERSIONS.iter().position(|known| *known == version);
        let place = known.ok_or_else(|| anyhow!("no test is made for Claude Code {version}"))?;
        let install = || old_cli::install(self.project, &self.client()?, version);
        once(&self.setup.old_cli[place], install)
    }

    /// MCP's conformance suite.
    pub(crate) fn conformance(&self) -> Result<Suite> {
        once(&self.setup.conformance, || Suite::install(self.project, &self.client()?))
    }

    /// An MCP server from npm.
    pub(crate) fn servers(&self) -> Result<()> {
        once(&self.setup.servers, || servers::install(self.project, &self.client()?))
    }

    /// A PATH with strace, and with what the CLI's sandbox needs.
    pub(crate) fn path(&self) -> Result<OsString> {
        once(&self.setup.path, || debian::path(&self.project.target))
    }
}
