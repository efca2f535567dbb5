//! Behaviour required of every version of the CLI. `cargo xtask test` runs these with old versions too.

use serde_json::json;
use toolbridge::Request;
use toolbridge::model::{
    ClaudeCodeError, HookEvent, HookOutput, Message, Settings, cli_version, takes_plain_prompts,
};
use toolbridge_scripted::{ModelRequest, Turn, claude_cli};

use super::support::{BOTH, Tools, World, transports};
use super::traps::Traps;

/// The requests of the conversation; an old CLI also sends other requests to a smaller model.
fn conversation(world: &World, prompt: &str) -> Vec<ModelRequest> {
    let about =
        |request: &ModelRequest| request.body.to_string().contains(prompt) && !request.tools().is_empty();
    world.scripted.requests().into_iter().filter(about).collect()
}

#[tokio::test]
async fn tools_are_called_over_both_transports_and_nothing_else_is_offered() {
    for transport in BOTH {
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
    for transport in transports() {
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
    let plain = takes_plain_prompts(&cli_version(&claude_cli()).await.unwrap());
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
    world.model().request(request).await.unwrap();
    let sent = conversation(&world, "zebra").remove(0);
    let is_new = cli_version(&claude_cli()).await.is_ok_and(|version| takes_plain_prompts(&version));
    assert_eq!(
        sent.turn(),
        usize::from(is_new),
        "an answer among the messages, where the CLI can have it there"
    );
    assert!(sent.body.to_string().contains("Hello Ada!"), "{}", sent.body);
    world.nothing_is_left();
}

#[tokio::test]
async fn restrictions_hold() {
    let world = World::new("call Bash {\"command\": \"echo zebra-ran\"}\n---\ntext {result}");
    let builder = world.builder().builtin_tools(["Bash"]).allowed_tools(["Bash"]);
    let rule = ("Bash", "command", json!({ "pattern": "^git " }));
    let model = builder.tool_parameter_restrictions([rule]).build().unwrap();
    let text = model.request("go").await.unwrap().text();
    assert!(text.contains("the arguments of `Bash` are restricted: at `/command`"), "{text}");
    world.nothing_is_left();
}

#[tokio::test]
async fn a_hook_is_called_or_an_error() {
    let world = World::new("text ok");
    let hook = |_| std::future::ready(HookOutput::default());
    let ask = |events: &[HookEvent]| {
        let with = |request: Request, event: &HookEvent| request.hook(event.clone(), "*", hook);
        let request = events.iter().fold(Request::new("go"), with);
        let model = world.model();
        async move { model.request(request).await }
    };
    let always = [
        HookEvent::UserPromptSubmit,
        HookEvent::PreToolUse,
        HookEvent::PostToolUse,
        HookEvent::Stop,
        HookEvent::SubagentStop,
        HookEvent::PreCompact,
        HookEvent::Notification,
    ];
    assert_eq!(ask(&always).await.unwrap().text(), "ok");
    let version = cli_version(&claude_cli()).await.unwrap();
    match ask(&[HookEvent::MessageDisplay]).await {
        Ok(answer) => assert!(takes_plain_prompts(&version) && answer.text() == "ok"),
        Err(error) => {
            assert!(!takes_plain_prompts(&version), "{error}");
            let number = version.split(' ').next().unwrap();
            let message = format!(
                "Claude Code {number} has no hooks for `MessageDisplay`; 2.1.152 is the first that has"
            );
            assert_eq!(error.to_string(), message);
        }
    }
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
