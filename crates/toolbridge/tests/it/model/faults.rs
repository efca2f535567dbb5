//! A CLI or a bridge that misbehaves.

use std::time::Duration;

use toolbridge::model::{ClaudeCodeError, ClaudeCodeModelBuilder, ExecutionKind, Transport};
use toolbridge::tool::Hint as _;

use super::support::{BOTH, Tools, World, program, transports};

/// Sends a request to a model whose CLI is this script; with and without tools.
async fn ask(
    script: &str,
    set: impl Fn(ClaudeCodeModelBuilder) -> ClaudeCodeModelBuilder,
) -> ClaudeCodeError {
    let mut errors = Vec::new();
    for tools in std::iter::once(None).chain(transports().into_iter().map(Some)) {
        let world = World::new("text ok");
        let cli = program(&world, "claude", script);
        let model = set(world.builder().cli(cli)).build().unwrap();
        if let Some(transport) = tools {
            model.set_agent_toolsets(Tools::new().toolset(), "tools", transport).unwrap();
        }
        errors.push(model.request("hi").await.unwrap_err());
        world.nothing_is_left();
    }
    let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    errors.remove(0)
}

#[tokio::test]
async fn unreadable_output_is_an_error() {
    let error = ask("echo hello; echo '{\"type\":'", |b| b).await;
    assert_eq!(error.type_name(), "CLIResponseParseError");
    assert_eq!(
        error.to_string(),
        "cannot read the CLI's output: there is no result in it, and `hello` is not a message"
    );
}

#[tokio::test]
async fn an_early_exit_is_reported_with_the_end_of_stderr() {
    let error = ask("echo 'error: unknown option' >&2; exit 1", |b| b).await;
    assert!(matches!(&error, ClaudeCodeError::CliExecution { kind: ExecutionKind::Exit, .. }));
    assert_eq!(
        error.to_string(),
        "the CLI ended with exit status: 1 and without a result: error: unknown option"
    );
}

#[tokio::test]
async fn only_the_end_of_stderr_is_kept() {
    let error = ask("yes padding | head -c 1000000 >&2; echo the end >&2; exit 1", |b| b).await;
    let text = error.to_string();
    assert!(text.ends_with("the end") && text.len() < 10_000, "{} bytes", text.len());
}

#[tokio::test]
async fn a_cli_that_hangs_is_ended_in_time() {
    for script in ["exec sleep 600", "trap '' TERM; while :; do sleep 600 & wait; done"] {
        let error = ask(script, |builder| builder.timeout(Duration::from_millis(500))).await;
        assert_eq!(error.to_string(), "no result within 0.5 s");
    }
    // A timeout too long for the clock acts as no timeout.
    let error = ask("exit 7", |builder| builder.timeout(Duration::MAX)).await;
    assert!(error.to_string().contains("exit status: 7"), "{error}");
}

