//! Settings that change requests to the model, or the features of the CLI.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use toolbridge::model::{BUILTIN_TOOLS, Effort, Sandbox, Settings, Skills, Subagent, Thinking, Transport};
use toolbridge::tool::Hint as _;
use toolbridge::{Event, Request};
use toolbridge_scripted::{Block, ModelRequest, ToolResultBlock, Turn, report_skipped};

use super::support::{Tools, World, program, transports};

/// The request to the API with these settings.
async fn sent(settings: Settings) -> Value {
    let world = World::new("text ok");
    let request = Request::new("go").settings(settings);
    assert_eq!(world.model().request(request).await.unwrap().text(), "ok");
    world.nothing_is_left();
    world.scripted.requests().remove(0).body
}

#[tokio::test]
async fn thinking_effort_and_budget_reach_the_api() {
    let set = || Settings::default().model("claude-opus-4-6");
    let budget = Thinking::Enabled { budget_tokens: 2048, display: None };
    let body = sent(set().model("claude-haiku-4-5").thinking(budget)).await;
    assert_eq!(body["thinking"]["budget_tokens"], 2048, "{}", body["thinking"]);
    let body = sent(set().thinking(Thinking::Disabled)).await;
    assert!(body["thinking"].is_null() || body["thinking"]["type"] == "disabled", "{}", body["thinking"]);
    let adaptive = Thinking::Adaptive { display: None };
    let body = sent(set().thinking(adaptive).effort(Effort::Low).task_budget(40_000)).await;
    assert_eq!(
        (&body["thinking"]["type"], &body["output_config"]["effort"]),
        (&json!("adaptive"), &json!("low"))
    );
    assert_eq!(body["output_config"]["task_budget"]["total"], 40_000, "{}", body["output_config"]);
}

/// Starts a subagent and repeats its answer. The subagent calls `add` and `change`, whether offered or not,
/// and returns the results.
fn plays(agent: &'static str) -> impl Fn(&ModelRequest) -> Turn {
    move |request| {
        if request.system().contains("zebra") {
            let results: Vec<_> = request.tool_results().iter().map(ToolResultBlock::text).collect();
            if results.is_empty() {
                let call = |name: &str| Block::call(name, json!({ "a": 40, "b": 2 }));
                return Turn::blocks(vec![call("mcp__tools__add"), call("mcp__tools__change")]);
            }
            return Turn::text(format!("Of the agent: {}", results.join(" and ")));
        }
        if let Some(result) = request.tool_results().first() {
            return Turn::text(format!("It says: {}", result.text()));
        }
        let input = json!({ "description": "x", "prompt": "look", "subagent_type": agent });
        let name = request.tools().into_iter().find(|name| matches!(*name, "Task" | "Agent"));
        Turn::blocks(vec![Block::call(name.unwrap_or("Task"), input)])
    }
}

#[tokio::test]
async fn an_agent_has_only_the_tools_it_is_given() {
    for transport in transports() {
        for (given, want) in
            [(vec!["add", "mcp__tools__look"], vec!["mcp__tools__add", "mcp__tools__look"]), (vec![], vec![])]
        {
            let world = World::answering(plays("sums"));
            let agent = Subagent::new("Does sums", "You are a zebra.").tools(given);
            let settings = Settings::default().agent("sums", agent).forward_subagent_text(true);
            let tools = Tools::new();
            let request = Request::new("go").tools(tools.toolset()).transport(transport);
            let mut stream = world.model().request_stream(request.settings(settings)).await.unwrap();
            let (mut of_agent, mut text) = (String::new(), String::new());
            while let Some(event) = stream.next().await {
                match event.unwrap() {
                    Event::Subagent { event, .. } => of_agent.push_str(&format!("{event:?}")),
                    Event::Result(answer) => text = answer.response.text(),
                    _ => {}
                }
            }
            assert!(text.contains("It says: ") && text.contains("Of the agent: "), "{text}");
            assert!(of_agent.contains("Of the agent: "), "{of_agent}");
            // It used the tool that it was given, in this process, and could not use the other one.
            let has_add = want.contains(&"mcp__tools__add");
            assert_eq!(text.contains("Of the agent: 42 and "), has_add, "{text}");
            assert_eq!(tools.0.calls.load(Ordering::SeqCst), usize::from(has_add));
            assert_eq!(tools.0.most_at_once.load(Ordering::SeqCst), 0, "`change` is not the agent's");
            let requests = world.scripted.requests();
            let agents = requests.iter().find(|request| request.system().contains("zebra")).unwrap();
            let mut seen = agents.tools();
            seen.sort_unstable();
            assert_eq!(seen, want, "over {transport}");
            drop(stream);
            world.nothing_is_left_soon();
        }
    }
}

