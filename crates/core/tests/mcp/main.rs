//! The front with an in-memory client that reads slowly, or not at all.
#![allow(clippy::unwrap_used, reason = "tests")]

mod questions;

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf,
};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use toolbridge_core::mcp::{LineReader, LineWriter, MAX_CALLS_IN_FLIGHT, ServeError, serve};
use toolbridge_core::source::CallFuture;
use toolbridge_core::tool::{ServerInfo, ToolCall, ToolList};
use toolbridge_core::{CallContext, NoArgs, Tool, ToolSource, Toolset};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

struct Client {
    lines: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
    server: JoinHandle<Result<(), ServeError>>,
}

impl Client {
    /// A client whose pipe holds `room` bytes, after the handshake.
    async fn start(tools: impl ToolSource, room: usize) -> Self {
        Self::start_with(tools, room, json!({})).await
    }

    /// The same for one that can do more.
    async fn start_with(tools: impl ToolSource, room: usize, capabilities: Value) -> Self {
        let (near, far) = tokio::io::duplex(room);
        let (read, write) = tokio::io::split(far);
        let server =
            tokio::spawn(serve(tools, ServerInfo::default(), LineReader::new(read), LineWriter::new(write)));
        let (read, writer) = tokio::io::split(near);
        let mut client = Self { lines: BufReader::with_capacity(1, read).lines(), writer, server };
        client
            .send(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
                "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": { "name": "t", "version": "1" },
            } }))
            .await;
        assert_eq!(client.receive().await["id"], 0);
        client
    }

    async fn send(&mut self, message: &Value) {
        self.send_line(&message.to_string()).await;
    }

    async fn send_line(&mut self, line: &str) {
        self.writer.write_all(line.as_bytes()).await.unwrap();
        self.writer.write_all(b"\n").await.unwrap();
    }

    async fn call(&mut self, id: u64, tool: &str) {
        let params = json!({ "name": tool, "arguments": {}, "_meta": { "progressToken": id } });
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })).await;
    }

    async fn receive(&mut self) -> Value {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await.expect("a line in time");
        let line = line.unwrap().expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}

fn chatty() -> Toolset {
    Toolset::builder()
        .tool("chat", "Reports without end", async |_: NoArgs, context: CallContext| {
            for step in 0.. {
                context.progress(f64::from(step), None, Some(&"x".repeat(1000)));
                tokio::task::yield_now().await;
            }
        })
        .tool("hello", "Greets", async |_: NoArgs| "hello")
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_call_cancelled_while_its_report_is_being_written_spoils_no_line() {
    let mut client = Client::start(chatty(), 256).await;
    client.call(1, "chat").await;
    // Its first report does not fit the pipe, and the client does not read.
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    client
        .send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } }))
        .await;
    client.call(2, "hello").await;
    let answer = loop {
        let message = client.receive().await;
        if message["method"] == "notifications/progress" {
            assert_eq!(message["params"]["progressToken"], 1);
            continue;
        }
        break message;
    };
    assert_eq!((&answer["id"], &answer["result"]["content"][0]["text"]), (&json!(2), &json!("hello")));
}

/// Accepts some bytes, and then fails with that error.
struct Broken(usize, ErrorKind);

impl AsyncWrite for Broken {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let taken = bytes.len().min(self.0);
        self.0 -= taken;
        Poll::Ready(if taken == 0 { Err(self.1.into()) } else { Ok(taken) })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn an_answer_that_cannot_be_written_ends_the_front() {
    // Nothing of the answer to `initialize` can be written, or half of it.
    for (taken, kind) in
        [(0, ErrorKind::BrokenPipe), (20, ErrorKind::BrokenPipe), (20, ErrorKind::StorageFull)]
    {
        let (mut client, incoming) = tokio::io::duplex(4096);
        let outgoing = LineWriter::new(Broken(taken, kind));
        let serving = serve(chatty(), ServerInfo::default(), LineReader::new(incoming), outgoing);
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" },
        } });
        client.write_all(format!("{hello}\n").as_bytes()).await.unwrap();
        let served = tokio::time::timeout(PATIENCE, serving).await.expect("an end in time");
        // A client that is gone is not an error.
        assert_eq!(served.is_ok(), kind == ErrorKind::BrokenPipe, "{served:?}");
    }
}

