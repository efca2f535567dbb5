//! The same question gets the same answer through every front and every wrapper.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
use tokio::net::{TcpListener, TcpStream};
use toolbridge::call::Answer;
use toolbridge::ipc::{Attached, Remote};
use toolbridge::mcp::{LineReader, LineWriter, serve};
use toolbridge::model::Transport;
use toolbridge::schemars::{self, JsonSchema};
use toolbridge::source::{CallEvent, Combined, Prefixed, Selection};
use toolbridge::tool::{RawJson, ServerInfo, ToolCall};
use toolbridge::{CallContext, ClaudeCodeModel, NoArgs, Session, ToolResult, ToolSource, Toolset};
use toolbridge_core::park::Parked;
use toolbridge_scripted::ControlChannel;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Colour {
    Red,
    Green,
}

fn tools() -> Toolset {
    Toolset::builder()
        .tool("paint", "", async |_: NoArgs, context: CallContext| {
            context.ask::<Colour>("Which colour?").await.map(|answer| format!("{answer:?}"))
        })
        .build()
        .unwrap()
}

/// The client's answer and the tool's result; `None` for a client without support for questions.
fn table() -> Vec<(Option<Value>, &'static str)> {
    let accept = |colour: &str| json!({ "action": "accept", "content": { "answer": colour } });
    let wrong = "the answer does not fit the question: at `/answer`: unknown variant, expected `red` or `green` (type: QuestionError)";
    vec![
        (Some(accept("red")), "Accepted(Red)"),
        (Some(json!({ "action": "decline" })), "Declined"),
        (Some(json!({ "action": "cancel" })), "Cancelled"),
        (Some(accept("blue")), wrong),
        (None, "Nobody"),
    ]
}

fn form() -> Value {
    json!({
        "type": "object", "required": ["answer"],
        "properties": { "answer": { "type": "string", "enum": ["red", "green"] } },
    })
}

fn said(result: &str) -> String {
    let result: Value = serde_json::from_str(result).unwrap();
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned()
}

/// Calls a source directly.
async fn directly(source: &dyn ToolSource, tool: &str, answer: Option<&Value>) -> String {
    let mut context = CallContext::default();
    let mut call = ToolCall::new(tool, RawJson::empty_object());
    call.meta.can_ask = answer.is_some();
    let heard = answer.map(|_| context.listen(false, true));
    let mut call = heard.unwrap_or_default().follow(source.call(call, context));
    loop {
        match call.next().await {
            CallEvent::Progress(report) => panic!("nobody wanted {report:?}"),
            CallEvent::Question(asked) => {
                assert_eq!(asked.question.message, "Which colour?");
                assert_eq!(asked.question.schema.decode::<Value>().unwrap(), form());
                let answer = answer.unwrap();
                asked.answer(Ok(match answer["action"].as_str().unwrap() {
                    "accept" => Answer::Accepted(RawJson::from(&answer["content"])),
                    "decline" => Answer::Declined,
                    _ => Answer::Cancelled,
                }));
            }
            CallEvent::Done(Ok(result)) => return said(result.as_str()),
            CallEvent::Done(Err(error)) => {
                let text = format!("{error} (type: {})", error.type_name());
                return said(ToolResult::error(text).to_json().as_str());
            }
        }
    }
}

fn capabilities(answer: Option<&Value>) -> Value {
    if answer.is_some() { json!({ "elicitation": {} }) } else { json!({}) }
}

/// The parameters of a call according to 2026-07-28.
fn stateless(tool: &str, answer: Option<&Value>, more: &Value) -> Value {
    let mut params = json!({ "name": tool, "arguments": {}, "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": capabilities(answer),
    } });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    params
}

