//! Limits on what one client, or many, can make the server do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Mutex, Semaphore};
use toolbridge_core::tool::RawJson;
use toolbridge_core::{CallContext, NoArgs, Tool, Toolset, http};

use crate::client::{Server, in_time, until};

/// For tests that measure the memory of this process or limit its descriptors: `cargo test` runs tests in one process.
static PROCESS: Mutex<()> = Mutex::const_new(());

#[derive(Deserialize, schemars::JsonSchema)]
struct Text {
    text: String,
}

fn tools() -> Toolset {
    Toolset::builder().with(Tool::new("echo", "", async |args: Text| args.text).read_only()).build().unwrap()
}

/// Tools that wait for a permit.
fn waiting() -> (Toolset, Arc<Semaphore>, Arc<AtomicUsize>) {
    let go = Arc::new(Semaphore::new(0));
    let begun = Arc::new(AtomicUsize::new(0));
    let (release, count) = (Arc::clone(&go), Arc::clone(&begun));
    let wait = move |_: NoArgs| {
        let (go, begun) = (Arc::clone(&release), Arc::clone(&count));
        async move {
            begun.fetch_add(1, Ordering::SeqCst);
            go.acquire().await.unwrap().forget();
            "went"
        }
    };
    let tools = Toolset::builder().with(Tool::new("wait", "", wait).read_only()).build().unwrap();
    (tools, go, begun)
}

/// The resident memory of this process.
#[cfg(target_os = "linux")]
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 1024
}

fn head(server: &Server, length: &str) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nhost: {}\r\naccept: application/json, text/event-stream\r\ncontent-type: application/json\r\n{length}\r\n\r\n",
        server.address
    )
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_body_that_is_too_large_is_not_read() {
    let _process = PROCESS.lock().await;
    let server = Server::start(http::Server::builder(tools())).await;
    let before = resident_bytes();
    // With a length: it is refused before the body is sent.
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(head(&server, "content-length: 104857600").as_bytes()).await.unwrap();
    let mut answer = String::new();
    in_time(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413 ") && answer.contains("over the limit of 33554432"), "{answer}");
    // Without a length: it is refused while the body is sent.
    let (mut read, mut write) = TcpStream::connect(server.address).await.unwrap().into_split();
    write.write_all(head(&server, "transfer-encoding: chunked").as_bytes()).await.unwrap();
    let sending = tokio::spawn(async move {
        let chunk = [b"100000\r\n".as_slice(), &vec![b' '; 1 << 20], b"\r\n"].concat();
        let mut sent = 0;
        while sent < 100 && write.write_all(&chunk).await.is_ok() {
            sent += 1;
        }
        sent
    });
    let mut start = [0; 12];
    in_time(read.read_exact(&mut start)).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 413");
    drop(read);
    assert!(in_time(sending).await.unwrap() < 100, "all of it was taken");
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 80 << 20, "grown by {grown}");
    // The largest body that is allowed.
    let mut client = server.session().await;
    let text = "x".repeat((32 << 20) - 200);
    assert_eq!(client.call("echo", json!({ "text": text })).await.said().len(), text.len());
}

#[tokio::test]
async fn a_body_without_a_length_takes_no_more_memory_than_it_has() {
    let (go, begun) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let (release, count) = (Arc::clone(&go), Arc::clone(&begun));
    // Keeps its arguments until it ends.
    let keep = move |args: RawJson| {
        let (go, begun) = (Arc::clone(&release), Arc::clone(&count));
        async move {
            begun.fetch_add(1, Ordering::SeqCst);
            go.acquire().await.unwrap().forget();
            args.as_str().len().to_string()
        }
    };
    let keep = Tool::raw("keep", "", json!({ "type": "object" }), keep).read_only();
    let server = Server::start(http::Server::builder(Toolset::builder().with(keep).build().unwrap())).await;
    let text = "x".repeat(100_000);
    let mut calls = Vec::new();
    // Of the longest bodies, eight fill the memory for messages.
    for _ in 0..20 {
        let mut client = server.client().await;
        let params = json!({ "name": "keep", "arguments": { "text": text } });
        let body = client.stateless("tools/call", params).to_string();
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let headers = "transfer-encoding: chunked\r\nconnection: close\r\nmcp-protocol-version: 2026-07-28\r\n\
                       mcp-method: tools/call\r\nmcp-name: keep";
        stream.write_all(head(&server, headers).as_bytes()).await.unwrap();
        stream.write_all(format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).as_bytes()).await.unwrap();
        calls.push(stream);
    }
    until(|| begun.load(Ordering::SeqCst) == calls.len()).await;
    go.add_permits(calls.len());
    for mut call in calls {
        let mut answer = String::new();
        in_time(call.read_to_string(&mut answer)).await.unwrap();
        assert!(answer.contains("100011"), "{answer}");
    }
}

