//! The bridge as an MCP server: protocol versions, parallel calls, shutdown.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Host, McpClient, PATIENCE, Process, eventually, run, text, toolbridge};

#[test]
fn it_introduces_itself_and_lists_the_tools() {
    let host = Host::start();
    let mut client = host.silent_client();
    let hello = client.initialize();
    assert_eq!(hello["result"]["serverInfo"]["name"], "toolbridge");
    assert_eq!(hello["result"]["serverInfo"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(hello["result"].get("instructions"), None);
    assert_eq!(hello["result"]["capabilities"]["tools"], json!({ "listChanged": true }));

    let list = client.request("tools/list", json!({}));
    let tools = list["result"]["tools"].as_array().unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["echo", "add", "wait", "write_note", "fail", "panic", "blob", "picture", "countdown"]);
    let read_only: Vec<_> = tools
        .iter()
        .filter(|tool| tool["annotations"]["readOnlyHint"] == true)
        .map(|tool| &tool["name"])
        .collect();
    assert_eq!(read_only, ["echo", "add", "wait", "blob", "picture"]);
    assert!(tools.iter().all(|tool| tool["_meta"]["anthropic/alwaysLoad"] == true));
    assert_eq!(tools[0]["_meta"]["anthropic/maxResultSizeChars"], 500_000);
    assert_eq!(tools[0]["inputSchema"]["required"], json!(["text"]));
    assert_eq!(tools[0]["description"], "Returns exactly the text");
}

#[test]
fn it_speaks_every_version_with_a_handshake() {
    let host = Host::start();
    for (asked, answered) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let mut client = host.silent_client();
        let hello = json!({
            "protocolVersion": asked, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" },
        });
        let answer = client.request("initialize", hello);
        assert_eq!(answer["result"]["protocolVersion"], answered, "asked for {asked}");
        let answer = client.call("add", json!({ "a": 1, "b": 2 }));
        assert_eq!(
            answer["result"],
            json!({ "content": [{ "type": "text", "text": "3" }], "isError": false }),
            "no member that {answered} does not know"
        );
        assert_eq!(client.request("ping", json!({}))["result"], json!({}));
    }
}

/// The metadata of a request without a handshake.
fn stateless(version: &str) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

