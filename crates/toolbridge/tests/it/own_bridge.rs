//! `run_bridge_if_asked` in a user's program.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

#[test]
fn a_program_is_the_bridge_to_its_own_session() {
    // Cargo builds the examples before it runs the tests, beside their executables.
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().unwrap().parent().unwrap().join("examples/own_bridge");
    let dir = tempfile::TempDir::new().unwrap();
    let mut host = Command::new(&program)
        .env("TMPDIR", dir.path())
        .env_remove("TOOLBRIDGE_BRIDGE")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(host.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let config: Value = serde_json::from_str(&line).unwrap();
    let server = &config["mcpServers"]["tools"];
    assert_eq!(server["command"], json!(program));

    let args = server["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap());
    let mut bridge =
        Command::new(&program).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = bridge.stdin.take().unwrap();
    for message in [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
            "name": "add", "arguments": { "a": 40, "b": 2.5 } } }),
    ] {
        writeln!(stdin, "{message}").unwrap();
    }
    drop(stdin);
    let answers: Vec<Value> = BufReader::new(bridge.stdout.take().unwrap())
        .lines()
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect();
    assert_eq!(answers[1]["result"]["content"][0]["text"], "42.5");
    assert!(bridge.wait().unwrap().success());

    drop(host.stdin.take());
    assert!(host.wait().unwrap().success());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
