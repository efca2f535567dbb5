//! A server on loopback, and a client that sends exactly what the test sets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use toolbridge_core::http::{self, HttpError, McpService};

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("in time")
}

/// Waits until a condition holds.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    in_time(async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) service: McpService,
    stop: Arc<Notify>,
    task: JoinHandle<Result<(), HttpError>>,
}

impl Server {
    pub(crate) async fn start(builder: http::Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = builder.service().unwrap();
        let stop = Arc::new(Notify::new());
        let asked = Arc::clone(&stop);
        let serving = service.clone().serve(listener, async move { asked.notified().await });
        Self { address, service, stop, task: tokio::spawn(serving) }
    }

    pub(crate) fn stop(&self) {
        self.stop.notify_one();
    }

    pub(crate) async fn ended(self) {
        in_time(self.task).await.unwrap().unwrap();
    }

    pub(crate) async fn client(&self) -> Client {
        Client::to(self.address).await
    }

    /// A client that has called `initialize`.
    pub(crate) async fn session(&self) -> Client {
        let mut client = self.client().await;
        client.initialize("2025-11-25").await;
        client
    }
}

/// One connection.
pub(crate) struct Client {
    connection: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
    pub(crate) address: SocketAddr,
    /// Sent with each request.
    pub(crate) headers: Vec<(&'static str, String)>,
    next_id: u64,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Client {
    pub(crate) async fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (connection, driver) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let driver = tokio::spawn(async move {
            _ = driver.await;
        });
        let headers = vec![
            ("host", address.to_string()),
            ("accept", "application/json, text/event-stream".into()),
            ("content-type", "application/json".into()),
        ];
        Self { connection, driver, address, headers, next_id: 1 }
    }

    /// Another connection of the same client.
    pub(crate) async fn another(&self) -> Self {
        let mut other = Self::to(self.address).await;
        other.headers.clone_from(&self.headers);
        other.next_id = self.next_id + 1_000_000;
        other
    }

    pub(crate) fn set(&mut self, name: &'static str, value: &str) {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.into()));
    }

    pub(crate) fn unset(&mut self, name: &str) {
        self.headers.retain(|(known, _)| *known != name);
    }

    /// Sends a request and returns the response as soon as it begins.
    pub(crate) async fn begin(&mut self, method: &str, body: String) -> hyper::Response<Incoming> {
        let mut request = Request::builder().method(method).uri("/mcp");
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        in_time(self.connection.ready()).await.unwrap();
        in_time(self.connection.send_request(request)).await.unwrap()
    }

    pub(crate) async fn send(&mut self, method: &str, body: impl Into<String>) -> Answer {
        Answer::read(self.begin(method, body.into()).await).await
    }

    pub(crate) async fn post(&mut self, message: &Value) -> Answer {
        self.send("POST", message.to_string()).await
    }

    pub(crate) fn message(&mut self, method: &str, params: &Value) -> Value {
        self.next_id += 1;
        json!({ "jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params })
    }

    pub(crate) async fn initialize(&mut self, version: &str) -> Answer {
        let hello = json!({
            "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "tester", "version": "7" },
        });
        let message = self.message("initialize", &hello);
        let answer = self.post(&message).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let session = answer.headers["mcp-session-id"].to_str().unwrap().to_owned();
        self.set("mcp-session-id", &session);
        self.set("mcp-protocol-version", version);
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(self.post(&ready).await.status, 202);
        answer
    }

    /// A request within a session.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Answer {
        let message = self.message(method, &params);
        self.post(&message).await
    }

    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Answer {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments })).await
    }

    /// Sets the headers for a request of 2026-07-28, and returns the request.
    pub(crate) fn stateless(&mut self, method: &str, mut params: Value) -> Value {
        self.set("mcp-protocol-version", "2026-07-28");
        self.set("mcp-method", method);
        match params.get("name").and_then(Value::as_str) {
            Some(name) => self.set("mcp-name", name),
            None => self.unset("mcp-name"),
        }
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "tester", "version": "7" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        match params.get_mut("_meta").and_then(Value::as_object_mut) {
            Some(given) => given.extend(meta.as_object().unwrap().clone()),
            None => params["_meta"] = meta,
        }
        self.message(method, &params)
    }

    pub(crate) async fn ask_stateless(&mut self, method: &str, params: Value) -> Answer {
        let message = self.stateless(method, params);
        self.post(&message).await
    }
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) async fn read(response: hyper::Response<Incoming>) -> Self {
        let (parts, body) = response.into_parts();
        let bytes = in_time(body.collect()).await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.into()).unwrap();
        Self { status: parts.status, headers: parts.headers, text }
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.headers["content-type"] == "text/event-stream"
    }

    /// Its messages, one or those of a stream.
    pub(crate) fn messages(&self) -> Vec<Value> {
        if !self.is_stream() {
            return vec![serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("{self:?}"))];
        }
        messages_of(&self.text)
    }

    /// The last message.
    pub(crate) fn json(&self) -> Value {
        self.messages().pop().unwrap_or_else(|| panic!("no message: {self:?}"))
    }

    pub(crate) fn result(&self) -> Value {
        let mut message = self.json();
        assert_eq!(self.status, 200, "{message}");
        message.get_mut("result").unwrap_or_else(|| panic!("no result: {self:?}")).take()
    }

    /// The text of a tool's result.
    pub(crate) fn said(&self) -> String {
        self.result()["content"][0]["text"].as_str().unwrap().to_owned()
    }

    pub(crate) fn code(&self) -> i64 {
        self.json()["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {self:?}"))
    }
}

fn messages_of(text: &str) -> Vec<Value> {
    let data = text.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// A stream of events that is being read.
pub(crate) struct Events {
    body: Incoming,
    text: String,
    pub(crate) seen: usize,
}

impl Events {
    pub(crate) fn of(response: hyper::Response<Incoming>) -> Self {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body(), text: String::new(), seen: 0 }
    }

    /// The next message; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            // A last event that is not complete yet is not a message.
            let complete = self.text.rfind("\n\n").map_or("", |end| &self.text[..end]);
            if let Some(message) = messages_of(complete).get(self.seen) {
                self.seen += 1;
                return Some(message.clone());
            }
            let frame = in_time(self.body.frame()).await?.unwrap();
            self.text.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    }
}
