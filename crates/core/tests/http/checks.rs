//! Refused requests and their errors.

use serde_json::{Value, json};
use toolbridge_core::tool::RawJson;
use toolbridge_core::{NoArgs, Tool, Toolset, http};

use crate::client::{Client, Server};

fn tools() -> Toolset {
    let schema = json!({
        "type": "object",
        "properties": { "region": { "type": "string", "x-mcp-header": "Region" }, "n": { "type": "integer", "x-mcp-header": "N" } },
    });
    Toolset::builder()
        .tool("hello", "", async |_: NoArgs| "hello")
        .with(Tool::raw("there", "", schema, |_: RawJson| "there"))
        .build()
        .unwrap()
}

/// A change of a valid request.
type Change<'a> = &'a dyn Fn(&mut Client, &mut Value);

/// The status, the error code, and a part of the error message.
type Want = (u16, i64, &'static str);

#[track_caller]
fn check(what: &str, answer: &crate::client::Answer, (status, code, says): Want) {
    assert_eq!(answer.status.as_u16(), status, "{what}: {answer:?}");
    assert_eq!(answer.code(), code, "{what}: {answer:?}");
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains(says), "{what}: {message}");
}

#[tokio::test]
async fn a_wrong_header_is_refused_with_what_would_be_right() {
    let server = Server::start(http::Server::builder(tools()).allow_host("tools.example")).await;
    let rows: &[(&str, Option<&str>, Want)] = &[
        ("host", Some("evil.example"), (403, -32600, "`Host` names `evil.example`")),
        ("host", Some("localhost@evil.example"), (400, -32600, "must name a host")),
        ("origin", Some("https://evil.example"), (403, -32600, "`Origin` names `https://evil.example`")),
        ("origin", Some("null"), (403, -32600, "`Origin` names `null`")),
        ("accept", None, (406, -32600, "must have both `application/json` and `text/event-stream`")),
        ("accept", Some("application/json"), (406, -32600, "must have both")),
        ("accept", Some("text/event-stream"), (406, -32600, "must have both")),
        ("content-type", None, (415, -32600, "must be `application/json`")),
        ("content-type", Some("text/plain"), (415, -32600, "must be `application/json`")),
        ("content-type", Some("application/jsonx"), (415, -32600, "must be `application/json`")),
        ("mcp-protocol-version", Some("1999-01-01"), (400, -32600, "supported are 2024-11-05, 2025-03-26")),
        ("mcp-protocol-version", Some("2026-07-28"), (400, -32020, "`Mcp-Method: ping` is missing")),
        ("mcp-session-id", None, (400, -32600, "`Mcp-Session-Id` is needed")),
        ("mcp-session-id", Some("0123456789abcdef0123456789abcdef"), (404, -32000, "no such session")),
    ];
    for (name, value, want) in rows {
        let mut client = server.session().await;
        match value {
            Some(value) => client.set(name, value),
            None => client.unset(name),
        }
        let answer = client.ask("ping", json!({})).await;
        check(&format!("{name}: {value:?}"), &answer, *want);
    }
    for (name, value) in [
        ("host", "tools.example"),
        ("host", "localhost:1"),
        ("origin", "http://localhost:5173"),
        ("accept", "*/*"),
        ("accept", "text/event-stream;q=0.9,application/json; charset=utf-8"),
        ("content-type", "application/json; charset=utf-8"),
    ] {
        let mut client = server.session().await;
        client.set(name, value);
        assert_eq!(client.ask("ping", json!({})).await.result(), json!({}), "{name}: {value}");
    }
    let mut client = server.session().await;
    client.headers.push(("mcp-session-id", "x".into()));
    check("twice", &client.ask("ping", json!({})).await, (400, -32600, "more than once"));
}

