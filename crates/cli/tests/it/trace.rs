//! Traces: what both processes write, and how it is shown.

use std::collections::HashMap;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use toolbridge_scripted::{ScriptedModel, claude_cli, clean_environment};

use crate::support::{Host, McpClient, PATIENCE, config_of, eventually, files, run, text, toolbridge};

const EXECUTABLE: &str = env!("CARGO_BIN_EXE_toolbridge");

/// Must not appear in any trace.
const SECRET: &str = "hunter2-in-the-payload";

/// A host that writes a trace, and the trace's path.
fn traced_host() -> (Host, PathBuf) {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("trace.jsonl");
    let host = Host::start_with(dir, |command| {
        command.env("TOOLBRIDGE_TRACE", &file);
    });
    let mut config = config_of(Path::new(EXECUTABLE), &host.socket, &host.schema);
    config["mcpServers"]["tools"]["env"] = json!({ "TOOLBRIDGE_TRACE": file });
    assert_eq!(host.config, config);
    (host, file)
}

/// A bridge started as in the MCP config, with a client that has done the handshake.
fn client_of(host: &Host) -> McpClient {
    let server = &host.config["mcpServers"]["tools"];
    let mut command = Command::new(server["command"].as_str().unwrap());
    command.args(server["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()));
    let env = server["env"].as_object().unwrap();
    command.envs(env.iter().map(|(name, value)| (name, value.as_str().unwrap())));
    let mut client = McpClient::start_command(command);
    client.initialize();
    client
}

fn events(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    assert!(!text.contains(SECRET), "{text}");
    assert!(text.lines().all(|line| line.len() < 4096));
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}

fn ends<'a>(events: &'a [Value], process: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == "call_end" && event["process"] == process).collect()
}

/// Waits until that many calls have ended on each side.
fn wait_for_ends(file: &Path, bridge: usize, parent: usize) -> Vec<Value> {
    let counts = || {
        let events = events(file);
        (ends(&events, "bridge").len(), ends(&events, "parent").len())
    };
    eventually("both sides have written", PATIENCE, || counts() == (bridge, parent));
    events(file)
}

fn show(file: &Path, args: &[&str]) -> (i32, String, String) {
    run(toolbridge().arg("trace").arg(file).args(args))
}

