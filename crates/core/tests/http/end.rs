//! Shutdown, the other paths, and metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use toolbridge_core::{NoArgs, Tool, ToolError, Toolset, http};

use crate::client::{Events, Server, in_time, until};

async fn get(server: &Server, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{headers}\r\n", server.address);
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    in_time(stream.read_to_string(&mut answer)).await.unwrap();
    answer
}

#[tokio::test]
async fn calls_under_way_may_finish_and_those_that_do_not_are_cancelled() {
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let (go, begun, dropped) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)), Arc::default());
    let wait = {
        let (go, begun) = (Arc::clone(&go), Arc::clone(&begun));
        move |_: NoArgs| {
            let (go, begun) = (Arc::clone(&go), Arc::clone(&begun));
            async move {
                begun.fetch_add(1, Ordering::SeqCst);
                go.notified().await;
                "went"
            }
        }
    };
    let stay = {
        let (begun, dropped) = (Arc::clone(&begun), Arc::clone(&dropped));
        move |_: NoArgs| {
            let (begun, dropped) = (Arc::clone(&begun), Dropped(Arc::clone(&dropped)));
            async move {
                let _dropped = dropped;
                begun.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<()>().await;
            }
        }
    };
    let tools = Toolset::builder()
        .with(Tool::new("wait", "", wait).read_only())
        .with(Tool::new("stay", "", stay).read_only())
        .build()
        .unwrap();
    let server = Server::start(http::Server::builder(tools)).await;
    let mut client = server.session().await;
    let mut events = {
        let mut streaming = client.another().await;
        let events = Events::of(streaming.begin("GET", String::new()).await);
        (events, streaming)
    };
    let mut staying = client.another().await;
    let stays = tokio::spawn(async move { staying.call("stay", json!({})).await });
    let waits = tokio::spawn(async move { client.call("wait", json!({})).await });
    until(|| begun.load(Ordering::SeqCst) == 2).await;
    let service = server.service.clone();
    server.stop();
    // Right after the stop, and so within the second that calls still have.
    go.notify_one();
    assert_eq!(events.0.next().await, None, "streams end");
    assert_eq!(waits.await.unwrap().said(), "went");
    let ended = stays.await.unwrap();
    assert_eq!(ended.said(), "the server has ended (type: ServerEndedError)");
    assert!(dropped.load(Ordering::SeqCst));
    let address = server.address;
    server.ended().await;
    assert!(TcpStream::connect(address).await.is_err());
    assert!(service.metrics().contains("toolbridge_sessions 0\n"));
}

#[tokio::test]
async fn a_server_that_is_dropped_cancels_its_calls() {
    struct Gone(Arc<Notify>);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    let begun = Arc::new(Notify::new());
    let gone = Arc::new(Notify::new());
    let stay = {
        let (begun, gone) = (Arc::clone(&begun), Arc::clone(&gone));
        move |_: NoArgs| {
            let (begun, gone) = (Arc::clone(&begun), Gone(Arc::clone(&gone)));
            async move {
                let _gone = gone;
                begun.notify_one();
                std::future::pending::<()>().await;
            }
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tools = Toolset::builder().tool("stay", "", stay).build().unwrap();
    let serving = tokio::spawn(http::Server::builder(tools).serve(listener, std::future::pending()));
    let mut client = crate::client::Client::to(address).await;
    let message = client.stateless("tools/call", json!({ "name": "stay" })).to_string();
    let calling = tokio::spawn(async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let headers: String =
            client.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request =
            format!("POST /mcp HTTP/1.1\r\n{headers}content-length: {}\r\n\r\n{message}", message.len());
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        _ = stream.read_to_end(&mut answer).await;
    });
    in_time(begun.notified()).await;
    serving.abort();
    in_time(gone.notified()).await;
    in_time(calling).await.unwrap();
}

#[tokio::test]
async fn other_paths_say_how_it_is() {
    let tools = Toolset::builder()
        .tool("hello", "", async |_: NoArgs| "hello")
        .tool("fails", "", async |_: NoArgs| Err::<(), _>(ToolError::new("Oh", "no")))
        .build()
        .unwrap();
    let server = Server::start(http::Server::builder(tools.clone())).await;
    let health = get(&server, "/healthz", "").await;
    assert!(health.starts_with("HTTP/1.1 200 ") && health.ends_with("\r\n\r\nok"), "{health}");
    for path in ["/metrics", "/", "/mcp/x"] {
        let answer = get(&server, path, "").await;
        assert!(answer.starts_with("HTTP/1.1 404 ") && answer.contains("MCP is at `/mcp`"), "{answer}");
    }
    let server = Server::start(http::Server::builder(tools).metrics()).await;
    let mut client = server.session().await;
    client.call("hello", json!({})).await;
    client.call("hello", json!({})).await;
    client.call("fails", json!({})).await;
    client.call("nobody", json!({})).await;
    let text = get(&server, "/metrics", "").await;
    for line in [
        "toolbridge_calls_total{tool=\"hello\",outcome=\"ok\"} 2",
        "toolbridge_calls_total{tool=\"fails\",outcome=\"tool_error\"} 1",
        "toolbridge_call_seconds_count{tool=\"hello\"} 2",
        "toolbridge_calls_under_way 0",
        "toolbridge_sessions 1",
    ] {
        assert!(text.contains(&format!("\n{line}\n")), "{line} in {text}");
    }
    assert!(!text.contains("nobody"), "only listed tools have metrics");
    let foreign = get(&server, "/metrics", "origin: https://evil.example\r\n").await;
    assert!(foreign.starts_with("HTTP/1.1 403 "), "{foreign}");
}

#[tokio::test]
async fn a_call_is_a_part_of_its_callers_trace() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("trace.jsonl");
    let tools = Toolset::builder().tool("hello", "", async |_: NoArgs| "hello").build().unwrap();
    let server = Server::start(http::Server::builder(tools).trace(&path)).await;
    let mut client = server.session().await;
    client.set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    client.call("hello", json!({})).await.said();
    let meta = json!({ "traceparent": "00-11111111111111111111111111111111-b7ad6b7169203331-01" });
    client.ask("tools/call", json!({ "name": "hello", "_meta": meta })).await.said();
    let end_of = |trace: &str| {
        let text = std::fs::read_to_string(&path).unwrap();
        text.lines().any(|line| line.contains(r#""event":"call_end""#) && line.contains(trace))
    };
    until(|| end_of("0af7651916cd43dd8448eb211c80319c")).await;
    until(|| end_of("11111111111111111111111111111111")).await;
}
