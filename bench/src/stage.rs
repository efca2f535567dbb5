//! What the contenders need: parents, files, environments.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::call::Dialect;
use crate::client::Client;
use crate::contender::Contender;
use crate::environment::Runtime;
use crate::parent::{Parent, SessionPaths};
use crate::process::{PATIENCE, Process};
use crate::program::Programs;

/// The tools that are called: every contender has these.
pub(crate) const FEW_TOOLS: usize = 3;

/// Tools in the large schema file.
pub(crate) const MANY_TOOLS: usize = 1000;

const LINES_SOCKET: &str = "lines.sock";
const FRAMES_SOCKET: &str = "frames.sock";
const PYTHON_SOCKET: &str = "python.sock";

/// The sessions with few and with many tools.
type Sessions = [SessionPaths; 2];

/// The running parents, and the files for them and the bridges. Dropping it removes everything.
pub(crate) struct Stage<'a> {
    pub(crate) programs: &'a Programs,
    pub(crate) contenders: &'a [Contender],
    pub(crate) parent: Parent,
    sessions: Sessions,
    python: Option<SessionPaths>,
    /// The program of an earlier build, running.
    before: Option<(Parent, Sessions)>,
    _others: Vec<Process>,
    // Dropped after the parents, whose files it contains.
    dir: TempDir,
}

impl<'a> Stage<'a> {
    pub(crate) fn set(programs: &'a Programs, contenders: &'a [Contender]) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("toolbridge-bench-").tempdir()?;
        let mut others = Vec::new();
        for (name, kind, socket) in
            [("the floor's parent", "lines", LINES_SOCKET), ("the bridge's parent", "frames", FRAMES_SOCKET)]
        {
            let mut command = Command::new(&programs.floor);
            command.arg(kind).arg(dir.path().join(socket));
            others.push(ready(name, command)?.0);
        }
        let (mut parent, sessions) = host(&programs.parent, dir.path())?;
        if contenders.contains(&Contender::Attached) {
            for tools in [FEW_TOOLS, MANY_TOOLS] {
                parent.name_session(tools, &tools.to_string())?;
            }
        }
        if contenders.contains(&Contender::PythonBridge) {
            let mut command = programs.python(Runtime::Mcp, "python_parent.py")?;
            command.arg(dir.path().join(PYTHON_SOCKET));
            others.push(ready("the parent in Python", command)?.0);
        }
        let mut python = None;
        if contenders.contains(&Contender::BridgeAndPython) {
            let command = programs.python(Runtime::Toolbridge, "toolbridge_session.py")?;
            let (process, said) = ready("toolbridge.Session", command)?;
            others.push(process);
            python = Some(serde_json::from_slice(&said)?);
        }
        let before = programs.before.as_ref().map(|[_, program]| host(program, dir.path())).transpose()?;
        Ok(Self { programs, contenders, parent, sessions, python, before, _others: others, dir })
    }

    fn within(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The command of a contender with [`FEW_TOOLS`] or [`MANY_TOOLS`]; `None` if it has none.
    pub(crate) fn command(&self, contender: Contender, tools: usize) -> Result<Option<Command>> {
        let place = usize::from(tools == MANY_TOOLS);
        let own = &self.sessions[place];
        let relay = |how| {
            let mut command = Command::new(&self.programs.floor);
            command.arg(how).arg(self.within(LINES_SOCKET));
            command
        };
        let cheap = SessionPaths { socket: self.within(FRAMES_SOCKET), schema: own.schema.clone() };
        Ok(Some(match contender {
            Contender::Floor => relay("relay"),
            Contender::BusyFloor => relay("busy"),
            Contender::Bridge => self.bridge(&cheap),
            Contender::WholeBridge => bridge(&self.programs.toolbridge, &cheap),
            Contender::BridgeAndParent => self.bridge(own),
            Contender::Attached => {
                let mut command = Command::new(&self.programs.bridge);
                command.arg("attach").arg(tools.to_string()).env("XDG_RUNTIME_DIR", self.dir.path());
                command.env_remove("TOOLBRIDGE_LOG").env_remove("TOOLBRIDGE_TRACE");
                command
            }
            Contender::Sdk => return Ok(None),
            Contender::BridgeAndPython => self.bridge(self.python.as_ref().context("no session in Python")?),
            Contender::Before | Contender::BeforeAndParent => {
                let [executable, _] = self.programs.before.as_ref().context("no earlier build")?;
                let (_, sessions) = self.before.as_ref().context("no earlier parent")?;
                bridge(executable, if contender == Contender::Before { &cheap } else { &sessions[place] })
            }
            Contender::PythonBridge => {
                let mut command = self.programs.python(Runtime::Mcp, "python_bridge.py")?;
                command.arg(self.within(PYTHON_SOCKET)).arg(&own.schema);
                command
            }
            Contender::Server | Contender::PythonMcp | Contender::FastMcp | Contender::NodeSdk => {
                self.programs.server(contender, tools)?
            }
        }))
    }

    /// The bridge of a session.
    pub(crate) fn bridge(&self, session: &SessionPaths) -> Command {
        bridge(&self.programs.bridge, session)
    }

    /// Starts all contenders.
    pub(crate) fn clients(&mut self) -> Result<Vec<(Contender, Client)>> {
        self.contenders.iter().map(|contender| Ok((*contender, self.client(*contender)?))).collect()
    }

    /// Starts a contender and prepares it for calls.
    pub(crate) fn client(&mut self, contender: Contender) -> Result<Client> {
        let Some(command) = self.command(contender, FEW_TOOLS)? else { return self.cli() };
        let mut client = Client::new(Process::start(contender.name, command)?);
        if !contender.is_relay() {
            client.open()?;
        }
        Ok(client)
    }

    /// Makes the parent start our program instead of the CLI.
    fn cli(&mut self) -> Result<Client> {
        let (socket, cli) = (self.within("cli.sock"), self.within("cli"));
        _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket)?;
        // The version is queried first.
        let version = r#"[ "$1" = --version ] && { echo 2.1.326; exit; }"#;
        let floor = self.programs.floor.display();
        let script = format!("#!/bin/sh\n{version}\nexec '{floor}' relay '{}'\n", socket.display());
        std::fs::write(&cli, script)?;
        std::fs::set_permissions(&cli, std::fs::Permissions::from_mode(0o700))?;
        self.parent.ask(&cli)?;
        let patience = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&patience))?;
        ensure!(ready > 0, "the program was not started in place of the CLI");
        let mut process = Process::that_connected(Contender::Sdk.name, listener.accept()?.0)?;
        answer_control(&mut process, "initialize", &json!({}))?;
        let status = json!({ "mcpServers": [{ "name": "tools", "status": "connected" }] });
        answer_control(&mut process, "mcp_status", &status)?;
        // The prompt.
        process.line()?;
        let mut client = Client::speaking(Dialect::Control, process);
        client.open()?;
        Ok(client)
    }
}