#[test]
fn it_speaks_the_version_without_a_handshake() {
    let host = Host::start();
    let mut client = host.silent_client();
    // The CLI's probe, with the CLI's own id.
    let probe = json!({
        "jsonrpc": "2.0", "id": "server-discover-probe-1", "method": "server/discover",
        "params": { "_meta": stateless("2026-07-28") },
    });
    client.send(&probe);
    let found = client.receive();
    assert_eq!(found["id"], "server-discover-probe-1");
    assert_eq!(found["result"]["resultType"], "complete");
    let versions = found["result"]["supportedVersions"].as_array().unwrap();
    assert!(
        versions.contains(&json!("2026-07-28")) && versions.contains(&json!("2025-11-25")),
        "{versions:?}"
    );

    let list = client.request("tools/list", json!({ "_meta": stateless("2026-07-28") }));
    assert_eq!(list["result"]["resultType"], "complete");
    assert_eq!(list["result"]["ttlMs"], 0);
    assert_eq!(list["result"]["cacheScope"], "private");
    assert_eq!(list["result"]["tools"].as_array().unwrap().len(), 9);

    let mut call =
        json!({ "name": "add", "arguments": { "a": 1, "b": 2 }, "_meta": stateless("2026-07-28") });
    assert_eq!(
        client.request("tools/call", call.clone())["result"],
        json!({ "resultType": "complete", "content": [{ "type": "text", "text": "3" }], "isError": false })
    );
    call["name"] = json!("fail");
    call["arguments"] = json!({ "message": "no" });
    assert_eq!(
        client.request("tools/call", call.clone())["result"],
        json!({
            "resultType": "complete",
            "content": [{ "type": "text", "text": "no (type: DemoError)" }],
            "isError": true,
        })
    );

    call["_meta"] = stateless("2031-01-01");
    assert_eq!(client.request("tools/call", call.clone())["error"]["code"], -32022, "unsupported version");
    call["_meta"].as_object_mut().unwrap().remove("io.modelcontextprotocol/clientCapabilities");
    call["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    assert_eq!(client.request("tools/call", call.clone())["error"]["code"], -32602, "no capabilities");
    call["_meta"] = json!({});
    assert_eq!(client.request("tools/call", call)["error"]["code"], -32602, "no handshake and no version");
}

#[test]
fn a_client_may_probe_first_and_then_shake_hands() {
    let host = Host::start();
    let mut client = host.silent_client();
    let answer = client.request("server/discover", json!({ "_meta": stateless("2026-07-28") }));
    assert!(answer["result"].is_object());
    assert_eq!(client.initialize()["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(client.call_text("echo", json!({ "text": "hi" })), "hi");
}

#[test]
fn everything_may_be_sent_before_anything_is_answered() {
    let host = Host::start();
    let mut client = host.silent_client();
    let hello = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" },
    });
    let first = client.start_request("initialize", hello);
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let list = client.start_request("tools/list", json!({}));
    let call = client.start_call("echo", json!({ "text": "hi" }));
    client.end_input();
    assert!(client.answer(first)["result"].is_object());
    assert!(client.answer(list)["result"].is_object());
    assert_eq!(text(&client.answer(call)), "hi");
    assert!(client.bridge.wait_within(PATIENCE).success());
}

#[test]
fn read_only_calls_run_side_by_side() {
    let host = Host::start();
    let mut client = host.client();
    let started = Instant::now();
    let calls: Vec<_> = (0..64).map(|_| client.start_call("wait", json!({ "ms": 1000 }))).collect();
    for call in calls {
        assert_eq!(text(&client.answer(call)), "waited 1000 ms");
    }
    // One after the other, they would take longer on any machine.
    assert!(started.elapsed() < Duration::from_secs(64), "{:?}", started.elapsed());
}

#[test]
fn calls_that_are_not_read_only_take_turns_in_order() {
    let host = Host::start();
    let mut client = host.client();
    let started = Instant::now();
    let calls: Vec<_> =
        (0..5).map(|n| client.start_call("write_note", json!({ "text": n.to_string(), "ms": 50 }))).collect();
    for call in calls {
        client.answer(call);
    }
    assert!(started.elapsed() >= Duration::from_millis(250), "they overlapped");
}

#[test]
fn a_cancelled_call_ends_its_handler_and_is_never_answered() {
    let host = Host::start();
    let mut client = host.client();
    let long = client.start_call("write_note", json!({ "text": "never", "ms": 600_000 }));
    let waiting = client.start_call("write_note", json!({ "text": "next" }));
    // A read-only call overtakes both, so the first has begun.
    client.call("echo", json!({ "text": "" }));
    client.cancel(long);
    assert_eq!(text(&client.answer(waiting)), "note 1: next");
    // An answer to the cancelled call would arrive before this one.
    let last = client.start_call("echo", json!({ "text": "last" }));
    assert_eq!(client.receive()["id"], last);
    client.cancel(long);
    client.cancel(999);
    assert_eq!(client.call_text("echo", json!({ "text": "alive" })), "alive");
}

#[test]
fn progress_is_reported_under_the_clients_token() {
    let host = Host::start();
    let mut client = host.client();
    for token in [json!("my token"), json!(7)] {
        let params =
            json!({ "name": "countdown", "arguments": { "from": 2 }, "_meta": { "progressToken": token } });
        let id = client.start_request("tools/call", params);
        for (progress, message) in [(0, "2 left"), (1, "1 left"), (2, "done")] {
            assert_eq!(
                client.receive(),
                json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": {
                    "progressToken": token, "progress": progress, "total": 2, "message": message,
                } })
            );
        }
        assert_eq!(text(&client.answer(id)), "lift-off");
    }
    let id = client.start_call("countdown", json!({ "from": 1 }));
    assert_eq!(client.receive()["id"], id, "no token, no progress");
}