fn shown(file: &Path) -> Value {
    let (code, stdout, stderr) = show(file, &["--json"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    serde_json::from_str(&stdout).unwrap()
}

#[test]
fn both_sides_of_parallel_calls_match_up() {
    let (host, file) = traced_host();
    let mut client = client_of(&host);
    client.request("tools/list", json!({}));
    let calls: Vec<_> = (0..20).map(|n| client.start_call("wait", json!({ "ms": 20 + n }))).collect();
    for call in &calls {
        assert!(text(&client.answer(*call)).starts_with("waited"));
    }
    let events = wait_for_ends(&file, 20, 20);
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);

    let bridge_pid = client.bridge.pid();
    let by_span: HashMap<_, _> =
        ends(&events, "bridge").into_iter().map(|end| (end["span_id"].as_str().unwrap(), end)).collect();
    assert_eq!(by_span.len(), 20);
    for parent in ends(&events, "parent") {
        let bridge = by_span[parent["parent_span_id"].as_str().unwrap()];
        assert_eq!(parent["trace_id"], bridge["trace_id"]);
        assert_eq!(parent["arguments_bytes"], bridge["arguments_bytes"]);
        assert_eq!((&parent["pid"], &bridge["pid"]), (&json!(host.process.pid()), &json!(bridge_pid)));
        let at = |event: &Value, key: &str| event[key].as_u64().unwrap_or_else(|| panic!("{key} in {event}"));
        let order =
            ["began_ns", "sent_ns", "answered_ns", "ended_ns", "written_ns"].map(|key| at(bridge, key));
        assert!(order.is_sorted(), "{bridge}");
        let order = ["began_ns", "ended_ns", "written_ns", "total_ns"].map(|key| at(parent, key));
        assert!(order.is_sorted(), "{parent}");
        assert!(at(parent, "ended_ns") - at(parent, "began_ns") >= 20_000_000, "{parent}");
        // The parent may learn that its answer is written only after the bridge has passed it on.
        assert!(at(bridge, "total_ns") >= at(parent, "ended_ns"), "{bridge} {parent}");
    }
    let kinds: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(kinds[0], "session_start");
    assert!(kinds.contains(&"front_start") && kinds.contains(&"tools_list"), "{kinds:?}");

    let timeline = shown(&file);
    let calls = timeline["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 20);
    assert!(calls.iter().all(|call| call["outcome"] == "ok" && call["tool_ns"].as_u64() >= Some(20_000_000)));
}

#[test]
fn sizes_and_outcomes_are_recorded_and_payloads_are_not() {
    let (mut host, file) = traced_host();
    let mut client = client_of(&host);
    let echo = json!({ "text": SECRET });
    let rows = [
        ("echo", echo.clone(), "ok", Value::Null, true),
        ("fail", json!({ "message": SECRET }), "tool_error", json!("DemoError"), true),
        ("panic", json!({}), "tool_error", json!("ToolPanicError"), true),
        ("add", json!({ "a": SECRET, "b": 1 }), "refused", json!("ToolArgumentsError"), true),
        ("blob", json!({ "bytes": 11_000_000 }), "transport_error", json!("IPCMessageSizeError"), true),
        ("nothing", json!({ "x": SECRET }), "refused", json!("ToolNotFoundError"), false),
    ];
    for (tool, arguments, ..) in &rows {
        client.call(tool, arguments.clone());
    }
    let events = wait_for_ends(&file, 6, 5);
    let (bridge, parent) = (ends(&events, "bridge"), ends(&events, "parent"));
    for (place, (tool, arguments, outcome, error_type, arrives)) in rows.iter().enumerate() {
        let sides = if *arrives { vec![bridge[place], parent[place]] } else { vec![bridge[place]] };
        for side in sides {
            assert_eq!((&side["tool"], &side["outcome"]), (&json!(tool), &json!(outcome)), "{side}");
            assert_eq!(&side["error_type"], error_type, "{side}");
            assert_eq!(side["arguments_bytes"], arguments.to_string().len(), "{side}");
        }
    }
    let result = json!({ "content": [{ "type": "text", "text": SECRET }], "isError": false }).to_string();
    assert_eq!(
        (&bridge[0]["result_bytes"], &parent[0]["result_bytes"]),
        (&json!(result.len()), &json!(result.len()))
    );

    // Cancelled by the client; the parent learns it from the closed connection.
    let call = client.start_call("wait", json!({ "ms": 600_000 }));
    eventually("the parent has it", PATIENCE, || {
        self::events(&file).iter().filter(|event| event["event"] == "call_start").count() == 13
    });
    client.cancel(call);
    let events = wait_for_ends(&file, 7, 6);
    assert_eq!(ends(&events, "bridge")[6]["outcome"], "cancelled");
    assert_eq!(ends(&events, "parent")[5]["outcome"], "cancelled");

    // The parent is killed in the middle of a call.
    let call = client.start_call("wait", json!({ "ms": 600_000 }));
    eventually("the parent has it", PATIENCE, || {
        self::events(&file).iter().filter(|event| event["event"] == "call_start").count() == 15
    });
    host.process.signal(Signal::KILL);
    host.process.wait_within(PATIENCE);
    client.answer(call);
    let events = wait_for_ends(&file, 8, 6);
    let last = ends(&events, "bridge")[7];
    assert_eq!(
        (&last["outcome"], &last["error_type"]),
        (&json!("transport_error"), &json!("IPCConnectionError"))
    );

    let timeline = shown(&file);
    let outcomes: Vec<_> =
        timeline["calls"].as_array().unwrap().iter().map(|call| call["outcome"].as_str().unwrap()).collect();
    assert_eq!(
        outcomes,
        [
            "ok",
            "tool_error",
            "tool_error",
            "refused",
            "transport_error",
            "refused",
            "cancelled",
            "transport_error"
        ]
    );
    client.end_input();
    assert!(client.bridge.wait_within(PATIENCE).success());
    assert_eq!(self::events(&file).last().unwrap()["event"], "front_end");
}

#[test]
fn a_killed_bridge_leaves_a_readable_trace() {
    let (host, file) = traced_host();
    let mut client = client_of(&host);
    client.call("echo", json!({ "text": "hi" }));
    client.start_call("wait", json!({ "ms": 600_000 }));
    eventually("the parent has it", PATIENCE, || {
        events(&file).iter().filter(|event| event["event"] == "call_start").count() == 4
    });
    client.bridge.signal(Signal::KILL);
    client.bridge.wait_within(PATIENCE);
    wait_for_ends(&file, 1, 2);
    let timeline = shown(&file);
    let calls = timeline["calls"].as_array().unwrap();
    let seen: Vec<_> = calls
        .iter()
        .map(|call| (call["tool"].as_str().unwrap(), call["outcome"].as_str().unwrap()))
        .collect();
    assert_eq!(seen, [("echo", "ok"), ("wait", "cancelled")]);
    drop(host);
}

#[test]
fn calls_that_take_turns_show_their_queue() {
    let (host, file) = traced_host();
    let mut client = client_of(&host);
    let calls: Vec<_> =
        (0..3).map(|_| client.start_call("write_note", json!({ "text": SECRET, "ms": 40 }))).collect();
    for call in calls {
        client.answer(call);
    }
    wait_for_ends(&file, 3, 3);
    let timeline = shown(&file);
    let mut queues: Vec<_> =
        timeline["calls"].as_array().unwrap().iter().map(|call| call["queue_ns"].as_u64().unwrap()).collect();
    queues.sort_unstable();
    assert!(queues[1] >= 30_000_000 && queues[2] >= 70_000_000, "{queues:?}");
}

#[test]
fn the_clients_trace_goes_on_in_both_processes() {
    let (host, file) = traced_host();
    let mut client = client_of(&host);
    let meta = json!({
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "claudecode/toolUseId": "toolu_7",
    });
    client.request("tools/call", json!({ "name": "echo", "arguments": { "text": "x" }, "_meta": meta }));
    let events = wait_for_ends(&file, 1, 1);
    let (bridge, parent) = (ends(&events, "bridge")[0], ends(&events, "parent")[0]);
    assert_eq!(bridge["trace_id"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(parent["trace_id"], "0af7651916cd43dd8448eb211c80319c");
    assert_eq!(bridge["parent_span_id"], "b7ad6b7169203331");
    assert_eq!(parent["parent_span_id"], bridge["span_id"]);
    assert_eq!((&bridge["tool_use_id"], &parent["tool_use_id"]), (&json!("toolu_7"), &json!("toolu_7")));
    let timeline = shown(&file);
    assert_eq!(timeline["calls"].as_array().unwrap().len(), 1);
}

#[test]
fn the_demo_is_shown_as_a_table_and_a_waterfall() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("demo.jsonl");
    let (code, ..) = run(toolbridge().env("TMPDIR", dir.path()).arg("demo").arg("--trace").arg(&file));
    assert_eq!(code, 0);
    let (code, stdout, stderr) = show(&file, &[]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(!stdout.contains('\x1b'), "no colour in a pipe");
    let first = stdout.lines().next().unwrap();
    for column in ["start", "tool", "id", "args", "result", "bridge", "queue", "total", "outcome"] {
        assert!(first.contains(column), "{first}");
    }
    assert!(
        stdout.contains("█") && stdout.contains("▒") && stdout.contains("tool_error (DemoError)"),
        "{stdout}"
    );
    assert!(stdout.contains("  500 × echo  ") && !stdout.contains("not shown"), "{stdout}");
    assert!(stdout.contains("\ntotal  "), "{stdout}");
    let waterfall = stdout.lines().filter(|line| line.contains('█') || line.contains('░'));
    assert!(
        waterfall.clone().count() > 10 && waterfall.clone().all(|line| line.chars().count() <= 100),
        "{stdout}"
    );

    let (_, everything, _) = show(&file, &["--all"]);
    assert!(everything.lines().count() > 1000);
    // A closed pipe is no error.
    let mut head = toolbridge().arg("trace").arg(&file).arg("--all").stdout(Stdio::piped()).spawn().unwrap();
    drop(head.stdout.take());
    assert!(head.wait().unwrap().success());
}

#[test]
fn equal_calls_one_after_another_are_one_row() {
    let (host, file) = traced_host();
    let mut client = client_of(&host);
    let start = |client: &mut McpClient, ms: u64| client.start_call("wait", json!({ "ms": ms }));
    let calls: Vec<_> = (0..30).map(|_| start(&mut client, 20)).collect();
    for call in calls {
        client.answer(call);
    }
    client.call("fail", json!({ "message": "x" }));
    client.call("wait", json!({ "ms": 20 }));
    wait_for_ends(&file, 32, 32);
    let rows = |args: &[&str]| -> Vec<String> {
        let (code, stdout, _) = show(&file, args);
        assert_eq!(code, 0);
        stdout.lines().skip(1).take_while(|line| !line.is_empty()).map(str::to_owned).collect()
    };
    let grouped = rows(&[]);
    assert_eq!(grouped.len(), 3, "{grouped:#?}");
    assert!(grouped[0].contains("  30 × wait  ") && grouped[0].contains("  ok, "), "{grouped:#?}");
    assert!(grouped[1].contains("  fail ") && grouped[1].contains("tool_error (DemoError)"), "{grouped:#?}");
    assert!(grouped[2].ends_with("  ok"), "{grouped:#?}");
    let (_, stdout, _) = show(&file, &[]);
    assert_eq!(stdout.lines().filter(|line| line.starts_with("30 × wait ")).count(), 1, "{stdout}");
    assert!(!stdout.contains("not shown") && stdout.contains("32 calls in "), "{stdout}");
    assert_eq!(rows(&["--all"]).len(), 32);

    // Of rows that differ, the longest.
    for length in 0..45 {
        client.call("echo", json!({ "text": "x".repeat(length) }));
    }
    wait_for_ends(&file, 77, 77);
    let (_, stdout, _) = show(&file, &[]);
    assert_eq!(rows(&[]).len(), 40, "{stdout}");
    assert!(stdout.contains("30 × wait ") && stdout.contains("tool_error (DemoError)"), "{stdout}");
    assert!(stdout.contains("\n8 shorter calls are not shown; `--all` shows all\n"), "{stdout}");
    assert_eq!(rows(&["--all"]).len(), 77);
}

#[test]
fn the_page_is_one_file_with_the_timeline_in_it() {
    let (host, file) = traced_host();
    let mut client = client_of(&host);
    client.call("echo", json!({ "text": SECRET }));
    wait_for_ends(&file, 1, 1);
    let (code, stdout, stderr) = show(&file, &["--html"]);
    let page = file.with_extension("html");
    assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
    assert_eq!(stderr, format!("wrote `{}`: 1 call\n", page.display()));
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(!html.contains("http:") && !html.contains("https:") && !html.contains(SECRET));
    let (_, rest) = html.split_once(r#"<script type="application/json" id="data">"#).unwrap();
    let (data, _) = rest.split_once("</script>").unwrap();
    assert_eq!(serde_json::from_str::<Value>(data).unwrap(), shown(&file));
    // The page must not overwrite the trace itself.
    let lines = std::fs::read(&file).unwrap();
    let link = file.with_extension("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let roundabout = file.parent().unwrap().join("../").join(file.parent().unwrap().file_name().unwrap());
    for itself in [file.clone(), link, roundabout.join(file.file_name().unwrap())] {
        let (code, _, stderr) = show(&file, &["--html", itself.to_str().unwrap()]);
        assert_eq!(code, 1, "{}", itself.display());
        assert!(stderr.starts_with("error: the page would overwrite the trace `"), "{stderr}");
        assert_eq!(std::fs::read(&file).unwrap(), lines);
    }
    let (code, _, stderr) = show(&file, &["--html", "/no/such/dir/page.html"]);
    assert_eq!(code, 1);
    assert!(stderr.starts_with("error: cannot write the page to `/no/such/dir/page.html`: "), "{stderr}");
}

#[test]
fn broken_lines_are_reported_by_number_and_the_rest_is_shown() {
    let (host, file) = traced_host();
    // A bridge that is killed right after its answer may not have written the end of the call.
    let mut client = client_of(&host);
    client.call("echo", json!({ "text": "x" }));
    wait_for_ends(&file, 1, 1);
    let good = std::fs::read_to_string(&file).unwrap();
    let broken = file.with_extension("broken");
    std::fs::write(&broken, format!("oops\n{good}{{\"event\":\"call_e")).unwrap();
    let (code, stdout, stderr) = show(&broken, &[]);
    let last = good.lines().count() + 2;
    assert_eq!(code, 0);
    assert!(stdout.contains("1 call in "), "{stdout}");
    let lines: Vec<_> = stderr.lines().collect();
    assert_eq!(
        lines,
        [
            format!("warning: {}:1: not an event of a trace: expected value", broken.display()),
            format!(
                "warning: {}:{last}: the last line is incomplete; its writer was killed",
                broken.display()
            ),
        ]
    );

    std::fs::write(&broken, "one\ntwo\n").unwrap();
    let (code, _, stderr) = show(&broken, &[]);
    assert_eq!(code, 1);
    assert!(stderr.contains("is not a trace: no line of it is an event"), "{stderr}");
    let (code, _, stderr) = show(Path::new("/no/trace"), &[]);
    assert_eq!(code, 1);
    assert!(
        stderr.contains("cannot read the trace `/no/trace`: No such file") && stderr.contains("hint: "),
        "{stderr}"
    );
    std::fs::write(&broken, "").unwrap();
    assert_eq!(show(&broken, &[]).1, "no calls\n0 calls in 0 ns; 0 B of arguments, 0 B of results\n");
}

#[test]
fn a_trace_that_cannot_be_written_is_reported_at_the_start() {
    let dir = TempDir::new().unwrap();
    let link = dir.path().join("link");
    symlink(dir.path().join("elsewhere"), &link).unwrap();
    let workspace = dir.path().to_str().unwrap();
    run(toolbridge().args(["docs", "--init", "--workspace", workspace]));
    let commands: [&[&str]; 4] = [
        &["demo"],
        &["demo", "--serve"],
        &["docs", "--workspace", workspace],
        &["bridge", "/tmp/none.sock", "/tmp/none.json"],
    ];
    for command in commands {
        for (file, reason) in [
            ("/no/dir/trace", "No such file or directory (os error 2)"),
            (link.to_str().unwrap(), "it is a symbolic link"),
        ] {
            let (code, _, stderr) =
                run(toolbridge().env("TMPDIR", dir.path()).args(command).args(["--trace", file]));
            assert_eq!(code, 1, "{command:?} {stderr}");
            let want = format!("error: cannot write a trace to `{file}`: {reason}\n");
            assert!(stderr.starts_with(&want), "{command:?} {stderr}");
        }
    }
    assert!(!dir.path().join("elsewhere").exists());
    let left: Vec<_> = files(dir.path()).into_iter().filter(|name| name.starts_with("claudecode")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_full_disk_later_harms_no_call() {
    // A file size limit for bridge and host stands in for a full disk.
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("trace.jsonl");
    let script = "trap '' XFSZ; ulimit -f 16; exec \"$0\" \"$@\"";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_toolbridge"), "demo", "--serve", "--trace"]).arg(&file);
    command.env("TMPDIR", dir.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = crate::support::Process(command.spawn().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.0.stdout.take().unwrap()), &mut line)
        .unwrap();
    let hello: Value = serde_json::from_str(&line).unwrap();
    let path = |key: &str| PathBuf::from(hello[key].as_str().unwrap());
    let mut client = McpClient::start(&path("socket"), &path("schema"));
    client.initialize();
    for _ in 0..40 {
        assert_eq!(client.call_text("echo", json!({ "text": "x" })), "x");
    }
    client.hang_up();
    drop(child.0.stdin.take());
    child.wait_within(PATIENCE);
    let mut stderr = String::new();
    std::io::Read::read_to_string(child.0.stderr.as_mut().unwrap(), &mut stderr).unwrap();
    assert_eq!(stderr.matches("the trace has gaps").count(), 1, "{stderr}");
    assert!(file.metadata().unwrap().len() <= 8192);
    assert_eq!(show(&file, &[]).0, 0);
}

#[test]
fn the_real_cli_is_traced_over_both_transports() {
    let script = format!("call echo {{\"text\": \"{SECRET}\"}} as toolu_1\n---\ntext done");
    for (transport, sides) in [("stdio", vec!["bridge", "parent"]), ("sdk", vec!["parent"])] {
        let (model, home) = (ScriptedModel::start(&*script), TempDir::new().unwrap());
        let file = home.path().join("trace.jsonl");
        let mut command = toolbridge();
        command.env_clear().envs(clean_environment(home.path(), &model.url())).current_dir(home.path());
        command.args(["ask", "go", "--tools", "demo", "--transport", transport, "--trace", "trace.jsonl"]);
        let (code, stdout, stderr) = run(command.arg("--claude").arg(claude_cli()));
        assert_eq!((code, stdout.as_str()), (0, "done\n"), "{stderr}");
        let events = events(&file);
        let mut seen: Vec<_> = events.iter().filter(|event| event["event"] == "call_end").collect();
        seen.sort_by_key(|event| event["process"].to_string());
        assert_eq!(seen.iter().map(|event| event["process"].as_str().unwrap()).collect::<Vec<_>>(), sides);
        for end in &seen {
            assert_eq!((&end["tool_use_id"], &end["outcome"]), (&json!("toolu_1"), &json!("ok")), "{end}");
        }
        assert!(events.iter().any(|event| event["event"] == "tools_list"));
        let timeline = shown(&file);
        assert_eq!(timeline["calls"].as_array().unwrap().len(), 1, "{transport}");
        assert!(timeline["calls"][0]["tool_ns"].is_u64(), "{timeline}");
    }
}

#[test]
fn a_server_of_documents_is_traced_too() {
    let dir = TempDir::new().unwrap();
    let workspace = dir.path().to_str().unwrap();
    assert_eq!(run(toolbridge().args(["docs", "--init", "--workspace", workspace])).0, 0);
    let file = dir.path().join("trace.jsonl");
    let mut command = toolbridge();
    command.args(["docs", "--workspace", workspace, "--trace"]).arg(&file);
    let mut client = McpClient::start_command(command);
    client.initialize();
    client.call("vault_ls", json!({}));
    client.call("vault_read", json!({ "path": SECRET }));
    client.end_input();
    assert!(client.bridge.wait_within(PATIENCE).success());
    let events = events(&file);
    let outcomes: Vec<_> = ends(&events, "server").iter().map(|end| end["outcome"].clone()).collect();
    assert_eq!(outcomes, ["ok", "tool_error"]);
    assert_eq!(shown(&file)["calls"].as_array().unwrap().len(), 2);
}

#[test]
fn without_a_trace_nothing_is_written() {
    let host = Host::start();
    assert_eq!(host.config, config_of(Path::new(EXECUTABLE), &host.socket, &host.schema));
    assert_eq!(host.client().call_text("echo", json!({ "text": "x" })), "x");
    assert_eq!(host.files().len(), 2);
}
