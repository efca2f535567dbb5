//! A request cleans up completely, no matter how it ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use rustix::process::{Signal, kill_process};
use toolbridge::Event;
use toolbridge::model::{ClaudeCodeError, ExecutionKind, Transport};
use toolbridge_scripted::thorough;

use super::support::{
    BOTH, PATIENCE, Tools, World, is_cli, notified, pid_of, processes_of, program, transports,
};

#[tokio::test]
async fn after_a_tool_error_nothing_is_left() {
    for transport in transports() {
        let world = World::new("call fail {}\n---\ntext It failed.");
        let response = world.model_with(&Tools::new(), transport).request("go").await.unwrap();
        assert_eq!(response.text(), "It failed.");
        world.nothing_is_left();
    }
}

#[tokio::test]
async fn a_killed_cli_is_an_error_and_nothing_is_left() {
    for transport in BOTH {
        let (world, tools, model) = World::hanging(transport);
        let (outcome, ()) = tokio::join!(model.request("go"), async {
            notified("the tool starts", &tools.0.hanging).await;
            kill_cli(&world);
        });
        let error = outcome.unwrap_err();
        assert_eq!(error.type_name(), "CLIExecutionError");
        assert!(error.to_string().contains("signal: 9"), "{error}");
        notified("the handler is dropped", &tools.0.cancelled).await;
        world.nothing_is_left();
    }
}

fn kill_cli(world: &World) {
    let cli = processes_of(world.home.path()).find(|process| is_cli(process)).unwrap();
    kill_process(pid_of(&cli), Signal::KILL).unwrap();
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_ended_with_its_tools() {
    // Concurrently, because each takes its whole time limit.
    join_all(transports().into_iter().map(too_long)).await;
}

async fn too_long(transport: Transport) {
    // On a busy machine the tool may not have been called before the limit.
    for limit in [5, 20, 80, 320] {
        let world = World::new("call hang {}\n---\ntext done");
        let tools = Tools::new();
        let model = world.builder().timeout(Duration::from_secs(limit)).timeout_counts_tools(true);
        let model = model.build().unwrap();
        model.set_agent_toolsets(tools.toolset(), "tools", transport).unwrap();
        let error = model.request("go").await.unwrap_err();
        assert!(
            matches!(&error, ClaudeCodeError::CliExecution { kind: ExecutionKind::Timeout(_), .. }),
            "{error}"
        );
        assert!(error.is_recoverable());
        if tools.0.hanging.notified().now_or_never().is_some() {
            assert_eq!(error.to_string(), format!("no result within {limit} s"));
            notified("the handler is dropped", &tools.0.cancelled).await;
            return world.nothing_is_left();
        }
    }
    panic!("the tool is not called");
}

#[tokio::test]
async fn a_dropped_request_is_ended_with_its_tools() {
    for transport in BOTH {
        let (world, tools, model) = World::hanging(transport);
        tokio::select! {
            outcome = model.request("go") => panic!("{outcome:?}"),
            () = notified("the tool starts", &tools.0.hanging) => {}
        }
        assert_eq!(model.interrupt(), 0, "it is not under way any more");
        notified("the handler is dropped", &tools.0.cancelled).await;
        world.nothing_is_left_soon();
    }
}

#[tokio::test]
async fn a_request_dropped_at_any_moment_leaves_nothing() {
    for transport in transports() {
        // None of these requests ends by itself.
        let (world, tools, model) = World::hanging(transport);
        // Some moments are enough by default, from the start of the CLI until its call of the tool.
        let moments: &[u64] =
            if thorough() { &[0, 1, 20, 100, 250, 400, 600, 800] } else { &[0, 1, 100, 300, 800] };
        for &ms in moments {
            let request = tokio::time::timeout(Duration::from_millis(ms), model.request("go"));
            assert!(request.await.is_err(), "{ms} ms");
            assert_eq!(model.interrupt(), 0, "{ms} ms: it is not under way any more");
        }
        tools.no_handler_goes_on().await;
        world.nothing_is_left_soon();
    }
}

#[tokio::test]
async fn a_dropped_stream_is_ended_with_its_tools() {
    for transport in transports() {
        let world = World::new("text Let me see.\ncall hang {}\n---\ntext done");
        let tools = Tools::new();
        let model = world.model_with(&tools, transport);
        let mut stream = model.request_stream("go").await.unwrap();
        assert!(matches!(stream.next().await, Some(Ok(_))));
        notified("the tool starts", &tools.0.hanging).await;
        drop(stream);
        assert_eq!(model.interrupt(), 0, "it is not under way any more");
        notified("the handler is dropped", &tools.0.cancelled).await;
        world.nothing_is_left_soon();
        asked_no_more(&world);
    }
}

/// The model has received one prompt. A CLI that is told to end cancels its calls and may still report that
/// to the model.
#[track_caller]
fn asked_no_more(world: &World) {
    let asked = world.scripted.requests().len();
    assert!(matches!(asked, 1 | 2), "{asked} requests to the model");
}

#[tokio::test]
async fn cancelling_a_stream_returns_after_the_clean_up() {
    for transport in transports() {
        let (world, tools, model) = World::hanging(transport);
        let stream = model.request_stream("go").await.unwrap();
        notified("the tool starts", &tools.0.hanging).await;
        stream.cancel().await;
        world.nothing_is_left();
        assert_eq!((tools.hangs(), model.interrupt()), (0, 0));
        asked_no_more(&world);
    }
}

#[test]
fn dropping_the_runtime_ends_its_requests() {
    for transport in transports() {
        let (world, tools, model) = World::hanging(transport);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stream = runtime.block_on(async {
            let stream = model.request_stream("go").await.unwrap();
            notified("the tool starts", &tools.0.hanging).await;
            stream
        });
        drop(runtime);
        assert_eq!((tools.hangs(), model.interrupt()), (0, 0));
        world.nothing_is_left_soon();
        drop(stream);
    }
}

#[tokio::test]
async fn a_panic_in_a_callback_reaches_the_caller_and_nothing_is_left() {
    for transport in transports() {
        let world = World::new("call add {\"a\": 1, \"b\": 1}\n---\ntext done");
        let model = world.builder().on_message(|_| panic!("the callback's own")).build().unwrap();
        model.set_agent_toolsets(Tools::new().toolset(), "tools", transport).unwrap();
        let panic = tokio::spawn(async move { model.request("go").await }).await.unwrap_err().into_panic();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"the callback's own"));
        world.nothing_is_left_soon();
    }
}

