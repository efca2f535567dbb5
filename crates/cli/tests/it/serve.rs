//! `toolbridge serve` with the real executable and real servers: each source, each front, and each error.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};
use toolbridge::{NoArgs, Session, Tool, Toolset};
use toolbridge_scripted::{everything_server, processes_of, time_server};

use crate::support::{McpClient, PATIENCE, Process, eventually, run, text};
use crate::world::World;

impl World {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }

    /// On stdin and stdout, with a client that has done the handshake.
    fn client(&self, args: &[&str]) -> McpClient {
        let mut command = self.toolbridge(&["serve"]);
        command.args(args);
        let mut client = McpClient::start_command(command);
        client.initialize();
        client
    }

    /// Starts a front that prints where it listens.
    pub(crate) fn start(&self, args: &[&str]) -> (Process, Value) {
        let mut command = self.toolbridge(&["serve"]);
        // An ended stdin must not end these.
        let mut child = command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let printed =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{args:?}: {error}: {line:?}"));
        (Process(child), printed)
    }

    /// The exit code and stderr of a start that fails.
    fn fails(&self, args: &[&str]) -> (i32, String) {
        let (code, stdout, stderr) = run(self.toolbridge(&["serve"]).args(args));
        assert_eq!(stdout, "", "{args:?}: {stderr}");
        (code, stderr)
    }

    /// The running servers whose command line contains `part`.
    pub(crate) fn servers(&self, part: &str) -> Vec<String> {
        processes_of(self.0.path()).filter(|process| process.contains(part)).collect()
    }
}

fn listed(client: &mut McpClient) -> Vec<String> {
    names(&client.request("tools/list", json!({})))
}

