//! The front over an in-memory client that reads slowly, or not at all.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;
use toolbridge_core::{CallContext, NoArgs, Toolset};
use toolbridge_mcp::{LineReader, LineWriter, ServeError, ServerInfo, serve};

const PATIENCE: Duration = Duration::from_secs(10);

struct Client {
    lines: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
    server: JoinHandle<Result<(), ServeError>>,
}

impl Client {
    /// A client whose pipe holds `room` bytes, after the handshake.
    async fn start(tools: Toolset, room: usize) -> Self {
        let (near, far) = tokio::io::duplex(room);
        let (read, write) = tokio::io::split(far);
        let server = tokio::spawn(serve(
            Arc::new(tools),
            ServerInfo::default(),
            LineReader::new(read),
            LineWriter::new(write),
        ));
        let (read, writer) = tokio::io::split(near);
        let mut client = Self { lines: BufReader::with_capacity(1, read).lines(), writer, server };
        client
            .send(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
                "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" },
            } }))
            .await;
        assert_eq!(client.receive().await["id"], 0);
        client
    }

    async fn send(&mut self, message: &Value) {
        self.writer.write_all(format!("{message}\n").as_bytes()).await.unwrap();
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
    // Its first report does not fit the pipe, and nobody reads.
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
