//! Functions of this process that the CLI calls on events.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use serde_json::json;
use toolbridge::Request;
use toolbridge::model::{HookCall, HookEvent, HookOutput, Part, Transport};
use toolbridge_scripted::ToolResultBlock;

use super::support::{Tools, World, transports};

const ADD: &str = "call add {\"a\": 1, \"b\": 1}\n---\ntext {result}";

#[tokio::test]
async fn hooks_are_called_in_the_order_of_events() {
    for transport in transports() {
        let world = World::new(ADD);
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let mut builder = world.builder();
        for event in
            [HookEvent::UserPromptSubmit, HookEvent::PreToolUse, HookEvent::PostToolUse, HookEvent::Stop]
        {
            let list = Arc::clone(&seen);
            builder = builder.hook(event, "*", move |call: HookCall| {
                let about = call.tool_name().or(call.input["prompt"].as_str()).unwrap_or_default();
                list.lock().unwrap().push(format!("{} {about}", call.event));
                std::future::ready(HookOutput::default())
            });
        }
        let model = builder.build().unwrap();
        let request = Request::new("go").tools(Tools::new().toolset()).transport(transport);
        assert_eq!(model.request(request).await.unwrap().text(), "2");
        let want =
            ["UserPromptSubmit go", "PreToolUse mcp__tools__add", "PostToolUse mcp__tools__add", "Stop "];
        assert_eq!(*seen.lock().unwrap(), want, "over {transport}");
        world.nothing_is_left();
    }
}

/// The results of calls of `add` with `a` from 0, with a hook before them that gets `a`; and how often the tool
/// ran.
async fn before_use(
    calls: usize,
    hook: impl Fn(i64) -> HookOutput + Send + Sync + 'static,
    restricted: bool,
) -> (Vec<String>, usize) {
    let script: String = (0..calls).map(|a| format!("call add {{\"a\": {a}, \"b\": 1}}\n")).collect();
    let (world, tools) = (World::new(script + "---\ntext done"), Tools::new());
    let mut builder = world.builder();
    if restricted {
        builder = builder.tool_parameter_restrictions([("add", "a", json!({ "maximum": 5 }))]);
    }
    let model = builder.build().unwrap();
    let request = Request::new("go").tools(tools.toolset()).transport(Transport::Sdk);
    let request = request.hook(HookEvent::PreToolUse, "mcp__tools__add", move |call: HookCall| {
        let a = call.input["tool_input"]["a"].as_i64().unwrap();
        let output = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| hook(a)));
        async move { output.unwrap() }
    });
    model.request(request).await.unwrap();
    world.nothing_is_left();
    let mut results = world.scripted.requests().last().unwrap().tool_results();
    results.sort_by_key(|result| result.tool_use_id.clone());
    (results.iter().map(ToolResultBlock::text).collect(), tools.0.calls.load(Ordering::SeqCst))
}

#[tokio::test]
async fn a_hook_denies_changes_arguments_and_denies_on_panic() {
    let hook = |a| match a {
        0 => HookOutput::deny("not on a Sunday"),
        1 => HookOutput::allow().with_input(json!({ "a": 40, "b": 2 })),
        _ => panic!("the hook's own"),
    };
    let (results, ran) = before_use(3, hook, false).await;
    let [denied, changed, failed] = &results[..] else { panic!("{results:?}") };
    assert!(denied.contains("not on a Sunday"), "{denied}");
    assert_eq!(changed, "42");
    assert!(failed.contains("a hook for PreToolUse failed"), "{failed}");
    assert_eq!(ran, 1);
}

#[tokio::test]
async fn restrictions_override_hooks() {
    let allow = |a| HookOutput::allow().with_input(json!({ "a": if a == 0 { 4 } else { 40 }, "b": 2 }));
    let (results, ran) = before_use(2, allow, true).await;
    let [within, beyond] = &results[..] else { panic!("{results:?}") };
    assert_eq!(within, "6");
    assert!(beyond.contains("restricted: at `/a`"), "{beyond}");
    assert_eq!(ran, 1);
}

#[tokio::test]
async fn a_hook_adds_context_and_blocks_prompts() {
    let world = World::new("text ok");
    let tell = async |_: HookCall| HookOutput::default().with_context("zebra-context");
    let request = Request::new("go").hook(HookEvent::UserPromptSubmit, "*", tell);
    world.model().request(request).await.unwrap();
    assert!(world.scripted.requests()[0].body.to_string().contains("zebra-context"));
    let world = World::new("text ok");
    let block = async |_: HookCall| HookOutput::block("not this");
    let request = Request::new("secret").hook(HookEvent::UserPromptSubmit, "*", block);
    _ = world.model().request(request).await;
    assert_eq!(world.scripted.requests().len(), 0);
    world.nothing_is_left();
}

#[tokio::test]
async fn stopping_before_a_tool_ends_the_request_after_the_tool_has_run() {
    let (world, tools) = (World::new(ADD), Tools::new());
    let stop = async |_: HookCall| HookOutput::stop("that is enough");
    let request = Request::new("go").tools(tools.toolset()).hook(HookEvent::PreToolUse, "*", stop);
    let answer = world.model().request(request).await.unwrap();
    assert!(matches!(answer.parts.last(), Some(Part::ToolResult { is_error: false, .. })), "{answer:?}");
    assert_eq!(tools.0.calls.load(Ordering::SeqCst), 1);
    assert_eq!(world.scripted.requests().len(), 1);
    world.nothing_is_left();
}

#[tokio::test]
async fn a_hook_for_a_misspelt_tool_is_an_error() {
    let world = World::new("text ok");
    let hook = |_| std::future::ready(HookOutput::default());
    for (event, matcher) in [(HookEvent::PreToolUse, "Raed"), (HookEvent::PostToolUse, "Bash|Raed")] {
        let message = format!("a hook for `{event}`: there is no built-in tool `Raed`; did you mean `Read`?");
        let error = world.model().request(Request::new("go").hook(event, matcher, hook)).await.unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    assert!(world.scripted.requests().is_empty());
    let mut request = Request::new("go").hook(HookEvent::UserPromptSubmit, "Raed", hook);
    for matcher in ["", "*", "Bash|Task", "mcp__tools__raed", "Raed.*", "Frobnicate"] {
        request = request.hook(HookEvent::PreToolUse, matcher, hook);
    }
    assert_eq!(world.model().request(request).await.unwrap().text(), "ok");
    world.nothing_is_left();
}

#[tokio::test]
async fn a_hook_for_an_event_for_which_none_is_called_is_an_error() {
    let world = World::new("text ok");
    for (event, message) in [
        (
            "SessionStart",
            "the CLI calls hooks for `SessionStart` only after `/clear` and compactions, not when a conversation begins",
        ),
        ("Setup", "the CLI never calls hooks for `Setup` when a program runs it"),
    ] {
        let hook = |_| std::future::ready(HookOutput::default());
        let request = Request::new("go").hook(HookEvent::Other(event.into()), "*", hook);
        let error = world.model().request(request).await.unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    assert!(world.scripted.requests().is_empty());
}
