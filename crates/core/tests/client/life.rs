//! Servers that end, and how servers are stopped.

use std::time::{Duration, Instant};

use toolbridge_core::{CallContext, ToolSource};

use crate::support::{
    LONG, call, call_of, is_alive, kill, killed, names, server, started, test_server, text, until, within,
};

#[tokio::test]
async fn a_killed_server_is_there_again_for_the_next_call() {
    let server = started(&[]).await;
    let before = server.process_id().unwrap();
    killed(before).await;
    let since = Instant::now();
    assert_eq!(text(&call(&server, "steps", "{}").await.unwrap()), "done");
    let took = since.elapsed();
    assert_ne!(server.process_id().unwrap(), before);
    assert!(took < Duration::from_secs(2), "the call would have failed by then");
    eprintln!("the first call after kill -9 took {took:?}");
}

#[tokio::test]
async fn a_call_that_a_killed_server_cannot_have_read_goes_to_the_next_one() {
    let server = started(&[]).await;
    // More often, the pause before the next start would be longer than a call waits.
    for _ in 0..5 {
        let pid = server.process_id().unwrap();
        kill(pid);
        // Nobody reads its stdin any more, but nobody may have noticed that it has ended. Once its threads are gone, its
        // descriptors are closed.
        let threads = || std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let since = Instant::now();
        while threads() > 1 || threads() == 1 && !state().contains(") Z ") {
            assert!(since.elapsed() < LONG, "it is still there");
            std::thread::yield_now();
        }
        assert_eq!(text(&call(&server, "steps", "{}").await.unwrap()), "done");
    }
}

#[tokio::test]
async fn calls_under_way_end_with_the_server_and_say_how_it_ended() {
    let server = started(&[]).await;
    let dir = tempfile::tempdir().unwrap();
    let began = dir.path().join("began");
    let arguments = serde_json::json!({ "began": began, "file": dir.path().join("file") }).to_string();
    let waiting = call(&server, "wait", &arguments);
    let killing = async {
        until(|| began.exists()).await;
        kill(server.process_id().unwrap());
    };
    let (error, ()) = tokio::join!(waiting, killing);
    assert_eq!(
        error.unwrap_err().to_string(),
        "MCP server `test` ended while the call was under way, and is started again: signal: 9 (SIGKILL), and it \
         said nothing on stderr"
    );
    let error = call(&server, "exit", "{}").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "MCP server `test` ended while the call was under way, and is started again: exit status: 7; its last line \
         on stderr was `that was all`"
    );
    assert_eq!(error.type_name(), "McpServerError");
    assert_eq!(text(&call(&server, "steps", "{}").await.unwrap()), "done");
}

#[tokio::test]
async fn the_list_is_read_again_after_a_restart() {
    let server = started(&[]).await;
    let before = names(&server);
    let mut changes = server.changes();
    call(&server, "grow", "{}").await.unwrap();
    within(changes.next()).await;
    assert_ne!(names(&server), before);
    kill(server.process_id().unwrap());
    within(changes.next()).await;
    assert_eq!(names(&server), before);
}

#[tokio::test]
async fn a_start_that_has_begun_is_waited_for_however_long_it_takes() {
    let dir = tempfile::tempdir().unwrap();
    // Longer than a call waits for a start that is not under way.
    let script = format!(
        "mkdir {} 2>/dev/null || sleep 4; exec {}",
        dir.path().join("once").display(),
        test_server().display()
    );
    let server =
        toolbridge_core::client::McpServer::command("sh").args(["-c", &script]).start().await.unwrap();
    killed(server.process_id().unwrap()).await;
    call(&server, "steps", "{}").await.unwrap();
}

#[tokio::test]
async fn a_server_that_needs_long_to_answer_is_started_once() {
    let dir = tempfile::tempdir().unwrap();
    let slow = async |args: &str, version: &str, tool: &str| {
        let starts = dir.path().join(args);
        // By then `server/discover` has been unanswered for so long that `initialize` was sent.
        let script =
            format!("echo >> '{}'; sleep 11; exec {} {args}", starts.display(), test_server().display());
        let server = toolbridge_core::client::McpServer::command("sh").args(["-c", &script]).name(args);
        let server = server.start_timeout(LONG).start().await.unwrap();
        assert_eq!(server.protocol_version().as_deref(), Some(version), "{args}");
        let meta = text(&call(&server, tool, "{}").await.unwrap());
        assert_eq!(meta.contains("2026-07-28"), args == "modern", "{args}: {meta}");
        assert_eq!(std::fs::read_to_string(&starts).unwrap(), "\n", "{args}");
    };
    tokio::join!(
        slow("pinned 2025-11-25", "2025-11-25", "first"),
        slow("mute 2025-06-18", "2025-06-18", "first"),
        slow("modern", "2026-07-28", "first"),
        slow("tools", "2026-07-28", "steps"),
    );
}

