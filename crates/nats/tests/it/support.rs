//! Servers, hosts, calls and waiting.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use toolbridge_core::tool::{RawJson, ToolCall};
use toolbridge_core::{CallContext, ToolError, ToolSource};
use toolbridge_nats::Tools;

/// The limit for every wait.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// A free port.
pub(crate) fn free_port() -> u16 {
    free_ports::<1>()[0]
}

/// Free ports. All are taken before one is released, so they differ.
pub(crate) fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    let listeners = [(); COUNT].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.each_ref().map(|listener| listener.local_addr().unwrap().port())
}

/// A process that ends with the test.
pub(crate) struct Process(Child);

impl Process {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A NATS server with its own configuration.
pub(crate) struct Server {
    process: Process,
    pub(crate) port: u16,
    pub(crate) folder: TempDir,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with("")
    }

    /// With additional configuration.
    pub(crate) fn with(more: &str) -> Self {
        Self::at(free_port(), more)
    }

    pub(crate) fn at(port: u16, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("nats.conf"), format!("listen: 127.0.0.1:{port}\n{more}")).unwrap();
        let process = start_server(folder.path(), port);
        Self { process, port, folder }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Restarts it on the same port.
    pub(crate) fn restart(&mut self) {
        self.process.kill();
        self.process = start_server(self.folder.path(), self.port);
    }
}

fn start_server(folder: &Path, port: u16) -> Process {
    let log = std::fs::File::options().create(true).append(true).open(folder.join("log")).unwrap();
    let mut command = Command::new(toolbridge_scripted::nats_server());
    command.arg("-c").arg(folder.join("nats.conf")).stdin(Stdio::null());
    command.stdout(log.try_clone().unwrap()).stderr(log);
    let mut process = Process(command.spawn().unwrap());
    for _ in 0..6000 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return process;
        }
        if let Some(status) = process.0.try_wait().unwrap() {
            let said = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
            panic!("the NATS server ended with {status}: {said}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the NATS server does not listen");
}

/// A host in a separate process.
pub(crate) struct HostProcess(Process);

impl HostProcess {
    pub(crate) fn start(url: &str, name: &str, host: &str, more: &[&str]) -> Self {
        let tests = std::env::current_exe().unwrap();
        let program = tests.parent().unwrap().parent().unwrap().join("examples/test_host");
        let mut command = Command::new(program);
        command.args([url, name, host]).args(more).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let host = Self(Process(child));
        assert_eq!(line, "ready\n");
        host
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill();
    }

    /// Makes it end after its running calls.
    pub(crate) fn drain(&self) {
        self.0.signal(Signal::TERM);
    }

    /// Makes it add a tool and remove another.
    pub(crate) fn change(&self) {
        self.0.signal(Signal::USR1);
    }

    /// Stops it with SIGSTOP.
    pub(crate) fn freeze(&self) {
        self.0.signal(Signal::STOP);
    }

    pub(crate) fn ended(&mut self) {
        // `wait` would close stdin, which ends the host at once.
        let _stdin = self.0.0.stdin.take();
        assert!(self.0.0.wait().unwrap().success());
    }
}

pub(crate) async fn connect(server: &Server, name: &str) -> Tools {
    within(Tools::connect(server.url(), name).into_future()).await.unwrap()
}

/// Connects, and waits until that many hosts are live.
pub(crate) async fn connect_to(server: &Server, name: &str, hosts: usize) -> Tools {
    let tools = connect(server, name).await;
    until(|| tools.hosts().iter().filter(|host| host.tools > 0).count() == hosts).await;
    tools
}

pub(crate) fn call_of(name: &str, arguments: &str) -> ToolCall {
    ToolCall::new(name, RawJson::parse(arguments.to_owned()).unwrap())
}

pub(crate) async fn call(
    source: &impl ToolSource,
    name: &str,
    arguments: &str,
) -> Result<RawJson, ToolError> {
    within(source.call(call_of(name, arguments), CallContext::default())).await
}

/// Calls a tool that succeeds.
pub(crate) async fn work(
    source: &impl ToolSource,
    tool: &str,
    id: usize,
    ms: u64,
) -> Result<String, ToolError> {
    call(source, tool, &format!(r#"{{"id":"{id}","ms":{ms}}}"#)).await.map(|result| text(&result))
}

/// The text of the first block of a result.
pub(crate) fn text(result: &RawJson) -> String {
    result.decode::<Value>().unwrap()["content"][0]["text"].as_str().unwrap().to_owned()
}

pub(crate) fn names(source: &impl ToolSource) -> Vec<String> {
    source.tools().iter().map(|tool| tool.name.clone()).collect()
}

pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(LONG, future).await.expect("it takes far too long")
}

/// Waits until the condition holds.
pub(crate) async fn until(mut is_so: impl FnMut() -> bool) {
    within(async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// What hosts have logged: how often each call began, ended and was cancelled.
pub(crate) struct Log(PathBuf);

impl Log {
    pub(crate) fn new(server: &Server) -> Self {
        Self(server.folder.path().join("calls"))
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// How often each call began.
    pub(crate) fn begun(&self) -> HashMap<String, usize> {
        let mut begun = HashMap::new();
        for line in self.lines() {
            if let Some(rest) = line.strip_prefix("begin ") {
                let id = rest.split(' ').nth(1).unwrap();
                *begun.entry(id.to_owned()).or_default() += 1;
            }
        }
        begun
    }
}
