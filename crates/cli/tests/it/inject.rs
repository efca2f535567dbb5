//! Makes each system call of a host and of a bridge fail, one at a time.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use toolbridge_scripted::{Run, STAND_IN, by_halves, fail_each_call};

use crate::support::{PATIENCE, Process, eventually, toolbridge};

/// A client and its bridge, which may end at any time.
struct Talk {
    process: Process,
    stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Talk {
    fn start(mut command: Command) -> Self {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_read_timeout(Some(PATIENCE)).unwrap();
        let stdin = OwnedFd::from(far.try_clone().unwrap());
        let child = command.stdin(stdin).stdout(OwnedFd::from(far)).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(near.try_clone().unwrap());
        Self { process: Process(child), stream: near, lines }
    }

    /// Sends lines; ignores a bridge that has ended.
    fn say(&mut self, lines: &[Value]) {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        if let Err(error) = self.stream.write_all(text.as_bytes()) {
            assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
        }
    }

    /// The next line; `None` at the end of the stream, also after an incomplete line.
    fn hear(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(_) if !line.ends_with('\n') => None,
            Ok(_) => Some(serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
            Err(error) => panic!("it hangs: {error}"),
        }
    }

    /// Calls a tool. `Some(true)` is the right answer, `Some(false)` an error, `None` the end; a wrong answer
    /// panics.
    fn echo(&mut self, id: usize, text: &str) -> Option<bool> {
        let call = json!({ "name": "echo", "arguments": { "text": text } });
        self.say(&[json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call })]);
        loop {
            let answer = self.hear()?;
            if answer["id"] != id {
                continue;
            }
            if answer.get("error").is_some() {
                return Some(false);
            }
            let result = &answer["result"];
            let printed = result["content"][0]["text"].as_str().unwrap_or_default();
            let is_error = result["isError"] == true;
            assert!(if is_error { !printed.is_empty() } else { printed == text }, "{answer:.1000}");
            return Some(!is_error);
        }
    }

    fn end(mut self) {
        _ = self.stream.shutdown(Shutdown::Both);
        end(&mut self.process);
    }
}

/// Waits for the process to exit and checks that a failure has a message.
fn end(process: &mut Process) -> (bool, String) {
    let status = process.wait_within(PATIENCE);
    let mut stderr = String::new();
    process.0.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert!(status.code().is_some() && !stderr.contains("panicked"), "{status}: {stderr}");
    assert!(status.success() || !stderr.is_empty(), "{status}, without a message");
    (status.success(), stderr)
}

/// Runs a host, a bridge to it, and calls, with failing system calls in `command`. Returns whether the host
/// has ended successfully.
fn calls(run: &Run, command: &str) -> bool {
    let variables = run.variables(command);
    let mut command = toolbridge();
    // To a file: a close of a pipe does not wait for the output.
    let stdout = tempfile::NamedTempFile::new().unwrap();
    command.stdin(Stdio::piped()).stdout(stdout.reopen().unwrap()).stderr(Stdio::piped());
    command
        .args(["demo", "--serve"])
        .env("TMPDIR", &run.dir)
        .env("TOKIO_WORKER_THREADS", "1")
        .envs(variables.clone());
    let mut host = Process(command.spawn().unwrap());
    let mut printed = String::new();
    eventually("the host says hello, or ends", PATIENCE, || {
        printed = std::fs::read_to_string(&stdout).unwrap();
        printed.ends_with('\n') || host.0.try_wait().unwrap().is_some()
    });
    if !printed.ends_with('\n') {
        let (is_well, stderr) = end(&mut host);
        assert!(!is_well && stderr.contains("error: "), "{is_well}: {stderr}");
        return false;
    }
    let hello: Value = serde_json::from_str(&printed).unwrap();
    let mut command = toolbridge();
    let paths = [&hello["socket"], &hello["schema"]].map(|path| path.as_str().unwrap());
    command.arg("bridge").args(paths).env("TMPDIR", &run.dir).envs(variables);
    let mut talk = Talk::start(command);
    let client = json!({ "name": "test", "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    talk.say(&[
        json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }),
    ]);
    // More than a socket buffer holds; then repeat until a call succeeds, because each thread has its own
    // failure.
    let mut last = talk.echo(2, &"grüß dich ".repeat(40_000));
    for id in 3..7 {
        if last.is_none() || last == Some(true) && id > 4 {
            break;
        }
        last = talk.echo(id, "grüß dich");
    }
    if last == Some(false) {
        eventually("there is a good answer, or the host has ended", PATIENCE, || {
            host.0.try_wait().unwrap().is_some()
        });
    }
    talk.end();
    drop(host.0.stdin.take());
    end(&mut host).0
}

