//! The same calls through every front.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use toolbridge::ipc::{Remote, read_schema_file};
use toolbridge::mcp::{LineReader, LineWriter, serve};
use toolbridge::model::{ResponseStream, Transport};
use toolbridge::schemars::{self, JsonSchema};
use toolbridge::source::CallFuture;
use toolbridge::tool::{Content, RawJson, ServerInfo, ToolCall, ToolList};
use toolbridge::toolset::Json;
use toolbridge::{
    CallContext, ClaudeCodeModel, NoArgs, Session, Tool, ToolError, ToolResult, ToolSource, Toolset,
};
use toolbridge_core::client::McpServer;
use toolbridge_scripted::ControlChannel;

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

#[derive(Serialize, JsonSchema)]
struct Weather {
    degrees: f64,
}

#[derive(Debug)]
struct QuotaError;

impl std::fmt::Display for QuotaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the quota is used up")
    }
}

impl std::error::Error for QuotaError {}

fn tools() -> Toolset {
    let raw = |text: &'static str| RawJson::parse(text).unwrap();
    let everything = move |_: NoArgs| {
        ToolResult::text("text\nwith lines")
            .and_image(b"png", "image/png")
            .and(Content::Audio { data: "AAAA".into(), mime_type: "audio/wav".into() })
            .and(Content::Resource { resource: raw(r#"{"uri":"a:b","text":"t"}"#) })
            .and(Content::ResourceLink { uri: "a:b".into(), name: "n".into() })
            .and(Content::Other(raw(r#"{"type":"new kind","n":12345678901234567890123}"#)))
            .structured(raw(r#"{"big":12345678901234567890123,"small":1e-400}"#))
            .meta(raw(r#"{"vendor/x":[1]}"#))
    };
    Toolset::builder()
        .tool("echo", "", async |args: Text| args.text)
        .tool("everything", "", everything)
        .with(Tool::new("weather", "", |_: NoArgs| Json(Weather { degrees: 21.5 })).output::<Weather>())
        .tool("own_error", "", |_: NoArgs| ToolResult::error("I could not"))
        .tool("fails", "", |_: NoArgs| Err::<(), _>(QuotaError))
        .tool("typed", "", async |_: NoArgs| Err::<(), _>(ToolError::new("PaymentRequired", "pay first")))
        .tool("panics", "", |_: NoArgs| -> () { panic!("oh") })
        .with(
            Tool::new("slow", "", async |_: NoArgs| std::future::pending::<()>().await)
                .timeout(Duration::from_millis(20)),
        )
        .with(Tool::raw("raw", "", json!({ "type": "object" }), |raw: RawJson| raw.as_str().to_owned()))
        .build()
        .unwrap()
}

/// Tool, arguments, and the result as an MCP client sees it.
fn table() -> Vec<(&'static str, String, Value)> {
    let text = |text: &str| json!({ "content": [{ "type": "text", "text": text }], "isError": false });
    let error = |text: &str| json!({ "content": [{ "type": "text", "text": text }], "isError": true });
    let exact = |text: &str| serde_json::from_str(text).unwrap();
    let long = "é\u{2028}\n\t\"\\".repeat(20_000);
    vec![
        ("echo", json!({ "text": "hi" }).to_string(), text("hi")),
        ("echo", json!({ "text": "" }).to_string(), text("")),
        ("echo", json!({ "text": long }).to_string(), text(&long)),
        (
            "everything",
            "{}".into(),
            exact(
                r#"{"content":[{"type":"text","text":"text\nwith lines"},{"type":"image","data":"cG5n","mimeType":"image/png"},{"type":"audio","data":"AAAA","mimeType":"audio/wav"},{"type":"resource","resource":{"uri":"a:b","text":"t"}},{"type":"resource_link","uri":"a:b","name":"n"},{"type":"new kind","n":12345678901234567890123}],"structuredContent":{"big":12345678901234567890123,"small":1e-400},"isError":false,"_meta":{"vendor/x":[1]}}"#,
            ),
        ),
        (
            "weather",
            "{}".into(),
            json!({
                "content": [{ "type": "text", "text": r#"{"degrees":21.5}"# }],
                "structuredContent": { "degrees": 21.5 },
                "isError": false,
            }),
        ),
        ("own_error", "{}".into(), error("I could not")),
        ("fails", "{}".into(), error("the quota is used up (type: QuotaError)")),
        ("typed", "{}".into(), error("pay first (type: PaymentRequired)")),
        ("panics", "{}".into(), error("tool `panics` panicked: oh (type: ToolPanicError)")),
        ("slow", "{}".into(), error("tool `slow` timed out after 20 ms (type: ToolTimeoutError)")),
        (
            "echo",
            r#"{"text":5}"#.into(),
            error(
                "invalid arguments for tool `echo`: at `/text`: invalid type: integer, expected a string (type: ToolArgumentsError)",
            ),
        ),
        (
            "raw",
            r#"{ "n": 12345678901234567890123, "d": 1.10, "n": 2 }"#.into(),
            text(r#"{ "n": 12345678901234567890123, "d": 1.10, "n": 2 }"#),
        ),
    ]
}

/// Calls a source directly, and formats its errors as the MCP front does.
pub(crate) async fn ask_source(source: &dyn ToolSource, tool: &str, arguments: &str) -> String {
    let call = ToolCall::new(tool, RawJson::parse(arguments.to_owned()).unwrap());
    match source.call(call, CallContext::default()).await {
        Ok(result) => result.as_str().to_owned(),
        Err(error) => {
            ToolResult::error(format!("{error} (type: {})", error.type_name())).to_json().to_string()
        }
    }
}

/// An MCP client in this process.
pub(crate) struct Client {
    lines: tokio::io::Lines<BufReader<tokio::io::ReadHalf<DuplexStream>>>,
    writer: tokio::io::WriteHalf<DuplexStream>,
}

impl Client {
    pub(crate) async fn of(source: Arc<dyn ToolSource>) -> Self {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (read, write) = tokio::io::split(far);
        tokio::spawn(serve(source, ServerInfo::default(), LineReader::new(read), LineWriter::new(write)));
        let (read, writer) = tokio::io::split(near);
        let mut client = Self { lines: BufReader::new(read).lines(), writer };
        let hello =
            r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}"#;
        client.ask("initialize", hello).await;
        client
    }

    /// The text of the result, not decoded.
    pub(crate) async fn ask(&mut self, method: &str, params: &str) -> String {
        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"{method}\",\"params\":{params}}}\n");
        self.writer.write_all(line.as_bytes()).await.unwrap();
        let answer = self.lines.next_line().await.unwrap().unwrap();
        let result = answer.strip_prefix(r#"{"jsonrpc":"2.0","id":1,"result":"#);
        result.and_then(|rest| rest.strip_suffix('}')).unwrap_or_else(|| panic!("{answer}")).to_owned()
    }
}

/// An MCP client over HTTP.
pub(crate) struct HttpClient {
    address: std::net::SocketAddr,
    headers: String,
    /// The server's task; `None` for a second client of the same server.
    server: Option<tokio::task::JoinHandle<()>>,
}

impl Drop for HttpClient {
    fn drop(&mut self) {
        self.server.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

impl HttpClient {
    pub(crate) async fn of(tools: impl ToolSource) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = toolbridge_core::http::Server::builder(tools);
        let server = tokio::spawn(async move {
            server.serve(listener, std::future::pending()).await.unwrap();
        });
        Self::hello(address, Some(server)).await
    }

    /// A second session of the same server.
    pub(crate) async fn another(&self) -> Self {
        Self::hello(self.address, None).await
    }

    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.address
    }

    async fn hello(address: std::net::SocketAddr, server: Option<tokio::task::JoinHandle<()>>) -> Self {
        let headers = format!(
            "host: {address}\r\nconnection: close\r\naccept: application/json, text/event-stream\r\ncontent-type: application/json\r\n"
        );
        let mut client = Self { address, headers, server };
        let hello =
            r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}"#;
        let (head, _) = client.send("initialize", hello).await;
        let session = head.lines().find(|line| line.starts_with("mcp-session-id: ")).unwrap();
        client.headers += &format!("{session}\r\n");
        client
    }

    async fn send(&self, method: &str, params: &str) -> (String, String) {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let (headers, length) = (&self.headers, body.len());
        let request = format!("POST /mcp HTTP/1.1\r\n{headers}content-length: {length}\r\n\r\n{body}");
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{answer}");
        (head.to_owned(), body.to_owned())
    }

    /// The text of the result, not decoded.
    pub(crate) async fn ask(&self, method: &str, params: &str) -> String {
        let (_, answer) = self.send(method, params).await;
        let result = answer.strip_prefix(r#"{"jsonrpc":"2.0","id":1,"result":"#);
        result.and_then(|rest| rest.strip_suffix('}')).unwrap_or_else(|| panic!("{answer}")).to_owned()
    }
}

/// The MCP server on the control channel of a request with those tools.
pub(crate) async fn over_sdk(tools: impl ToolSource, dir: &Path) -> (ControlChannel, ResponseStream) {
    let mut channel = ControlChannel::new(dir);
    // With the builtin tool `Read`, the model sees the tools' results unchanged.
    let builder = ClaudeCodeModel::builder().cli(channel.program()).builtin_tools(["Read"]);
    let model = builder.session_dir(dir).build().unwrap();
    model.set_agent_toolsets(tools, "tools", Transport::Sdk).unwrap();
    let stream = model.request_stream("hi").await.unwrap();
    channel.greet().await;
    (channel, stream)
}

#[tokio::test]
async fn every_front_gives_the_same_result_for_the_same_call() {
    let dir = tempfile::TempDir::new().unwrap();
    let tools = tools();
    let session = Session::builder(tools.clone()).dir(dir.path()).start().await.unwrap();
    let remote =
        || Remote::new(session.socket_path(), read_schema_file(session.schema_path()).unwrap()).unwrap();

    let over_the_socket = remote();
    let mut over_mcp = Client::of(Arc::new(tools.clone())).await;
    let mut through_a_bridge = Client::of(Arc::new(remote())).await;
    let (mut over_the_control_channel, _stream) = over_sdk(tools.clone(), dir.path()).await;
    let over_http = HttpClient::of(tools.clone()).await;
    let url = format!("http://{}/mcp", over_http.address);
    let of_another_server = Arc::new(McpServer::url(url).start().await.unwrap());
    let mut through_another_server = Client::of(of_another_server.clone()).await;
    for (tool, arguments, want) in table() {
        let params = format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#);
        let directly = ask_source(&tools, tool, &arguments).await;
        let seen: Value = serde_json::from_str(&directly).unwrap();
        assert_eq!(seen, want, "{tool}, directly");
        // From here on, byte for byte.
        assert_eq!(ask_source(&over_the_socket, tool, &arguments).await, directly, "{tool}, over the socket");
        assert_eq!(over_mcp.ask("tools/call", &params).await, directly, "{tool}, over MCP");
        assert_eq!(through_a_bridge.ask("tools/call", &params).await, directly, "{tool}, through a bridge");
        assert_eq!(over_http.ask("tools/call", &params).await, directly, "{tool}, over HTTP");
        let seen = over_the_control_channel.ask("tools/call", &params).await;
        assert_eq!(seen, directly, "{tool}, over the control channel");
        // rmcp's client decodes the arguments of a call.
        let directly =
            if tool == "raw" { ask_source(&tools, tool, r#"{"d":1.1,"n":2}"#).await } else { directly };
        // The newest MCP adds this to each result, and it is passed on like everything else in a result.
        let said = format!(r#"{{"resultType":"complete",{}"#, &directly[1..]);
        assert_eq!(
            ask_source(&*of_another_server, tool, &arguments).await,
            said,
            "{tool}, of another server"
        );
        assert_eq!(
            through_another_server.ask("tools/call", &params).await,
            said,
            "{tool}, of another server"
        );
    }
    let list = over_mcp.ask("tools/list", "{}").await;
    assert_eq!(through_a_bridge.ask("tools/list", "{}").await, list);
    assert_eq!(over_http.ask("tools/list", "{}").await, list);
    assert_eq!(over_the_control_channel.ask("tools/list", "{}").await, list);
    session.stop().await;
}

#[tokio::test]
async fn a_filtered_toolset_is_filtered_on_both_sides() {
    let dir = tempfile::TempDir::new().unwrap();
    let some = tools().filter(["echo", "raw"]).unwrap();
    let session = Session::builder(some).dir(dir.path()).start().await.unwrap();
    let listed = read_schema_file(session.schema_path()).unwrap();
    assert_eq!(listed.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["echo", "raw"]);
    let remote = Remote::new(session.socket_path(), listed).unwrap();
    let refused = ask_source(&remote, "weather", "{}").await;
    assert!(refused.contains("there is no tool `weather` (type: ToolNotFoundError)"), "{refused}");
}

/// A source whose result no client could use.
struct Odd(Toolset, &'static str);

impl ToolSource for Odd {
    fn tools(&self) -> ToolList {
        self.0.tools()
    }

    fn call(&self, _: ToolCall, _: CallContext) -> CallFuture<'_> {
        Box::pin(async { Ok(RawJson::parse(self.1).unwrap()) })
    }
}

#[tokio::test]
async fn no_front_passes_on_an_invalid_result() {
    for (result, want) in [
        ("[]", "it is not an object"),
        ("{}", "it has no `content`"),
        (r#"{"content":null}"#, "its `content` is not a list"),
        (r#"{"content":[]}"#, "its `content` is empty"),
        (r#"{"content":[{}]}"#, "`content[0]` has no `type` that is a string"),
    ] {
        let dir = tempfile::TempDir::new().unwrap();
        let session = Session::builder(Odd(tools(), result)).dir(dir.path()).start().await.unwrap();
        let over_the_socket = Remote::new(session.socket_path(), tools().tools().clone()).unwrap();
        let mut over_mcp = Client::of(Arc::new(Odd(tools(), result))).await;
        for answer in [
            ask_source(&over_the_socket, "panics", "{}").await,
            over_mcp.ask("tools/call", r#"{"name":"panics"}"#).await,
        ] {
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!(answer["isError"], true, "{answer}");
            let text = answer["content"][0]["text"].as_str().unwrap();
            let start = format!("tool `panics` returned an unusable result: {want}; ");
            assert!(text.starts_with(&start) && text.ends_with(" (type: ToolOutputError)"), "{text}");
        }
        session.stop().await;
    }
}
