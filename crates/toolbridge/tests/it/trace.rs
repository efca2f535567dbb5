//! The traces of a program's own session and bridge.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use toolbridge::ipc::BridgeCommand;
use toolbridge::tool::Hint as _;
use toolbridge::{NoArgs, Session, Tool, ToolResult, Toolset};

fn tools() -> Toolset {
    Toolset::builder()
        .with(
            Tool::new("slow", "", async |_: NoArgs| std::future::pending::<()>().await)
                .timeout(Duration::from_millis(20)),
        )
        .tool("own_error", "", |_: NoArgs| ToolResult::error("I could not"))
        .tool("text_error", "", async |_: NoArgs| Err::<(), _>("only a text"))
        .tool("fine", "", async |_: NoArgs| "fine")
        .build()
        .unwrap()
}

/// Calls each of the tools through a bridge process, one after the other.
fn call_all(server: &BridgeCommand, tools: &[&str]) {
    let mut bridge = Command::new(&server.command)
        .args(&server.args)
        .envs(&server.env)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = bridge.stdin.take().unwrap();
    let mut answers = BufReader::new(bridge.stdout.take().unwrap()).lines();
    let mut ask = |method: &str, params: Value| {
        writeln!(stdin, "{}", json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))
            .unwrap();
        answers.next().unwrap().unwrap()
    };
    let client = json!({ "name": "t", "version": "1" });
    ask("initialize", json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client }));
    for tool in tools {
        ask("tools/call", json!({ "name": tool, "arguments": {} }));
    }
    drop(stdin);
    assert!(bridge.wait().unwrap().success());
}

fn outcomes(file: &Path, process: &str) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .filter(|line| line["event"] == "call_end" && line["process"] == process)
        .map(|line| format!("{} {} {}", line["tool"], line["outcome"], line["error_type"]).replace('"', ""))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn timeouts_and_errors_of_every_kind_are_recorded_by_both_sides() {
    let tests = std::env::current_exe().unwrap();
    let bridge = tests.parent().unwrap().parent().unwrap().join("examples/own_bridge");
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("trace.jsonl");
    let builder = Session::builder(tools()).dir(dir.path()).bridge(bridge).trace(&file);
    let session = builder.start().await.unwrap();
    let server = session.mcp_server().unwrap();
    assert_eq!(
        session.mcp_config("tools").unwrap()["mcpServers"]["tools"]["env"],
        json!({ "TOOLBRIDGE_TRACE": file })
    );
    call_all(&server, &["slow", "own_error", "text_error", "fine"]);
    session.stop().await;
    let want = [
        "slow timed_out ToolTimeoutError",
        "own_error tool_error null",
        "text_error tool_error Error",
        "fine ok null",
    ];
    assert_eq!(outcomes(&file, "bridge"), want);
    assert_eq!(outcomes(&file, "parent"), want);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("I could not") && !text.contains("only a text"), "{text}");
    assert!(text.lines().last().unwrap().contains(r#""event":"session_end""#), "{text}");
}

#[tokio::test]
async fn a_session_whose_trace_cannot_be_written_does_not_start() {
    let dir = tempfile::TempDir::new().unwrap();
    let error = Session::builder(tools()).dir(dir.path()).trace("/no/dir/trace").start().await.unwrap_err();
    assert!(error.to_string().starts_with("cannot write a trace to `/no/dir/trace`: "), "{error}");
    assert!(error.hint().is_some());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