#[tokio::test]
async fn a_server_that_does_not_come_back_fails_calls_clearly() {
    let dir = tempfile::tempdir().unwrap();
    let once = dir.path().join("once");
    let program = test_server();
    // It starts the first time, and fails ever after.
    let script = format!(
        "mkdir {0} 2>/dev/null || {{ echo gone for good >&2; exit 5; }}; exec {1}",
        once.display(),
        program.display()
    );
    let server = toolbridge_core::client::McpServer::command("sh")
        .args(["-c", &script])
        .name("once")
        .start()
        .await
        .unwrap();
    kill(server.process_id().unwrap());
    let since = Instant::now();
    let error = loop {
        let error = call(&server, "steps", "{}").await.unwrap_err().to_string();
        if error.contains("exit status: 5") {
            break error;
        }
        assert!(since.elapsed() < LONG, "{error}");
    };
    assert_eq!(
        error,
        "MCP server `once` is down, and did not come back within 2 s: it ended \
         before it had answered: exit status: 5; its last line on stderr was `gone for good`"
    );
}

#[tokio::test]
async fn dropping_a_server_ends_its_process_and_what_that_has_started() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pid");
    let script = format!("sleep 600 & echo $! > {}; {}", file.display(), test_server().display());
    let server =
        toolbridge_core::client::McpServer::command("sh").args(["-c", &script]).start().await.unwrap();
    let shell = server.process_id().unwrap();
    let sleep: u32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    assert!(is_alive(shell) && is_alive(sleep));
    drop(server);
    until(|| !is_alive(shell) && !is_alive(sleep)).await;
}

#[tokio::test]
async fn a_server_that_does_not_exit_by_itself_is_killed() {
    let server = started(&["stubborn", "2025-11-25"]).await;
    let pid = server.process_id().unwrap();
    within(server.stop()).await;
    assert!(!is_alive(pid));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_server_ends_when_the_program_that_started_it_is_killed() {
    use std::io::BufRead as _;
    use std::process::{Command, Stdio};

    // One exits when its stdin is closed, the other only on a signal.
    for args in [&["tools"][..], &["stubborn", "2025-11-25"]] {
        let mut host =
            Command::new(test_server()).arg("host").args(args).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufReader::new(host.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let server: u32 = line.trim().parse().unwrap();
        assert!(is_alive(server));
        host.kill().unwrap();
        host.wait().unwrap();
        until(|| !is_alive(server)).await;
    }
}

#[tokio::test]
async fn a_servers_stderr_goes_to_the_log_line_by_line() {
    let (log, subscriber) = crate::support::log();
    let _guard = tracing::subscriber::set_default(subscriber);
    let server = server(&[]).name("talker").start().await.unwrap();
    let line = serde_json::json!({ "line": format!("first\nsecond\u{1b}[31m {}", "x".repeat(5000)) });
    call(&server, "say", &line.to_string()).await.unwrap();
    until(|| log.text().matches('x').count() > 5000).await;
    let text = log.text();
    let told: Vec<_> = text.lines().filter(|line| line.contains("toolbridge::server")).collect();
    assert!(told[0].contains("first") && told[0].contains("talker"), "{told:?}");
    assert!(told[1].contains("second [31m xxx"), "{told:?}");
    assert!(told.iter().all(|line| line.len() < 1500), "{told:?}");
}

#[test]
fn a_server_ends_though_its_runtime_does_nothing_more() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = runtime.block_on(started(&[]));
    let pid = server.process_id().unwrap();
    drop(server);
    let since = Instant::now();
    while is_alive(pid) {
        assert!(since.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(runtime);
}

#[tokio::test]
async fn a_call_that_is_dropped_while_the_server_is_down_leaves_nothing() {
    let server = server(&[]).start().await.unwrap();
    killed(server.process_id().unwrap()).await;
    drop(server.call(call_of("steps", "{}"), CallContext::default()));
    assert_eq!(text(&call(&server, "steps", "{}").await.unwrap_or_else(|error| panic!("{error}"))), "done");
}
