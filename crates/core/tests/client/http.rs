//! Servers behind a URL.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::Pending;
use http_body_util::{BodyExt as _, Either, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;
use toolbridge_core::client::{McpServer, ServerError};
use toolbridge_core::source::CallEvent;
use toolbridge_core::tool::{Hint as _, RawJson};
use toolbridge_core::{CallContext, ToolSource as _};

use crate::support::{LONG, call, call_of, names, text, until, within};

type Answer = Response<Either<Full<Bytes>, StreamBody<Pending<Result<Frame<Bytes>, Infallible>>>>>;

/// A request: its method, its headers, its body.
type Seen = (Method, HashMap<String, String>, String);

/// A server on loopback that answers with `answer`; it stops when dropped.
struct Web {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    _running: AbortOnDropHandle<()>,
}

impl Web {
    async fn start(
        answer: impl Fn(&Method, &HashMap<String, String>, &str) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), answer).await
    }

    async fn start_at(
        address: SocketAddr,
        answer: impl Fn(&Method, &HashMap<String, String>, &str) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = within(async {
            loop {
                // The port may still be in use by closing connections.
                match TcpListener::bind(address).await {
                    Ok(listener) => return listener,
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        })
        .await;
        let address = listener.local_addr().unwrap();
        let (answer, seen) = (Arc::new(answer), Arc::<Mutex<Vec<_>>>::default());
        let noted = Arc::clone(&seen);
        let running = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, noted) = (Arc::clone(&answer), Arc::clone(&noted));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (answer, noted) = (Arc::clone(&answer), Arc::clone(&noted));
                    async move {
                        let (head, body) = request.into_parts();
                        let path = ("x-path".to_owned(), head.uri.path().to_owned());
                        let headers: HashMap<_, _> = head
                            .headers
                            .iter()
                            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
                            .chain([path])
                            .collect();
                        let body = String::from_utf8(body.collect().await?.to_bytes().to_vec()).unwrap();
                        noted.lock().unwrap().push((head.method.clone(), headers.clone(), body.clone()));
                        Ok::<_, hyper::Error>(answer(&head.method, &headers, &body))
                    }
                });
                connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, seen, _running: AbortOnDropHandle::new(running) }
    }

    fn url(&self) -> String {
        format!("http://{}/mcp?key=secret-in-url", self.address)
    }

    fn bodies(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|(_, _, body)| body.clone()).collect()
    }
}

fn status(status: u16, kind: &str, body: &str) -> Answer {
    let body = Either::Left(Full::new(Bytes::copy_from_slice(body.as_bytes())));
    Response::builder().status(status).header("Content-Type", kind).body(body).unwrap()
}

fn result(id: &Value, result: &str) -> Answer {
    status(200, "application/json", &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
}

const RESULT: &str = r#"{"zzz":1e400,"content":[{"type":"new","x":[1]}],"structuredContent":{"z":1,"a":12345678901234567890123},"_meta":{"m":1}}"#;

/// A server of 2025-11-25 with a session, which answers calls with JSON or with events.
fn legacy(
    session: &'static str,
    tool: &'static str,
) -> impl Fn(&Method, &HashMap<String, String>, &str) -> Answer + Send + Sync {
    move |method, headers, body| {
        if method != Method::POST {
            return status(405, "text/plain", "");
        }
        let message: Value = serde_json::from_str(body).unwrap();
        let (method, id) = (message["method"].as_str().unwrap_or_default(), &message["id"]);
        let is_mine = headers.get("mcp-session-id").is_some_and(|id| id == session);
        match method {
            "server/discover" => status(400, "text/plain", "no session"),
            "initialize" => {
                let mut answer = result(
                    id,
                    r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"web","version":"1"}}"#,
                );
                answer.headers_mut().insert("Mcp-Session-Id", session.parse().unwrap());
                answer
            }
            _ if !is_mine => status(404, "text/plain", "no such session"),
            _ if id.is_null() => status(202, "text/plain", ""),
            "tools/list" => result(
                id,
                &json!({ "tools": [{ "name": tool, "inputSchema": {} }, { "name": "events", "inputSchema": {} }] }).to_string(),
            ),
            "tools/call" if message["params"]["name"] == "events" => {
                let token = &message["params"]["_meta"]["progressToken"];
                let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress",
                    "params": { "progressToken": token, "progress": 1, "message": "half" } });
                let mut events = String::new();
                if !token.is_null() {
                    events += &format!("data: {progress}\n\n");
                }
                events += &format!("event: message\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{RESULT}}}\n\n");
                status(200, "text/event-stream", &events)
            }
            "tools/call" => result(id, RESULT),
            _ => panic!("what is {method}?"),
        }
    }
}