fn names(list: &Value) -> Vec<String> {
    let tools = list["result"]["tools"].as_array().unwrap_or_else(|| panic!("{list}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

pub(crate) fn time() -> String {
    time_server().to_str().unwrap().to_owned()
}

/// A server of our own, where it does not matter whose it is: it starts in a moment.
const OURS: [&str; 5] = [env!("CARGO_BIN_EXE_toolbridge"), "serve", "--demo", "--only", "add"];

pub(crate) fn everything() -> String {
    everything_server().to_str().unwrap().to_owned()
}

/// Sends the head of a request over HTTP, and its body if it has one.
fn send(url: &str, start: &str, headers: &str, body: &str) -> TcpStream {
    let port = url.strip_suffix("/mcp").unwrap().rsplit(':').next().unwrap();
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!(
        "{start} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// Sends one message over HTTP; returns status and headers, and the answer.
pub(crate) fn post(url: &str, headers: &str, message: &Value) -> (String, Value) {
    let mut answer = String::new();
    send(url, "POST /mcp", headers, &message.to_string()).read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    // A slow answer comes as a server-sent event.
    let lines = body.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
    let answer = lines.filter_map(|line| serde_json::from_str(line).ok()).find(Value::is_object);
    (head.to_owned(), answer.unwrap_or_default())
}

/// A request of protocol version 2026-07-28, which needs no session.
fn over_http(url: &str, method: &str, mut params: Value, token: Option<&str>) -> (String, Value) {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let mut headers = format!("mcp-protocol-version: 2026-07-28\r\nmcp-method: {method}\r\n");
    if let Some(name) = params["name"].as_str() {
        headers += &format!("mcp-name: {name}\r\n");
    }
    if let Some(token) = token {
        headers += &format!("authorization: Bearer {token}\r\n");
    }
    let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let (head, answer) = post(url, &headers, &request);
    (head.split_whitespace().nth(1).unwrap().to_owned(), answer)
}

/// Kills one of [`World::servers`], and waits until it reads nothing more: its threads may run for a moment after the signal.
pub(crate) fn kill(server: &str) {
    let pid = server.strip_prefix("/proc/").and_then(|rest| rest.split(':').next()).unwrap().parse().unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let is_empty = |dir: PathBuf| std::fs::read_dir(dir).map_or(true, |open| open.count() == 0);
    let are_closed = || {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        threads.map(|thread| thread.path().join("fd")).all(is_empty)
    };
    eventually("the descriptors of all threads of the server are closed", PATIENCE, are_closed);
}

const NOON: &str = r#"{"source_timezone":"Asia/Tokyo","time":"12:00","target_timezone":"UTC"}"#;

pub(crate) fn noon() -> Value {
    serde_json::from_str(NOON).unwrap()
}

#[test]
fn a_command_is_served_on_stdin_and_stdout_and_both_end_with_the_client() {
    let world = World::new();
    let mut client = McpClient::start_command(world.toolbridge(&["serve", "--", &time()]));
    let hello = client.initialize();
    // Its server info is that of the server.
    assert_eq!(hello["result"]["serverInfo"]["name"], "mcp-time", "{hello}");
    assert_eq!(listed(&mut client), ["get_current_time", "convert_time"]);
    let answer = client.call("convert_time", noon());
    assert_eq!(answer["result"]["structuredContent"]["time_difference"], "-9.0h", "{answer}");
    assert_eq!(world.servers("mcp-server-time").len(), 2, "toolbridge and its server");
    client.end_input();
    assert!(client.bridge.wait_within(PATIENCE).success());
    world.nothing_is_left();
}

#[test]
fn a_client_that_is_gone_ends_the_server_too() {
    let world = World::new();
    let mut client = world.client(&["--stdio", "--", &everything()]);
    assert_eq!(client.call_text("echo", json!({ "message": "hé" })), "Echo: hé");
    client.hang_up();
    assert!(client.bridge.wait_within(PATIENCE).success());
    world.nothing_is_left();
}

#[test]
fn documents_sessions_and_a_file_of_servers_are_one_server() {
    let world = World::new();
    let notes = world.path("notes");
    let (code, _, stderr) = run(world.toolbridge(&["docs", "--init", "--workspace"]).arg(&notes));
    assert_eq!(code, 0, "{stderr}");
    let config = json!({ "mcpServers": {
        "time": { "command": time(), "args": ["--local-timezone", "${ZONE:-UTC}"] },
        "every": { "type": "stdio", "command": everything() },
    } });
    let config = world.write("mcp.json", config.to_string());
    let (mut shop, _) = world.start(&["--demo", "--name", "shop"]);
    let all = ["--docs", notes.to_str().unwrap(), "--mcp-config", &config, "--session", "shop", "--prefix"];

    let mut client = world.client(&all);
    let listed = listed(&mut client);
    for name in ["docs_manual_find", "time_convert_time", "every_get-sum", "every_echo", "echo", "add"] {
        assert!(listed.iter().any(|listed| listed == name), "{name}: {listed:?}");
    }
    assert!(client.call_text("docs_manual_find", json!({ "query": "copy" })).contains("guide.md"));
    assert_eq!(client.call_text("every_get-sum", json!({ "a": 40, "b": 2 })), "The sum of 40 and 2 is 42.");
    assert_eq!(client.call_text("add", json!({ "a": 40, "b": 2 })), "42");
    assert_eq!(client.call_text("echo", json!({ "text": "日本 🦀" })), "日本 🦀");
    client.hang_up();
    assert!(client.bridge.wait_within(PATIENCE).success());

    // Only some tools, in the order of their sources; the others cannot be called either.
    let only = ["--only", "add", "--only", "time_convert_time"];
    let mut client = world.client(&[&all[..], &only].concat());
    assert_eq!(self::listed(&mut client), ["time_convert_time", "add"]);
    let refused = client.call("echo", json!({ "text": "" }));
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    client.end_input();
    assert!(client.bridge.wait_within(PATIENCE).success());
    shop.signal(Signal::TERM);
    assert!(shop.wait_within(PATIENCE).success());
    world.nothing_is_left();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_is_added_late_does_not_take_the_name_of_another() {
    let world = World::new();
    let says = |name: &str, says: &'static str| Tool::new(name, "", move |_: NoArgs| says);
    let start = async |name: &str, tool| {
        let tools = Toolset::builder().with(tool).build().unwrap();
        let session =
            Session::builder(tools.clone()).dir(world.sessions()).name(name).names_dir(world.names());
        (tools, session.start().await.unwrap())
    };
    let (alpha, _alpha) = start("alpha", says("hold", "held")).await;
    let (beta, _beta) = start("beta", says("order", "of beta")).await;
    let server = |name: &str| {
        let env = json!({ "XDG_RUNTIME_DIR": world.0.path(), "TMPDIR": world.sessions() });
        json!({ "command": OURS[0], "args": ["serve", "--session", name], "env": env })
    };
    let servers = json!({ "mcpServers": { "alpha": server("alpha"), "beta": server("beta") } });
    let mut client = world.client(&["--mcp-config", &world.write("servers.json", servers.to_string())]);
    assert_eq!(listed(&mut client), ["hold", "order"]);
    alpha.add(says("order", "of alpha")).unwrap();
    alpha.add(says("ready", "ready")).unwrap();
    eventually("the late tools show", PATIENCE, || listed(&mut client).contains(&"ready".into()));
    assert_eq!(listed(&mut client), ["hold", "ready", "order"]);
    assert_eq!(client.call_text("order", json!({})), "of beta");
    beta.remove("order");
    beta.add(says("other", "other")).unwrap();
    eventually("the other tools show", PATIENCE, || listed(&mut client) == ["hold", "ready", "other"]);
    let error = client.call("order", json!({}));
    assert!(error.to_string().contains("there is no tool `order`"), "{error}");
    let stderr = client.stderr();
    let warning = "the tool `order` of `alpha` is left out: `beta` had one with this name first";
    assert_eq!(stderr.matches(warning).count(), 1, "{stderr}");
}

/// The clients never list the tools and never wait for changes.
#[test]
fn a_session_that_starts_again_is_found_by_clients_that_only_call() {
    let world = World::new();
    let mut attached = world.attach(&["shop"]);
    let mut served = world.client(&["--session", "shop"]);
    let (_http, printed) = world.start(&["--session", "shop", "--http", "127.0.0.1:0"]);
    let url = printed["url"].as_str().unwrap();
    let sum = json!({ "a": 40, "b": 2 });
    for _ in 0..2 {
        let (mut shop, _) = world.start(&["--demo", "--name", "shop"]);
        for client in [&mut attached, &mut served] {
            eventually("the client's call is answered", PATIENCE, || {
                client.call("add", sum.clone())["result"]["content"][0]["text"] == "42"
            });
        }
        eventually("the call over HTTP is answered", PATIENCE, || {
            let call = json!({ "name": "add", "arguments": sum });
            over_http(url, "tools/call", call, None).1["result"]["content"][0]["text"] == "42"
        });
        shop.0.kill().unwrap();
        shop.0.wait().unwrap();
    }
}

/// A text goes from a tool of one source to one of another, and the client only has its handle.
#[test]
fn a_long_result_is_kept_and_passed_on_from_source_to_source() {
    let world = World::new();
    let notes = world.path("notes");
    let (code, _, stderr) = run(world.toolbridge(&["docs", "--init", "--workspace"]).arg(&notes));
    assert_eq!(code, 0, "{stderr}");
    let saved = world.path("saved");
    std::fs::create_dir(&saved).unwrap();
    let (notes_dir, saved_dir) = (notes.to_str().unwrap(), saved.to_str().unwrap());
    let mut client = world.client(&["--demo", "--docs", notes_dir, "--park=1000", "--park-save", saved_dir]);
    // `echo` itself allows results of half a million characters.
    let text = "日本 \"quoted\" \\ line\n".repeat(40_000);
    let note: Value = serde_json::from_str(&client.call_text("echo", json!({ "text": text }))).unwrap();
    assert_eq!(note["bytes"], text.len(), "{note}");
    let handle = &note["handle"];
    client.call_text("vault_create", json!({ "path": "kept.md", "content": handle }));
    assert_eq!(std::fs::read_to_string(notes.join("vault/kept.md")).unwrap(), text);
    client.call_text("result_save", json!({ "handle": handle, "name": "kept.txt" }));
    assert_eq!(std::fs::read_to_string(saved.join("kept.txt")).unwrap(), text);
    let read: Value =
        serde_json::from_str(&client.call_text("result_read", json!({ "handle": handle, "end_line": 1 })))
            .unwrap();
    assert_eq!(read["text"], "日本 \"quoted\" \\ line\n");
    // Another server does not have the result.
    let mut other = world.client(&["--demo", "--park"]);
    assert!(other.call_text("echo", json!({ "text": handle })).contains("there is no result `parked:"));
    let (code, stderr) = world.fails(&["--demo", "--park", "--park-save", "/no/such/folder"]);
    assert!(code == 1 && stderr.contains("results cannot be saved to `/no/such/folder`"), "{stderr}");
}

#[test]
fn many_calls_with_many_handles_take_limited_memory_and_give_it_back() {
    let world = World::new();
    let (server, printed) = world.start(&["--demo", "--park", "--http", "127.0.0.1:0"]);
    let url = printed["url"].as_str().unwrap();
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello });
    let (head, _) = post(url, "", &hello);
    let session = head.lines().find(|line| line.starts_with("mcp-session-id: ")).unwrap();
    let headers = format!("{session}\r\n");
    let call = |id: usize, tool: &str, arguments: &Value| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": tool, "arguments": arguments } });
    let said = |id: usize, tool: &str, arguments: &Value| {
        let (_, answer) = post(url, &headers, &call(id, tool, arguments));
        answer["result"]["content"][0]["text"].as_str().unwrap().to_owned()
    };
    let note: Value = serde_json::from_str(&said(1, "blob", &json!({ "bytes": 5_000_000 }))).unwrap();
    let mut arguments = json!({ "text": "done" });
    for number in 0..25 {
        arguments[format!("a{number}")] = note["handle"].clone();
    }
    assert_eq!(said(2, "echo", &arguments), "done");
    let at_rest = server.memory_kib("VmRSS:");
    let start = |id| send(url, "POST /mcp", &headers, &call(id, "echo", &arguments).to_string());
    let clients: Vec<_> = (100..116).map(start).collect();
    let mut health = String::new();
    send(url, "GET /healthz", "", "").read_to_string(&mut health).unwrap();
    assert!(health.starts_with("HTTP/1.1 200 ") && health.ends_with("ok"), "{health}");
    // They leave without their answers.
    drop(clients);
    eventually("the others have ended", PATIENCE, || said(3, "echo", &arguments) == "done");
    eventually("the memory is given back", PATIENCE, || server.memory_kib("VmRSS:") < at_rest + 100_000);
    let most = server.memory_kib("VmHWM:");
    assert!(most < 700_000, "{most} KiB at most for the texts of handles");
}

#[test]
fn a_commands_prefix_is_the_name_of_its_server() {
    let world = World::new();
    let mut client = world.client(&["--demo", "--prefix", "--", &time()]);
    let listed = listed(&mut client);
    assert!(listed.contains(&"demo_add".to_owned()), "{listed:?}");
    assert!(listed.contains(&"mcp-time_convert_time".to_owned()), "{listed:?}");
    let answer = client.call("mcp-time_convert_time", noon());
    assert_eq!(answer["result"]["isError"], false, "{answer}");
}

#[test]
fn http_clients_call_a_server_until_a_signal_ends_all() {
    let world = World::new();
    let (mut served, printed) =
        world.start(&[&["--http", "127.0.0.1:0", "--metrics", "--"], &OURS[..]].concat());
    let url = printed["url"].as_str().unwrap();
    let (status, list) = over_http(url, "tools/list", json!({}), None);
    assert_eq!((&*status, names(&list)), ("200", vec!["add".into()]));
    let call = json!({ "name": "add", "arguments": { "a": 40, "b": 2 } });
    let (_, answer) = over_http(url, "tools/call", call, None);
    assert_eq!(answer["result"]["content"][0]["text"], "42", "{answer}");
    served.signal(Signal::INT);
    assert!(served.wait_within(PATIENCE).success());
    world.nothing_is_left();
}

/// A proxy that passes each connection on to a port of this machine, whatever host was asked for; reports the first head.
fn proxy(port: u16) -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://ann:secret@{}", listener.local_addr().unwrap());
    let (asked, seen) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                client.read_exact(&mut byte).unwrap();
                head.extend(byte);
            }
            let mut server = TcpStream::connect(("127.0.0.1", port)).unwrap();
            server.write_all(&head).unwrap();
            _ = asked.send(String::from_utf8(head).unwrap());
            let (mut back, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut back, &mut to));
            std::thread::spawn(move || std::io::copy(&mut client, &mut server));
        }
    });
    (url, seen)
}