#[test]
fn a_client_that_stops_reading_costs_bounded_memory_and_loses_nothing() {
    const CALLS: i64 = 300;
    const BYTES: usize = 1_000_000;
    let host = Host::start();
    let mut client = host.client();
    let calls: Vec<_> = (0..CALLS).map(|_| client.start_call("blob", json!({ "bytes": BYTES }))).collect();
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", client.bridge.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap().to_owned();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    };
    // Memory grows to its limit and stays there.
    let mut last = memory();
    eventually("the bridge stops reading", PATIENCE, || {
        std::thread::sleep(Duration::from_millis(200));
        let now = memory();
        std::mem::replace(&mut last, now) == now
    });
    // 64 MiB of answers, in buffers that may be twice as large, plus the first bytes of all others.
    assert!(last < 200_000_000, "{last} bytes for {CALLS} answers of {BYTES}");
    let mut seen = std::collections::HashSet::new();
    for _ in 0..CALLS {
        let answer = client.receive();
        assert_eq!(text(&answer).len(), BYTES);
        assert!(seen.insert(answer["id"].as_i64().unwrap()), "answered twice");
    }
    assert!(calls.iter().all(|id| seen.contains(id)));
}

#[test]
fn it_ends_with_zero_at_once_on_each_kind_of_end() {
    type End = fn(&mut McpClient);
    let host = Host::start();
    let ends: [(&str, End); 5] = [
        ("SIGINT", |client| client.bridge.signal(Signal::INT)),
        ("SIGTERM", |client| client.bridge.signal(Signal::TERM)),
        ("SIGHUP", |client| client.bridge.signal(Signal::HUP)),
        ("end of stdin", McpClient::end_input),
        ("client gone", McpClient::hang_up),
    ];
    for (name, end) in ends {
        let mut idle = host.client();
        end(&mut idle);
        assert_eq!(idle.bridge.wait_within(PATIENCE).code(), Some(0), "{name}, idle");

        let mut busy = host.client();
        let call = busy.start_call("write_note", json!({ "text": "x", "ms": 600_000 }));
        busy.call("echo", json!({ "text": "" }));
        end(&mut busy);
        assert_eq!(busy.bridge.wait_within(PATIENCE).code(), Some(0), "{name}, with call {call}");
    }
    // All those handlers are cancelled, so the next call gets its turn.
    assert_eq!(host.client().call_text("write_note", json!({ "text": "free" })), "note 1: free");
}

#[test]
fn it_ends_when_the_process_that_started_it_is_gone_though_stdin_is_held_open() {
    let host = Host::start();
    // A shell starts the bridge, prints its pid, and is killed; the test holds the other end of stdin.
    let script = format!(
        "'{}' bridge '{}' '{}' <&0 & echo $!; wait",
        env!("CARGO_BIN_EXE_toolbridge"),
        host.socket.display(),
        host.schema.display()
    );
    let shell = std::process::Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut shell = Process(shell);
    let _held = shell.0.stdin.take().unwrap();
    let mut pid = String::new();
    // Hold stdout too: a bridge whose stdout is closed ends for that reason.
    let mut stdout = BufReader::new(shell.0.stdout.take().unwrap());
    stdout.read_line(&mut pid).unwrap();
    let proc = std::path::PathBuf::from(format!("/proc/{}/status", pid.trim()));
    let lives = || std::fs::read_to_string(&proc).is_ok_and(|status| !status.contains("State:\tZ"));
    eventually("the bridge runs", PATIENCE, || {
        std::fs::read_to_string(&proc).is_ok_and(|status| status.starts_with("Name:\ttoolbridge"))
    });
    shell.signal(Signal::KILL);
    eventually("the bridge ends", PATIENCE, || !lives());
}