#[tokio::test]
async fn calls_under_way_have_a_moment_when_the_client_ends_and_no_more() {
    let mut client = Client::start(chatty(), 1 << 16).await;
    client.call(1, "hello").await;
    client.call(2, "chat").await;
    client.writer.shutdown().await.unwrap();
    let mut answered = false;
    while let Some(line) = tokio::time::timeout(PATIENCE, client.lines.next_line()).await.unwrap().unwrap() {
        // The last report may be cut off by the end.
        let message: Value = serde_json::from_str(&line).unwrap_or_default();
        answered |= message["id"] == 1;
    }
    assert!(answered);
    tokio::time::timeout(PATIENCE, client.server).await.unwrap().unwrap().unwrap();
}

/// A tool that counts its calls.
fn counting(started: &Arc<AtomicUsize>) -> Toolset {
    let started = Arc::clone(started);
    let count = move |_: NoArgs| {
        let before = started.fetch_add(1, Ordering::Relaxed);
        async move { format!("{before}{}", "x".repeat(1000)) }
    };
    Toolset::builder().with(Tool::new("count", "Counts", count).read_only()).build().unwrap()
}

#[tokio::test]
async fn a_client_that_does_not_read_its_progress_does_not_hold_its_calls() {
    let ended = Arc::new(Notify::new());
    let tell = Arc::clone(&ended);
    let chat = move |_: NoArgs, context: CallContext| {
        let ended = Arc::clone(&tell);
        async move {
            for step in 1..=1000 {
                context.progress(f64::from(step), None, None);
                tokio::task::yield_now().await;
            }
            ended.notify_one();
        }
    };
    let mut client = Client::start(Toolset::builder().tool("chat", "", chat).build().unwrap(), 256).await;
    // The second waits for the turn of the first.
    for id in [1, 2] {
        client.call(id, "chat").await;
    }
    for _ in [1, 2] {
        tokio::time::timeout(PATIENCE, ended.notified()).await.expect("the tool goes on");
    }
    let (mut newest, mut answered) = ([json!(null), json!(null)], 0);
    while answered < 2 {
        let message = client.receive().await;
        if message["method"] == "notifications/progress" {
            let of = usize::from(message["params"]["progressToken"] == 2);
            newest[of] = message["params"]["progress"].clone();
        } else {
            answered += 1;
        }
    }
    assert_eq!(newest, [json!(1000), json!(1000)]);
}

#[tokio::test]
async fn calls_that_wait_for_their_turn_do_not_keep_others_from_running() {
    let go = Arc::new(Notify::new());
    let gone = Arc::clone(&go);
    let change = move |_: NoArgs| {
        let go = Arc::clone(&gone);
        async move { go.notified().await }
    };
    let tools = Toolset::builder()
        .tool("change", "", change)
        .with(Tool::new("look", "", async |_: NoArgs| "seen").read_only())
        .build()
        .unwrap();
    let mut client = Client::start(tools, 1 << 20).await;
    for id in 1..=MAX_CALLS_IN_FLIGHT as u64 {
        client.call(id, "change").await;
    }
    client.call(1000, "look").await;
    assert_eq!(client.receive().await["id"], 1000);
    for id in 1..=MAX_CALLS_IN_FLIGHT {
        go.notify_one();
        assert_eq!(client.receive().await["id"], id);
    }
}