#[test]
fn a_server_behind_a_proxy_is_reached_through_it() {
    let world = World::new();
    let (_served, printed) =
        world.start(&["--demo", "--http", "127.0.0.1:0", "--allow-host", "shop.invalid"]);
    let port = printed["url"].as_str().unwrap().trim_end_matches("/mcp").rsplit(':').next().unwrap();
    let (proxy, seen) = proxy(port.parse().unwrap());
    // No resolver knows this name, so it is reached only through the proxy.
    let config = json!({ "mcpServers": { "shop": { "type": "http", "url": "http://shop.invalid/mcp" } } });
    let config = world.write("mcp.json", config.to_string());
    let mut command = world.toolbridge(&["serve", "--stdio", "--mcp-config", &config]);
    command.env("http_proxy", proxy).env_remove("no_proxy").env_remove("NO_PROXY");
    let mut client = McpClient::start_command(command);
    client.initialize();
    assert!(listed(&mut client).contains(&"add".to_owned()));
    let head = seen.recv_timeout(PATIENCE).unwrap();
    assert!(head.starts_with("POST http://shop.invalid/mcp HTTP/1.1\r\n"), "{head}");
    assert!(head.to_lowercase().contains("proxy-authorization: basic "), "{head}");
}

#[test]
fn over_http_other_machines_need_a_token() {
    let world = World::new();
    let tokens = world.write("tokens", "secret\n");
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (served, printed) = world.start(&["--demo", "--http", "0.0.0.0:0", "--token-file", &tokens]);
    let url = printed["url"].as_str().unwrap();
    let (status, _) = over_http(url, "tools/list", json!({}), None);
    assert_eq!(status, "401");
    let (status, list) = over_http(url, "tools/list", json!({}), Some("secret"));
    assert_eq!(status, "200", "{list}");
    drop(served);
}

