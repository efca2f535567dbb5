//! Requests and their answers: prompts, filters, structured output, errors of the API.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::{Value, json};
use toolbridge::model::{ClaudeCodeError, ExecutionKind, Input, Settings, Transport};
use toolbridge::schemars::{self, JsonSchema};
use toolbridge::{Event, Request, Session};
use toolbridge_scripted::{Block, Turn, thorough};

use super::support::{PICTURE, Tools, World, bridge, transports};

#[tokio::test]
async fn an_answer_comes_with_its_metadata() {
    let world = World::new("think Hm.\ntext Hello | there.");
    let whole = world.model().request_with_metadata("hi").await.unwrap();
    assert_eq!(whole.response.text(), "Hello there.");
    // The CLI chose the model, and the answer names it.
    let asked = world.scripted.requests()[0].body["model"].as_str().unwrap().to_owned();
    assert_eq!(whole.response.model, Some(asked));
    assert!(whole.response.usage.output_tokens > 0);
    assert_eq!(whole.metadata.num_turns, Some(1));
    assert!(whole.metadata.session_id.is_some_and(|id| id.len() == 36));
    assert!(whole.metadata.total_cost_usd.is_some_and(|cost| cost > 0.0));
    assert!(whole.metadata.duration.is_some() && whole.metadata.duration_api.is_some());
    assert_eq!(whole.metadata.stop_reason.as_deref(), Some("end_turn"));
    assert_eq!(whole.metadata.raw.decode::<Value>().unwrap()["type"], "result");
    let kinds: Vec<_> = whole.response.parts.iter().map(|part| part.text().unwrap()).collect();
    assert_eq!(kinds, ["Hm.", "Hello there."]);
    world.nothing_is_left();
}

#[tokio::test]
async fn any_prompt_arrives_unchanged() {
    let world = World::answering(|_| Turn::text("ok"));
    let model = world.model();
    let long = "0123456789abcdef".repeat(65_536);
    let last = || world.scripted.requests().last().unwrap().prompt();
    let prompts = ["--help", "-p", "a\nb", "grüß 日本語 \u{2028} \"quoted\" \\", &long];
    // A conversation sends prompts as a request does, with one start of the CLI.
    let mut conversation = model.conversation().open().await.unwrap();
    for prompt in prompts {
        assert_eq!(conversation.send(prompt).await.unwrap().text(), "ok");
        assert_eq!(last(), prompt);
    }
    conversation.close().await;
    for prompt in if thorough() { &prompts[..] } else { &[] } {
        assert_eq!(model.request(*prompt).await.unwrap().text(), "ok");
        assert_eq!(last(), *prompt);
    }
    world.nothing_is_left();
}

