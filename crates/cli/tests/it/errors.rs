//! Every way a call can fail, as an MCP client sees it; the bridge survives all of them.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::support::{Host, McpClient, eventually, text, toolbridge};

#[test]
fn every_failure_of_a_tool_is_an_error_result() {
    let host = Host::start();
    let mut client = host.client();
    let rows = [
        ("fail", json!({ "message": "no such order" }), "no such order (type: DemoError)"),
        ("panic", json!({}), "tool `panic` panicked: this tool always panics (type: ToolPanicError)"),
        (
            "add",
            json!({ "a": "x", "b": 1 }),
            "invalid arguments for tool `add`: at `/a`: invalid type: string, expected a JSON number (type: ToolArgumentsError)",
        ),
        (
            "add",
            json!({ "a": 1 }),
            "invalid arguments for tool `add`: at `/`: missing field `b` (type: ToolArgumentsError)",
        ),
        (
            "blob",
            json!({ "bytes": 10_485_760 }),
            "the answer of tool `blob` cannot be sent: message of 10485826 bytes is over the limit of 10485760 bytes \
             (type: IPCMessageSizeError)",
        ),
    ];
    for (tool, arguments, want) in rows {
        let answer = client.call(tool, arguments);
        assert_eq!(
            answer["result"],
            json!({ "content": [{ "type": "text", "text": want }], "isError": true }),
            "{tool}"
        );
    }
    let huge = client.call("echo", json!({ "text": "x".repeat(10_485_760) }));
    let want = "message of 10485831 bytes is over the limit of 10485760 bytes (type: IPCMessageSizeError)";
    assert_eq!((text(&huge).as_str(), &huge["result"]["isError"]), (want, &json!(true)));
    // An oversize message does not affect later ones.
    assert_eq!(client.call_text("echo", json!({ "text": "x".repeat(10_000_000) })).len(), 10_000_000);
}

#[test]
fn an_unreachable_parent_is_an_error_result() {
    let mut host = Host::start();
    let mut client = host.client();
    host.stdin.take();
    assert!(host.process.wait_within(crate::support::PATIENCE).success());
    let answer = client.call("echo", json!({ "text": "" }));
    let want = format!(
        "cannot reach the parent process at `{}`: No such file or directory (os error 2) (type: IPCConnectionError)",
        host.socket.display()
    );
    assert_eq!((text(&answer), &answer["result"]["isError"]), (want, &json!(true)));
}

