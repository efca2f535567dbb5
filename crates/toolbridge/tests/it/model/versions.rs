//! Behaviour required of every version of the CLI: tools over the bridge, and an error that names the needed version
//! for what an old one does not have. `cargo xtask test` runs these with old versions too.

use serde_json::json;
use toolbridge::Request;
use toolbridge::model::{
    ClaudeCodeError, HookEvent, HookOutput, Message, Settings, Transport, cli_version, takes_plain_prompts,
};
use toolbridge_scripted::{ModelRequest, Turn, claude_cli};

use super::support::{BOTH, Tools, World};
use super::traps::Traps;

/// The requests of the conversation; an old CLI also sends other requests to a smaller model.
fn conversation(world: &World, prompt: &str) -> Vec<ModelRequest> {
    let about =
        |request: &ModelRequest| request.body.to_string().contains(prompt) && !request.tools().is_empty();
    world.scripted.requests().into_iter().filter(about).collect()
}

/// Whether it is a CLI that can do everything.
async fn is_new() -> bool {
    takes_plain_prompts(&cli_version(&claude_cli()).await.unwrap())
}

/// An old CLI has tools only over the bridge.
async fn transports() -> &'static [Transport] {
    if is_new().await { &BOTH } else { &[Transport::Stdio] }
}

/// Whether the request was refused because the CLI is too old for it.
#[track_caller]
fn is_refused<T>(answer: &Result<T, ClaudeCodeError>, name: &str) -> bool {
    let Err(error) = answer else { return false };
    let error = error.to_string();
    assert!(error.ends_with(&format!(" does not support `{name}`; update it to 2.1.248")), "{error}");
    true
}

#[tokio::test]
async fn tools_are_called_and_nothing_else_is_offered() {
    for &transport in transports().await {
        let world = World::new("call add {\"a\": 40, \"b\": 2}\n---\ntext The sum is {result}.");
        let traps = Traps::new(&world);
        let model = world.builder().working_directory(&traps.project).build().unwrap();
        let request = Request::new("zebra: 40 + 2?").tools(Tools::new().toolset()).transport(transport);
        let request = request.only(["add", "look"]).system_prompt("You are a pirate.");
        assert_eq!(model.request(request).await.unwrap().text(), "The sum is 42.", "over {transport}");
        let requests = conversation(&world, "zebra");
        assert_eq!(requests[0].tools(), ["mcp__tools__add", "mcp__tools__look"], "over {transport}");
        assert!(requests[0].system().contains("You are a pirate."), "over {transport}");
        assert_eq!((Traps::seen(&world), traps.sprung()), (vec![], vec![]), "over {transport}");
        world.nothing_is_left();
    }
}

#[tokio::test]
async fn failures_and_images_reach_the_model() {
    for &transport in transports().await {
        let world = World::new("call fail {}\ncall picture {}\n---\ntext {results}");
        let request = Request::new("go").tools(Tools::new().toolset()).transport(transport);
        let text = world.model().request(request).await.unwrap().text();
        assert!(text.contains("no such order (type: Error)") && text.contains("a dot"), "{text}");
        world.nothing_is_left();
    }
}

#[tokio::test]
async fn a_prompt_is_text_or_an_error() {
    let world = World::new("text ok");
    let traps = Traps::new(&world);
    let model = world.builder().working_directory(&traps.project).build().unwrap();
    let plain = is_new().await;
    for prompt in ["see @secret.txt", "/cost"] {
        match model.request(prompt).await {
            Ok(answer) => assert!(plain && answer.text() == "ok"),
            Err(error) => {
                assert!(!plain && matches!(error, ClaudeCodeError::PromptExpansion { .. }), "{error}");
            }
        }
    }
    model.request("zebra: write to ada@example.com").await.unwrap();
    assert_eq!(Traps::seen(&world), [""; 0]);
    world.nothing_is_left();
}

#[tokio::test]
async fn history_reaches_the_model() {
    let world = World::answering(|_| Turn::text("ok"));
    let history = [Message::user("I am Ada."), Message::assistant("Hello Ada!")];
    let request = Request::new("zebra").tools(Tools::new().toolset()).history(history);
    let answer = world.model().request(request).await;
    assert_eq!(is_refused(&answer, "history"), !is_new().await);
    if answer.is_err() {
        return;
    }
    let sent = conversation(&world, "zebra").remove(0);
    assert_eq!(sent.turn(), 1, "an answer among the messages");
    assert!(sent.body.to_string().contains("Hello Ada!"), "{}", sent.body);
    world.nothing_is_left();
}

#[tokio::test]
async fn restrictions_hold() {
    let world = World::new("call Bash {\"command\": \"echo zebra-ran\"}\n---\ntext {result}");
    let builder = world.builder().builtin_tools(["Bash"]).allowed_tools(["Bash"]);
    let rule = ("Bash", "command", json!({ "pattern": "^git " }));
    let model = builder.tool_parameter_restrictions([rule]).build().unwrap();
    let answer = model.request("go").await;
    assert_eq!(is_refused(&answer, "tool_parameter_restrictions"), !is_new().await);
    let Ok(answer) = answer else { return };
    let text = answer.text();
    assert!(text.contains("the arguments of `Bash` are restricted: at `/command`"), "{text}");
    world.nothing_is_left();
}

#[tokio::test]
async fn a_hook_is_called_or_an_error() {
    let world = World::new("text ok");
    let hook = |_| std::future::ready(HookOutput::default());
    let request = Request::new("go").hook(HookEvent::MessageDisplay, "*", hook);
    let answer = world.model().request(request).await;
    assert_eq!(is_refused(&answer, "hook"), !is_new().await);
    assert!(answer.is_ok_and(|answer| answer.text() == "ok") == is_new().await);
    world.nothing_is_left();
}

#[tokio::test]
async fn claude_code_can_be_enabled_completely() {
    let world = World::new("text ok");
    let whole = Settings::default().claude_code(true);
    world.model().request(Request::new("zebra").settings(whole)).await.unwrap();
    assert!(conversation(&world, "zebra")[0].tools().contains(&"Bash"));
    world.nothing_is_left();
}