/// The retry of a client of 2026-07-28 after a result that requests input; `None` after any other result.
fn again(result: &Value, answer: Option<&Value>) -> Option<Value> {
    if result["resultType"] != "input_required" {
        return None;
    }
    let (key, request) = result["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(request["method"], "elicitation/create");
    assert_eq!(request["params"]["requestedSchema"], form());
    Some(json!({ "requestState": result["requestState"], "inputResponses": { key: answer } }))
}

/// An MCP client in this process.
struct Client {
    lines: tokio::io::Lines<BufReader<tokio::io::ReadHalf<DuplexStream>>>,
    writer: tokio::io::WriteHalf<DuplexStream>,
}

impl Client {
    fn of(source: Arc<dyn ToolSource>) -> Self {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (read, write) = tokio::io::split(far);
        tokio::spawn(serve(source, ServerInfo::default(), LineReader::new(read), LineWriter::new(write)));
        let (read, writer) = tokio::io::split(near);
        Self { lines: BufReader::new(read).lines(), writer }
    }

    async fn send(&mut self, message: Value) {
        self.writer.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn receive(&mut self) -> Value {
        serde_json::from_str(&self.lines.next_line().await.unwrap().unwrap()).unwrap()
    }

    async fn request(&mut self, method: &str, params: Value) -> Value {
        self.send(json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })).await;
        self.receive().await
    }

    async fn call_2025(mut self, answer: Option<&Value>) -> String {
        let hello = json!({
            "protocolVersion": "2025-11-25", "capabilities": capabilities(answer),
            "clientInfo": { "name": "t", "version": "1" },
        });
        self.request("initialize", hello).await;
        let mut message = self.request("tools/call", json!({ "name": "paint" })).await;
        if message["method"] == "elicitation/create" {
            assert_eq!(message["params"]["requestedSchema"], form());
            self.send(json!({ "jsonrpc": "2.0", "id": message["id"], "result": answer })).await;
            message = self.receive().await;
        }
        said(&message["result"].to_string())
    }

    async fn call_2026(mut self, answer: Option<&Value>) -> String {
        let mut more = json!({});
        loop {
            let message = self.request("tools/call", stateless("paint", answer, &more)).await;
            match again(&message["result"], answer) {
                Some(next) => more = next,
                None => return said(&message["result"].to_string()),
            }
        }
    }
}

/// Sends a message over HTTP, and reads the response up to its first message.
async fn post(address: std::net::SocketAddr, headers: &str, message: &Value) -> (String, TcpStream, Value) {
    let body = message.to_string();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\naccept: application/json, text/event-stream\r\n\
         content-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let (head, message) = next_message(&mut stream, String::new()).await;
    (head, stream, message)
}

/// The next message of a response, in a single message or a stream; and the text before it.
async fn next_message(stream: &mut TcpStream, mut text: String) -> (String, Value) {
    loop {
        let start = text.find("{\"jsonrpc\"").unwrap_or(text.len());
        let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
        if let Some(Ok(message)) = values.next() {
            return (text[..start].to_owned(), message);
        }
        let mut bytes = vec![0; 4096];
        match stream.read(&mut bytes).await.unwrap() {
            0 => return (text, Value::Null),
            count => text.push_str(std::str::from_utf8(&bytes[..count]).unwrap()),
        }
    }
}

async fn over_http_2025(address: std::net::SocketAddr, answer: Option<&Value>) -> String {
    let request = |id: u64, method: &str, params: Value| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    let hello = json!({
        "protocolVersion": "2025-11-25", "capabilities": capabilities(answer),
        "clientInfo": { "name": "t", "version": "1" },
    });
    let (head, ..) = post(address, "", &request(1, "initialize", hello)).await;
    let session = head.lines().find(|line| line.starts_with("mcp-session-id: ")).unwrap();
    let headers = format!("{session}\r\n");
    let call = request(2, "tools/call", json!({ "name": "paint" }));
    let (_, mut stream, mut message) = post(address, &headers, &call).await;
    if message["method"] == "elicitation/create" {
        assert_eq!(message["params"]["requestedSchema"], form());
        let reply = json!({ "jsonrpc": "2.0", "id": message["id"], "result": answer });
        let (head, ..) = post(address, &headers, &reply).await;
        assert!(head.starts_with("HTTP/1.1 202 "), "{head}");
        message = next_message(&mut stream, String::new()).await.1;
    }
    said(&message["result"].to_string())
}

async fn over_http_2026(address: std::net::SocketAddr, answer: Option<&Value>) -> String {
    let headers = "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: paint\r\n";
    let mut more = json!({});
    loop {
        let params = stateless("paint", answer, &more);
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let (_, _, message) = post(address, headers, &call).await;
        match again(&message["result"], answer) {
            Some(next) => more = next,
            None => return said(&message["result"].to_string()),
        }
    }
}

