//! The model forwards a result without reading it: the real CLI, two servers, five megabytes.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use toolbridge::source::Combined;
use toolbridge::tool::RawJson;
use toolbridge::{NoArgs, Request, Tool, Toolset};
use toolbridge_core::client::McpServer;
use toolbridge_core::park::Parked;
use toolbridge_scripted::{Block, ModelRequest, Turn};

use super::support::{World, transports};
use crate::fronts::HttpClient;

const SIZE: usize = 5_000_000;

/// How much of a conversation may be about a text that is only forwarded.
const MOST_BYTES: usize = 1000;

fn text() -> String {
    let line = "2025-01-02 \"order\" \\ 日本語: 17 pieces\n";
    line.repeat(SIZE / line.len() + 1)
}

/// The size of the tool-related blocks in the conversation.
fn about_tools(request: &ModelRequest) -> usize {
    let messages = request.body["messages"].as_array().into_iter().flatten();
    let blocks = messages.filter_map(|message| message["content"].as_array()).flatten();
    let is_about = |block: &&Value| block["type"] == "tool_use" || block["type"] == "tool_result";
    blocks.filter(is_about).map(|block| block.to_string().len()).sum()
}

fn handle(request: &ModelRequest) -> Value {
    let note: Value = serde_json::from_str(&request.tool_results()[0].text()).unwrap();
    note["handle"].clone()
}

/// Tool A is a function of this process, tool B belongs to another server, over HTTP.
#[tokio::test]
async fn five_megabytes_go_from_one_server_to_another_and_the_model_sees_less_than_a_kilobyte() {
    for transport in transports() {
        let stored = Arc::new(Mutex::new(Vec::<String>::new()));
        let kept = Arc::clone(&stored);
        let store = move |arguments: RawJson| {
            let arguments: Value = arguments.decode().unwrap();
            kept.lock().unwrap().push(arguments["text"].as_str().unwrap().to_owned());
            "stored"
        };
        let schema =
            json!({ "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] });
        let there =
            Toolset::builder().with(Tool::raw("store", "Stores a text", schema, store)).build().unwrap();
        let server = HttpClient::of(there).await;
        let other = McpServer::url(format!("http://{}/mcp", server.address())).start().await.unwrap();
        let here =
            Toolset::builder().tool("dump", "Dumps all orders", async |_: NoArgs| text()).build().unwrap();
        let tools = Parked::new(Combined::new().with(here).unwrap().with(other).unwrap()).unwrap();

        let world = World::answering(|request| match request.turn() {
            0 => Turn::blocks(vec![Block::call("dump", json!({}))]),
            1 => Turn::blocks(vec![Block::call("store", json!({ "text": handle(request) }))]),
            _ => Turn::text("done"),
        });
        let answer =
            world.model().request(Request::new("go").tools(tools).transport(transport)).await.unwrap();
        assert_eq!(answer.text(), "done");
        let requests = world.scripted.requests();
        let last = requests.last().unwrap();
        assert_eq!(last.tool_results()[0].text(), "stored");
        let bytes = about_tools(last);
        assert!(bytes < MOST_BYTES, "{bytes} bytes: {}", last.body["messages"]);
        assert!(*stored.lock().unwrap() == [text()], "byte for byte");
        world.nothing_is_left();
    }
}

/// Automatic: the result is larger than the CLI can show, and the model has no tool to read files.
#[tokio::test]
async fn results_too_long_for_the_cli_are_kept_and_can_be_passed_on() {
    for transport in transports() {
        let stored = Arc::new(Mutex::new(Vec::<String>::new()));
        let kept = Arc::clone(&stored);
        let schema = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
        let tools = Toolset::builder()
            .tool("dump", "Dumps all orders", async |_: NoArgs| text())
            .with(Tool::raw("store", "Stores a text", schema, move |arguments: RawJson| {
                let arguments: Value = arguments.decode().unwrap();
                kept.lock().unwrap().push(arguments["text"].as_str().unwrap().to_owned());
                "stored"
            }))
            .build()
            .unwrap();
        let world = World::answering(|request| match request.turn() {
            0 => Turn::blocks(vec![Block::call("dump", json!({}))]),
            1 => Turn::blocks(vec![Block::call("store", json!({ "text": handle(request) }))]),
            _ => Turn::text("done"),
        });
        world.model().request(Request::new("go").tools(tools).transport(transport)).await.unwrap();
        assert!(*stored.lock().unwrap() == [text()], "byte for byte");
        let requests = world.scripted.requests();
        // As long as no result was kept, the model had only the tools of the toolset.
        let names = |request: &ModelRequest| -> Vec<String> {
            let names = request.tools().into_iter().filter(|name| name.starts_with("mcp__tools__"));
            names.map(str::to_owned).collect()
        };
        assert_eq!(names(&requests[0]), ["mcp__tools__dump", "mcp__tools__store"]);
        assert!(
            names(requests.last().unwrap()).contains(&"mcp__tools__result_read".into()),
            "{:?}",
            names(requests.last().unwrap())
        );
        world.nothing_is_left();
    }
}