#[tokio::test]
async fn the_answer_to_a_request_waits_for_subagents() {
    for (agent, settings) in [
        (
            "sums",
            Settings::default()
                .agent("sums", Subagent::new("Does sums", "You are a zebra.").background(true)),
        ),
        ("general-purpose", Settings::default().builtin_tools(["Task"])),
    ] {
        let world = World::answering(move |request| match &*request.prompt() {
            "look" => Turn::text("Of the agent: done"),
            _ => plays(agent)(request),
        });
        let answer = world.model().request(Request::new("go").settings(settings)).await.unwrap();
        assert!(answer.text().contains("Of the agent: "), "{}", answer.text());
        world.nothing_is_left();
    }
}

/// A plugin with skills.
fn plugin(world: &World) -> std::path::PathBuf {
    let plugin = world.home.path().join("stripes");
    for (path, text) in [
        (".claude-plugin/plugin.json", r#"{"name": "stripes", "version": "1.0.0", "description": "x"}"#),
        (
            "skills/zebra/SKILL.md",
            "---\nname: zebra\ndescription: Knows zebras\n---\nThey have 26 stripes.\n",
        ),
        ("skills/horse/SKILL.md", "---\nname: horse\ndescription: Knows horses\n---\nThey have none.\n"),
    ] {
        let path = plugin.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    plugin
}

#[tokio::test]
async fn only_the_named_skills_of_a_plugin_can_be_used() {
    let call = |skill: &str| format!("call Skill {{\"skill\": \"stripes:{skill}\"}}\n---\n");
    let both = format!("{}{}text done", call("zebra"), call("horse"));
    for (skills, has_horse) in [(Skills::from(["stripes:zebra"]), false), (Skills::All, true)] {
        let world = World::new(&*both);
        let settings = Settings::default().plugins([plugin(&world)]).skills(skills);
        world.model().request(Request::new("go").settings(settings)).await.unwrap();
        let requests = world.scripted.requests();
        assert_eq!(requests[0].tools(), ["Skill"]);
        let last = requests.last().unwrap().body.to_string();
        assert!(last.contains("They have 26 stripes."), "{last}");
        assert_eq!(last.contains("They have none."), has_horse, "{last}");
        world.nothing_is_left();
    }
}

#[tokio::test]
async fn a_directory_that_is_added_can_be_read() {
    let [added, other] = ["26 stripes", "no stripes"].map(|text| {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("zebra.txt"), text).unwrap();
        dir
    });
    let read = |dir: &TempDir| json!({ "file_path": dir.path().join("zebra.txt") });
    let world =
        World::new(format!("call Read {}\ncall Read {}\n---\ntext {{results}}", read(&added), read(&other)));
    let settings = Settings::default().builtin_tools(["Read"]).add_dirs([added.path()]);
    let text = world.model().request(Request::new("go").settings(settings)).await.unwrap().text();
    assert!(text.contains("26 stripes") && !text.contains("no stripes"), "{text}");
}

/// Whether that program can be started.
fn has(program: &str, version: &str) -> bool {
    let mut command = std::process::Command::new(program);
    command.arg(version).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[tokio::test]
async fn a_sandbox_confines_commands_or_they_do_not_run() {
    // Not in a directory for temporary files, where the sandbox may allow writes.
    let target = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let outside = tempfile::TempDir::new_in(target).unwrap();
    let file = outside.path().join("outside.txt");
    let command = format!("touch {}; touch inside.txt; cat /proc/self/status", file.display());
    let world = World::new(&*format!("call Bash {}\n---\ntext {{result}}", json!({ "command": command })));
    let sandbox = Sandbox::default().enabled(true).allow_unsandboxed_commands(false);
    let settings = Settings::default().builtin_tools(["Bash"]).allowed_tools(["Bash"]).sandbox(sandbox);
    let text = match world.model().request(Request::new("go").settings(settings)).await {
        Ok(answer) => answer.text(),
        Err(error) => error.to_string(),
    };
    assert!(!file.exists(), "a command has written where it must not: {text}");
    let inside = world.home.path().join("inside.txt").exists();
    if has("bwrap", "--version") && has("socat", "-V") {
        // A process in its own pid namespace has a second id.
        let ids = text.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
        assert!(inside && ids.split_whitespace().count() > 1, "{text}");
    } else {
        assert!(!inside && text.to_lowercase().contains("sandbox"), "{text}");
        report_skipped(
            "there is no bubblewrap or no socat, so only the refusal to run without them was checked",
        );
    }
    world.nothing_is_left();
}

#[tokio::test]
async fn the_clis_stderr_is_passed_on_line_by_line() {
    let world = World::new("text ok");
    let script = "echo one >&2; printf 'two\\nthree' >&2; exit 3";
    let received = Arc::<Mutex<Vec<String>>>::default();
    let list = Arc::clone(&received);
    let listen = move |line: &str| list.lock().unwrap().push(line.to_owned());
    let model = world.builder().cli(program(&world, "claude", script)).on_stderr(listen).build().unwrap();
    // Several times: it may end before or after the request has begun.
    for _ in 0..20 {
        let error = model.request("go").await.unwrap_err();
        assert!(error.to_string().contains("one\ntwo\nthree"), "{error}");
        assert_eq!(*std::mem::take(&mut *received.lock().unwrap()), ["one", "two", "three"]);
    }
}

#[tokio::test]
async fn a_flag_that_a_cli_does_not_know_is_named_in_the_error() {
    let world = World::new("text ok");
    let script = "echo \"error: unknown option '--task-budget=5'\" >&2; exit 1";
    let model = world.builder().cli(program(&world, "claude", script)).task_budget(5).build().unwrap();
    let error = model.request("go").await.unwrap_err().to_string();
    assert!(error.contains("unknown option '--task-budget=5'"), "{error}");
}

#[tokio::test]
async fn files_are_restored_in_a_conversation() {
    let world = World::answering(|request| match request.tool_results().first() {
        None => {
            let path = request.prompt();
            let input = json!({ "file_path": path.trim(), "content": "changed" });
            Turn::blocks(vec![Block::call("Write", input)])
        }
        Some(result) => Turn::text(result.text()),
    });
    let file = world.home.path().join("new.txt");
    let ids = Arc::<Mutex<Vec<String>>>::default();
    let list = Arc::clone(&ids);
    let settings = Settings::default()
        .builtin_tools(["Read", "Write"])
        .allowed_tools(["Write"])
        .keep_session(true)
        .enable_file_checkpointing(true);
    let mut conversation = world
        .model()
        .conversation()
        .transport(Transport::Sdk)
        .settings(settings)
        .on_message(move |message| {
            let message: Value = message.decode().unwrap();
            if message["type"] == "user" && message["message"]["content"].is_string() {
                list.lock().unwrap().extend(message["uuid"].as_str().map(str::to_owned));
            }
        })
        .open()
        .await
        .unwrap();
    conversation.send(file.display().to_string()).await.unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "changed");
    let id = ids.lock().unwrap().first().cloned().expect("the prompt's id");
    conversation.rewind_files(&id).await.unwrap();
    assert!(!file.exists(), "it was not there before");
    assert!(conversation.rewind_files("0b0e8b1e-6c1d-4d8e-9f0a-2b8c1d3e4f50").await.is_err());
    conversation.close().await;
    world.nothing_is_left();
}

#[tokio::test]
async fn every_tool_that_the_cli_has_may_be_named_and_others_are_errors() {
    let world = World::new("text ok");
    let model = world.builder().claude_code(true).build().unwrap();
    let mut stream = model.request_stream("go").await.unwrap();
    let mut tools = Vec::new();
    while let Some(event) = stream.next().await {
        if let Event::Started(started) = event.unwrap() {
            tools = started.tools;
        }
    }
    tools.retain(|tool| !tool.starts_with("mcp__"));
    assert!(tools.len() > 10, "{tools:?}");
    let named = world.builder().builtin_tools(tools.clone()).allowed_tools(tools).build().unwrap();
    assert_eq!(named.request("go").await.unwrap().text(), "ok");
    let asked = world.scripted.requests().len();

    // A name that is like no known one may be that of a newer CLI's tool, so the CLI is asked.
    let model = world.builder().builtin_tools(["Read", "Frobnicate"]).build().unwrap();
    let error = model.request("go").await.unwrap_err();
    assert_eq!(error.to_string(), "there is no built-in tool `Frobnicate`; there are: Read");
    // Then the CLI has none.
    let model = world.builder().builtin_tools(["zebra"]).build().unwrap();
    let error = model.request(Request::new("go").tools(Tools::new().toolset())).await.unwrap_err();
    let known = BUILTIN_TOOLS.join(", ");
    assert_eq!(error.to_string(), format!("there is no built-in tool `zebra`; there are: {known}"));
    let wrong = world.builder().builtin_tools(["Raed"]).build().unwrap_err();
    assert_eq!(wrong.to_string(), "there is no built-in tool `Raed`; did you mean `Read`?");
    let agent = Subagent::new("Reads", "You read.").tools(["add", "Raed"]);
    let request =
        Request::new("go").tools(Tools::new().toolset()).settings(Settings::default().agent("a", agent));
    let error = world.model().request(request).await.unwrap_err();
    assert_eq!(error.to_string(), "agent `a`: there is no built-in tool `Raed`; did you mean `Read`?");
    assert!(world.scripted.requests().len() <= asked + 2, "only the requests that the CLI refused");
    world.nothing_is_left();
}

#[tokio::test]
async fn a_given_server_that_fails_is_an_error_before_an_answer_without_its_tools() {
    let world = World::new("text ok");
    let entries = [
        json!({ "command": "/does/not/exist" }),
        json!({ "command": "true" }),
        json!({ "type": "http", "url": "http://127.0.0.1:9/" }),
    ];
    for entry in entries {
        let model = world.builder().mcp_server("shop", entry.clone()).build().unwrap();
        let error = model.request("go").await.expect_err("a dead server");
        assert_eq!(error.type_name(), "McpServerError", "{entry}");
        let said = error.to_string();
        assert!(
            said.starts_with("the tools of MCP server `shop` are not available: the CLI says `failed`"),
            "{said}"
        );
        assert!(error.hint().unwrap().contains("`mcp_servers`"), "{error:?}");
    }
    world.nothing_is_left();
}

#[tokio::test]
async fn a_given_server_that_says_nothing_is_an_error_that_names_it() {
    let world = World::new("text ok");
    for request in [Request::new("go"), Request::new("go").tools(Tools::new().toolset())] {
        let mut limit = 5;
        let error = loop {
            // The CLI itself waits longer.
            let builder = world.builder().timeout(Duration::from_secs(limit)).env("MCP_TIMEOUT", "600000");
            let entry = json!({ "command": "sleep", "args": ["1000"] });
            let model = builder.mcp_server("shop", entry).build().unwrap();
            let error = model.request(request.clone()).await.expect_err("a dead server");
            if error.type_name() == "McpServerError" || limit > 40 {
                break error;
            }
            // A busy machine needs all of that to start the CLI.
            limit *= 3;
        };
        assert_eq!(
            error.to_string(),
            format!(
                "the tools of MCP server `shop` are not available: the CLI was still connecting to `shop` after {limit} s"
            )
        );
    }
    world.nothing_is_left();
}