#[test]
fn a_named_session_ignores_stdin_and_ends_on_a_signal() {
    let world = World::new();
    let (mut served, printed) = world.start(&[&["--name", "sums", "--"], &OURS[..]].concat());
    let [socket, schema] = ["socket", "schema"].map(|key| PathBuf::from(printed[key].as_str().unwrap()));
    assert!(printed["mcp_config"]["mcpServers"]["tools"].is_object(), "{printed}");
    let mut bridge = McpClient::start(&socket, &schema);
    bridge.initialize();
    let mut attached = McpClient::start_command(world.toolbridge(&["attach", "sums"]));
    attached.initialize();
    let answers = [&mut bridge, &mut attached].map(|client| {
        eventually("the session shows", PATIENCE, || listed(client).contains(&"add".to_owned()));
        client.call_text("add", json!({ "a": 40, "b": 2 }))
    });
    assert_eq!(answers, ["42", "42"]);
    // Its stdin was at its end from the start.
    assert!(served.0.try_wait().unwrap().is_none());
    drop((bridge, attached));
    served.signal(Signal::TERM);
    assert!(served.wait_within(PATIENCE).success());
    world.nothing_is_left();
}

#[test]
fn a_hangup_ends_every_mode_and_nothing_is_left() {
    let world = World::new();
    let workspace = world.path("notes").to_str().unwrap().to_owned();
    assert_eq!(run(&mut world.toolbridge(&["docs", "--init", "--workspace", &workspace])).0, 0);
    let with_server = [&["serve", "--"], &OURS[..]].concat();
    for args in [&with_server[..], &["docs", "--workspace", &workspace], &["attach"]] {
        let mut client = McpClient::start_command(world.toolbridge(args));
        client.initialize();
        client.bridge.signal(Signal::HUP);
        assert_eq!(client.bridge.wait_within(PATIENCE).code(), Some(0), "{args:?}");
        world.nothing_is_left();
    }
    for front in [["--name", "sums"], ["--http", "127.0.0.1:0"]] {
        let (mut served, _) = world.start(&[&front[..], &["--"], &OURS].concat());
        served.signal(Signal::HUP);
        assert_eq!(served.wait_within(PATIENCE).code(), Some(0), "{front:?}");
        world.nothing_is_left();
    }
}

