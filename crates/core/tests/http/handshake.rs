//! The first requests of each protocol version.

use serde_json::json;
use toolbridge_core::tool::ServerInfo;
use toolbridge_core::{CallContext, NoArgs, Toolset};

use crate::client::Server;

fn tools() -> Toolset {
    Toolset::builder()
        .tool("hello", "Greets", async |_: NoArgs| "hello")
        .tool("who", "Says who calls", async |_: NoArgs, context: CallContext| {
            let client = context.caller().cloned().unwrap_or_default();
            format!("{} {}", client.name.unwrap_or_default(), client.version.unwrap_or_default())
        })
        .build()
        .unwrap()
}

async fn server() -> Server {
    let info = ServerInfo::new("shop").version("3").instructions("be quick");
    Server::start(toolbridge_core::http::Server::builder(tools()).info(info)).await
}

#[tokio::test]
async fn sessions_of_each_version_begin_call_and_end() {
    let server = server().await;
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut client = server.client().await;
        let hello = client.initialize(version).await.result();
        assert_eq!(hello["protocolVersion"], version);
        assert_eq!(hello["serverInfo"], json!({ "name": "shop", "version": "3" }));
        assert_eq!(hello["instructions"], "be quick");
        assert_eq!(hello["capabilities"], json!({ "tools": { "listChanged": true } }));
        assert_eq!(client.ask("ping", json!({})).await.result(), json!({}));
        let list = client.ask("tools/list", json!({})).await.result();
        assert_eq!(list["tools"][0]["name"], "hello");
        assert_eq!(list.get("resultType"), None);
        assert_eq!(client.call("hello", json!({})).await.said(), "hello");
        assert_eq!(client.call("who", json!({})).await.said(), "tester 7");
        let unknown = client.ask("prompts/list", json!({})).await;
        assert_eq!((unknown.status.as_u16(), unknown.code()), (200, -32601));
        assert_eq!(client.send("DELETE", "").await.status, 204);
        let after = client.call("hello", json!({})).await;
        assert_eq!(after.status, 404, "an id of an ended session is of no use");
        assert!(after.text.contains("call `initialize` for another"), "{}", after.text);
        assert_eq!(client.send("DELETE", "").await.status, 404);
    }
}

#[tokio::test]
async fn an_unknown_version_is_answered_with_a_known_one() {
    let server = server().await;
    let mut client = server.client().await;
    let params = json!({ "protocolVersion": "1999-01-01", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    assert_eq!(client.ask("initialize", params).await.result()["protocolVersion"], "2025-11-25");
}

#[tokio::test]
async fn requests_without_a_session_carry_their_own_metadata() {
    let server = server().await;
    let mut client = server.client().await;
    let known = client.ask_stateless("server/discover", json!({})).await;
    assert!(known.headers.get("mcp-session-id").is_none());
    let known = known.result();
    assert!(known["supportedVersions"].as_array().unwrap().contains(&json!("2026-07-28")), "{known}");
    let list = client.ask_stateless("tools/list", json!({})).await.result();
    assert_eq!((&list["resultType"], &list["ttlMs"]), (&json!("complete"), &json!(0)));
    let result = client.ask_stateless("tools/call", json!({ "name": "who" })).await;
    assert_eq!(result.said(), "tester 7");
    assert_eq!(result.result()["resultType"], "complete");
    let unknown = client.ask_stateless("prompts/list", json!({})).await;
    assert_eq!((unknown.status.as_u16(), unknown.code()), (404, -32601));
    let unknown = client.ask_stateless("tools/call", json!({ "name": "nobody" })).await;
    assert_eq!((unknown.status.as_u16(), unknown.code()), (200, -32602));
    let hello = json!({ "protocolVersion": "2026-07-28", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    for (method, params) in [("initialize", hello), ("ping", json!({}))] {
        let gone = client.ask_stateless(method, params).await;
        assert_eq!((gone.status.as_u16(), gone.code()), (404, -32601), "{method}");
    }
    for method in ["GET", "DELETE"] {
        let answer = client.send(method, "").await;
        assert_eq!((answer.status.as_u16(), &answer.headers["allow"]), (405, &"POST".parse().unwrap()));
    }
}

#[tokio::test]
async fn the_service_fits_a_program_that_has_a_server() {
    let service = toolbridge_core::http::Server::builder(tools()).service().unwrap();
    let app = axum::Router::new().route_service("/mcp", service.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let ended = {
        let service = service.clone();
        tokio::spawn(async move {
            axum::serve(listener, app).with_graceful_shutdown(async move { service.closed().await }).await
        })
    };
    let mut client = crate::client::Client::to(address).await;
    client.initialize("2025-11-25").await;
    assert_eq!(client.call("hello", json!({})).await.said(), "hello");
    service.shutdown().await;
    drop(client);
    crate::client::in_time(ended).await.unwrap().unwrap();
}
