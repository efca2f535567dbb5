//! The directories of a new user.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use toolbridge_scripted::processes_of;

use crate::support::{McpClient, eventually, files, toolbridge};

/// How long files and processes may remain after the end; a little more than documented, for a busy machine.
pub(crate) const AFTERWARDS: Duration = Duration::from_secs(4);

/// A user's directories for names and for sessions. Every process started here has their path in its
/// environment.
pub(crate) struct World(pub(crate) TempDir);

impl World {
    pub(crate) fn new() -> Self {
        let world = Self(TempDir::new().unwrap());
        std::fs::create_dir(world.sessions()).unwrap();
        world
    }

    pub(crate) fn sessions(&self) -> PathBuf {
        self.0.path().join("tmp")
    }

    pub(crate) fn names(&self) -> PathBuf {
        self.0.path().join("toolbridge")
    }

    pub(crate) fn toolbridge(&self, args: &[&str]) -> Command {
        let mut command = toolbridge();
        command.env("XDG_RUNTIME_DIR", self.0.path()).env("TMPDIR", self.sessions()).args(args);
        command
    }

    pub(crate) fn attach(&self, names: &[&str]) -> McpClient {
        let mut command = self.toolbridge(&["attach"]);
        command.args(names);
        let mut client = McpClient::start_command(command);
        client.initialize();
        client
    }

    #[track_caller]
    pub(crate) fn nothing_is_left(&self) {
        let is_left = || {
            let mut sessions = files(&self.sessions());
            // The other directory for names.
            sessions.retain(|name| !name.starts_with("toolbridge-"));
            let names = self.names();
            processes_of(self.0.path()).next().is_some()
                || !sessions.is_empty()
                || (names.exists() && !files(&names).is_empty())
        };
        eventually("nothing is left", AFTERWARDS, || !is_left());
    }
}