#[test]
fn a_hangup_that_is_ignored_stays_ignored() {
    // As `nohup` starts a program.
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_toolbridge")]);
    command.args(["serve", "--demo", "--http", "127.0.0.1:0"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut served = Process(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(served.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{}/status", served.pid())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & 1, 1, "{status}");
}

/// An MCP server that only SIGKILL ends.
fn stubborn(world: &World) -> String {
    let server = OURS.join(" ");
    world.write("stubborn.sh", format!("trap '' TERM INT\n{server}\nwhile :; do sleep 1000; done\n"))
}

#[test]
fn a_server_that_ignores_signals_ends_with_toolbridge() {
    let world = World::new();
    let script = stubborn(&world);
    let (mut served, _) = world.start(&["--name", "stubborn", "--", "sh", &script]);
    served.signal(Signal::TERM);
    assert!(served.wait_within(PATIENCE).success());
    assert_eq!(world.servers("stubborn"), [""; 0]);
    world.nothing_is_left();
}

#[test]
fn a_signal_while_servers_are_started_ends_them_too() {
    let world = World::new();
    // It writes nothing, and ignores signals.
    let script = world.write("mute.sh", "trap '' TERM INT\nwhile :; do sleep 1000; done\n");
    let config = json!({ "mcpServers": {
        "mute": { "command": "sh", "args": [script] }, "sums": { "command": OURS[0], "args": OURS[1..] },
    } });
    let config = world.write("mcp.json", config.to_string());
    let mut served = Process(world.toolbridge(&["serve", "--mcp-config", &config]).spawn().unwrap());
    eventually("both are started", PATIENCE, || {
        !world.servers("mute.sh").is_empty() && !world.servers("serve --demo").is_empty()
    });
    served.signal(Signal::TERM);
    assert_eq!(served.wait_within(PATIENCE).code(), Some(143));
    assert_eq!(world.servers("mute.sh"), [""; 0]);
    world.nothing_is_left();
}

#[test]
fn a_server_and_what_it_has_started_end_when_toolbridge_is_killed() {
    let world = World::new();
    let command_line = OURS.join(" ");
    // The shells ignore SIGTERM and the end of stdin, and each has another process below it.
    let script = world.write(
        "deep.sh",
        format!(
            "trap '' TERM\n(while :; do sleep 1000; done) &\n(sleep 1000) &\n{command_line}\nsleep 1000\n"
        ),
    );
    for server in [&OURS[..], &["sh", &script]] {
        let (mut host, _) = world.start(&[&["--name", "sums", "--"], server].concat());
        assert!(!world.servers("serve --demo").is_empty());
        host.0.kill().unwrap();
        host.0.wait().unwrap();
        eventually("no process is left", PATIENCE, || processes_of(world.0.path()).next().is_none());
    }
}

#[test]
fn no_log_level_shows_a_password_or_the_value_of_a_variable() {
    let world = World::new();
    let (_served, printed) = world.start(&["--demo", "--http", "127.0.0.1:0"]);
    let url = printed["url"].as_str().unwrap().replace("http://", "http://ann:${SECRET}@");
    let of = |entry: Value| world.write("mcp.json", json!({ "mcpServers": { "it": entry } }).to_string());
    let says = |args: &[&str], proxy: Option<&str>| {
        let mut command = world.toolbridge(&["--log", "trace", "serve"]);
        command.args(args).env("SECRET", "sesame").stdin(Stdio::null());
        command.envs(proxy.map(|proxy| ("http_proxy", proxy)));
        let (code, stdout, stderr) = run(&mut command);
        let encoded = "c2VzYW1l";
        assert!(!stderr.contains("sesame") && !stderr.contains(encoded), "{args:?}: {stderr}");
        assert_eq!(stdout, "", "{args:?}");
        (code, stderr)
    };
    let web = json!({ "type": "http", "url": url, "headers": { "x-key": "${SECRET}" } });
    // Its client has left already.
    assert_eq!(says(&["--mcp-config", &of(web.clone())], None).0, 0);
    let (code, stderr) = says(&["--mcp-config", &of(web)], Some("http://ann:sesame@127.0.0.1:1"));
    assert!(code == 1 && stderr.contains("` cannot be used: "), "{stderr}");
    assert_eq!(says(&["--nats-tools", "nats://ann:sesame@127.0.0.1:1/gpu"], None).0, 1);
    for (entry, want) in [
        (json!({ "command": "${SECRET}" }), "there is no command `${SECRET}` on the PATH"),
        (json!({ "command": "/${SECRET}/run" }), "there is no file `/${SECRET}/run`"),
        (
            json!({ "command": "no-such", "env": { "PATH": "/${SECRET}" } }),
            "on the PATH, which is `/${SECRET}`",
        ),
        (json!({ "type": "${SECRET}" }), "no server of the type `${SECRET}`"),
        (json!({ "type": "http", "url": "${SECRET}" }), "`${SECRET}` does not begin with `http`"),
        (json!({ "type": "http", "url": "${SECRET}://a/b" }), "`${SECRET}://a/b` does not begin with `http`"),
        (json!({ "type": "http", "url": "http://127.0.0.1:1/${SECRET}" }), "`http://127.0.0.1:1/${SECRET}`"),
    ] {
        let (code, stderr) = says(&["--mcp-config", &of(entry)], None);
        assert!(code == 1 && stderr.contains(want), "{stderr}, not {want}");
    }
}

/// Checks the exit code, the error and the hint.
#[track_caller]
fn refused(world: &World, args: &[&str], want: (i32, &str, &str)) {
    let (code, stderr) = world.fails(args);
    let lines: Vec<_> = stderr.lines().collect();
    let error = lines.iter().find(|line| line.starts_with("error: ")).unwrap_or(&"");
    let hint = lines.iter().find(|line| line.starts_with("hint: ")).unwrap_or(&"");
    assert_eq!(code, want.0, "{args:?}: {stderr}");
    assert!(error.contains(want.1), "{args:?}: {stderr}");
    assert!(if want.2.is_empty() { hint.is_empty() } else { hint.contains(want.2) }, "{args:?}: {stderr}");
    world.nothing_is_left();
}

#[test]
fn wrong_usage_is_reported_before_anything_is_started() {
    let world = World::new();
    for (args, want) in [
        (&[][..], "required arguments were not provided"),
        (&["--stdio"], "required arguments were not provided"),
        (&["--demo", "--token-file", "t"], "--http <ADDR>"),
        (&["--demo", "--allow-host", "h"], "--http <ADDR>"),
        (&["--demo", "--metrics"], "--http <ADDR>"),
        (&["--demo", "--http", "127.0.0.1:0", "--name", "n"], "cannot be used with"),
        (&["--demo", "--stdio", "--name", "n"], "cannot be used with"),
        (&["--demo", "--stdio", "--http", "127.0.0.1:0"], "cannot be used with"),
    ] {
        let (code, stderr) = world.fails(args);
        assert_eq!(code, 2, "{args:?}: {stderr}");
        assert!(stderr.contains(want) && stderr.contains("Usage: toolbridge serve "), "{args:?}: {stderr}");
    }
}

#[test]
fn a_server_that_cannot_be_started_is_one_error_with_a_hint() {
    let world = World::new();
    let missing = world.path("missing").to_str().unwrap().to_owned();
    let dies = ["--", "sh", "-c", "echo 'no key' >&2; exit 3"];
    let cat = ["--", "echo", "hello"];
    refused(
        &world,
        &["--", "no-such-command"],
        (1, "there is no command `no-such-command` on the PATH", "install it"),
    );
    refused(&world, &["--", &missing], (1, "there is no file", "check the path"));
    refused(
        &world,
        &dies,
        (1, "exit status: 3; its last line on stderr was `no key`", "try the command in a shell"),
    );
    refused(
        &world,
        &cat,
        (1, "MCP server `echo`: it ended before it had answered", "try the command in a shell"),
    );
    refused(
        &world,
        &["--start-timeout", "0.3", "--", "sleep", "600"],
        (1, "MCP server `sleep`: it did not answer within 0.3 s", "`--start-timeout`"),
    );
    let config = json!({ "mcpServers": { "deaf": { "command": "sleep", "args": ["600"] } } });
    let config = world.write("deaf.json", config.to_string());
    refused(
        &world,
        &["--mcp-config", &config, "--start-timeout", "0.3"],
        (1, "MCP server `deaf`: it did not answer within 0.3 s", "`--start-timeout`"),
    );
    // The servers that were started are not left behind.
    let config = json!({ "mcpServers": {
        "sums": { "command": OURS[0], "args": OURS[1..] }, "none": { "command": missing },
    } });
    let config = world.write("mcp.json", config.to_string());
    refused(&world, &["--mcp-config", &config], (1, "MCP server `none`: there is no file", "check the path"));
}

#[test]
fn an_invalid_server_file_is_reported_with_the_position() {
    let world = World::new();
    let missing = world.path("missing.json").to_str().unwrap().to_owned();
    refused(&world, &["--mcp-config", &missing], (1, "No such file or directory", "as the CLI has it"));
    for (text, want) in [
        (r#"{"mcpServers":{"a":{"comand":"x"}}}"#, "at `mcpServers.a`: there is no `command`"),
        (
            r#"{"mcpServers":{"a":{"type":"sse","url":"http://x"}}}"#,
            "at `mcpServers.a`: there is no server of the type `sse`",
        ),
        (r#"{"mcpServers":{"a":{"command":"${NO_SUCH_VARIABLE}"}}}"#, "at `mcpServers.a.command`"),
    ] {
        let config = world.write("mcp.json", text);
        refused(&world, &["--mcp-config", &config], (1, want, "as the CLI has it"));
    }
}

#[test]
fn clashing_names_and_missing_tools_are_reported() {
    let world = World::new();
    let server = json!({ "command": OURS[0], "args": OURS[1..] });
    let config = world.write("mcp.json", json!({ "mcpServers": { "a": server, "b": server } }).to_string());
    refused(&world, &["--mcp-config", &config], (1, "two tools are called `add`", "add --prefix"));
    let mut client = world.client(&["--mcp-config", &config, "--prefix"]);
    assert_eq!(listed(&mut client), ["a_add", "b_add"]);
    drop(client);
    // With --prefix given, the hint must not suggest it again.
    let twice = ["--mcp-config", &config, "--mcp-config", &config, "--prefix"];
    refused(&world, &twice, (1, "two tools are called `a_add`", "rename one"));
    let only = ["--demo", "--only", "echoo"];
    refused(
        &world,
        &only,
        (1, "there is no tool `echoo` to choose; did you mean `echo`?", "choose from the names"),
    );
    let itself = ["--session", "shop", "--name", "shop"];
    refused(&world, &itself, (1, "would offer its own tools to itself", "give --name another name"));
    refused(&world, &["--demo", "--name", "a b"], (1, "`a b` cannot be a session's name", ""));
    refused(
        &world,
        &["--docs", "/no/such/folder"],
        (1, "`/no/such/folder` does not exist", "name an existing folder"),
    );
}

#[test]
fn an_unusable_address_is_reported_before_a_server_is_started() {
    let world = World::new();
    let marker = world.path("started").to_str().unwrap().to_owned();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().map(|address| (address.to_string(), taken)).unwrap();
    let server = ["--", "touch", &marker];
    for (address, want, hint) in [
        (&*taken.0, "Address already in use", "another port"),
        ("8000", "cannot listen on `8000`", "such as 127.0.0.1:8000"),
        ("0.0.0.0:0", "`0.0.0.0:0` can be reached from other machines", "--token-file"),
    ] {
        refused(&world, &[&["--http", address][..], &server].concat(), (1, want, hint));
    }
    assert!(!Path::new(&marker).exists());
    let tokens = world.write("tokens", "secret\n");
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o644)).unwrap();
    let open = ["--demo", "--http", "127.0.0.1:0", "--token-file", &tokens];
    refused(&world, &open, (1, "is open to others: its mode is 644", "chmod 600"));
}

#[test]
fn a_call_says_how_its_server_ended_and_the_next_one_finds_it_again() {
    let world = World::new();
    let mut client = world.client(&["--", &everything()]);
    let arguments = json!({ "duration": 600, "steps": 6000 });
    let params = json!({ "name": "trigger-long-running-operation", "arguments": arguments, "_meta": { "progressToken": 1 } });
    let long = client.start_request("tools/call", params);
    assert_eq!(client.receive()["method"], "notifications/progress", "it is under way");
    kill(&world.servers("/node ")[0]);
    let error = text(&client.answer(long));
    assert!(error.contains("ended while the call was under way, and is started again: signal: 9"), "{error}");
    assert_eq!(client.call_text("echo", json!({ "message": "2" })), "Echo: 2");
}
