//! CLIs that are started in advance.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Instant;

use rustix::process::{Signal, kill_process};
use toolbridge::model::Settings;
use toolbridge::{CallContext, ClaudeCodeModel, NoArgs, Request, Toolset};
use toolbridge_scripted::{Block, ModelRequest, ToolResultBlock, Turn};

use super::support::{PATIENCE, World, is_cli, pid_of, processes_of, transports};

/// Calls the offered tool and answers with its result.
fn ask_who(request: &ModelRequest) -> Turn {
    let results = request.tool_results();
    match results.first().map(ToolResultBlock::text) {
        Some(text) => Turn::text(text),
        None if request.tools().contains(&"mcp__tools__who") => {
            Turn::blocks(vec![Block::call("who", serde_json::json!({}))])
        }
        None => Turn::text("nobody"),
    }
}

fn who(name: &'static str) -> Toolset {
    let who = async move |_: NoArgs, context: CallContext| {
        let user = context.try_state::<&'static str>().copied().unwrap_or("nobody's");
        format!("{user} {name}")
    };
    Toolset::builder().tool("who", "Says who is called", who).build().unwrap()
}

fn clis(world: &World) -> BTreeSet<String> {
    processes_of(world.home.path()).filter(|process| is_cli(process)).collect()
}

/// Waits until this number of CLIs is running.
async fn there_are(world: &World, count: usize) -> BTreeSet<String> {
    let started = Instant::now();
    loop {
        let found = clis(world);
        if found.len() == count {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "{count} CLIs, not {found:#?}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

async fn ends(world: &World, model: ClaudeCodeModel) {
    model.keep_warm(0).await.unwrap();
    world.nothing_is_left_soon();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_uses_a_waiting_cli_which_is_replaced() {
    for transport in transports() {
        let world = World::answering(ask_who);
        let model = world.model();
        model.set_agent_toolsets(who("registered"), "tools", transport).unwrap();
        model.keep_warm(2).await.unwrap();
        let first = there_are(&world, 2).await;
        assert_eq!(world.scripted.requests().len(), 0);
        assert_eq!(model.request("who?").await.unwrap().text(), "nobody's registered");
        let second = there_are(&world, 2).await;
        assert_eq!(first.intersection(&second).count(), 1, "one of the two has answered and is gone");

        // The state and the tools are those of the request, even though the list is the same.
        let ours = Request::new("who?").tools(who("own")).transport(transport).state("Ada's");
        assert_eq!(model.request(ours).await.unwrap().text(), "Ada's own");
        let third = there_are(&world, 2).await;
        assert_eq!(second.intersection(&third).count(), 1, "{transport}: it was taken");
        ends(&world, model).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_different_request_starts_its_own_cli_and_one_for_the_next() {
    let world = World::answering(ask_who);
    let model = world.model();
    model.keep_warm(1).await.unwrap();
    let first = there_are(&world, 1).await;
    let other = || Request::new("who?").settings(Settings::default().env("MINE", "1"));
    assert_eq!(model.request(other()).await.unwrap().text(), "nobody");
    let second = there_are(&world, 1).await;
    assert!(first.is_disjoint(&second), "the one that nobody asks for has made room");
    assert_eq!(model.request(other()).await.unwrap().text(), "nobody");
    assert!(second.is_disjoint(&there_are(&world, 1).await), "it was taken");
    ends(&world, model).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_waiting_cli_fails_no_request() {
    let world = World::answering(ask_who);
    let model = world.model();
    model.keep_warm(1).await.unwrap();
    let cli = pid_of(there_are(&world, 1).await.first().unwrap());
    let all: Vec<_> = processes_of(world.home.path()).map(|process| pid_of(&process)).collect();
    kill_process(cli, Signal::KILL).unwrap();
    let started = Instant::now();
    // Their environments, and their first threads, are gone a little earlier than they are.
    while all.iter().any(|pid| Path::new(&format!("/proc/{}", pid.as_raw_nonzero())).exists()) {
        assert!(started.elapsed() < PATIENCE);
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(model.request("who?").await.unwrap().text(), "nobody");
    drop(model);
    world.nothing_is_left_soon();
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_clis_end_to_make_room_under_a_limit() {
    let world = World::answering(ask_who);
    let model = world.builder().max_concurrent_requests(1).build().unwrap();
    model.keep_warm(1).await.unwrap();
    let other = Request::new("who?").settings(Settings::default().env("MINE", "1"));
    assert_eq!(model.request(other).await.unwrap().text(), "nobody");
    drop(model);
    world.nothing_is_left_soon();
}

#[tokio::test(flavor = "multi_thread")]
async fn keep_warm_refuses_conversations() {
    let world = World::answering(ask_who);
    let model = world.builder().cli("/nowhere/claude").build().unwrap();
    assert!(model.keep_warm(1).await.is_err());
    let error = world.builder().continue_conversation(true).build().unwrap().keep_warm(1).await.unwrap_err();
    assert!(error.to_string().contains("cannot start CLIs for a conversation that has an id"), "{error}");
}