#[tokio::test]
async fn a_call_runs_until_its_answer_is_written() {
    let started = Arc::new(AtomicUsize::new(0));
    let mut client = Client::start(counting(&started), 256).await;
    let calls = MAX_CALLS_IN_FLIGHT as u64 + 100;
    for id in 1..=calls {
        client.call(id, "count").await;
    }
    // The client does not read. On one thread, everything that can run has run after so many turns.
    let mut last = usize::MAX;
    while last != started.load(Ordering::Relaxed) {
        last = started.load(Ordering::Relaxed);
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(last, MAX_CALLS_IN_FLIGHT, "unread answers pile up");
    for _ in 0..calls {
        client.receive().await;
    }
    assert_eq!(started.load(Ordering::Relaxed) as u64, calls);
}

/// Keeps the arguments of its calls, like a relay whose other end does not read.
struct Keeping(Toolset);

impl ToolSource for Keeping {
    fn tools(&self) -> ToolList {
        self.0.tools()
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        Box::pin(async move {
            context.cancellation().cancelled().await;
            Ok(call.arguments)
        })
    }
}

#[tokio::test]
async fn calls_hold_the_whole_of_their_lines_and_no_more_than_there_is_room_for() {
    let mut client = Client::start(Keeping(chatty()), 1 << 20).await;
    // The arguments are small, the lines are large: 8 of them are 240 MiB.
    let padding = "x".repeat(30 * 1024 * 1024);
    let line = |id: u64| {
        let params = format!(r#"{{"name":"hello","arguments":{{"a":1}},"padding":"{padding}"}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{params}}}"#)
    };
    for id in 1..=9 {
        client.send_line(&line(id)).await;
    }
    let answer = client.receive().await;
    assert_eq!((&answer["id"], &answer["result"]["isError"]), (&json!(9), &json!(true)));
    assert_eq!(
        answer["result"]["content"][0]["text"],
        "calls under way hold 268435456 bytes of messages, which is the limit (type: IPCError)"
    );
    // A call that ends makes room.
    client
        .send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } }))
        .await;
    client.send_line(&line(10)).await;
    client.send_line(&line(11)).await;
    assert_eq!(client.receive().await["id"], 11, "one has ended, so one more is taken");
}

#[tokio::test]
async fn a_protocol_version_that_is_not_a_string_gets_an_answer() {
    let mut client = Client::start(chatty(), 1 << 16).await;
    for version in [json!(5), json!(null), json!(["2026-07-28"]), json!({}), json!("1999-01-01")] {
        let meta = json!({ "io.modelcontextprotocol/protocolVersion": version });
        for (method, params) in [
            ("tools/call", json!({ "name": "hello", "arguments": {}, "_meta": meta })),
            ("tools/list", json!({ "_meta": meta })),
        ] {
            client.send(&json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params })).await;
            let answer = client.receive().await;
            assert_eq!(answer["id"], 7, "{version}: {answer}");
            // Null counts as missing.
            assert_eq!(answer.get("error").is_some(), !version.is_null(), "{version}: {answer}");
        }
    }
    client.call(8, "hello").await;
    assert_eq!(client.receive().await["result"]["content"][0]["text"], "hello");
}

#[tokio::test]
async fn progress_that_is_not_a_number_is_not_reported_and_harms_nothing() {
    let tools = Toolset::builder()
        .tool("odd", "Reports odd numbers", async |_: NoArgs, context: CallContext| {
            context.progress(f64::NAN, None, Some("nan"));
            context.progress(f64::INFINITY, Some(1.0), None);
            context.progress(1.0, Some(f64::NAN), Some("one"));
            "done"
        })
        .build()
        .unwrap();
    let mut client = Client::start(tools, 1 << 16).await;
    client.call(1, "odd").await;
    let report = client.receive().await;
    assert_eq!(report["params"], json!({ "progressToken": 1, "progress": 1, "message": "one" }));
    assert_eq!(client.receive().await["result"]["content"][0]["text"], "done");
}

