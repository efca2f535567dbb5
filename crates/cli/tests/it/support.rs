//! Shared test helpers: the executable, a host of the demo tools, an MCP client, bounded waits.
//!
//! Every test has its own temporary directory as TMPDIR, and each process is killed when its handle is
//! dropped.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A test that waits this long has failed, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The executable under test, with a clean environment.
pub(crate) fn toolbridge() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolbridge"));
    // Hosts log the faults that tests cause, which would hide the output of the tests.
    command.stderr(Stdio::null());
    for variable in ["TOOLBRIDGE_LOG", "TOOLBRIDGE_BRIDGE", "TOOLBRIDGE_TRACE"] {
        command.env_remove(variable);
    }
    command
}

/// Waits until `what` holds; panics with `name` if it does not in time.
#[track_caller]
pub(crate) fn eventually(name: &str, within: Duration, mut what: impl FnMut() -> bool) {
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    while !what() {
        assert!(started.elapsed() < within, "not within {within:?}: {name}");
        std::thread::sleep(pause);
        // The longer it takes, the less a late look matters.
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// A child process that does not outlive the test.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// A line of its `/proc/<pid>/status` in KiB.
    pub(crate) fn memory_kib(&self, key: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), signal).unwrap();
    }

    #[track_caller]
    pub(crate) fn wait_within(&mut self, within: Duration) -> ExitStatus {
        let mut status = None;
        eventually("the process ends", within, || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// A process that hosts the demo tools: `toolbridge demo --serve`.
pub(crate) struct Host {
    pub(crate) process: Process,
    /// Dropping it ends the host normally.
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) socket: PathBuf,
    pub(crate) schema: PathBuf,
    pub(crate) config: Value,
    pub(crate) dir: TempDir,
}

/// A path in a host's first line.
pub(crate) fn path(printed: &Value) -> &Path {
    Path::new(printed.as_str().unwrap())
}

/// The MCP config that makes a CLI start that bridge of a host.
pub(crate) fn config_of(bridge: &Path, socket: &Path, schema: &Path) -> Value {
    let args = json!(["bridge", socket, schema]);
    json!({ "mcpServers": { "tools": { "type": "stdio", "command": bridge, "args": args } } })
}

impl Host {
    pub(crate) fn start() -> Self {
        Self::start_in(TempDir::new().unwrap())
    }

    pub(crate) fn start_in(dir: TempDir) -> Self {
        Self::start_with(dir, |_| {})
    }

    /// Like `start_in`, with changes to the command.
    pub(crate) fn start_with(dir: TempDir, with: impl FnOnce(&mut Command)) -> Self {
        let mut command = toolbridge();
        with(command.env("TMPDIR", dir.path()));
        let (process, stdin, hello) = start_host(&mut command);
        Self {
            process,
            stdin: Some(stdin),
            socket: path(&hello["socket"]).into(),
            schema: path(&hello["schema"]).into(),
            config: hello["mcp_config"].clone(),
            dir,
        }
    }

    /// A bridge to this host, with a client that has done the handshake.
    pub(crate) fn client(&self) -> McpClient {
        let mut client = self.silent_client();
        client.initialize();
        client
    }

    /// A bridge to this host, with a client that has sent nothing yet.
    pub(crate) fn silent_client(&self) -> McpClient {
        McpClient::start(&self.socket, &self.schema)
    }

    /// The names of the files in the session's directory.
    pub(crate) fn files(&self) -> Vec<String> {
        files(self.dir.path())
    }
}

/// Starts `demo --serve` and reads its first line.
pub(crate) fn start_host(command: &mut Command) -> (Process, ChildStdin, Value) {
    start_host_with(command, &[])
}

/// Like `start_host`, with more arguments.
pub(crate) fn start_host_with(command: &mut Command, args: &[&str]) -> (Process, ChildStdin, Value) {
    let mut child = command
        .args(["demo", "--serve"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let stdin = child.stdin.take().unwrap();
    let hello = serde_json::from_str(&line).unwrap_or_else(|error| panic!("no hello: {error}: {line:?}"));
    (Process(child), stdin, hello)
}

/// The names in a directory, sorted.
pub(crate) fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// A bridge process and the socket pair that the CLI would give it as stdin and stdout.
pub(crate) struct McpClient {
    pub(crate) bridge: Process,
    /// `None` once the client has closed it.
    stream: Option<UnixStream>,
    lines: BufReader<UnixStream>,
    last_id: i64,
    /// Messages that arrived while waiting for another one.
    put_aside: VecDeque<Value>,
}

impl McpClient {
    pub(crate) fn start(socket: &Path, schema: &Path) -> Self {
        let mut command = toolbridge();
        command.arg("bridge").arg(socket).arg(schema);
        Self::start_command(command)
    }

    /// Starts any command as an MCP server on a socket pair.
    pub(crate) fn start_command(mut command: Command) -> Self {
        let (near, far) = UnixStream::pair().unwrap();
        let stdin = OwnedFd::from(far.try_clone().unwrap());
        let child = command.stdin(stdin).stdout(OwnedFd::from(far)).stderr(Stdio::piped()).spawn().unwrap();
        near.set_read_timeout(Some(PATIENCE)).unwrap();
        let lines = BufReader::new(near.try_clone().unwrap());
        Self { bridge: Process(child), stream: Some(near), lines, last_id: 0, put_aside: VecDeque::new() }
    }

    pub(crate) fn initialize(&mut self) -> Value {
        let hello = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "test", "version": "1" },
        });
        let answer = self.request("initialize", hello);
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        answer
    }

    pub(crate) fn send(&mut self, message: &Value) {
        self.send_line(message.to_string().as_bytes());
    }

    pub(crate) fn send_line(&mut self, line: &[u8]) {
        let stream = self.stream.as_mut().unwrap();
        stream.write_all(line).unwrap();
        stream.write_all(b"\n").unwrap();
    }

    /// Waits until a message has begun to arrive.
    pub(crate) fn wait_for_bytes(&mut self) {
        self.lines.fill_buf().unwrap();
    }

    /// The next message of any kind.
    #[track_caller]
    pub(crate) fn receive(&mut self) -> Value {
        if let Some(message) = self.put_aside.pop_front() {
            return message;
        }
        let line = self.receive_line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("not JSON: {error}: {line:?}"))
    }

    /// The next message as it was sent, with its line end.
    #[track_caller]
    pub(crate) fn receive_line(&mut self) -> String {
        let mut line = String::new();
        let count = self.lines.read_line(&mut line).expect("a message in time");
        assert!(count > 0, "the bridge closed its stdout; stderr: {:?}", self.stderr());
        line
    }

    /// The answer to request `id`; other messages are kept for later.
    #[track_caller]
    pub(crate) fn answer(&mut self, id: i64) -> Value {
        let mut aside = VecDeque::new();
        let answer = loop {
            let message = self.receive();
            if message["id"] == id && message.get("method").is_none() {
                break message;
            }
            aside.push_back(message);
        };
        self.put_aside.extend(aside);
        answer
    }

    /// Sends a request and returns its id.
    pub(crate) fn start_request(&mut self, method: &str, params: Value) -> i64 {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.start_request(method, params);
        self.answer(id)
    }

    pub(crate) fn start_call(&mut self, tool: &str, arguments: Value) -> i64 {
        self.start_request("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let id = self.start_call(tool, arguments);
        self.answer(id)
    }

    /// Calls a tool and returns its text, whether it is an error or not.
    #[track_caller]
    pub(crate) fn call_text(&mut self, tool: &str, arguments: Value) -> String {
        text(&self.call(tool, arguments))
    }

    pub(crate) fn cancel(&mut self, id: i64) {
        let params = json!({ "requestId": id, "reason": "test" });
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params }));
    }

    /// Closes the client's end, as a client that has exited.
    pub(crate) fn hang_up(&mut self) {
        if let Some(stream) = self.stream.take() {
            _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Closes only the bridge's stdin, as a client that sends nothing more.
    pub(crate) fn end_input(&mut self) {
        self.stream.as_ref().unwrap().shutdown(std::net::Shutdown::Write).unwrap();
    }

    /// The bridge's stderr; only once it has ended.
    pub(crate) fn stderr(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut stderr) = self.bridge.0.stderr.take() {
            _ = self.bridge.0.kill();
            _ = stderr.read_to_string(&mut text);
        }
        text
    }
}

/// The text of a `tools/call` answer.
#[track_caller]
pub(crate) fn text(answer: &Value) -> String {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("no text in {answer}")).to_owned()
}

/// Runs a command; returns exit code, stdout and stderr.
pub(crate) fn run(command: &mut Command) -> (i32, String, String) {
    let output = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}
