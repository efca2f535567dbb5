//! Kept results, through every front.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use toolbridge::ipc::{Remote, read_schema_file};
use toolbridge::tool::RawJson;
use toolbridge::{Session, Tool, Toolset};
use toolbridge_core::client::McpServer;
use toolbridge_core::park::Parked;

use crate::fronts::{Client, HttpClient, ask_source, over_sdk};

const SIZE: usize = 200_000;

fn text() -> String {
    "a line with \"quotes\", \\ and 日本語\n".chars().cycle().take(SIZE).collect()
}

type Stored = Arc<Mutex<Vec<String>>>;

fn tools(stored: &Stored) -> Parked<Toolset> {
    let kept = Arc::clone(stored);
    let store = move |arguments: RawJson| {
        let arguments: Value = arguments.decode().unwrap();
        kept.lock().unwrap().push(arguments["text"].as_str().unwrap().to_owned());
        "stored"
    };
    let schema = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
    let tools = Toolset::builder()
        .with(Tool::raw("dump", "", json!({ "type": "object" }), |_: RawJson| text()))
        .with(Tool::raw("store", "", schema, store));
    Parked::new(tools.build().unwrap()).unwrap()
}

fn params(tool: &str, arguments: &Value) -> String {
    json!({ "name": tool, "arguments": arguments }).to_string()
}

/// The handle in a result that a client got.
#[track_caller]
fn handle(result: &str) -> Value {
    assert!(result.len() < 1000, "{result:.200}");
    let result: Value = serde_json::from_str(result).unwrap();
    let note: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(note["bytes"], text().len());
    note["handle"].clone()
}

#[tokio::test]
async fn a_handle_works_through_every_front_and_for_its_client_alone() {
    let dir = tempfile::TempDir::new().unwrap();
    let stored = Stored::default();
    let session = Session::builder(tools(&stored)).dir(dir.path()).start().await.unwrap();
    let remote =
        || Remote::new(session.socket_path(), read_schema_file(session.schema_path()).unwrap()).unwrap();

    let over_the_socket = remote();
    let given = handle(&ask_source(&over_the_socket, "dump", "{}").await);
    ask_source(&over_the_socket, "store", &json!({ "text": given }).to_string()).await;

    let shared = Arc::new(tools(&stored));
    let mut clients = Vec::new();
    for mut client in [
        Client::of(shared.clone()).await,
        Client::of(shared.clone()).await,
        Client::of(Arc::new(remote())).await,
    ] {
        let given = handle(&client.ask("tools/call", &params("dump", &json!({}))).await);
        client.ask("tools/call", &params("store", &json!({ "text": given }))).await;
        clients.push((client, given));
    }
    // Two clients of one source: a handle of one is not valid for the other.
    let other = clients[1].1.clone();
    let refused = clients[0].0.ask("tools/call", &params("store", &json!({ "text": other }))).await;
    assert!(refused.contains("there is no result") && refused.contains("ParkedHandleError"), "{refused}");

    let (mut channel, _stream) = over_sdk(shared.clone(), dir.path()).await;
    let given = handle(&channel.ask("tools/call", &params("dump", &json!({}))).await);
    channel.ask("tools/call", &params("store", &json!({ "text": given }))).await;

    let (one, another) = {
        let one = HttpClient::of(shared.clone()).await;
        let another = one.another().await;
        (one, another)
    };
    let given = handle(&one.ask("tools/call", &params("dump", &json!({}))).await);
    one.ask("tools/call", &params("store", &json!({ "text": given }))).await;
    let refused = another.ask("tools/call", &params("store", &json!({ "text": given }))).await;
    assert!(refused.contains("there is no result"), "{refused}");

    // The tools of another server, kept here too.
    let url = format!("http://{}/mcp", one.address());
    let server = McpServer::url(url).start().await.unwrap();
    let around = Parked::new(toolbridge::source::Selection::new(server, ["dump", "store"]).unwrap())
        .unwrap()
        .limit_chars(100);
    let given = ask_source(&around, "dump", "{}").await;
    let note: Value = serde_json::from_str(&given).unwrap();
    let note: Value = serde_json::from_str(note["content"][0]["text"].as_str().unwrap()).unwrap();
    // The outer source keeps the inner one's note too, because it is longer than the limit.
    let inner: Value = {
        let read = ask_source(
            &around,
            "result_read",
            &json!({ "handle": note["handle"], "max_chars": 100 }).to_string(),
        )
        .await;
        serde_json::from_str(&read).unwrap()
    };
    assert!(inner["content"][0]["text"].as_str().unwrap().contains("handle"), "{inner}");

    let stored = stored.lock().unwrap().clone();
    assert_eq!(stored.len(), 6);
    assert!(stored.iter().all(|one| *one == text()), "byte for byte");
    drop(stored);
    session.stop().await;
}
