//! Who is compared, and what they need around them.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;
use tempfile::TempDir;

use super::call::schema_of;
use super::client::Client;
use super::peer::Peer;
use super::program::Programs;

/// Tools in the large schema file.
pub(crate) const MANY_TOOLS: usize = 1000;

const LINES_SOCKET: &str = "lines.sock";
const FRAMES_SOCKET: &str = "frames.sock";
const MANY_SCHEMA: &str = "many.json";

/// What stands between the client and a parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contender {
    /// The C relay, and a parent that does nothing.
    Floor,
    /// The bridge, and a parent that does nothing.
    Bridge,
    /// The bridge, and the parent of this project with a typed handler.
    BridgeAndParent,
}

impl Contender {
    pub(crate) const ALL: [Self; 3] = [Self::Floor, Self::Bridge, Self::BridgeAndParent];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Bridge => "bridge",
            Self::BridgeAndParent => "bridge+parent",
        }
    }
}

/// Which schema file a bridge gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schema {
    /// That of the demo's few tools.
    Demo,
    /// One of [`MANY_TOOLS`] tools.
    Many,
}

/// The parents, running, and the files they and the bridges need. All of it is gone when this is dropped.
pub(crate) struct Stage<'a> {
    programs: &'a Programs,
    own_socket: PathBuf,
    demo_schema: PathBuf,
    _parents: [Peer; 3],
    // After the parents: what is in it is theirs.
    dir: TempDir,
}

impl<'a> Stage<'a> {
    pub(crate) fn set(programs: &'a Programs) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("toolbridge-bench-").tempdir()?;
        std::fs::write(dir.path().join(MANY_SCHEMA), schema_of(MANY_TOOLS))?;
        let null_parent = |name, kind, socket| {
            let mut command = Command::new(&programs.floor);
            command.arg(kind).arg(dir.path().join(socket));
            start_parent(name, command)
        };
        let (lines, _) = null_parent("the floor's parent", "lines", LINES_SOCKET)?;
        let (frames, _) = null_parent("the bridge's parent", "frames", FRAMES_SOCKET)?;
        let mut demo = toolbridge(programs);
        demo.args(["demo", "--serve"]);
        let (own, hello) = start_parent("toolbridge demo --serve", demo)?;
        let hello: Value = serde_json::from_slice(&hello).context("the demo's first line is not JSON")?;
        let path = |key: &str| {
            hello[key]
                .as_str()
                .map(PathBuf::from)
                .with_context(|| format!("the demo does not tell its `{key}`"))
        };
        let (own_socket, demo_schema) = (path("socket")?, path("schema")?);
        Ok(Self { programs, own_socket, demo_schema, _parents: [lines, frames, own], dir })
    }

    /// How a contender is started.
    pub(crate) fn command(&self, contender: Contender, schema: Schema) -> Command {
        let within = |name: &str| self.dir.path().join(name);
        let socket = match contender {
            Contender::Floor => {
                let mut command = Command::new(&self.programs.floor);
                command.arg("relay").arg(within(LINES_SOCKET));
                return command;
            }
            Contender::Bridge => within(FRAMES_SOCKET),
            Contender::BridgeAndParent => self.own_socket.clone(),
        };
        let mut command = toolbridge(self.programs);
        command.arg("bridge").arg(socket).arg(match schema {
            Schema::Demo => self.demo_schema.clone(),
            Schema::Many => within(MANY_SCHEMA),
        });
        command
    }

    /// Starts all contenders.
    pub(crate) fn clients(&self) -> Result<Vec<Client>> {
        Contender::ALL.into_iter().map(|contender| self.client(contender)).collect()
    }

    /// Starts a contender that is ready for calls.
    pub(crate) fn client(&self, contender: Contender) -> Result<Client> {
        let mut client = Client::new(Peer::start(contender.name(), self.command(contender, Schema::Demo))?);
        if contender != Contender::Floor {
            client.list_tools()?;
        }
        Ok(client)
    }
}

fn toolbridge(programs: &Programs) -> Command {
    let mut command = Command::new(&programs.toolbridge);
    // A log would be measured too.
    command.env_remove("TOOLBRIDGE_LOG");
    command
}

/// Starts a parent and waits for the line that says it is there.
fn start_parent(name: &'static str, command: Command) -> Result<(Peer, Vec<u8>)> {
    let mut parent = Peer::start(name, command)?;
    let hello = parent.line()?.to_vec();
    Ok((parent, hello))
}