#[tokio::test]
async fn a_wrong_method_or_body_is_refused_with_what_would_be_right() {
    let server = Server::start(http::Server::builder(tools())).await;
    let mut client = server.session().await;
    for method in ["PUT", "PATCH", "OPTIONS"] {
        let answer = client.send(method, "").await;
        check(method, &answer, (405, -32600, "GET, POST, DELETE"));
        assert_eq!(answer.headers["allow"], "GET, POST, DELETE");
    }
    let rows = [
        ("", (400, -32700, "not JSON")),
        ("nonsense", (400, -32700, "not JSON")),
        ("[]", (400, -32600, "batches are not supported")),
        (r#"{"jsonrpc":"2.0","id":1}"#, (400, -32600, "a request needs a `method`")),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, (400, -32600, "`id` must be")),
        (r#"{"id":1,"method":"ping"}"#, (400, -32600, "`jsonrpc` must be")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#, (400, -32602, "`params` must be")),
        (r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#, (200, -32602, "cannot be read")),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}"#,
            (200, -32602, "one page"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"nobody"}}"#,
            (200, -32602, "there is no tool `nobody`"),
        ),
    ];
    for (body, want) in rows {
        check(body, &client.send("POST", body).await, want);
    }
    client.set("accept", "application/json");
    check("GET", &client.send("GET", "").await, (406, -32600, "must have `text/event-stream`"));
    let mut stranger = server.client().await;
    check("GET", &stranger.send("GET", "").await, (400, -32600, "`Mcp-Session-Id` is needed"));
    check("DELETE", &stranger.send("DELETE", "").await, (400, -32600, "`Mcp-Session-Id` is needed"));
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    check("notification", &stranger.post(&ready).await, (400, -32600, "`Mcp-Session-Id` is needed"));
}

#[tokio::test]
async fn headers_and_message_must_agree() {
    let server = Server::start(http::Server::builder(tools())).await;
    let params = json!({ "name": "there", "arguments": { "region": "é", "n": 5 } });
    let right = [("mcp-name", "there"), ("mcp-param-region", "=?base64?w6k=?="), ("mcp-param-n", "5")];
    let ask = async |change: Change<'_>| {
        let mut client = server.client().await;
        let mut message = client.stateless("tools/call", params.clone());
        for (name, value) in right {
            client.set(name, value);
        }
        change(&mut client, &mut message);
        client.post(&message).await
    };
    assert_eq!(ask(&|_, _| {}).await.said(), "there");
    assert_eq!(ask(&|client, _| client.set("mcp-param-n", "5.0")).await.said(), "there");
    assert_eq!(ask(&|client, _| client.set("mcp-name", "=?base64?dGhlcmU=?=")).await.said(), "there");
    let version = "io.modelcontextprotocol/protocolVersion";
    let rows: [(&str, Change<'_>, Want); 14] = [
        (
            "no method",
            &|client, _| client.unset("mcp-method"),
            (400, -32020, "`Mcp-Method: tools/call` is missing"),
        ),
        (
            "method",
            &|client, _| client.set("mcp-method", "ping"),
            (400, -32020, "names `ping`, and the message `tools/call`"),
        ),
        ("no name", &|client, _| client.unset("mcp-name"), (400, -32020, "`Mcp-Name: there` is missing")),
        (
            "name",
            &|client, _| client.set("mcp-name", "hello"),
            (400, -32020, "names `hello`, and the message `there`"),
        ),
        ("code", &|client, _| client.set("mcp-name", "=?base64?!?="), (400, -32020, "must have one")),
        (
            "no argument",
            &|client, _| client.unset("mcp-param-n"),
            (400, -32020, "`mcp-param-n` with `n` is missing"),
        ),
        ("argument", &|client, _| client.set("mcp-param-n", "6"), (400, -32020, "says `6`, and `n` is `5`")),
        (
            "region",
            &|client, _| client.set("mcp-param-region", "e"),
            (400, -32020, "says `e`, and `region` is `é`"),
        ),
        (
            "absent",
            &|_, message| message["params"]["arguments"] = json!({ "n": 5 }),
            (400, -32020, "and no `region`"),
        ),
        (
            "twice",
            &|client, _| client.headers.push(("mcp-name", "there".into())),
            (400, -32020, "must have one"),
        ),
        (
            "no version",
            &|client, _| client.unset("mcp-protocol-version"),
            (400, -32020, "`MCP-Protocol-Version: 2026-07-28` is missing"),
        ),
        (
            "version",
            &|client, _| client.set("mcp-protocol-version", "2025-11-25"),
            (400, -32020, "names `2025-11-25`, and `_meta` `2026-07-28`"),
        ),
        (
            "meta",
            &|_, message| message["params"]["_meta"] = json!({}),
            (400, -32602, "missing or has malformed required fields"),
        ),
        (
            "future",
            &|client, message| {
                message["params"]["_meta"][version] = json!("2999-01-01");
                client.set("mcp-protocol-version", "2999-01-01");
            },
            (400, -32022, ""),
        ),
    ];
    for (what, change, want) in rows {
        check(what, &ask(change).await, want);
    }
    let mut client = server.client().await;
    client.set("mcp-protocol-version", "2025-06-18");
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    check("initialize", &client.ask("initialize", hello).await, (400, -32600, "asks for `2025-11-25`"));
}
