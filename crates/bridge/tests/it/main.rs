//! The real executable, with a session in this process.
#![allow(clippy::unwrap_used, reason = "tests")]

mod guard;

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use toolbridge::{NoArgs, Session, Toolset};

const BRIDGE: &str = env!("CARGO_BIN_EXE_toolbridge-bridge");

fn answers(lines: impl BufRead) -> Vec<Value> {
    lines.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_the_bridge_to_a_session() {
    let dir = tempfile::TempDir::new().unwrap();
    let tools = Toolset::builder().tool("hello", "Greets", async |_: NoArgs| "grüß dich").build().unwrap();
    let session = Session::builder(tools).dir(dir.path()).bridge(BRIDGE).start().await.unwrap();
    let server = session.mcp_server().unwrap();
    let mut bridge = Command::new(&server.command)
        .args(&server.args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = bridge.stdin.take().unwrap();
    for message in [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "hello" } }),
    ] {
        writeln!(stdin, "{message}").unwrap();
    }
    drop(stdin);
    let answers = answers(BufReader::new(bridge.stdout.take().unwrap()));
    assert_eq!(answers[1]["result"]["content"][0]["text"], "grüß dich");
    assert!(bridge.wait().unwrap().success());
    session.stop().await;
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn started_by_hand_it_says_what_it_is() {
    for args in [&[][..], &["--help"], &["bridge", "relative", "paths"], &["bridge", "/a", "/b", "/c"]] {
        let output = Command::new(BRIDGE).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("`toolbridge-bridge bridge SOCKET SCHEMA`"), "{said}");
    }
}