#[tokio::test]
async fn pictures_reach_the_model() {
    let world = World::new("text ok");
    let request = Request::with_inputs([Input::text("What is it?"), Input::image(PICTURE, "image/png")]);
    world.model().request(request).await.unwrap();
    let sent = world.scripted.requests()[0].clone();
    assert_eq!(sent.prompt(), "What is it?");
    assert!(sent.body.to_string().contains(r#""media_type":"image/png""#));
}

#[tokio::test]
async fn system_prompts_and_settings_reach_the_cli() {
    let world = World::new("text ok");
    let model = world.builder().system_prompt("You are a pirate.").model("claude-haiku-4-5").build().unwrap();
    model.request("hi").await.unwrap();
    let request = Request::new("hi").system_prompt("You are a monk.");
    let settings = Settings::default().append_system_prompt("Be brief.").model("claude-opus-4-5");
    model.request(request.settings(settings)).await.unwrap();
    let requests = world.scripted.requests();
    assert!(requests[0].system().contains("You are a pirate."));
    assert!(requests[0].body["model"].as_str().unwrap().starts_with("claude-haiku-4-5"));
    let system = requests[1].system();
    assert!(system.contains("You are a monk.") && system.contains("Be brief.") && !system.contains("pirate"));
    assert!(requests[1].body["model"].as_str().unwrap().starts_with("claude-opus-4-5"));
}

#[tokio::test]
async fn only_the_selected_tools_are_offered() {
    let world = World::new("text ok");
    let model = world.model();
    model.set_agent_toolsets(Tools::new().toolset(), "tools", Transport::Stdio).unwrap();
    model.request(Request::new("hi").only(["add"])).await.unwrap();
    assert_eq!(world.scripted.requests()[0].tools(), ["mcp__tools__add"]);
    model.request(Request::new("hi").only([""; 0])).await.unwrap();
    assert_eq!(world.scripted.requests()[1].tools(), [""; 0], "an empty filter means no tools");
    world.nothing_is_left();
}

#[tokio::test]
async fn requests_at_once_see_only_their_own_tools() {
    // The prompt names the tool that the request may use; the model calls that one, and one that is not
    // offered.
    let world = World::answering(|request| match request.turn() {
        0 => {
            let other = if request.prompt() == "add" { "picture" } else { "add" };
            let call = |name: &str| Block::call(&format!("mcp__tools__{name}"), json!({ "a": 1, "b": 2 }));
            Turn::blocks(vec![call(&request.prompt()), call(other)])
        }
        _ => Turn::text("done"),
    });
    let names = ["add", "picture", "fail", "panic", "weather", "large", "huge", "look"];
    let names = if thorough() { &names[..] } else { &names[..3] };
    for transport in transports() {
        let before = world.scripted.requests().len();
        let model = world.model_with(&Tools::new(), transport);
        let ask = |name: &'static str| model.request(Request::new(name).only([name]));
        for response in join_all(names.iter().map(|name| ask(name))).await {
            assert_eq!(response.unwrap().text(), "done");
        }
        let requests = world.scripted.requests().split_off(before);
        for name in names {
            let own: Vec<_> = requests.iter().filter(|request| request.prompt() == *name).collect();
            assert_eq!(own.len(), 2, "{name}");
            let ours: Vec<_> = own[0].tools().into_iter().filter(|tool| tool.starts_with("mcp__")).collect();
            assert_eq!(ours, [format!("mcp__tools__{name}")], "over {transport}");
            let refused = own[1].tool_results();
            let refused = refused.iter().find(|result| result.tool_use_id.ends_with("_1")).unwrap();
            assert!(refused.is_error && refused.text().contains("No such tool"), "{}", refused.text());
        }
        world.nothing_is_left();
    }
}

#[tokio::test]
async fn a_filter_with_an_unknown_tool_is_an_error() {
    let world = World::new("text ok");
    let error = world.model().request(Request::new("hi").only(["add"])).await.unwrap_err();
    assert!(matches!(error, ClaudeCodeError::ToolsetNotRegistered), "{error}");
    assert_eq!(error.type_name(), "ToolsetNotRegisteredError");
    let model = world.model_with(&Tools::new(), Transport::Stdio);
    let error = model.request(Request::new("hi").only(["add", "sub"])).await.unwrap_err();
    assert_eq!(error.type_name(), "ToolNotFoundError");
    assert!(error.to_string().starts_with("there is no tool `sub` to choose; there are: add, "), "{error}");
    assert!(world.scripted.requests().is_empty());
    world.nothing_is_left();
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct Count {
    n: u64,
}

fn count_schema() -> Value {
    json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] })
}

#[tokio::test]
async fn output_fits_the_schema_or_is_an_error() {
    let world = World::new("call StructuredOutput {\"n\": 7}\n---\ntext done");
    let response = world.model().request(Request::new("count").output::<Count>()).await.unwrap();
    assert_eq!(response.output::<Count>().unwrap(), Count { n: 7 });
    let error = response.output::<HashMap<String, bool>>().unwrap_err().to_string();
    assert!(
        error.ends_with("n: invalid type: integer `7`, expected a boolean at line 1 column 6"),
        "{error}"
    );
    let error = response.output::<Vec<u8>>().unwrap_err();
    assert_eq!(error.type_name(), "StructuredOutputError");

    // schemars has written the newest draft; another one: the CLI rejects a draft that it does not know.
    let drafts = ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"];
    for draft in drafts.into_iter().take(if thorough() { 2 } else { 1 }) {
        let world = World::new("call StructuredOutput {\"n\": 7}\n---\ntext done");
        let mut schema = count_schema();
        schema["$schema"] = draft.into();
        let response = world.model().request(Request::new("count").output_schema(schema)).await.unwrap();
        assert_eq!(response.output::<Count>().unwrap(), Count { n: 7 }, "{draft}");
    }

    let world = World::answering(|_| Turn::text("I would rather not."));
    let request = Request::new("count").output_schema(count_schema());
    let error = world.model().request(request).await.unwrap_err();
    assert!(
        matches!(&error, ClaudeCodeError::StructuredOutput { text, .. } if text == "I would rather not."),
        "{error}"
    );
    world.nothing_is_left();
}

#[tokio::test]
async fn an_error_of_the_api_is_in_the_message() {
    let rows = [
        (401, "authentication", false),
        (400, "invalid_request", false),
        (429, "rate_limit", true),
        (529, "api", true),
        (500, "api", true),
    ];
    // A conversation goes on after an error, so one start of the CLI is enough.
    let world = World::answering(|request| {
        let status = request.prompt().rsplit(' ').next().unwrap().parse().unwrap();
        Turn::error(status, "scripted words")
    });
    let mut conversation = world.model().conversation().open().await.unwrap();
    for (status, kind, recoverable) in rows {
        let prompt = format!("status {status}");
        let mut errors = vec![conversation.send(prompt.as_str()).await.unwrap_err()];
        if thorough() {
            errors.push(world.model().request(prompt.as_str()).await.unwrap_err());
        }
        for error in errors {
            let ClaudeCodeError::CliExecution { kind: found, message, result } = &error else {
                panic!("{error}")
            };
            assert_eq!((found.as_str(), error.is_recoverable()), (kind, recoverable), "{status}: {message}");
            assert!(message.contains("scripted words"), "{status}: {message}");
            assert!(result.is_some());
        }
    }
    conversation.close().await;
    world.nothing_is_left();
}

