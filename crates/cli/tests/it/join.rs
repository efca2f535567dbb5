//! The same calls to a function of this process, a server from `PyPI` and one from npm, through every front.

use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::task::spawn_blocking;
use toolbridge::client::McpServer;
use toolbridge::model::{ResponseStream, Transport};
use toolbridge::source::{Combined, Selection};
use toolbridge::tool::{RawJson, ToolCall};
use toolbridge::{CallContext, ClaudeCodeModel, Session, ToolSource, Toolset, tool};
use toolbridge_scripted::{
    Block, ControlChannel, ScriptedModel, ToolResultBlock, Turn, claude_cli, clean_environment,
};

use crate::serve::{everything, noon, post, time};
use crate::support::{McpClient, PATIENCE, toolbridge};
use crate::world::World;

/// Adds two numbers.
#[tool]
fn add(a: f64, b: f64) -> f64 {
    a + b
}

/// The tools that `examples/join.rs` offers.
const NAMES: [&str; 5] =
    ["add", "convert_time", "npm_echo", "npm_get-structured-content", "npm_get-tiny-image"];

/// Tool, arguments, and a part of the expected result.
fn table() -> Vec<(&'static str, Value, Value)> {
    let text = |text: &str| json!([{ "type": "text", "text": text }]);
    vec![
        ("add", json!({ "a": 40, "b": 2.5 }), json!({ "content": text("42.5"), "isError": false })),
        (
            "convert_time",
            noon(),
            json!({ "structuredContent": { "time_difference": "-9.0h" }, "isError": false }),
        ),
        ("npm_echo", json!({ "message": "hi" }), json!({ "content": text("Echo: hi") })),
        (
            "npm_echo",
            json!({ "message": "日本 é 🦀 \u{2028}\n\"\\" }),
            json!({ "content": text("Echo: 日本 é 🦀 \u{2028}\n\"\\") }),
        ),
        (
            "npm_get-structured-content",
            json!({ "location": "Chicago" }),
            json!({ "structuredContent": { "conditions": "Light rain / drizzle" } }),
        ),
        (
            "npm_get-tiny-image",
            json!({}),
            json!({ "content": [{}, { "type": "image", "mimeType": "image/png" }] }),
        ),
        // An error of each source.
        ("add", json!({ "a": "x", "b": 1 }), json!({ "isError": true })),
        (
            "convert_time",
            json!({ "source_timezone": "Nowhere", "time": "12:00", "target_timezone": "UTC" }),
            json!({ "isError": true }),
        ),
        ("npm_echo", json!({ "message": 5 }), json!({ "isError": true })),
    ]
}

/// Whether all of `part` is in `whole`.
fn is_in(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => {
            part.iter().all(|(key, part)| whole.get(key).is_some_and(|whole| is_in(part, whole)))
        }
        (Value::Array(part), Value::Array(whole)) => {
            part.len() <= whole.len() && part.iter().zip(whole).all(|(part, whole)| is_in(part, whole))
        }
        (part, whole) => part == whole,
    }
}

async fn joined() -> Arc<dyn ToolSource> {
    let own = Toolset::builder().with(add {}).build().unwrap();
    let time = McpServer::command(time()).start_timeout(PATIENCE).start().await.unwrap();
    let npm = McpServer::command(everything()).start_timeout(PATIENCE).start().await.unwrap();
    let all = Combined::new().with(own).unwrap().with(time).unwrap().with_prefix("npm", npm).unwrap();
    Arc::new(Selection::new(all, NAMES).unwrap())
}

/// The result of calling the source directly, as the MCP front would write it.
async fn directly(source: &dyn ToolSource, tool: &str, arguments: &Value) -> Value {
    let call = ToolCall::new(tool, RawJson::parse(arguments.to_string()).unwrap());
    match source.call(call, CallContext::default()).await {
        Ok(result) => result.decode().unwrap(),
        Err(error) => {
            let text = format!("{error} (type: {})", error.type_name());
            json!({ "content": [{ "type": "text", "text": text }], "isError": true })
        }
    }
}

/// Without what only the newest protocol version has in a result: a server that is slow to start on a busy machine is
/// asked for an older one.
fn of_any_era(mut result: Value) -> Value {
    if let Some(members) = result.as_object_mut() {
        members.remove("resultType");
        members.remove("_meta");
    }
    result
}

/// `examples/join.rs`; cargo builds the examples before it runs the tests, beside their executables.
fn example(world: &World) -> McpClient {
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().unwrap().parent().unwrap().join("examples/join");
    let mut command = std::process::Command::new(program);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folder = |server: &str| Path::new(server).parent().unwrap().to_owned();
    let folders = [folder(&time()), folder(&everything())].into_iter().chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(folders).unwrap()).env("TMPDIR", world.sessions());
    McpClient::start_command(command)
}

