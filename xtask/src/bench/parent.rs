//! The program with our tools, under our orders.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::process::Process;

/// `bench-parent`, running.
pub(crate) struct Parent {
    process: Process,
}

/// Where a session is.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) socket: PathBuf,
    pub(crate) schema: PathBuf,
}

/// A session that was just started, and what that took in seconds.
pub(crate) struct Started {
    pub(crate) session: Session,
    pub(crate) register: f64,
    pub(crate) start: f64,
}

impl Parent {
    pub(crate) fn start(program: &Path) -> Result<Self> {
        Ok(Self { process: Process::start("bench-parent", Command::new(program))? })
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// Starts a session with so many tools.
    pub(crate) fn start_session(&mut self, tools: usize) -> Result<Started> {
        let said = self.tell(&format!("start {tools}"))?;
        let seconds = |key: &str| said[key].as_f64().with_context(|| format!("no `{key}` in {said}"));
        let (register, start) = (seconds("register_seconds")?, seconds("start_seconds")?);
        Ok(Started { session: Session::of(&said)?, register, start })
    }

    /// Stops the session that was started last.
    pub(crate) fn stop_session(&mut self) -> Result<()> {
        self.tell("stop").map(drop)
    }

    /// Makes a request, with a program in place of the CLI.
    pub(crate) fn ask(&mut self, cli: &Path) -> Result<()> {
        self.tell(&format!("ask {}", cli.display())).map(drop)
    }

    fn tell(&mut self, order: &str) -> Result<Value> {
        let connection = self.process.connection();
        connection.send(format!("{order}\n").as_bytes())?;
        serde_json::from_slice(connection.line()?).with_context(|| format!("`{order}` has no answer"))
    }
}

impl Session {
    /// What a program says about its session.
    pub(crate) fn of(said: &Value) -> Result<Self> {
        let path = |key: &str| {
            said[key].as_str().map(PathBuf::from).with_context(|| format!("no `{key}` in {said}"))
        };
        Ok(Self { socket: path("socket")?, schema: path("schema")? })
    }
}
