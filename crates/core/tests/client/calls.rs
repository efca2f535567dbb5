//! Calls, lists and versions.

use toolbridge_core::source::CallEvent;
use toolbridge_core::tool::{CallMeta, ServerInfo};
use toolbridge_core::{CallContext, ToolSource};

use crate::support::{call, call_of, log, names, started, text, until, within};

#[tokio::test]
async fn results_pass_as_they_were_written() {
    let server = started(&[]).await;
    assert_eq!(server.protocol_version().as_deref(), Some("2026-07-28"));
    let info = ServerInfo::new("test").version(env!("CARGO_PKG_VERSION")).instructions("be kind");
    assert_eq!(server.info(), Some(info));
    let arguments = r#"{"number":-9007199254740993,"text":"é\u0000\n"}"#;
    let result = call(&server, "echo", arguments).await.unwrap();
    assert_eq!(
        result.as_str(),
        format!(
            r#"{{"resultType":"complete","zzz":1e400,"content":[{{"type":"new","x":[1]}},{{"type":"image","data":"AA==","mimeType":"image/png","odd":null}},{{"type":"resource_link","uri":"a:b","name":"n"}}],"structuredContent":{arguments},"isError":false,"_meta":{{"traced":false,"id":""}},"aaa":12345678901234567890123}}"#
        )
    );
}