/// A client of every front, each on its own thread or task.
struct Fronts {
    /// The bridge, the example and `toolbridge serve`.
    lines: Vec<(&'static str, Arc<Mutex<McpClient>>)>,
    url: String,
    http_headers: String,
    sdk: ControlChannel,
    _request: ResponseStream,
}

impl Fronts {
    async fn results(&mut self, tool: &str, arguments: &Value) -> Vec<(&'static str, Value)> {
        let mut results = Vec::new();
        let params = json!({ "name": tool, "arguments": arguments });
        for (front, client) in &self.lines {
            let (client, params) = (Arc::clone(client), params.clone());
            let ask = move || client.lock().unwrap().request("tools/call", params);
            results.push((*front, spawn_blocking(ask).await.unwrap()["result"].clone()));
        }
        let (url, headers) = (self.url.clone(), self.http_headers.clone());
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let (_, answer) = spawn_blocking(move || post(&url, &headers, &message)).await.unwrap();
        results.push(("HTTP", answer["result"].clone()));
        let answer = self.sdk.ask("tools/call", &params.to_string()).await;
        results.push(("the control channel", serde_json::from_str(&answer).unwrap()));
        results
    }
}

/// Starts a session over HTTP, for clients of a protocol version that needs one.
fn http_session(url: &str) -> String {
    let hello = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" },
    });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello });
    let (head, _) = post(url, "", &hello);
    let session =
        head.lines().find(|line| line.starts_with("mcp-session-id: ")).unwrap_or_else(|| panic!("{head}"));
    format!("{session}\r\nmcp-protocol-version: 2025-11-25\r\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_functions_and_servers_of_others_give_the_same_results_through_every_front() {
    let world = World::new();
    let tools = joined().await;
    let session = Session::builder(Arc::clone(&tools)).dir(world.sessions()).name("all");
    let session = session.names_dir(world.names()).start().await.unwrap();

    let mut bridge = toolbridge();
    bridge.arg("bridge").arg(session.socket_path()).arg(session.schema_path());
    let lines = vec![
        ("a bridge", McpClient::start_command(bridge)),
        ("toolbridge serve", McpClient::start_command(world.toolbridge(&["serve", "--session", "all"]))),
        ("StdioServer", example(&world)),
    ];
    let lines = lines.into_iter().map(|(front, mut client)| {
        client.initialize();
        (front, Arc::new(Mutex::new(client)))
    });
    let (served, printed) = world.start(&["--session", "all", "--http", "127.0.0.1:0"]);
    let url = printed["url"].as_str().unwrap().to_owned();
    let mut sdk = ControlChannel::new(world.0.path());
    // With the builtin tool `Read`, the model sees the tools' results unchanged.
    let builder = ClaudeCodeModel::builder().cli(sdk.program()).builtin_tools(["Read"]);
    let model = builder.session_dir(world.sessions()).build().unwrap();
    model.set_agent_toolsets(Arc::clone(&tools), "tools", Transport::Sdk).unwrap();
    let request = model.request_stream("hi").await.unwrap();
    sdk.greet().await;
    let http_headers = http_session(&url);
    let mut fronts = Fronts { lines: lines.collect(), url, http_headers, sdk, _request: request };

    for (tool, arguments, part) in table() {
        loop {
            let want = directly(&*tools, tool, &arguments).await;
            assert!(is_in(&part, &want), "{tool} {arguments}: {want}");
            let results = fronts.results(tool, &arguments).await;
            // Some results contain the date, which may have changed.
            if directly(&*tools, tool, &arguments).await != want {
                continue;
            }
            for (front, result) in results {
                let (result, want) = (of_any_era(result), of_any_era(want.clone()));
                assert_eq!(result, want, "{tool} {arguments}, through {front}");
            }
            break;
        }
    }
    drop((fronts, model, served));
    session.stop().await;
    world.nothing_is_left();
}

/// What a model in the real CLI sees for each call in the table.
async fn shown(world: &World, tools: &Arc<dyn ToolSource>, transport: Transport) -> Vec<ToolResultBlock> {
    let calls = table();
    let scripted = ScriptedModel::start_with(move |request| match calls.get(request.turn()) {
        Some((tool, arguments, _)) => Turn::blocks(vec![Block::call_as(
            &format!("mcp__tools__{tool}"),
            arguments.clone(),
            format!("toolu_{}", request.turn()),
        )]),
        None => Turn::text("done"),
    });
    let builder = ClaudeCodeModel::builder()
        .cli(claude_cli())
        .guard(env!("CARGO_BIN_EXE_toolbridge"))
        .bridge(env!("CARGO_BIN_EXE_toolbridge"))
        .session_dir(world.sessions())
        .inherit_env(false)
        .working_directory(world.0.path());
    let environment = clean_environment(world.0.path(), &scripted.url());
    let builder = environment.into_iter().fold(builder, |builder, (name, value)| builder.env(name, value));
    let model = builder.build().unwrap();
    model.set_agent_toolsets(Arc::clone(tools), "tools", transport).unwrap();
    assert_eq!(model.request("go").await.unwrap().text(), "done");
    let mut requests = scripted.requests();
    requests.retain(|request| request.turn() > 0);
    requests.iter().filter_map(|request| request.tool_results().pop()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_in_the_real_cli_is_shown_the_same_over_both_transports() {
    let world = World::new();
    let tools = joined().await;
    let today = async || directly(&*tools, "convert_time", &noon()).await;
    let (over_sdk, over_stdio) = loop {
        let day = today().await;
        let over_sdk = shown(&world, &tools, Transport::Sdk).await;
        let over_stdio = shown(&world, &tools, Transport::Stdio).await;
        if today().await == day {
            break (over_sdk, over_stdio);
        }
    };
    assert_eq!(over_sdk, over_stdio);
    assert_eq!(over_sdk.len(), table().len());
    for ((tool, arguments, part), shown) in table().into_iter().zip(&over_sdk) {
        assert_eq!(shown.is_error, part["isError"] == true, "{tool} {arguments}: {shown:?}");
        if let Some(text) = part["content"][0]["text"].as_str() {
            assert_eq!(shown.text(), text, "{tool} {arguments}");
        }
    }
    drop(tools);
    world.nothing_is_left();
}