#[tokio::test]
async fn a_client_that_sends_slowly_is_disconnected() {
    let server = Server::start(http::Server::builder(tools()).read_timeout(Duration::from_secs(2))).await;
    // First the head of a request never ends, then the body.
    for start in [
        format!("POST /mcp HTTP/1.1\r\nhost: {}\r\n", server.address),
        head(&server, "content-length: 1000000"),
    ] {
        let (mut read, mut write) = TcpStream::connect(server.address).await.unwrap().into_split();
        write.write_all(start.as_bytes()).await.unwrap();
        let dripping = tokio::spawn(async move {
            while write.write_all(b"a").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        let mut answer = Vec::new();
        _ = in_time(read.read_to_end(&mut answer)).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
        drop(read);
        in_time(dripping).await.unwrap();
    }
    assert!(server.session().await.ask("ping", json!({})).await.status == 200);
}

#[tokio::test]
async fn too_many_calls_are_refused_and_the_others_answered() {
    let (tools, go, begun) = waiting();
    let server = Server::start(http::Server::builder(tools).max_calls(2)).await;
    let mut calls = Vec::new();
    for _ in 0..16 {
        let mut client = server.client().await;
        calls.push(tokio::spawn(async move {
            client.ask_stateless("tools/call", json!({ "name": "wait" })).await
        }));
    }
    until(|| server.service.metrics().contains("toolbridge_calls_under_way 16\n")).await;
    assert_eq!(begun.load(Ordering::SeqCst), 2, "two run, the others wait");
    let mut client = server.client().await;
    let refused = client.ask_stateless("tools/call", json!({ "name": "wait" })).await;
    assert_eq!((refused.status.as_u16(), refused.code()), (503, -32000));
    assert_eq!(refused.headers["retry-after"], "1");
    assert!(refused.text.contains("16 calls are under way"), "{}", refused.text);
    go.add_permits(16);
    for call in calls {
        assert_eq!(call.await.unwrap().said(), "went");
    }
}

#[tokio::test]
async fn calls_that_wait_for_their_turn_do_not_keep_others_from_running() {
    let go = Arc::new(Semaphore::new(0));
    let gone = Arc::clone(&go);
    let change = move |_: NoArgs| {
        let go = Arc::clone(&gone);
        async move { go.acquire().await.unwrap().forget() }
    };
    let look = Tool::new("look", "", async |_: NoArgs| "seen").read_only();
    let tools = Toolset::builder().tool("change", "", change).with(look).build().unwrap();
    let server = Server::start(http::Server::builder(tools).max_calls(2)).await;
    let mut calls = Vec::new();
    for _ in 0..8 {
        let mut client = server.client().await;
        calls.push(tokio::spawn(async move {
            client.ask_stateless("tools/call", json!({ "name": "change" })).await
        }));
    }
    until(|| server.service.metrics().contains("toolbridge_calls_under_way 8\n")).await;
    let mut client = server.client().await;
    let answer = in_time(client.ask_stateless("tools/call", json!({ "name": "look" }))).await;
    assert_eq!(answer.said(), "seen");
    go.add_permits(8);
    for call in calls {
        assert_eq!(in_time(call).await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn the_session_that_is_idle_for_longest_makes_room() {
    let (tools, go, begun) = waiting();
    let server = Server::start(http::Server::builder(tools).max_sessions(2)).await;
    let mut busy = server.session().await;
    let mut calling = busy.another().await;
    let call = tokio::spawn(async move { calling.call("wait", json!({})).await });
    until(|| begun.load(Ordering::SeqCst) == 1).await;
    let mut idle = server.session().await;
    let mut third = server.session().await;
    assert_eq!(idle.ask("ping", json!({})).await.status, 404, "it made room");
    assert_eq!(busy.ask("ping", json!({})).await.status, 200, "it is in use");
    let mut streaming = third.another().await;
    let stream = streaming.begin("GET", String::new()).await;
    let mut fourth = server.client().await;
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let refused = fourth.ask("initialize", hello).await;
    assert_eq!((refused.status.as_u16(), refused.code()), (503, -32000));
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(third.ask("ping", json!({})).await.status, 200);
    go.add_permits(1);
    assert_eq!(call.await.unwrap().said(), "went");
    drop(stream);
}

#[tokio::test]
async fn an_idle_session_ends() {
    let server = Server::start(http::Server::builder(tools()).session_idle(Duration::from_millis(50))).await;
    let mut client = server.client().await;
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let answer = client.ask("initialize", hello).await;
    client.set("mcp-session-id", answer.headers["mcp-session-id"].to_str().unwrap());
    until(|| server.service.metrics().contains("toolbridge_sessions 0\n")).await;
    assert_eq!(client.ask("ping", json!({})).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_clients_at_once_are_all_answered() {
    let _process = PROCESS.lock().await;
    // Each needs two descriptors, because both ends are in this process: the server raises the limit.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), maximum: limit.maximum }).unwrap();
    let server = Server::start(http::Server::builder(tools())).await;
    let mut connected = Vec::new();
    for _ in 0..1000 {
        connected.push(server.client().await);
    }
    let mut clients = tokio::task::JoinSet::new();
    for (number, mut client) in connected.into_iter().enumerate() {
        clients.spawn(async move {
            if number % 2 == 0 {
                client.initialize("2025-11-25").await;
                let said = client.call("echo", json!({ "text": number.to_string() })).await.said();
                return (said, number.to_string());
            }
            let params = json!({ "name": "echo", "arguments": { "text": number.to_string() } });
            (client.ask_stateless("tools/call", params).await.said(), number.to_string())
        });
    }
    let answers = in_time(clients.join_all()).await;
    assert_eq!(answers.len(), 1000);
    for (got, want) in answers {
        assert_eq!(got, want);
    }
}

/// `echo`, and tools with long answers; `reports` reports more than a connection buffers before.
fn big() -> Toolset {
    let tools = tools();
    tools.add(Tool::new("big", "", async |_: NoArgs| "a".repeat(9_000_000)).read_only()).unwrap();
    let reports = async |_: NoArgs, context: CallContext| {
        for step in 1..=150_u32 {
            context.progress(step.into(), None, Some(&"x".repeat(100_000)));
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        "a".repeat(9_000_000)
    };
    tools.add(Tool::new("reports", "", reports).read_only()).unwrap();
    tools
}

/// A hundred clients that do not read long answers, and are disconnected or leave.
#[cfg(target_os = "linux")]
async fn unread(tool: &str, write_timeout: Duration, leave: bool) {
    let server = Server::start(http::Server::builder(big()).write_timeout(write_timeout)).await;
    let mut client = server.session().await;
    assert_eq!(client.call(tool, json!({})).await.said().len(), 9_000_000);
    let before = resident_bytes();
    let call = client
        .message("tools/call", &json!({ "name": tool, "arguments": {}, "_meta": { "progressToken": 1 } }));
    let (_, session) = client.headers.iter().find(|(name, _)| *name == "mcp-session-id").unwrap();
    let mut silent = Vec::new();
    for id in 0..100 {
        let mut call = call.clone();
        call["id"] = json!(format!("silent {id}"));
        let call = call.to_string();
        let length = format!("mcp-session-id: {session}\r\ncontent-length: {}", call.len());
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(format!("{}{call}", head(&server, &length)).as_bytes()).await.unwrap();
        silent.push(stream);
    }
    let ended = format!("toolbridge_call_seconds_count{{tool=\"{tool}\"}} 101\n");
    until(|| server.service.metrics().contains(&ended)).await;
    let held = resident_bytes().saturating_sub(before);
    assert!(held < 600_000_000, "{tool}: {held} bytes for answers that nobody reads");
    assert_eq!(server.session().await.call("echo", json!({ "text": "hello" })).await.said(), "hello");
    if leave {
        silent.clear();
    }
    // Their connections are closed, and all memory is given back.
    until(|| resident_bytes() < before + 60_000_000).await;
    // On a connection of its own: the server closes one that was idle for a minute, as on a busy machine.
    assert_eq!(client.another().await.call(tool, json!({})).await.said().len(), 9_000_000);
    drop(silent);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn clients_that_do_not_read_their_answers_take_limited_memory_and_are_disconnected() {
    let _process = PROCESS.lock().await;
    unread("big", Duration::from_secs(5), false).await;
    unread("big", Duration::from_secs(600), true).await;
    unread("reports", Duration::from_secs(600), true).await;
}

#[tokio::test]
async fn a_client_that_reads_slowly_gets_its_whole_answer() {
    let server = Server::start(http::Server::builder(big()).write_timeout(Duration::from_secs(4))).await;
    let client = server.session().await;
    let mut call = client.another().await.message("tools/call", &json!({ "name": "big", "arguments": {} }));
    call["id"] = json!("slow");
    let call = call.to_string();
    let (_, session) = client.headers.iter().find(|(name, _)| *name == "mcp-session-id").unwrap();
    let length = format!("mcp-session-id: {session}\r\ncontent-length: {}\r\nconnection: close", call.len());
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let mut stream = socket.connect(server.address).await.unwrap();
    stream.write_all(format!("{}{call}", head(&server, &length)).as_bytes()).await.unwrap();
    let mut answer = vec![0; 16 * 1024];
    // Twice as long as the limit.
    for step in 0..80 {
        let part = &mut answer[..];
        in_time(stream.read_exact(part)).await.unwrap_or_else(|error| panic!("part {step}: {error}"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut rest = Vec::new();
    in_time(stream.read_to_end(&mut rest)).await.unwrap();
    assert!(80 * answer.len() + rest.len() > 9_000_000 && rest.ends_with(b"}"), "{} bytes", rest.len());
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_a_place() {
    let server = Server::start(http::Server::builder(tools()).max_connections(1)).await;
    let mut first = server.client().await;
    first.initialize("2025-11-25").await;
    let mut second = first.another().await;
    let waiting = tokio::spawn(async move { second.ask("ping", json!({})).await });
    assert_eq!(first.ask("ping", json!({})).await.status, 200);
    assert!(!waiting.is_finished());
    drop(first);
    assert_eq!(waiting.await.unwrap().status, 200);
}