async fn start(url: impl Into<String>) -> Result<McpServer, ServerError> {
    within(
        McpServer::url(url)
            .name("web")
            .start_timeout(LONG)
            .bearer("secret-token")
            .header("X-Mine", "secret-header")
            .start(),
    )
    .await
}

#[tokio::test]
async fn results_pass_as_they_were_written_as_json_and_as_events() {
    let web = Web::start(legacy("one", "json")).await;
    let server = start(web.url()).await.unwrap();
    assert_eq!(server.protocol_version().as_deref(), Some("2025-11-25"));
    assert_eq!(names(&server), ["json", "events"]);
    let arguments = r#"{"number":-9007199254740993}"#;
    for tool in ["json", "events"] {
        assert_eq!(call(&server, tool, arguments).await.unwrap().as_str(), RESULT);
        let sent = web.bodies().pop().unwrap();
        assert!(sent.contains(&format!(r#""arguments":{arguments}"#)), "{sent}");
    }
    let posts: Vec<_> = web.seen.lock().unwrap().clone();
    for (_, headers, _) in posts {
        assert_eq!(headers["authorization"], "Bearer secret-token");
        assert_eq!(headers["x-mine"], "secret-header");
    }
}

#[tokio::test]
async fn progress_comes_over_events() {
    let web = Web::start(legacy("one", "json")).await;
    let server = start(web.url()).await.unwrap();
    let mut call = call_of("events", "{}");
    call.meta.progress_token = RawJson::parse("\"mine\"").ok();
    let mut context = CallContext::default();
    let reports = context.listen(true, false);
    let mut call = reports.follow(server.call(call, context));
    let CallEvent::Progress(report) = within(call.next()).await else { panic!("no progress") };
    assert_eq!(report.message.as_deref(), Some("half"));
    let CallEvent::Done(result) = within(call.next()).await else { panic!("no result") };
    assert_eq!(result.unwrap().as_str(), RESULT);
}

#[tokio::test]
async fn sixty_four_calls_at_once_are_answered() {
    let web = Web::start(legacy("one", "json")).await;
    let server = start(web.url()).await.unwrap();
    let calls = (0..64).map(|_| call(&server, "json", "{}"));
    for result in futures_util::future::join_all(calls).await {
        assert_eq!(result.unwrap().as_str(), RESULT);
    }
}

#[tokio::test]
async fn a_redirect_on_the_same_host_is_followed_and_another_is_not() {
    let target = legacy("one", "json");
    let web = Web::start(move |method, headers, body| {
        // Like many servers that are mounted at a path.
        let is_asked = headers.get("x-path").is_some_and(|path| path == "/mcp/");
        let mut answer = if is_asked { target(method, headers, body) } else { status(307, "text/plain", "") };
        answer.headers_mut().insert("Location", "/mcp/".parse().unwrap());
        answer
    })
    .await;
    let server = start(web.url()).await.unwrap();
    assert_eq!(call(&server, "json", "{}").await.unwrap().as_str(), RESULT);

    let elsewhere = web.address;
    let other = Web::start(move |_, _, _| {
        let mut answer = status(307, "text/plain", "");
        answer.headers_mut().insert("Location", format!("http://{elsewhere}/mcp/").parse().unwrap());
        answer
    })
    .await;
    let before = web.seen.lock().unwrap().len();
    let error = start(other.url()).await.unwrap_err();
    assert!(error.to_string().contains("HTTP status 307"), "{error}");
    assert_eq!(web.seen.lock().unwrap().len(), before, "the headers must not go to another host");
}

#[tokio::test]
async fn a_session_that_is_gone_is_begun_again() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let (first, second) = (legacy("one", "json"), legacy("two", "json"));
    let web = Web::start(move |method, headers, body| {
        // From the first call on, the server has a new session.
        if body.contains("tools/call") {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        if counted.load(Ordering::SeqCst) > 0 {
            second(method, headers, body)
        } else {
            first(method, headers, body)
        }
    })
    .await;
    let server = start(web.url()).await.unwrap();
    assert_eq!(call(&server, "json", "{}").await.unwrap().as_str(), RESULT);
    assert_eq!(calls.load(Ordering::SeqCst), 2, "once to the old session, once to the new one");
}

#[tokio::test]
async fn a_server_that_was_away_is_connected_to_again_and_its_tools_are_listed_anew() {
    let web = Web::start(legacy("one", "json")).await;
    let address = web.address;
    let server = start(web.url()).await.unwrap();
    let mut changes = server.changes();
    drop(web);
    let error = call(&server, "json", "{}").await.unwrap_err();
    assert!(error.to_string().starts_with("MCP server `web` cannot be used: "), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
    assert_eq!(error.type_name(), "McpServerError");
    let _web = Web::start_at(address, legacy("two", "other")).await;
    within(changes.next()).await;
    assert_eq!(names(&server), ["other", "events"]);
    assert_eq!(call(&server, "other", "{}").await.unwrap().as_str(), RESULT);
}

#[tokio::test]
async fn unusable_servers_are_reported_with_a_hint() {
    let html = Web::start(|_, _, _| status(200, "text/html", "<html>Welcome</html>")).await;
    let unauthorized =
        Web::start(|_, _, _| status(401, "application/json", r#"{"error":"secret-body"}"#)).await;
    let forbidden = Web::start(|_, _, _| status(403, "text/plain", "no")).await;
    let elsewhere = Web::start(|_, _, _| status(404, "text/html", "<html>not here</html>")).await;
    let failing = Web::start(|_, _, _| status(502, "text/plain", "secret-body")).await;
    let rows = [
        // No test gets this port.
        (
            "http://127.0.0.1:1/".into(),
            "`http://127.0.0.1:1/` cannot be used: error sending request: client error (Connect)",
            "check that the server is running",
        ),
        (html.url(), "is not an MCP server, it sent text/html", "many servers are at `/mcp`"),
        (unauthorized.url(), "answered with HTTP status 401", "give a token with `bearer`"),
        (forbidden.url(), "answered with HTTP status 403", "give a token with `bearer`"),
        (elsewhere.url(), "answered with HTTP status 404", "many servers are at `/mcp`"),
        (failing.url(), "answered with HTTP status 502", "log"),
        ("ftp://host/secret".into(), "does not begin with `http` or `https`", "https://example.com/mcp"),
        ("nonsense".into(), "`nonsense` does not begin with `http` or `https`", "https://example.com/mcp"),
        (
            unauthorized.url().replace("http:", "https:"),
            "client error (Connect): received corrupt message",
            "its certificate",
        ),
    ];
    for (url, said, hint) in rows {
        let error = start(url).await.unwrap_err();
        assert!(error.to_string().contains(said), "{error}, not {said}");
        assert!(error.hint().unwrap().contains(hint), "{:?}, not {hint}", error.hint());
        assert!(!format!("{error:?}").contains("secret-"), "{error:?}");
    }
    let error =
        McpServer::url("http://127.0.0.1:1/").header("X-Key", "two\nlines").start().await.unwrap_err();
    assert_eq!(error.to_string(), "MCP server `127.0.0.1:1`: the header `X-Key` cannot be sent");
}

#[tokio::test]
async fn a_call_that_is_dropped_is_cancelled() {
    let web = Web::start(|method, headers, body| {
        if body.contains("tools/call") {
            let body = Either::Right(StreamBody::new(futures_util::stream::pending()));
            return Response::builder().header("Content-Type", "text/event-stream").body(body).unwrap();
        }
        legacy("one", "json")(method, headers, body)
    })
    .await;
    let server = start(web.url()).await.unwrap();
    let mut waiting = Box::pin(server.call(call_of("json", "{}"), CallContext::default()));
    within(async {
        tokio::select! {
            _ = &mut waiting => panic!("it is never answered"),
            () = until(|| web.bodies().iter().any(|body| body.contains("tools/call"))) => {}
        }
    })
    .await;
    drop(waiting);
    until(|| web.bodies().iter().any(|body| body.contains("notifications/cancelled"))).await;
}

/// A server of 2026-07-28, which knows no other version.
fn modern(method: &Method, _: &HashMap<String, String>, body: &str) -> Answer {
    assert_eq!(method, Method::POST);
    let message: Value = serde_json::from_str(body).unwrap();
    let id = &message["id"];
    match message["method"].as_str().unwrap() {
        "server/discover" => result(
            id,
            r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"serverInfo":{"name":"new","version":"1"},"ttlMs":0,"cacheScope":"private"}"#,
        ),
        "tools/list" => result(
            id,
            r#"{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"region","inputSchema":{"type":"object","properties":{"at":{"type":"string","x-mcp-header":"Region"}}}}]}"#,
        ),
        "tools/call" => result(id, r#"{"resultType":"complete","content":[{"type":"text","text":"ok"}]}"#),
        _ => status(
            404,
            "application/json",
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"no"}}"#,
        ),
    }
}

#[tokio::test]
async fn the_protocol_version_2026_07_28_is_spoken() {
    let web = Web::start(modern).await;
    let server = start(web.url()).await.unwrap();
    assert_eq!(server.protocol_version().as_deref(), Some("2026-07-28"));
    assert_eq!(text(&call(&server, "region", r#"{"at":"here"}"#).await.unwrap()), "ok");
    let (_, headers, _) = web.seen.lock().unwrap().pop().unwrap();
    assert_eq!(headers["mcp-protocol-version"], "2026-07-28");
    assert_eq!(headers["mcp-method"], "tools/call");
    assert_eq!(headers["mcp-name"], "region");
    assert_eq!(headers["mcp-param-region"], "here");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_needs_long_to_answer_is_asked_once() {
    /// Longer than rmcp waits for an answer to `server/discover`.
    fn slow(
        answer: impl Fn(&Method, &HashMap<String, String>, &str) -> Answer,
    ) -> impl Fn(&Method, &HashMap<String, String>, &str) -> Answer {
        move |method, headers, body| {
            if body.contains("server/discover") {
                tokio::task::block_in_place(|| std::thread::sleep(Duration::from_secs(11)));
            }
            answer(method, headers, body)
        }
    }
    let asked = |web: &Web| {
        // A request for a stream of events has no body.
        let method = |body: String| Some(serde_json::from_str::<Value>(&body).ok()?["method"].clone());
        web.bodies().into_iter().filter_map(method).collect::<Vec<_>>()
    };
    let (new, old) = (Web::start(slow(modern)).await, Web::start(slow(legacy("one", "json"))).await);
    let (server, other) = tokio::join!(start(new.url()), start(old.url()));
    assert_eq!(server.unwrap().protocol_version().as_deref(), Some("2026-07-28"));
    assert_eq!(asked(&new)[..2], ["server/discover", "tools/list"]);
    assert_eq!(other.unwrap().protocol_version().as_deref(), Some("2025-11-25"));
    assert_eq!(asked(&old)[..3], ["server/discover", "initialize", "notifications/initialized"]);
}

#[tokio::test]
async fn a_server_that_becomes_an_older_one_is_connected_to_again() {
    let web = Web::start(modern).await;
    let address = web.address;
    let server = start(web.url()).await.unwrap();
    let mut changes = server.changes();
    drop(web);
    assert!(call(&server, "region", "{}").await.is_err());
    let _web = Web::start_at(address, legacy("one", "json")).await;
    within(changes.next()).await;
    assert_eq!(server.protocol_version().as_deref(), Some("2025-11-25"));
    assert_eq!(names(&server), ["json", "events"]);
}