#[tokio::test]
async fn the_meta_of_a_call_reaches_the_server() {
    let server = started(&[]).await;
    let mut call = call_of("echo", "{}");
    call.meta = CallMeta {
        tool_use_id: Some("toolu_1".into()),
        progress_token: Some(toolbridge_core::tool::RawJson::parse("\"mine\"").unwrap()),
        traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().ok(),
        caller: None,
        can_ask: false,
    };
    let result = within(server.call(call, CallContext::default())).await.unwrap();
    assert!(result.as_str().contains(r#""_meta":{"traced":true,"id":"toolu_1"}"#), "{result}");
}

#[tokio::test]
async fn progress_comes_in_order_and_before_the_result() {
    let server = started(&[]).await;
    let mut call = call_of("steps", "{}");
    call.meta.progress_token = Some(toolbridge_core::tool::RawJson::parse("7").unwrap());
    let mut context = CallContext::default();
    let reports = context.listen(true, false);
    let mut call = reports.follow(server.call(call, context));
    let mut seen = Vec::new();
    loop {
        match within(call.next()).await {
            CallEvent::Progress(report) => {
                seen.push((report.progress, report.total, report.message.unwrap()));
            }
            CallEvent::Question(asked) => panic!("nobody can answer {asked:?}"),
            CallEvent::Done(result) => {
                assert_eq!(text(&result.unwrap()), "done");
                break;
            }
        }
    }
    // A newer report replaces one that was not taken; the last one always comes.
    assert!(seen.is_sorted_by(|one, next| one.0 < next.0), "{seen:?}");
    assert_eq!(seen.last(), Some(&(3.0, Some(3.0), "going on".to_owned())));
}

#[tokio::test]
async fn dropping_a_call_cancels_it_in_the_server() {
    let server = started(&[]).await;
    let dir = tempfile::tempdir().unwrap();
    let (began, file) = (dir.path().join("began"), dir.path().join("file"));
    let arguments = serde_json::json!({ "began": began, "file": file }).to_string();
    let waiting = server.call(call_of("wait", &arguments), CallContext::default());
    let mut waiting = Box::pin(waiting);
    within(async {
        tokio::select! {
            _ = &mut waiting => panic!("it never returns"),
            () = until(|| began.exists()) => {}
        }
    })
    .await;
    assert!(!file.exists());
    drop(waiting);
    until(|| file.exists()).await;
    assert_eq!(text(&call(&server, "steps", "{}").await.unwrap()), "done");
}

#[tokio::test]
async fn an_error_of_the_tool_is_a_result_and_one_of_the_server_an_error() {
    let server = started(&[]).await;
    let result = call(&server, "fail", "{}").await.unwrap();
    assert_eq!(text(&result), "out of luck (type: QuotaError)");
    assert!(result.as_str().contains(r#""isError":true"#), "{result}");
    assert_eq!(
        call(&server, "fial", "{}").await.unwrap_err().to_string(),
        "there is no tool `fial`; did you mean `fail`?"
    );

    let server = started(&["pinned", "2025-11-25"]).await;
    let error = call(&server, "refuse", "{}").await.unwrap_err();
    assert_eq!(error.to_string(), "MCP server `test` answered with the error -32099: not today");
    assert_eq!(error.type_name(), "McpError");
    let error = call(&server, "odd", "{}").await.unwrap_err().to_string();
    assert!(error.starts_with("tool `odd` returned an unusable result: what the MCP server `test` sent cannot be used: it has no `content`"), "{error}");
}

#[tokio::test]
async fn every_protocol_version_is_spoken() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"] {
        let args = if version == "2026-07-28" { vec!["modern"] } else { vec!["pinned", version] };
        let server = started(&args).await;
        assert_eq!(server.protocol_version().as_deref(), Some(version));
        // All pages, without tools that cannot be offered.
        assert_eq!(names(&server), ["first", "refuse", "odd", "last"], "{version}");
        let meta = text(&call(&server, "first", "{}").await.unwrap());
        let is_told = meta.contains(r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#);
        assert_eq!(is_told, version == "2026-07-28", "{meta}");
    }
}

#[tokio::test]
async fn a_server_that_ends_at_an_unknown_method_gets_the_old_handshake() {
    let server = started(&["rude", "2024-11-05"]).await;
    assert_eq!(server.protocol_version().as_deref(), Some("2024-11-05"));
}

#[tokio::test]
async fn other_lines_on_a_servers_stdout_are_skipped_with_one_warning() {
    let (log, subscriber) = log();
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = started(&["chatty", "2025-06-18"]).await;
    assert_eq!(names(&server).len(), 4);
    let text = log.text();
    assert_eq!(text.matches("WARN").count(), 2, "the other one is about a tool: {text}");
    assert_eq!(text.matches("a line to stdout that is not MCP").count(), 1, "{text}");
}

#[tokio::test]
async fn long_instructions_of_a_server_are_cut_with_a_warning() {
    let (log, subscriber) = log();
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = started(&["wordy", "2025-06-18"]).await;
    let instructions = server.info().unwrap().instructions.unwrap();
    assert_eq!(
        instructions,
        format!("-{}", "é".repeat(32_767)),
        "65,535 bytes: 64 KB would end within a character"
    );
    assert!(log.text().contains("instructions are longer than the limit"), "{}", log.text());
}

#[tokio::test]
async fn a_changed_list_is_reported() {
    let server = started(&[]).await;
    let mut changes = server.changes();
    let before = names(&server);
    call(&server, "grow", "{}").await.unwrap();
    within(changes.next()).await;
    assert_eq!(names(&server), [before, vec!["grown".to_owned()]].concat());
}

#[tokio::test]
async fn sixty_four_calls_at_once_are_each_answered_with_their_own() {
    let server = started(&[]).await;
    let calls = (0..64).map(|number| {
        let server = &server;
        async move {
            let result = call(server, "echo", &format!(r#"{{"number":{number}}}"#)).await.unwrap();
            assert!(result.as_str().contains(&format!(r#""structuredContent":{{"number":{number}}}"#)));
        }
    });
    futures_util::future::join_all(calls).await;
    let large = call(&server, "big", "{}").await.unwrap();
    assert_eq!(text(&large).len(), 3_000_000);
}

#[tokio::test]
async fn the_environment_is_inherited_and_added_to() {
    let server = crate::support::server(&[]).env("TEST_OWN", "given").start().await.unwrap();
    assert_eq!(text(&call(&server, "variable", r#"{"name":"TEST_OWN"}"#).await.unwrap()), "given");
    let path = text(&call(&server, "variable", r#"{"name":"PATH"}"#).await.unwrap());
    assert_eq!(path, std::env::var("PATH").unwrap());
}
