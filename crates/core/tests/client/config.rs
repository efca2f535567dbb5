//! Config files.

use toolbridge_core::client::McpServer;
use toolbridge_core::source::Combined;

use crate::support::{call, names, test_server, text};

#[tokio::test]
async fn the_servers_of_a_file_are_started_and_joined() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(".mcp.json");
    let config = serde_json::json!({ "mcpServers": {
        "own tools": { "command": test_server(), "env": { "TEST_KEY": "${TEST_NOT_SET:-from the file}" } },
        "old": { "type": "stdio", "command": test_server(), "args": ["pinned", "2024-11-05"] },
    } });
    std::fs::write(&file, config.to_string()).unwrap();
    let mut tools = Combined::new();
    for server in McpServer::from_config(&file).unwrap() {
        tools = tools.with_prefix(&server.prefix(), server.start().await.unwrap()).unwrap();
    }
    let names = names(&tools);
    assert!(names.contains(&"own_tools_echo".into()) && names.contains(&"old_first".into()), "{names:?}");
    let said = call(&tools, "own_tools_variable", r#"{"name":"TEST_KEY"}"#).await.unwrap();
    assert_eq!(text(&said), "from the file");
}

#[test]
fn a_file_that_cannot_be_used_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(".mcp.json");
    let error = || McpServer::from_config(&file).unwrap_err().to_string();
    assert_eq!(error(), format!("cannot use `{}`: No such file or directory (os error 2)", file.display()));
    std::fs::write(&file, "{").unwrap();
    assert_eq!(
        error(),
        format!(
            "cannot use `{}`: it is not a configuration: EOF while parsing an object at line 1 column 1",
            file.display()
        )
    );
    std::fs::write(&file, r#"{"mcpServers":{"a":{"command":"${TEST_NOT_SET}"}}}"#).unwrap();
    assert_eq!(
        error(),
        format!(
            "cannot use `{}`: at `mcpServers.a.command`: the variable `TEST_NOT_SET` is not set; set it, or give a default: \
             `${{TEST_NOT_SET:-default}}`",
            file.display()
        )
    );
}