#[test]
fn every_broken_message_has_the_code_that_json_rpc_names() {
    let host = Host::start();
    let mut client = host.client();
    let call = |params: Value| {
        json!({ "jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params }).to_string()
    };
    let rows: Vec<(Vec<u8>, Value, i64)> = vec![
        (call(json!({ "name": "nothing", "arguments": {} })).into(), json!(5), -32602),
        (call(json!({ "arguments": {} })).into(), json!(5), -32602),
        (call(json!({ "name": 7 })).into(), json!(5), -32602),
        (call(json!({ "name": "echo", "arguments": "text" })).into(), json!(5), -32602),
        (call(json!({ "name": "echo", "arguments": [] })).into(), json!(5), -32602),
        (call(json!([])).into(), json!(5), -32602),
        (br#"{"jsonrpc":"2.0","id":5,"method":"tools/call"}"#.to_vec(), json!(5), -32602),
        (br#"{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{"cursor":"page2"}}"#.to_vec(), json!(5), -32602),
        (br#"{"jsonrpc":"2.0","id":5,"method":"no/such"}"#.to_vec(), json!(5), -32601),
        (br#"{"jsonrpc":"2.0","id":5,"method":"prompts/list"}"#.to_vec(), json!(5), -32601),
        (br#"{"jsonrpc":"2.0","id":5,"method":"resources/list"}"#.to_vec(), json!(5), -32601),
        (br#"{"jsonrpc":"2.0","id":5,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"a","value":"b"}}}"#.to_vec(), json!(5), -32601),
        (br#"{"jsonrpc":"2.0","id":5,"method":"initialize","params":{"protocolVersion":5}}"#.to_vec(), json!(5), -32602),
        (br#"{"jsonrpc":"1.0","id":5,"method":"ping"}"#.to_vec(), json!(5), -32600),
        (br#"{"jsonrpc":"2.0","id":5}"#.to_vec(), json!(5), -32600),
        (br#"{"jsonrpc":"2.0","id":[5],"method":"ping"}"#.to_vec(), Value::Null, -32600),
        (br#"[{"jsonrpc":"2.0","id":5,"method":"ping"}]"#.to_vec(), Value::Null, -32600),
        (b"\"text\"".to_vec(), Value::Null, -32600),
        (b"{\"jsonrpc\":\"2.0\",".to_vec(), Value::Null, -32700),
        (b"hello".to_vec(), Value::Null, -32700),
        (br#"{"jsonrpc":"2.0","id":5,"method":"ping","x":NaN}"#.to_vec(), Value::Null, -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"\xff\xfe\"}".to_vec(), Value::Null, -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"a\0b\"}".to_vec(), Value::Null, -32700),
        (format!("{{\"x\":{}", "[".repeat(100_000)).into_bytes(), Value::Null, -32700),
    ];
    for (line, id, code) in rows {
        client.send_line(&line);
        let answer = client.receive();
        let shown = String::from_utf8_lossy(&line[..line.len().min(120)]).into_owned();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(code)), "{shown}: {answer}");
        assert!(!answer["error"]["message"].as_str().unwrap().is_empty(), "{shown}");
    }
    client.start_call("ecko", json!({}));
    assert_eq!(client.receive()["error"]["message"], "there is no tool `ecko`; did you mean `echo`?");
    // Notifications get no answer.
    for silent in [
        r#"{"jsonrpc":"2.0","method":"no/such"}"#,
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo"}}"#,
        r#"{"jsonrpc":"2.0","id":77,"result":{}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}"#,
        "",
    ] {
        client.send_line(silent.as_bytes());
    }
    let last = client.start_call("echo", json!({ "text": "alive" }));
    let answer = client.receive();
    assert_eq!((&answer["id"], text(&answer).as_str()), (&json!(last), "alive"));
}

#[test]
fn nothing_before_the_handshake_ends_the_bridge() {
    let host = Host::start();
    let mut client = host.silent_client();
    for line in [
        "garbage",
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
        r#"{"jsonrpc":"2.0","id":3,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"echo","arguments":{"text":""}}}"#,
    ] {
        client.send_line(line.as_bytes());
    }
    assert_eq!(client.receive()["error"]["code"], -32700);
    assert_eq!(client.receive()["error"]["code"], -32602, "no call before the handshake");
    assert!(client.initialize()["result"].is_object());
    assert_eq!(client.call_text("echo", json!({ "text": "hi" })), "hi");
}

#[test]
fn an_id_that_is_in_use_is_refused() {
    let host = Host::start();
    let mut client = host.client();
    let call = |ms: u64| {
        json!({ "jsonrpc": "2.0", "id": "same", "method": "tools/call",
            "params": { "name": "wait", "arguments": { "ms": ms } } })
    };
    client.send(&call(600_000));
    client.send(&call(1));
    let answer = client.receive();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("same"), &json!(-32600)));
}

#[test]
fn a_line_that_is_too_long_is_refused_and_the_next_one_works() {
    let host = Host::start();
    let mut client = host.client();
    client.send_line(&vec![b'x'; 40 * 1024 * 1024]);
    let answer = client.receive();
    assert_eq!(answer["error"]["code"], -32600);
    assert_eq!(answer["error"]["message"], "a message is over the limit of 33554432 bytes");
    assert_eq!(client.call_text("echo", json!({ "text": "alive" })), "alive");
}

#[test]
fn big_calls_do_not_keep_their_memory() {
    let host = Host::start();
    let mut client = host.client();
    for _ in 0..3 {
        assert_eq!(client.call_text("echo", json!({ "text": "x".repeat(9_000_000) })).len(), 9_000_000);
    }
    let status = format!("/proc/{}/status", client.bridge.pid());
    eventually("the bridge gives memory back", crate::support::PATIENCE, || {
        client.call("echo", json!({ "text": "" }));
        let status = std::fs::read_to_string(&status).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() < 40_000
    });
}

#[test]
fn a_bridge_that_cannot_start_says_why_in_one_line() {
    let dir = tempfile::TempDir::new().unwrap();
    let schema = |text: &str| {
        let path = dir.path().join("schema.json");
        std::fs::write(&path, text).unwrap();
        // Independent of the umask.
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path
    };
    let tool = r#"{"name":"a","description":"","input_schema":{}}"#;
    let rows = [
        ("", "is not JSON: EOF while parsing a value at line 1 column 0"),
        ("[", "is not JSON: EOF while parsing a list at line 1 column 1"),
        ("{}", "is not a JSON array"),
        (&format!("[{tool},{tool}]"), "cannot be used: two tools are called `a`"),
        (r#"[{"name":"","description":"","input_schema":{}}]"#, "has a tool with an empty name, number 1"),
    ];
    for (text, want) in rows {
        let path = schema(text);
        let mut bridge = McpClient::start(&dir.path().join("socket"), &path);
        assert_eq!(bridge.bridge.wait_within(crate::support::PATIENCE).code(), Some(1));
        assert_eq!(bridge.stderr(), format!("error: schema file `{}` {want}\n", path.display()));
    }
    let missing = dir.path().join("missing.json");
    let mut bridge = McpClient::start(&dir.path().join("socket"), &missing);
    assert_eq!(bridge.bridge.wait_within(crate::support::PATIENCE).code(), Some(1));
    assert_eq!(
        bridge.stderr(),
        format!(
            "error: schema file `{}` cannot be read: No such file or directory (os error 2)\n",
            missing.display()
        )
    );
    let long = dir.path().join("x".repeat(120));
    let mut bridge = McpClient::start(&long, &schema("[]"));
    assert_eq!(bridge.bridge.wait_within(crate::support::PATIENCE).code(), Some(1));
    let bytes = long.as_os_str().len();
    assert_eq!(
        bridge.stderr(),
        format!("error: socket path `{}` has {bytes} bytes, the limit is 107\n", long.display())
    );
}

#[test]
fn a_socket_path_that_is_no_socket_says_so() {
    let host = Host::start();
    let mut client = McpClient::start(&host.schema, &host.schema);
    client.initialize();
    let want = format!("`{}` is not a socket (type: IPCConnectionError)", host.schema.display());
    assert_eq!(client.call_text("echo", json!({ "text": "" })), want);
    let (code, _, stderr) = crate::support::run(toolbridge().arg("call").arg(&host.schema).arg("echo"));
    assert_eq!((code, stderr.lines().next().unwrap()), (1, format!("error: {want}").as_str()));
}