#[test]
fn a_host_survives_the_failure_of_any_system_call() {
    let known = [
        "accept4",
        "bind",
        "epoll_create1",
        "flock",
        "listen",
        "mmap",
        "openat",
        "read",
        "renameat2",
        "socket",
        "write",
        "writev",
    ];
    fail_each_call("cli", &known, |run| calls(run, "demo"));
}

#[test]
fn a_bridge_survives_the_failure_of_any_system_call() {
    let known = ["connect", "epoll_create1", "openat", "read", "sendto", "socket", "writev"];
    fail_each_call("cli", &known, |run| {
        assert!(calls(run, "bridge"), "the host failed");
        true
    });
}

/// Makes a request with failing system calls in `command`. Returns whether the answer is the right one.
fn ask(run: &Run, transport: &str, command: &str) -> bool {
    let home = tempfile::tempdir().unwrap();
    let cli = home.path().join("claude");
    std::fs::write(&cli, STAND_IN).unwrap();
    std::fs::set_permissions(&cli, PermissionsExt::from_mode(0o755)).unwrap();
    let output = || tempfile::NamedTempFile::new().unwrap();
    let (stdout, stderr) = (output(), output());
    let mut asker = toolbridge();
    asker.args(["ask", "What is 40 + 2?", "--tools", "demo", "--timeout", "15", "--transport", transport]);
    asker.arg("--claude").arg(&cli).env("HOME", home.path()).env("TMPDIR", &run.dir);
    asker.env("TOKIO_WORKER_THREADS", "1").envs(run.variables(command)).stdin(Stdio::null());
    asker.stdout(stdout.reopen().unwrap()).stderr(stderr.reopen().unwrap());
    let status = Process(asker.spawn().unwrap()).wait_within(PATIENCE);
    let [stdout, stderr] = [stdout, stderr].map(|file| std::fs::read_to_string(file).unwrap());
    let printed = format!("{status}, {stdout:?}: {stderr}");
    assert!(status.code().is_some() && !stderr.contains("panicked"), "{printed}");
    assert!(!stderr.contains("no result within"), "it hangs: {printed}");
    if status.success() {
        assert!(["The sum is 42.\n", "The tool has failed.\n"].contains(&&*stdout), "{printed}");
    } else {
        assert!(stdout.is_empty() && stderr.contains("error: "), "{printed}");
    }
    stdout == "The sum is 42.\n"
}

#[test]
fn a_request_survives_the_failure_of_any_system_call() {
    let known = ["execve", "mkdir", "mmap", "openat", "pipe2", "read", "write"];
    for transport in ["sdk", "stdio"] {
        fail_each_call("cli", &known, |run| ask(run, transport, "ask"));
    }
}

#[test]
fn a_guardian_survives_the_failure_of_any_system_call() {
    let known = ["clone", "execve", "openat", "poll", "read", "socketpair", "wait4"];
    fail_each_call("cli", &known, |run| ask(run, "sdk", "toolbridge-guard"));
}

#[test]
fn short_reads_and_writes_lose_nothing() {
    for transport in ["sdk", "stdio"] {
        by_halves(|run| assert!(ask(run, transport, ""), "there is no good answer"));
    }
    by_halves(|run| assert!(calls(run, ""), "the host has not ended well"));
}
