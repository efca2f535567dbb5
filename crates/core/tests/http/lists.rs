//! Clients are notified when the tools change.

use serde_json::json;
use toolbridge_core::{NoArgs, Tool, Toolset, http};

use crate::client::{Events, Server, until};

fn tools() -> Toolset {
    Toolset::builder().tool("hello", "Greets", async |_: NoArgs| "hello").build().unwrap()
}

fn another(name: &str) -> Tool {
    Tool::new(name, "", async |_: NoArgs| "more")
}

#[tokio::test]
async fn the_stream_of_a_session_tells_of_changes() {
    let tools = tools();
    let server = Server::start(http::Server::builder(tools.clone())).await;
    let mut client = server.session().await;
    let list = client.ask("tools/list", json!({})).await.result();
    assert_eq!(list["tools"].as_array().unwrap().len(), 1);
    // A change between the list and the stream must not be missed.
    tools.add(another("early")).unwrap();
    let mut streaming = client.another().await;
    let mut events = Events::of(streaming.begin("GET", String::new()).await);
    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    assert_eq!(events.next().await, Some(changed.clone()));
    tools.add(another("late")).unwrap();
    assert_eq!(events.next().await, Some(changed.clone()));
    assert_eq!(client.call("late", json!({})).await.said(), "more");
    // Another stream replaces it.
    let mut third = client.another().await;
    let mut later = Events::of(third.begin("GET", String::new()).await);
    assert_eq!(events.next().await, None);
    client.ask("tools/list", json!({})).await;
    assert!(tools.remove("late"));
    while later.seen == 0 {
        assert_eq!(later.next().await, Some(changed.clone()));
    }
    assert_eq!(client.send("DELETE", "").await.status, 204);
    while later.next().await.is_some() {}
}

#[tokio::test]
async fn a_subscription_tells_of_changes() {
    let tools = tools();
    let server = Server::start(http::Server::builder(tools.clone())).await;
    let mut client = server.client().await;
    let message =
        client.stateless("subscriptions/listen", json!({ "notifications": { "toolsListChanged": true } }));
    let id = message["id"].clone();
    let mut events = Events::of(client.begin("POST", message.to_string()).await);
    let first = events.next().await.unwrap();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(first["params"]["notifications"], json!({ "toolsListChanged": true }));
    tools.add(another("more")).unwrap();
    let news = events.next().await.unwrap();
    assert_eq!(news["method"], "notifications/tools/list_changed");
    assert_eq!(news["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], id);
    // A subscription without notifications gets none.
    let mut other = server.client().await;
    let message = other.stateless("subscriptions/listen", json!({ "notifications": {} }));
    let mut silence = Events::of(other.begin("POST", message.to_string()).await);
    assert_eq!(silence.next().await.unwrap()["params"]["notifications"], json!({}));
    assert!(tools.remove("more"));
    assert_eq!(events.next().await.unwrap()["method"], "notifications/tools/list_changed");
    server.stop();
    assert_eq!(silence.next().await, None);
    server.ended().await;
}

#[tokio::test]
async fn a_stream_that_is_closed_no_longer_keeps_its_session() {
    let server = Server::start(http::Server::builder(tools()).session_idle(std::time::Duration::ZERO)).await;
    let mut client = server.client().await;
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    // Without any idle time, only an open stream keeps the session.
    let answer = client.ask("initialize", hello).await;
    let id = answer.headers["mcp-session-id"].to_str().unwrap().to_owned();
    client.set("mcp-session-id", &id);
    assert_eq!(client.ask("ping", json!({})).await.status, 404);
    until(|| server.service.metrics().contains("toolbridge_sessions 0\n")).await;
}