/// The command of a bridge executable for a session.
fn bridge(executable: &Path, session: &SessionPaths) -> Command {
    let mut command = Command::new(executable);
    command.arg("bridge").arg(&session.socket).arg(&session.schema);
    // Logging and tracing would be measured too.
    command.env_remove("TOOLBRIDGE_LOG").env_remove("TOOLBRIDGE_TRACE");
    command
}

/// Answers the next control request.
fn answer_control(process: &mut Process, subtype: &str, response: &Value) -> Result<()> {
    let asked: Value = serde_json::from_slice(process.line()?)?;
    ensure!(asked["request"]["subtype"] == subtype, "expected a `{subtype}` request: {asked}");
    let response = json!({ "subtype": "success", "request_id": asked["request_id"], "response": response });
    process.send(format!("{}\n", json!({ "type": "control_response", "response": response })).as_bytes())
}

/// A running program with tools, and its sessions.
fn host(program: &Path, names: &Path) -> Result<(Parent, Sessions)> {
    let mut parent = Parent::start(program, names)?;
    let sessions = [parent.start_session(FEW_TOOLS)?.session, parent.start_session(MANY_TOOLS)?.session];
    Ok((parent, sessions))
}

/// Starts a parent and waits for its first line.
fn ready(name: &'static str, command: Command) -> Result<(Process, Vec<u8>)> {
    let mut process = Process::start(name, command)?;
    let said = process.line()?.to_vec();
    Ok((process, said))
}