#[tokio::test]
async fn limits_of_turns_and_cost_have_their_own_error_kinds() {
    let script = "call add {\"a\": 1, \"b\": 1}\n---\ncall add {\"a\": 2, \"b\": 2}\n---\ntext done";
    let world = World::new(script);
    let model = world.builder().max_turns(1).build().unwrap();
    model.set_agent_toolsets(Tools::new().toolset(), "tools", Transport::Stdio).unwrap();
    let error = model.request("go").await.unwrap_err();
    assert!(matches!(&error, ClaudeCodeError::CliExecution { kind: ExecutionKind::MaxTurns, .. }), "{error}");
    assert_eq!(error.to_string(), "Reached maximum number of turns (1)");

    let settings = Settings::default().max_budget_usd(0.000_001).max_turns(9);
    let error = model.request(Request::new("go").settings(settings)).await.unwrap_err();
    assert!(
        matches!(&error, ClaudeCodeError::CliExecution { kind: ExecutionKind::MaxBudget, .. }),
        "{error}"
    );
    world.nothing_is_left();
}

#[tokio::test]
async fn an_answer_of_five_megabytes_arrives_whole() {
    let world = World::new("fill 5000000");
    let response = world.model().request("go").await.unwrap();
    assert_eq!(response.text().len(), 5_000_000);
    world.nothing_is_left();
}

#[tokio::test]
async fn invalid_settings_are_reported_before_the_cli_starts() {
    let world = World::new("text ok");
    let model = world.model();
    let rows = [
        (Request::new(""), "the prompt is empty"),
        (
            Request::new("x").settings(Settings::default().max_turns(0)),
            "`max_turns` is 0; it must be at least 1",
        ),
        (
            Request::new("x").settings(Settings::default().timeout(Duration::ZERO)),
            "`timeout` is 0; it must be above 0",
        ),
    ];
    for (request, want) in rows {
        assert_eq!(model.request(request).await.unwrap_err().to_string(), want);
    }
    model.set_agent_toolsets(Tools::new().toolset(), "tools", Transport::Stdio).unwrap();
    let clash = Settings::default().mcp_server("tools", json!({ "command": "x" }));
    let error = model.request(Request::new("x").settings(clash)).await.unwrap_err();
    assert_eq!(error.to_string(), "both the toolset and an MCP server are called `tools`");
    let error = model.set_agent_toolsets(Tools::new().toolset(), "my tools", Transport::Stdio).unwrap_err();
    assert!(error.to_string().contains("`my tools`"), "{error}");
    assert!(world.scripted.requests().is_empty());
}

#[tokio::test]
async fn the_users_mcp_servers_are_ignored_by_default() {
    // A separate session acts as a foreign server.
    let other = Session::builder(Tools::new().toolset()).bridge(bridge()).start().await.unwrap();
    let entry = serde_json::to_value(other.mcp_server().unwrap()).unwrap();
    let sees = async |strict: bool, given: bool| {
        let world = World::new("text ok");
        let config = json!({ "mcpServers": { "mine": entry } });
        std::fs::write(world.home.path().join(".claude.json"), config.to_string()).unwrap();
        let mut builder = world.builder().strict_mcp_config(strict).setting_sources(["user"]);
        if given {
            builder = builder.mcp_server("given", entry.clone());
        }
        let mut stream = builder.build().unwrap().request_stream("hi").await.unwrap();
        let mut servers = Vec::new();
        while let Some(event) = stream.next().await {
            if let Event::Started(started) = event.unwrap() {
                // On a busy machine the CLI does not wait until it is connected to them.
                let is_there = |status: &str| ["connected", "pending"].contains(&status);
                assert!(started.mcp_servers.iter().all(|server| is_there(&server.status)), "{started:?}");
                servers = started.mcp_servers.into_iter().map(|server| server.name).collect();
            }
        }
        servers.sort();
        servers
    };
    if thorough() {
        assert_eq!(sees(true, false).await, [""; 0]);
    }
    assert_eq!(sees(true, true).await, ["given"]);
    assert_eq!(sees(false, false).await, ["mine"]);
    other.stop().await;
}

#[tokio::test]
async fn progress_without_a_stream_is_harmless() {
    for transport in transports() {
        let world = World::new("call progress {}\n---\ntext {result}");
        let response = world.model_with(&Tools::new(), transport).request("go").await.unwrap();
        assert_eq!(response.text(), "true", "progress is wanted over {transport}");
        world.nothing_is_left();
    }
}