#[tokio::test]
async fn a_stream_that_is_not_read_blocks_no_tool() {
    for transport in transports() {
        let world = World::new("call add {\"a\": 1, \"b\": 1}\n---\ncall hang {}\n---\ntext done");
        let tools = Tools::new();
        let mut stream = world.model_with(&tools, transport).request_stream("go").await.unwrap();
        // The second tool is called even though the stream is not read.
        notified("the second tool starts", &tools.0.hanging).await;
        stream.interrupt();
        let mut last = None;
        while let Some(event) = stream.next().await {
            last = Some(event);
        }
        assert!(matches!(last, Some(Err(ClaudeCodeError::CliInterrupted { .. }))), "{last:?}");
        world.nothing_is_left();
    }
}

#[tokio::test]
async fn replacing_tools_does_not_affect_a_running_request() {
    let world = World::new("call hang {}\n---\ntext done");
    let (old, new) = (Tools::new(), Tools::new());
    let model = world.model_with(&old, Transport::Stdio);
    let mut running = model.request_stream("go").await.unwrap();
    notified("the old tool starts", &old.0.hanging).await;
    model.set_agent_toolsets(new.toolset(), "other", Transport::Stdio).unwrap();
    let scripted = Arc::new(World::new("call mcp__other__add {\"a\": 1, \"b\": 1}\n---\ntext {result}"));
    let second = scripted.builder().build().unwrap();
    second.set_agent_toolsets(new.toolset(), "other", Transport::Stdio).unwrap();
    assert_eq!(second.request("go").await.unwrap().text(), "2");
    // The first request still has its session and its room.
    let files: Vec<_> = std::fs::read_dir(world.sessions.path()).unwrap().collect();
    assert_eq!(files.len(), 3, "{files:?}");
    running.interrupt();
    let end = tokio::time::timeout(PATIENCE, async {
        let mut last = None;
        while let Some(event) = running.next().await {
            last = Some(event);
        }
        last
    });
    assert!(matches!(end.await.unwrap(), Some(Err(ClaudeCodeError::CliInterrupted { .. }))));
    let names = |model: toolbridge::ClaudeCodeModel| async move {
        let mut stream = model.request_stream("go").await.unwrap();
        while let Some(event) = stream.next().await {
            if let Ok(Event::Started(started)) = event {
                return started.tools;
            }
        }
        Vec::new()
    };
    let tools = names(model).await;
    assert!(
        tools.contains(&"mcp__other__add".into()) && !tools.contains(&"mcp__tools__add".into()),
        "{tools:?}"
    );
    world.nothing_is_left_soon();
}

#[tokio::test]
async fn an_interrupt_before_the_prompt_sends_no_request() {
    for transport in transports() {
        let world = World::new("call add {\"a\": 1, \"b\": 1}\n---\ntext done");
        let tools = Tools::new();
        let model = world.model_with(&tools, transport);
        for ms in [0, 50, 150] {
            let (outcome, ()) = tokio::join!(model.request("go"), async {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                _ = model.interrupt();
            });
            assert!(matches!(outcome, Err(ClaudeCodeError::CliInterrupted { .. })), "{ms} ms: {outcome:?}");
        }
        assert_eq!(tools.0.calls.load(Ordering::SeqCst), 0);
        world.nothing_is_left();
    }
}

#[tokio::test]
async fn a_cancelled_stream_is_ended_even_after_its_result() {
    let world = World::new("text ok");
    let line = r#"{"type":"result","subtype":"success","is_error":false,"result":"hi"}"#;
    let cli = program(
        &world,
        "claude",
        &format!("trap '' TERM; echo '{line}'; while :; do sleep 600 & wait; done"),
    );
    let model = world.builder().cli(cli).build().unwrap();
    let mut stream = model.request_stream("hi").await.unwrap();
    assert!(matches!(stream.next().await, Some(Ok(Event::Result(_)))));
    tokio::time::timeout(PATIENCE, stream.cancel()).await.expect("it ends");
    world.nothing_is_left();
}

#[tokio::test]
async fn a_killed_cli_leaves_no_command_of_its_own_behind() {
    let world = World::new("call Bash {\"command\": \"tail -f /dev/null\"}\n---\ntext done");
    let model = world.builder().builtin_tools(["Bash"]).allowed_tools(["Bash"]).build().unwrap();
    let (outcome, ()) = tokio::join!(model.request("go"), async {
        let started = Instant::now();
        while !processes_of(world.home.path()).any(|process| process.ends_with(": tail -f /dev/null ")) {
            assert!(started.elapsed() < PATIENCE, "the command does not start");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        kill_cli(&world);
    });
    assert!(outcome.unwrap_err().to_string().contains("signal: 9"));
    world.nothing_is_left();
}
