//! The example with tools that change at run time.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use toolbridge::ipc::Remote;
use toolbridge::tool::{RawJson, ToolCall};
use toolbridge::{CallContext, ToolSource as _};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

const SHOUT: &str = r#"#!/bin/sh
case "$1" in
    --schema) echo '{"description": "Shouts", "input_schema": {"type": "object", "required": ["text"]}}' ;;
    *) echo "$1" | tr a-z A-Z ;;
esac
"#;

async fn called(remote: &Remote, tool: &str, arguments: Value) -> Result<String, String> {
    let call = remote.call(ToolCall::new(tool, RawJson::from(&arguments)), CallContext::default());
    let result = tokio::time::timeout(PATIENCE, call).await.expect("an answer in time");
    let result: Value = result.map_err(|error| error.to_string())?.decode().unwrap();
    Ok(result["content"][0]["text"].as_str().unwrap().trim().to_owned())
}

/// Waits until exactly those tools are listed.
async fn lists(remote: &Remote, names: &[&str]) {
    let mut changes = remote.changes();
    let wait = async {
        while remote.tools().iter().map(|tool| tool.name.as_str()).ne(names.iter().copied()) {
            changes.next().await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("the list in time");
}

#[tokio::test]
async fn a_plugin_is_loaded_called_and_unloaded() {
    let dir = tempfile::TempDir::new().unwrap();
    let (plugins, sessions) = (dir.path().join("plugins"), dir.path().join("sessions"));
    for dir in [&plugins, &sessions] {
        fs::create_dir(dir).unwrap();
    }
    // Written by another process: a child forked meanwhile by another thread would hold it open for writing,
    // and exec would fail.
    let plugin = plugins.join("shout");
    let written =
        Command::new("sh").args(["-c", r#"printf %s "$1" > "$2""#, "-", SHOUT]).arg(&plugin).status();
    assert!(written.unwrap().success());
    fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).unwrap();

    // Cargo builds the examples before it runs the tests, beside their executables.
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().unwrap().parent().unwrap().join("examples/plugins");
    let mut host = Command::new(program)
        .arg(&plugins)
        .env("TMPDIR", &sessions)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(host.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let config: Value = serde_json::from_str(&line).unwrap();
    let [_, socket, schema] = &config["mcpServers"]["tools"]["args"].as_array().unwrap()[..] else {
        panic!("{config}")
    };
    let remote = Remote::open(socket.as_str().unwrap(), schema.as_str().unwrap()).unwrap();

    lists(&remote, &["load_plugin", "unload_plugin"]).await;
    for wrong in ["nothing", "../plugins/shout", ""] {
        let error = called(&remote, "load_plugin", json!({ "name": wrong })).await.unwrap_err();
        assert!(error.contains(&format!("there is no plugin `{wrong}`")), "{error}");
    }
    let shout = json!({ "name": "shout" });
    assert_eq!(
        called(&remote, "load_plugin", shout.clone()).await.unwrap(),
        "`plugin_shout` can be called now"
    );
    lists(&remote, &["load_plugin", "unload_plugin", "plugin_shout"]).await;
    assert_eq!(called(&remote, "plugin_shout", json!({ "text": "hey" })).await.unwrap(), r#"{"TEXT":"HEY"}"#);
    let error = called(&remote, "load_plugin", shout.clone()).await.unwrap_err();
    assert!(error.contains("two tools are called `plugin_shout`"), "{error}");
    assert_eq!(called(&remote, "unload_plugin", shout.clone()).await.unwrap(), "it is gone");
    lists(&remote, &["load_plugin", "unload_plugin"]).await;
    assert_eq!(called(&remote, "unload_plugin", shout).await.unwrap(), "it was not loaded");

    drop(remote);
    drop(host.stdin.take());
    assert!(host.wait().unwrap().success());
    assert_eq!(fs::read_dir(sessions).unwrap().count(), 0);
}
