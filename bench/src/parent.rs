//! Controls the program with our tools.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::process::Process;

/// A running `bench-parent`.
pub(crate) struct Parent(pub(crate) Process);

/// The files of a session.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct SessionPaths {
    pub(crate) socket: PathBuf,
    pub(crate) schema: PathBuf,
}

/// A session that was just started, and the times in seconds.
#[derive(Deserialize)]
pub(crate) struct Started {
    #[serde(flatten)]
    pub(crate) session: SessionPaths,
    #[serde(rename = "register_seconds")]
    pub(crate) register: f64,
    #[serde(rename = "start_seconds")]
    pub(crate) start: f64,
}

impl Parent {
    /// Starts the program, with `names` as its directory for names.
    pub(crate) fn start(program: &Path, names: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.env("XDG_RUNTIME_DIR", names);
        Ok(Self(Process::start("bench-parent", command)?))
    }

    /// Starts a session with that many tools, called `name`.
    pub(crate) fn name_session(&mut self, tools: usize, name: &str) -> Result<()> {
        self.tell(&format!("name {tools} {name}")).map(|IgnoredAny| ())
    }

    /// Starts a session with that many tools.
    pub(crate) fn start_session(&mut self, tools: usize) -> Result<Started> {
        self.tell(&format!("start {tools}"))
    }

    /// Stops the session that was started last.
    pub(crate) fn stop_session(&mut self) -> Result<()> {
        self.tell("stop").map(|IgnoredAny| ())
    }

    /// Makes a request, with a program instead of the CLI.
    pub(crate) fn ask(&mut self, cli: &Path) -> Result<()> {
        self.tell(&format!("ask {}", cli.display())).map(|IgnoredAny| ())
    }

    fn tell<T: DeserializeOwned>(&mut self, order: &str) -> Result<T> {
        self.0.send(format!("{order}\n").as_bytes())?;
        serde_json::from_slice(self.0.line()?).with_context(|| format!("`{order}` has no answer"))
    }
}
