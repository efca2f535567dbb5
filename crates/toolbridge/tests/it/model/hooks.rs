//! Functions of this process that the CLI calls on events.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use serde_json::json;
use toolbridge::{HookCall, HookEvent, HookOutput, Part, Request, Transport};

use super::support::{TRANSPORTS, Tools, World};

const ADD: &str = "call add {\"a\": 1, \"b\": 1}\n---\ntext {result}";

#[tokio::test]
async fn hooks_are_called_in_the_order_of_events() {
    for transport in TRANSPORTS {
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

/// The result of a tool call with a hook before it, and how often the tool ran.
async fn before_use(
    hook: impl Fn() -> HookOutput + Send + Sync + 'static,
    restricted: bool,
) -> (String, usize) {
    let (world, tools) = (World::new(ADD), Tools::new());
    let mut builder = world.builder();
    if restricted {
        builder = builder.tool_parameter_restrictions([("add", "a", json!({ "maximum": 5 }))]);
    }
    let model = builder.build().unwrap();
    let request = Request::new("go").tools(tools.toolset()).transport(Transport::Sdk);
    let request = request.hook(HookEvent::PreToolUse, "mcp__tools__add", move |_| {
        let output = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&hook));
        async move { output.unwrap() }
    });
    let text = model.request(request).await.unwrap().text();
    world.nothing_is_left();
    (text, tools.0.calls.load(Ordering::SeqCst))
}

#[tokio::test]
async fn a_hook_denies_changes_arguments_and_denies_on_panic() {
    let (text, calls) = before_use(|| HookOutput::deny("not on a Sunday"), false).await;
    assert!(text.contains("not on a Sunday") && calls == 0, "{text}");
    let change = || HookOutput::allow().with_input(json!({ "a": 40, "b": 2 }));
    assert_eq!(before_use(change, false).await, ("42".into(), 1));
    let (text, calls) = before_use(|| panic!("the hook's own"), false).await;
    assert!(text.contains("a hook for PreToolUse failed") && calls == 0, "{text}");
}

#[tokio::test]
async fn restrictions_override_hooks() {
    let allow = |a: i32| move || HookOutput::allow().with_input(json!({ "a": a, "b": 2 }));
    assert_eq!(before_use(allow(4), true).await, ("6".into(), 1));
    let (text, calls) = before_use(allow(40), true).await;
    assert!(text.contains("restricted: at `/a`") && calls == 0, "{text}");
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