/// A socket pair for each direction, as Node gives its children.
fn two_sockets(command: &mut std::process::Command) -> (OwnedFd, OwnedFd) {
    let ((near_in, far_in), (near_out, far_out)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
    command.stdin(OwnedFd::from(far_in)).stdout(OwnedFd::from(far_out));
    (near_in.into(), near_out.into())
}

type Give = fn(&mut std::process::Command) -> (OwnedFd, OwnedFd);

type DeafClient = (&'static str, Give, fn(OwnedFd));

/// How a client creates the bridge's stdin and stdout, and how it stops reading.
const DEAF_CLIENTS: [DeafClient; 3] = [
    (
        "pipes",
        |command| {
            let (their_in, our_out) = std::io::pipe().unwrap();
            let (our_in, their_out) = std::io::pipe().unwrap();
            command.stdin(their_in).stdout(their_out);
            (our_out.into(), our_in.into())
        },
        drop,
    ),
    ("two sockets", two_sockets, drop),
    ("two sockets, one closed for reading alone", two_sockets, |stdout| {
        // The socket stays open, but it is shut down for reading.
        let stdout = UnixStream::from(stdout);
        stdout.shutdown(std::net::Shutdown::Read).unwrap();
        std::mem::forget(stdout);
    }),
];

/// A bridge after the handshake, its stdin and its stdout.
fn greeted(host: &Host, give: Give) -> (Process, std::fs::File, BufReader<std::fs::File>) {
    let mut command = toolbridge();
    command.arg("bridge").arg(&host.socket).arg(&host.schema);
    let (stdin, stdout) = give(&mut command);
    let bridge = Process(command.spawn().unwrap());
    // The command holds copies of the descriptors.
    drop(command);
    let (mut input, mut answers) = (std::fs::File::from(stdin), BufReader::new(std::fs::File::from(stdout)));
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    writeln!(input, "{hello}").unwrap();
    answers.read_line(&mut String::new()).unwrap();
    (bridge, input, answers)
}

#[test]
fn it_ends_when_its_stdout_is_closed_though_stdin_stays_open() {
    let host = Host::start();
    for (name, give, close) in DEAF_CLIENTS {
        for with_call in [false, true] {
            let (mut bridge, mut input, answers) = greeted(&host, give);
            if with_call {
                let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
                    "name": "write_note", "arguments": { "text": "x", "ms": 600_000 } } });
                writeln!(input, "{call}").unwrap();
            }
            close(answers.into_inner().into());
            assert_eq!(bridge.wait_within(PATIENCE).code(), Some(0), "{name}, with a call: {with_call}");
            drop(input);
        }
    }
    // Those handlers are cancelled, so the next call gets its turn.
    assert_eq!(host.client().call_text("write_note", json!({ "text": "free" })), "note 1: free");
}

#[test]
fn an_idle_bridge_never_wakes_and_still_notices_a_closed_stdout() {
    let host = Host::start();
    let mut bridges = DEAF_CLIENTS.map(|(name, give, close)| {
        let (bridge, mut input, mut answers) = greeted(&host, give);
        let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call",
            "params": { "name": "echo", "arguments": { "text": "x" } } });
        writeln!(input, "{call}").unwrap();
        answers.read_line(&mut String::new()).unwrap();
        (name, bridge, input, answers, close)
    });
    let wakes = |bridge: &Process| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", bridge.0.id())).unwrap();
        let waits = status.lines().filter(|line| line.contains("ctxt_switches")).map(str::to_owned);
        waits.collect::<Vec<_>>()
    };
    // It polls once more after its last call.
    let mut before = Vec::new();
    eventually("no thread wakes for three seconds", PATIENCE, || {
        let now: Vec<_> = bridges.iter().map(|(_, bridge, ..)| wakes(bridge)).collect();
        let is_quiet = now == before;
        before = now;
        if !is_quiet {
            std::thread::sleep(Duration::from_secs(3));
        }
        is_quiet
    });
    for (name, bridge, _input, answers, close) in &mut bridges {
        let answers = std::mem::replace(answers, BufReader::new(std::fs::File::open("/dev/null").unwrap()));
        close(answers.into_inner().into());
        assert_eq!(bridge.wait_within(PATIENCE).code(), Some(0), "{name}");
    }
}

#[test]
fn a_client_that_shuts_down_writing_on_a_two_way_socket_still_gets_its_answer() {
    let host = Host::start();
    let mut client = host.client();
    // Longer than the bridge takes to notice a closed stdout, and shorter than the time that calls get after
    // the end of stdin.
    let call = client.start_call("wait", json!({ "ms": 800 }));
    client.end_input();
    assert_eq!(text(&client.answer(call)), "waited 800 ms");
    assert_eq!(client.bridge.wait_within(PATIENCE).code(), Some(0));
}