#[tokio::test(start_paused = true)]
async fn protocol_requests_with_unread_answers_are_refused_as_invalid() {
    let mut client = Client::start(chatty(), 256).await;
    let requests = 100;
    // The client does not read, so the answers are not sent.
    for id in 1..=requests {
        client.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "ping" })).await;
    }
    let mut refused = 0;
    for _ in 0..requests {
        let answer = client.receive().await;
        if let Some(error) = answer.get("error") {
            refused += 1;
            let want = "64 requests wait for an answer, which is the limit";
            assert_eq!(error, &json!({ "code": -32600, "message": want }));
        }
    }
    assert!((1..=requests - 64).contains(&refused), "{refused} of {requests} were refused");
}

fn hello(name: &str) -> Tool {
    Tool::new(name, "Greets", async |_: NoArgs| "hello")
}

fn names(list: &Value) -> Vec<&str> {
    list["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_client_is_told_that_the_list_has_changed_and_gets_the_new_one() {
    let tools = Toolset::builder().with(hello("one")).build().unwrap();
    let mut client = Client::start(tools.clone(), 64 * 1024).await;
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    client.send(&list).await;
    assert_eq!(names(&client.receive().await), ["one"]);
    tools.add(hello("two")).unwrap();
    let told = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    assert_eq!(client.receive().await, told);
    client.send(&list).await;
    assert_eq!(names(&client.receive().await), ["one", "two"]);
    // A removed tool is refused, even before the client has requested the list again.
    assert!(tools.remove("one"));
    assert_eq!(client.receive().await, told);
    client.call(2, "one").await;
    assert_eq!(client.receive().await["error"]["code"], -32602);
}

#[tokio::test]
async fn a_subscription_is_acknowledged_told_and_ended() {
    let tools = Toolset::builder().with(hello("one")).build().unwrap();
    let mut client = Client::start(tools.clone(), 64 * 1024).await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let listen = |id: &str, filter: Value| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "subscriptions/listen",
                "params": { "_meta": meta, "notifications": filter } })
    };
    client.send(&listen("listen:0", json!({ "toolsListChanged": true, "promptsListChanged": true }))).await;
    let of = |id: &str| json!({ "io.modelcontextprotocol/subscriptionId": id });
    assert_eq!(
        client.receive().await,
        json!({ "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
                "params": { "_meta": of("listen:0"), "notifications": { "toolsListChanged": true } } })
    );
    // One without any matching notification, and one with an id that is in use.
    client.send(&listen("listen:1", json!({}))).await;
    assert_eq!(client.receive().await["params"], json!({ "_meta": of("listen:1"), "notifications": {} }));
    client.send(&listen("listen:0", json!({}))).await;
    assert_eq!(client.receive().await["error"]["code"], -32600);

    tools.add(hello("two")).unwrap();
    // This client has also called `initialize`, so it is notified twice.
    assert_eq!(client.receive().await.get("params"), None);
    assert_eq!(
        client.receive().await,
        json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed", "params": { "_meta": of("listen:0") } })
    );
    client
        .send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": "listen:0" } }))
        .await;
    client.send(&json!({ "jsonrpc": "2.0", "id": 9, "method": "ping" })).await;
    assert_eq!(client.receive().await["id"], 9);
    tools.add(hello("three")).unwrap();
    assert_eq!(client.receive().await.get("params"), None);
    client.send(&json!({ "jsonrpc": "2.0", "id": 10, "method": "ping" })).await;
    assert_eq!(client.receive().await["id"], 10);
}

#[tokio::test]
async fn handlers_know_who_calls() {
    let tools = Toolset::builder()
        .tool("who", "Says who calls", async |_: NoArgs, context: CallContext| {
            let client = context.caller().cloned().unwrap_or_default();
            format!("{} {}", client.name.unwrap_or_default(), client.version.unwrap_or_default())
        })
        .build()
        .unwrap();
    let mut client = Client::start(tools, 64 * 1024).await;
    client.call(1, "who").await;
    assert_eq!(client.receive().await["result"]["content"][0]["text"], "t 1");
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "who", "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "other", "version": "2" },
        "io.modelcontextprotocol/clientCapabilities": {},
    } } });
    client.send(&call).await;
    assert_eq!(client.receive().await["result"]["content"][0]["text"], "other 2");
}