#[tokio::test]
async fn every_front_passes_questions_on_and_answers_back() {
    let dir = tempfile::TempDir::new().unwrap();
    let session = Session::builder(tools()).dir(dir.path()).start().await.unwrap();
    let remote = || Remote::open(session.socket_path(), session.schema_path()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = toolbridge_core::http::Server::builder(tools());
    let http = tokio::spawn(server.serve(listener, std::future::pending()));

    let mut channel = ControlChannel::new(dir.path());
    // Called only if the CLI does not support questions.
    let builder = ClaudeCodeModel::builder().cli(channel.program()).builtin_tools(["Read"]);
    let builder = builder.session_dir(dir.path()).on_ask(async |_| Answer::Nobody);
    let model = builder.build().unwrap();
    model.set_agent_toolsets(tools(), "tools", Transport::Sdk).unwrap();
    let _stream = model.request_stream("hi").await.unwrap();
    channel.greet().await;

    for (answer, want) in table() {
        let answer = answer.as_ref();
        assert_eq!(directly(&tools(), "paint", answer).await, want, "directly");
        assert_eq!(directly(&remote(), "paint", answer).await, want, "over the socket");
        assert_eq!(Client::of(Arc::new(tools())).call_2025(answer).await, want, "over MCP, 2025");
        assert_eq!(Client::of(Arc::new(tools())).call_2026(answer).await, want, "over MCP, 2026");
        assert_eq!(Client::of(Arc::new(remote())).call_2025(answer).await, want, "through a bridge, 2025");
        assert_eq!(Client::of(Arc::new(remote())).call_2026(answer).await, want, "through a bridge, 2026");
        assert_eq!(over_http_2025(address, answer).await, want, "over HTTP, 2025");
        assert_eq!(over_http_2026(address, answer).await, want, "over HTTP, 2026");
        let mut more = json!({});
        let over_sdk = loop {
            let result = channel.ask("tools/call", &stateless("paint", answer, &more).to_string()).await;
            match again(&serde_json::from_str(&result).unwrap(), answer) {
                Some(next) => more = next,
                None => break said(&result),
            }
        };
        assert_eq!(over_sdk, want, "over the control channel");
    }
    http.abort();
    session.stop().await;
}

#[tokio::test]
async fn questions_pass_through_every_wrapper() {
    let dir = tempfile::TempDir::new().unwrap();
    let names = dir.path().join("names");
    let session =
        Session::builder(tools()).dir(dir.path()).name("shop").names_dir(&names).start().await.unwrap();
    let attached = Attached::in_dirs(Vec::new(), vec![names]).unwrap();
    let sources: Vec<(&str, Box<dyn ToolSource>)> = vec![
        ("paint", Box::new(Combined::new().with(tools()).unwrap())),
        ("x_paint", Box::new(Prefixed::new("x_", tools()).unwrap())),
        ("paint", Box::new(Selection::new(tools(), ["paint"]).unwrap())),
        ("paint", Box::new(Parked::new(tools()).unwrap())),
        ("shop__paint", Box::new(attached)),
    ];
    for (place, (tool, source)) in sources.iter().enumerate() {
        for (answer, want) in table() {
            assert_eq!(directly(&**source, tool, answer.as_ref()).await, want, "wrapper {place}");
        }
    }
    session.stop().await;
}

#[tokio::test]
async fn a_bridge_that_is_gone_while_it_asks_ends_the_call_in_the_parent() {
    let dir = tempfile::TempDir::new().unwrap();
    let ended = Arc::new(tokio::sync::Notify::new());
    let told = Arc::clone(&ended);
    let ask = move |_: NoArgs, context: CallContext| {
        let ended = Ends(Arc::clone(&told));
        async move {
            let _ended = ended;
            context.ask::<bool>("Really?").await.map(|answer| format!("{answer:?}"))
        }
    };
    let tools = Toolset::builder().tool("paint", "", ask).build().unwrap();
    let session = Session::builder(tools).dir(dir.path()).start().await.unwrap();
    let remote = Remote::open(session.socket_path(), session.schema_path()).unwrap();
    let mut context = CallContext::default();
    let heard = context.listen(false, true);
    let call = remote.call(ToolCall::new("paint", RawJson::empty_object()), context);
    let mut call = heard.follow(call);
    let CallEvent::Question(asked) = call.next().await else { panic!("no question") };
    // As when the bridge is killed: its connections close.
    drop((call, asked));
    let patience = std::time::Duration::from_secs(60);
    tokio::time::timeout(patience, ended.notified()).await.expect("the handler ends");
    session.stop().await;
}

struct Ends(Arc<tokio::sync::Notify>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}
