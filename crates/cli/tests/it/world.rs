//! The directories of a user who has nothing yet.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use toolbridge_scripted::processes_of;

use crate::support::{McpClient, eventually, files, toolbridge};

/// How long anything may be there after the end; a little more than is promised, for a busy machine.
pub(crate) const AFTERWARDS: Duration = Duration::from_secs(4);

/// A user's directories, of names and of sessions. Whatever is started here has their path in its environment.
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
            // The other directory of names.
            sessions.retain(|name| !name.starts_with("toolbridge-"));
            let names = self.names();
            processes_of(self.0.path()).next().is_some()
                || !sessions.is_empty()
                || (names.exists() && !files(&names).is_empty())
        };
        eventually("nothing is left", AFTERWARDS, || !is_left());
    }
}