#[test]
fn a_killed_host_is_an_error_for_every_waiting_call_and_the_bridge_lives() {
    let mut host = Host::start();
    let mut client = host.client();
    let calls: Vec<_> = (0..8).map(|_| client.start_call("wait", json!({ "ms": 600_000 }))).collect();
    client.call("echo", json!({ "text": "" }));
    host.process.signal(Signal::KILL);
    for call in calls {
        let answer = client.answer(call);
        assert_eq!(answer["result"]["isError"], true);
        assert!(text(&answer).ends_with("(type: IPCConnectionError)"), "{answer}");
    }
    host.process.wait_within(PATIENCE);
    let answer = client.call("echo", json!({ "text": "" }));
    assert!(text(&answer).starts_with("cannot reach the parent process at `"), "{answer}");
    assert_eq!(client.request("tools/list", json!({}))["result"]["tools"].as_array().unwrap().len(), 9);
}

#[test]
fn a_bridge_that_was_killed_can_be_started_again() {
    let host = Host::start();
    let mut first = host.client();
    first.start_call("wait", json!({ "ms": 600_000 }));
    first.bridge.signal(Signal::KILL);
    // The CLI starts the same command line again, without listing the tools.
    assert_eq!(host.client().call_text("add", json!({ "a": 40, "b": 2 })), "42");
}

#[test]
fn pipes_and_files_work_as_stdin_and_stdout() {
    let host = Host::start();
    let lines = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
            "name": "blob", "arguments": { "bytes": 300_000 } } }),
    ];
    let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let (in_file, out_file) = (host.dir.path().join("in"), host.dir.path().join("out"));
    std::fs::write(&in_file, &input).unwrap();
    let bridge = || {
        let mut command = toolbridge();
        command.arg("bridge").arg(&host.socket).arg(&host.schema);
        command
    };
    // Files.
    let out = std::fs::File::create(&out_file).unwrap();
    let status = bridge().stdin(std::fs::File::open(&in_file).unwrap()).stdout(out).status().unwrap();
    assert!(status.success());
    let by_file = std::fs::read_to_string(&out_file).unwrap();
    // Pipes.
    let mut child = bridge().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let mut by_pipe = String::new();
    child.stdout.take().unwrap().read_to_string(&mut by_pipe).unwrap();
    assert!(child.wait().unwrap().success());

    assert_eq!(by_file, by_pipe);
    let answers: Vec<Value> = by_pipe.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(text(&answers[1]).len(), 300_000);
    // An empty stdin is a client that has already disconnected.
    assert_eq!(run(&mut bridge()), (0, String::new(), String::new()));
}

#[test]
fn the_flags_of_shared_descriptors_are_put_back() {
    let host = Host::start();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = toolbridge();
    command.arg("bridge").arg(&host.socket).arg(&host.schema);
    let child = command.stdin(reader.try_clone().unwrap()).stdout(Stdio::piped()).spawn().unwrap();
    let mut child = Process(child);
    let flags = || rustix::fs::fcntl_getfl(reader.as_fd()).unwrap();
    eventually("the bridge waits for its stdin", PATIENCE, || flags().contains(rustix::fs::OFlags::NONBLOCK));
    child.signal(Signal::TERM);
    assert!(child.wait_within(PATIENCE).success());
    assert!(!flags().contains(rustix::fs::OFlags::NONBLOCK));
    drop(writer);

    // The same with one socket for both directions.
    let (near, far) = UnixStream::pair().unwrap();
    let mut command = toolbridge();
    command.arg("bridge").arg(&host.socket).arg(&host.schema);
    command.stdin(OwnedFd::from(far.try_clone().unwrap())).stdout(OwnedFd::from(far.try_clone().unwrap()));
    let mut child = Process(command.spawn().unwrap());
    let flags = || rustix::fs::fcntl_getfl(far.as_fd()).unwrap();
    eventually("the bridge waits for its stdin", PATIENCE, || flags().contains(rustix::fs::OFlags::NONBLOCK));
    drop(near);
    assert!(child.wait_within(PATIENCE).success());
    assert!(!flags().contains(rustix::fs::OFlags::NONBLOCK));
}

