//! Calls: results, progress, cancellation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};
use toolbridge_core::tool::{Content, RawJson};
use toolbridge_core::{CallContext, NoArgs, Tool, ToolResult, Toolset, http};

use crate::client::{Client, Events, Server, in_time, until};

/// State shared by the tools.
#[derive(Default)]
struct Shared {
    begun: AtomicUsize,
    dropped: AtomicUsize,
    go: Notify,
}

struct Dropped(Arc<Shared>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

fn tools() -> (Toolset, Arc<Shared>) {
    let shared = Arc::new(Shared::default());
    let raw = |text: &'static str| RawJson::parse(text).unwrap();
    let tools = Toolset::builder()
        .state(Arc::clone(&shared))
        .with(Tool::raw("raw", "", json!({ "type": "object" }), |raw: RawJson| raw.as_str().to_owned()))
        .tool("odd", "", move |_: NoArgs| {
            ToolResult::text("a\nb")
                .and(Content::Other(raw(r#"{"type":"new kind","n":12345678901234567890123}"#)))
                .structured(raw(r#"{"big":12345678901234567890123,"small":1e-400,"a":1.10}"#))
                .meta(raw(r#"{"vendor/x":[1]}"#))
        })
        .with(
            Tool::new("wait", "", async |_: NoArgs, context: CallContext| {
                let shared = context.state::<Arc<Shared>>();
                let _dropped = Dropped(Arc::clone(shared));
                shared.begun.fetch_add(1, Ordering::SeqCst);
                shared.go.notified().await;
                "went"
            })
            .read_only(),
        )
        .tool("count", "", async |_: NoArgs, context: CallContext| {
            let shared = context.state::<Arc<Shared>>();
            for step in 1..=3 {
                context.progress(f64::from(step), Some(3.0), Some("on"));
                shared.begun.fetch_add(1, Ordering::SeqCst);
                shared.go.notified().await;
            }
            "counted"
        })
        .build()
        .unwrap();
    (tools, shared)
}

#[tokio::test]
async fn arguments_and_results_pass_byte_for_byte() {
    let server = Server::start(http::Server::builder(tools().0)).await;
    let mut client = server.session().await;
    let arguments = r#"{ "n": 12345678901234567890123, "d": 1.10, "n": 2 }"#;
    let message = |id: &str, meta: &str, name: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{name}","arguments":{arguments}{meta}}}}}"#
        )
    };
    assert_eq!(client.send("POST", message("7", "", "raw")).await.said(), arguments);
    let odd = r#""content":[{"type":"text","text":"a\nb"},{"type":"new kind","n":12345678901234567890123}],"structuredContent":{"big":12345678901234567890123,"small":1e-400,"a":1.10},"isError":false,"_meta":{"vendor/x":[1]}}"#;
    // Ids may have any size.
    let answer = client.send("POST", message("98765432109876543210", "", "odd")).await;
    assert_eq!(answer.text, format!(r#"{{"jsonrpc":"2.0","id":98765432109876543210,"result":{{{odd}}}"#));
    client.stateless("tools/call", json!({ "name": "odd" }));
    let meta = r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}"#;
    let answer = client.send("POST", message(r#""x""#, meta, "odd")).await;
    assert_eq!(
        answer.text,
        format!(r#"{{"jsonrpc":"2.0","id":"x","result":{{"resultType":"complete",{odd}}}"#)
    );
}

async fn progress(client: &mut Client, shared: &Shared, message: &Value) {
    let token = message["params"]["_meta"]["progressToken"].clone();
    let begun = shared.begun.load(Ordering::SeqCst);
    let response = client.begin("POST", message.to_string()).await;
    let mut events = Events::of(response);
    for step in 1..=3 {
        let report = events.next().await.unwrap();
        assert_eq!(report["method"], "notifications/progress");
        assert_eq!(
            report["params"],
            json!({ "progressToken": token, "progress": step, "total": 3, "message": "on" })
        );
        until(|| shared.begun.load(Ordering::SeqCst) == begun + step).await;
        shared.go.notify_one();
    }
    let answer = events.next().await.unwrap();
    assert_eq!((&answer["id"], &answer["result"]["content"][0]["text"]), (&message["id"], &json!("counted")));
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn progress_comes_on_the_calls_own_stream() {
    let (tools, shared) = tools();
    let server = Server::start(http::Server::builder(tools)).await;
    let mut client = server.session().await;
    let params = json!({ "name": "count", "arguments": {}, "_meta": { "progressToken": "t-1" } });
    let message = client.message("tools/call", &params);
    progress(&mut client, &shared, &message).await;
    let mut client = server.client().await;
    let message = client.stateless("tools/call", params);
    progress(&mut client, &shared, &message).await;
}

#[tokio::test]
async fn a_client_that_reads_late_gets_the_newest_report_and_the_answer() {
    // More than sockets and buffers hold.
    const REPORTS: u32 = 200;
    let ended = Arc::new(Notify::new());
    let tell = Arc::clone(&ended);
    let chat = move |_: NoArgs, context: CallContext| {
        let ended = Arc::clone(&tell);
        async move {
            for step in 1..=REPORTS {
                context.progress(step.into(), None, Some(&"x".repeat(100_000)));
                tokio::task::yield_now().await;
            }
            ended.notify_one();
            "chatted"
        }
    };
    let tools = Toolset::builder().tool("chat", "", chat).tool("other", "", async |_: NoArgs| "other");
    let server = Server::start(http::Server::builder(tools.build().unwrap())).await;
    let mut client = server.session().await;
    let params = json!({ "name": "chat", "arguments": {}, "_meta": { "progressToken": 1 } });
    let message = client.message("tools/call", &params);
    let response = client.begin("POST", message.to_string()).await;
    in_time(ended.notified()).await;
    assert_eq!(server.session().await.call("other", json!({})).await.said(), "other", "its turn has come");
    let mut events = Events::of(response);
    let mut newest = json!(null);
    let answer = loop {
        let message = events.next().await.unwrap();
        match message.get("method") {
            Some(_) => newest = message["params"]["progress"].clone(),
            None => break message,
        }
    };
    assert_eq!((newest, &answer["result"]["content"][0]["text"]), (json!(REPORTS), &json!("chatted")));
}

#[tokio::test]
async fn a_cancelled_call_is_dropped_and_has_no_answer() {
    let (tools, shared) = tools();
    let server = Server::start(http::Server::builder(tools)).await;
    let mut client = server.session().await;
    let mut other = client.another().await;
    let message = client.message("tools/call", &json!({ "name": "wait", "arguments": {} }));
    let cancel_it = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": message["id"] },
    });
    let waiting = tokio::spawn(async move { client.post(&message).await });
    until(|| shared.begun.load(Ordering::SeqCst) == 1).await;
    // A client with another session cannot cancel it.
    let mut stranger = server.session().await;
    assert_eq!(stranger.post(&cancel_it).await.status, 202);
    assert_eq!(stranger.call("raw", json!({})).await.said(), "{}");
    assert_eq!(shared.dropped.load(Ordering::SeqCst), 0);
    assert_eq!(other.post(&cancel_it).await.status, 202);
    let answer = waiting.await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.messages()), (200, Vec::new()));
    until(|| shared.dropped.load(Ordering::SeqCst) == 1).await;
    assert!(server.service.metrics().contains("{tool=\"wait\",outcome=\"cancelled\"} 1\n"));
}

/// Begins a call and closes its request: before the response has begun, or in the middle of a stream.
async fn close(mut client: Client, shared: &Shared, message: Value, in_stream: bool) {
    let begun = shared.begun.load(Ordering::SeqCst);
    if in_stream {
        // After a few seconds the response has become a stream.
        let response = client.begin("POST", message.to_string()).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        drop(response);
        drop(client);
    } else {
        let asking = tokio::spawn(async move { client.post(&message).await });
        until(|| shared.begun.load(Ordering::SeqCst) > begun).await;
        // The connection is closed with its client.
        asking.abort();
        _ = asking.await;
    }
}

#[tokio::test]
async fn a_closed_request_without_a_session_cancels_its_call() {
    let (tools, shared) = tools();
    let server = Server::start(http::Server::builder(tools)).await;
    for in_stream in [false, true] {
        let before = shared.dropped.load(Ordering::SeqCst);
        let mut client = server.client().await;
        let message = client.stateless("tools/call", json!({ "name": "wait", "arguments": {} }));
        close(client, &shared, message, in_stream).await;
        until(|| shared.dropped.load(Ordering::SeqCst) > before).await;
    }
    until(|| server.service.metrics().contains("toolbridge_calls_under_way 0\n")).await;
}

#[tokio::test]
async fn a_closed_request_of_a_session_does_not_cancel_its_call() {
    let (tools, shared) = tools();
    let server = Server::start(http::Server::builder(tools)).await;
    let mut client = server.session().await;
    for in_stream in [false, true] {
        let mut other = client.another().await;
        let message = other.message("tools/call", &json!({ "name": "wait", "arguments": {} }));
        close(other, &shared, message.clone(), in_stream).await;
        // The server notices the end of a connection while it reads from it: a call without a session, whose request
        // is closed later, ends first.
        let mut later = server.client().await;
        let wait = later.stateless("tools/call", json!({ "name": "wait", "arguments": {} }));
        let before = shared.dropped.load(Ordering::SeqCst);
        close(later, &shared, wait, false).await;
        until(|| shared.dropped.load(Ordering::SeqCst) == before + 1).await;
        assert!(server.service.metrics().contains("toolbridge_calls_under_way 1\n"));
        if in_stream {
            // It can still be cancelled.
            let cancel = json!({
                "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": message["id"] },
            });
            assert_eq!(client.post(&cancel).await.status, 202);
        } else {
            shared.go.notify_one();
        }
        until(|| server.service.metrics().contains("toolbridge_calls_under_way 0\n")).await;
    }
    let metrics = server.service.metrics();
    assert!(metrics.contains("{tool=\"wait\",outcome=\"ok\"} 1\n"), "{metrics}");
    // The session goes on.
    assert_eq!(client.call("raw", json!({})).await.said(), "{}");
}

#[tokio::test]
async fn an_id_is_used_by_one_call_at_a_time() {
    let (tools, shared) = tools();
    let server = Server::start(http::Server::builder(tools)).await;
    let mut client = server.session().await;
    let mut other = client.another().await;
    let message = client.message("tools/call", &json!({ "name": "wait", "arguments": {} }));
    let again = message.clone();
    let waiting = tokio::spawn(async move { client.post(&message).await });
    until(|| shared.begun.load(Ordering::SeqCst) == 1).await;
    let refused = other.post(&again).await;
    assert_eq!(refused.code(), -32600);
    assert!(refused.text.contains("is under way"), "{}", refused.text);
    shared.go.notify_one();
    assert_eq!(waiting.await.unwrap().said(), "went");
}

#[tokio::test]
async fn exclusive_tools_take_turns_over_all_clients() {
    let inside = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let done = Arc::new(Semaphore::new(0));
    let tools = {
        let (inside, most, done) = (Arc::clone(&inside), Arc::clone(&most), Arc::clone(&done));
        Toolset::builder()
            .tool("alone", "", move |_: NoArgs| {
                let (inside, most, done) = (Arc::clone(&inside), Arc::clone(&most), Arc::clone(&done));
                async move {
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    for _ in 0..20 {
                        tokio::task::yield_now().await;
                    }
                    inside.fetch_sub(1, Ordering::SeqCst);
                    done.add_permits(1);
                }
            })
            .build()
            .unwrap()
    };
    let server = Server::start(http::Server::builder(tools)).await;
    let mut calls = Vec::new();
    for _ in 0..8 {
        let mut client = server.session().await;
        calls.push(tokio::spawn(async move { client.call("alone", json!({})).await.result() }));
    }
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!((done.available_permits(), most.load(Ordering::SeqCst)), (8, 1));
}