#[tokio::test]
async fn a_cli_that_never_stops_writing_is_ended_in_time() {
    for line in
        ["for people", r#"{"type":"unknown_kind"}"#, r#"{"type":"control_cancel_request","request_id":"x"}"#]
    {
        let error =
            ask(&format!("exec yes '{line}'"), |builder| builder.timeout(Duration::from_millis(500))).await;
        assert_eq!(error.to_string(), "no result within 0.5 s", "{line}");
    }
}

#[tokio::test]
async fn a_cli_that_never_reads_is_ended_in_time() {
    let world = World::new("text ok");
    let cli = program(&world, "claude", "exec sleep 600");
    let model = world.builder().cli(cli).timeout(Duration::from_millis(500)).build().unwrap();
    let error = model.request("x".repeat(1_000_000)).await.unwrap_err();
    assert_eq!(error.to_string(), "no result within 0.5 s");
    world.nothing_is_left();
}

#[tokio::test]
async fn a_cli_that_closes_its_stdout_and_lives_is_ended() {
    let error = ask("exec >&-; exec sleep 600", |builder| builder).await;
    assert!(error.to_string().contains("without a result"), "{error}");
}

#[tokio::test]
async fn a_cli_that_hangs_after_its_result_has_still_answered() {
    let world = World::new("text ok");
    let line = r#"{"type":"result","subtype":"success","is_error":false,"result":"hi","session_id":"s"}"#;
    let cli = program(&world, "claude", &format!("echo '{line}'; exec sleep 600"));
    let model = world.builder().cli(cli).build().unwrap();
    let whole = model.request_with_metadata("hi").await.unwrap();
    assert_eq!(whole.metadata.session_id.as_deref(), Some("s"));
    world.nothing_is_left();
}

#[tokio::test]
async fn a_result_without_a_line_end_is_read_once_the_cli_exits() {
    let world = World::new("text ok");
    let line = r#"{"type":"result","subtype":"success","is_error":false,"result":"hi","session_id":"s"}"#;
    // A child process of the CLI holds the pipe open.
    let cli = program(&world, "claude", &format!("sleep 600 & printf '%s' '{line}'"));
    let model = world.builder().cli(cli).build().unwrap();
    let whole = model.request_with_metadata("hi").await.unwrap();
    assert_eq!(whole.metadata.session_id.as_deref(), Some("s"));
    world.nothing_is_left();
    let error = ask("sleep 600 & printf '%s' '{\"type\":\"result\"'", |builder| builder).await;
    assert!(error.to_string().contains("there is no result in it"), "{error}");
}

#[tokio::test]
async fn lines_without_json_and_unknown_types_are_skipped() {
    let world = World::new("text ok");
    let lines = [
        "a warning for people",
        r#"{"type":"unknown_kind"}"#,
        r#"{"no type":1}"#,
        r#"{"type":"result","subtype":"success","is_error":false,"result":"hi"}"#,
    ];
    let cli = program(&world, "claude", &format!("cat <<'E'\n{}\nE", lines.join("\n")));
    world.builder().cli(cli).build().unwrap().request("hi").await.unwrap();
}

#[tokio::test]
async fn a_missing_directory_and_an_invalid_cli_are_named() {
    let world = World::new("text ok");
    let model = world.builder().working_directory("/no/where").build().unwrap();
    let error = model.request("hi").await.unwrap_err();
    assert_eq!(error.to_string(), "the working directory `/no/where` does not exist or is not a directory");
    assert_eq!(error.type_name(), "CLIExecutionError");
    let model = world.builder().cli("/no/claude").build().unwrap();
    let error = model.request("hi").await.unwrap_err();
    assert_eq!(error.type_name(), "CLINotFoundError");
    assert!(error.hint().unwrap().contains("npm install -g @anthropic-ai/claude-code"));
    let model = world.builder().allowed_tools(["x".repeat(3_000_000)]).build().unwrap();
    let error = model.request("hi").await.unwrap_err();
    assert!(error.to_string().contains("too long for a command line"), "{error}");
    assert_eq!(error.hint(), None, "the message says what to do, and no path is wrong");
    world.nothing_is_left();
}

#[tokio::test]
async fn a_bridge_that_does_not_start_is_an_error_with_its_reason() {
    let world = World::new("text I have no tools.");
    let bridge = program(&world, "bridge", "echo 'boom: no such library' >&2; exit 3");
    let model = world.builder().bridge(&bridge).build().unwrap();
    model.set_agent_toolsets(Tools::new().toolset(), "tools", Transport::Stdio).unwrap();
    let error = model.request("hi").await.unwrap_err();
    assert_eq!(error.type_name(), "BridgeStartupError");
    let text = error.to_string();
    assert!(
        text.starts_with("the tools of server `tools` are not available: the CLI says `failed`"),
        "{text}"
    );
    assert!(text.ends_with("ends with exit status: 3: boom: no such library"), "{text}");
    assert!(world.scripted.requests().is_empty(), "the model was asked without its tools");
    world.nothing_is_left();

    let model = world.builder().bridge("/no/bridge").build().unwrap();
    model.set_agent_toolsets(Tools::new().toolset(), "tools", Transport::Stdio).unwrap();
    let error = model.request("hi").await.unwrap_err();
    assert_eq!(error.type_name(), "BridgeStartupError");
    assert!(error.to_string().contains("`/no/bridge`"), "{error}");
    world.nothing_is_left();
}

#[tokio::test]
async fn a_bridge_executable_that_cannot_run_is_named() {
    let world = World::new("text ok");
    let file = |name: &str, content: &[u8]| {
        let path = program(&world, name, "");
        std::fs::write(&path, content).unwrap();
        path
    };
    let other_machine = file("other-machine", b"\x7fELF\x02\x01\x01\0nothing that this machine runs");
    for bridge in [file("no-loader", b"#!/no/loader\n"), other_machine, "/bin/false".into()] {
        let guarded = world.builder().bridge(&bridge).guard(&bridge).build().unwrap();
        // Here the CLI starts, and then the bridge to the tools does not.
        let with_tools = world.builder().bridge(&bridge).build().unwrap();
        with_tools.set_agent_toolsets(Tools::new().toolset(), "tools", Transport::Stdio).unwrap();
        for model in [guarded, with_tools] {
            let error = model.request("hi").await.unwrap_err();
            assert_eq!(error.type_name(), "BridgeStartupError", "{error}");
            assert!(error.to_string().contains(&format!("`{}`", bridge.display())), "{error}");
            assert!(!error.to_string().contains("working directory"), "{error}");
        }
    }
    assert!(world.scripted.requests().is_empty(), "the model was asked without its tools");
    world.nothing_is_left();
}

#[tokio::test]
async fn a_session_that_cannot_start_is_an_error_before_the_cli_starts() {
    let world = World::new("text ok");
    let model = world.builder().session_dir("/no/where").build().unwrap();
    model.set_agent_toolsets(Tools::new().toolset(), "tools", Transport::Stdio).unwrap();
    let error = model.request("hi").await.unwrap_err();
    assert_eq!(error.type_name(), "IPCError");
    assert!(error.to_string().contains("`/no/where`"), "{error}");
    assert!(world.scripted.requests().is_empty());
}

/// Runs programs that answer our first two requests, reporting this status of our server, and then print
/// `at_first`.
async fn begin(status: Option<&str>, at_first: &str) -> ClaudeCodeError {
    let mut errors = Vec::new();
    for transport in BOTH {
        let world = World::new("text ok");
        let answer = |n: u8, subtype: &str, response: &str| {
            format!(
                r#"read q; echo '{{"type":"control_response","response":{{"subtype":"{subtype}","request_id":"toolbridge_{n}",{response}}}}}'"#
            )
        };
        let hello = answer(1, "success", r#""response":{}"#);
        let servers = match status {
            Some(status) => answer(
                2,
                "success",
                &format!(r#""response":{{"mcpServers":[{{"name":"tools","status":"{status}"}}]}}"#),
            ),
            None => answer(2, "error", r#""error":"unknown subtype""#),
        };
        let result = r#"{"type":"result","subtype":"success","is_error":false,"result":"without tools"}"#;
        let init = format!(r#"{{"type":"system","subtype":"init","mcp_servers":[{at_first}]}}"#);
        let script =
            format!("{hello}\n{servers}\nread prompt; echo '{init}'; echo '{result}'; exec cat >/dev/null");
        let model = world.builder().cli(program(&world, "claude", &script)).build().unwrap();
        model.set_agent_toolsets(Tools::new().toolset(), "tools", transport).unwrap();
        errors.push(model.request("hi").await.unwrap_err());
        world.nothing_is_left();
    }
    assert!(errors.iter().all(|error| error.type_name() == "BridgeStartupError"), "{errors:?}");
    let hints = errors.iter().map(|error| error.hint().unwrap().to_owned()).collect::<Vec<_>>();
    assert!(hints[0].contains("run_bridge_if_asked"), "{hints:?}");
    assert!(hints[1].contains("use transport `stdio`"), "{hints:?}");
    errors.remove(1)
}

#[tokio::test]
async fn no_prompt_is_sent_before_the_tools_are_connected() {
    let rows = [
        (Some("failed"), r#"{"name":"tools","status":"failed"}"#, "the CLI says `failed`"),
        (Some("needs-auth"), "", "the CLI says `needs-auth`"),
        (None, r#"{"name":"tools","status":"pending"}"#, "the CLI says `pending`"),
        (None, "", "the CLI does not list it"),
    ];
    for (status, at_first, want) in rows {
        let error = begin(status, at_first).await.to_string();
        assert!(error.contains(want), "{status:?} {at_first}: {error}");
    }
}

#[tokio::test]
async fn a_bridge_that_keeps_running_does_not_delay_the_error() {
    let world = World::new("text ok");
    let bridge = program(&world, "bridge", "sleep 600 & echo boom >&2; exit 3");
    let model = world.builder().bridge(&bridge).build().unwrap();
    model.set_agent_toolsets(Tools::new().toolset(), "tools", Transport::Stdio).unwrap();
    let error = model.request("hi").await.unwrap_err();
    assert!(error.to_string().ends_with("exit status: 3: boom"), "{error}");
    world.nothing_is_left();
}

#[tokio::test]
async fn many_blocks_on_a_line_do_not_exceed_the_unread_limit() {
    let world = World::new("text ok");
    let block = format!(r#"{{"type":"text","text":"{}"}}"#, "x".repeat(3000));
    let line = format!(r#"{{"type":"assistant","message":{{"content":[{}]}}}}"#, vec![block; 400].join(","));
    std::fs::write(world.home.path().join("line"), line).unwrap();
    let result = r#"{"type":"result","subtype":"success","is_error":false}"#;
    let script = format!("cat '{}'; echo; echo '{result}'", world.home.path().join("line").display());
    let model = world.builder().cli(program(&world, "claude", &script)).build().unwrap();
    assert_eq!(model.request("hi").await.unwrap().parts.len(), 400);
}

#[tokio::test]
async fn too_many_requests_of_the_cli_are_an_error() {
    let line = r#"{"type":"control_request","request_id":"x","request":{"subtype":"x"}}"#;
    let error = ask(&format!("exec yes '{line}'"), |builder| builder).await;
    assert!(error.to_string().contains("has more than 4096 unanswered requests"), "{error}");
}