#[test]
fn the_log_goes_to_stderr_and_only_when_asked_for() {
    let host = Host::start();
    let mut quiet = host.client();
    quiet.call("panic", json!({}));
    quiet.end_input();
    quiet.bridge.wait_within(PATIENCE);
    assert_eq!(quiet.stderr(), "");

    for by_variable in [true, false] {
        let mut command = toolbridge();
        command.arg("bridge").arg(&host.socket).arg(&host.schema);
        if by_variable {
            command.env("TOOLBRIDGE_LOG", "debug");
        } else {
            command.args(["--log", "debug"]);
        }
        let mut client = McpClient::start_command(command);
        client.initialize();
        assert_eq!(client.call_text("echo", json!({ "text": "secret payload" })), "secret payload");
        client.end_input();
        client.bridge.wait_within(PATIENCE);
        let log = client.stderr();
        assert!(log.contains("DEBUG") && log.contains("connected"), "{log}");
        assert!(!log.contains("secret payload") && !log.contains('\x1b'), "{log}");
    }
}

#[test]
fn many_waiting_calls_prevent_neither_cancelling_nor_the_end() {
    let host = Host::start();
    let mut client = host.client();
    let calls: Vec<_> = (0..1_500).map(|_| client.start_call("wait", json!({ "ms": 600_000 }))).collect();
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
    for call in &calls[..1_400] {
        client.cancel(*call);
    }
    assert_eq!(client.call_text("echo", json!({ "text": "alive" })), "alive");
    client.end_input();
    assert_eq!(client.bridge.wait_within(PATIENCE).code(), Some(0));
}

#[test]
fn an_answer_that_is_being_written_when_the_client_ends_is_finished() {
    let host = Host::start();
    let mut client = host.client();
    let call = client.start_call("blob", json!({ "bytes": 9_000_000 }));
    client.wait_for_bytes();
    client.end_input();
    // The client reads slowly, but it does read.
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(text(&client.answer(call)).len(), 9_000_000);
    assert_eq!(client.bridge.wait_within(PATIENCE).code(), Some(0));
}

#[test]
fn a_client_that_leaves_answers_unread_is_an_ordinary_end() {
    let host = Host::start();
    let mut client = host.client();
    for _ in 0..20 {
        client.start_call("echo", json!({ "text": "unread" }));
    }
    client.hang_up();
    assert_eq!(client.bridge.wait_within(PATIENCE).code(), Some(0));
    assert_eq!(client.stderr(), "");
}

#[test]
fn an_invalid_log_level_does_not_stop_a_bridge() {
    let host = Host::start();
    for (level, printed) in [
        ("", ""),
        ("off", ""),
        ("loud", "warning: TOOLBRIDGE_LOG is `loud`; it can be off, error, warn, info, debug or trace\n"),
    ] {
        let mut command = toolbridge();
        command.arg("bridge").arg(&host.socket).arg(&host.schema).env("TOOLBRIDGE_LOG", level);
        let mut client = McpClient::start_command(command);
        client.initialize();
        assert_eq!(client.call_text("echo", json!({ "text": "hi" })), "hi");
        client.end_input();
        client.bridge.wait_within(PATIENCE);
        assert_eq!(client.stderr(), printed);
    }
}

#[test]
fn a_client_that_does_not_read_can_still_cancel() {
    let host = Host::start();
    let mut client = host.client();
    // More than the socket buffer holds, so the bridge blocks in writing.
    let big = client.start_call("blob", json!({ "bytes": 5_000_000 }));
    let ping = client.start_request("ping", json!({}));
    let list = client.start_request("tools/list", json!({}));
    let wrong = client.start_call("nothing", json!({}));
    let long = client.start_call("write_note", json!({ "text": "never", "ms": 600_000 }));
    client.cancel(long);
    // The cancellation was read, so the next exclusive call of another client gets its turn.
    let mut other = host.client();
    assert_eq!(other.call_text("write_note", json!({ "text": "free" })), "note 1: free");
    client.end_input();
    assert_eq!(text(&client.answer(big)).len(), 5_000_000);
    assert!(client.answer(ping)["result"].is_object());
    assert!(client.answer(list)["result"]["tools"].is_array());
    assert_eq!(client.answer(wrong)["error"]["code"], -32602);
    assert_eq!(client.bridge.wait_within(PATIENCE).code(), Some(0));
}

#[test]
fn a_client_that_ends_without_reading_does_not_hold_the_bridge() {
    let host = Host::start();
    let mut client = host.client();
    client.start_call("blob", json!({ "bytes": 5_000_000 }));
    client.start_request("ping", json!({}));
    client.end_input();
    assert_eq!(client.bridge.wait_within(PATIENCE).code(), Some(0));
}
