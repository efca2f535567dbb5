//! Conversations that stay open, with the real CLI.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use tokio::sync::Notify;
use toolbridge::call::CancellationToken;
use toolbridge::model::{ClaudeCodeError, ExecutionKind, PermissionMode, Settings, Subagent, Transport};
use toolbridge::{Event, NoArgs, Request, Tool, Toolset};
use toolbridge_scripted::{Block, ModelRequest, Turn};

use super::support::{PATIENCE, Tools, World, is_cli, notified, pid_of, processes_of, transports};

fn clis(world: &World) -> Vec<String> {
    processes_of(world.home.path()).filter(|process| is_cli(process)).collect()
}

/// The text of the last message; the CLI puts the results of interrupted calls and the next prompt into
/// one.
fn last_prompt(request: &ModelRequest) -> Option<String> {
    let messages = request.body["messages"].as_array()?;
    let content = &messages.iter().rfind(|message| message["role"] == "user")?["content"];
    let mut texts = content.as_array().into_iter().flatten().filter_map(|block| block["text"].as_str());
    let is_users = |text: &&str| !text.starts_with('<') && !text.starts_with('[');
    content.as_str().or_else(|| texts.rfind(is_users)).map(str::to_owned)
}

/// Answers a prompt by echoing it, or with the result of the tool call that it names.
fn follow_prompt(request: &ModelRequest) -> Turn {
    let Some(prompt) = last_prompt(request) else {
        return Turn::text(format!("the tool says {}", request.tool_results()[0].text()));
    };
    match prompt.strip_prefix("call ") {
        Some(tool) => Turn::blocks(vec![Block::call(tool, serde_json::json!({ "a": 1, "b": 2 }))]),
        None => Turn::text(format!("you said {prompt}")),
    }
}

#[tokio::test]
async fn prompts_and_tool_calls_follow_each_other_on_one_process() {
    for transport in transports() {
        let (world, tools) = (World::answering(follow_prompt), Tools::new());
        let model = world.model();
        let conversation = model.conversation().tools(tools.toolset()).transport(transport);
        let mut conversation = conversation.open().await.unwrap();
        let before = clis(&world);
        assert_eq!(before.len(), 1, "{before:?}");
        assert_eq!(world.scripted.requests().len(), 0, "nothing is asked before the first prompt");

        assert_eq!(conversation.send("zebra first").await.unwrap().text(), "you said zebra first");
        let id = conversation.session_id().unwrap().to_owned();
        let answer = conversation.send_with_metadata("call add").await.unwrap();
        assert_eq!(answer.response.text(), "the tool says 3");
        assert_eq!(answer.metadata.session_id.as_ref(), Some(&id));
        assert_eq!(conversation.send(String::from("call add")).await.unwrap().text(), "the tool says 3");
        assert_eq!(tools.0.calls.load(Ordering::SeqCst), 2);
        let body = world.scripted.requests().last().unwrap().body["messages"].to_string();
        assert!(body.contains("zebra first"), "{transport}: {body}");
        assert_eq!(clis(&world), before);

        conversation.close().await;
        world.nothing_is_left();
    }
}

#[tokio::test]
async fn tools_may_change_between_prompts() {
    for transport in transports() {
        let world = World::answering(follow_prompt);
        let set = Toolset::builder().tool("look", "Looks", async |_: NoArgs| "around").build().unwrap();
        let conversation = world.model().conversation().tools(set.clone()).transport(transport);
        let mut conversation = conversation.open().await.unwrap();
        assert_eq!(conversation.send("call look").await.unwrap().text(), "the tool says around");
        set.add(Tool::new("greet", "Greets", async |_: NoArgs| "hello")).unwrap();
        // The CLI updates its tool list asynchronously.
        let offered = async {
            loop {
                conversation.send("who is there?").await.unwrap();
                if world.scripted.requests().last().unwrap().tools().contains(&"mcp__tools__greet") {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, offered).await.unwrap();
        assert_eq!(conversation.send("call greet").await.unwrap().text(), "the tool says hello");
        drop(conversation);
        world.nothing_is_left_soon();
    }
}

#[tokio::test]
async fn one_answer_is_interrupted_and_the_conversation_goes_on() {
    let (world, tools) = (World::answering(follow_prompt), Tools::new());
    let mut conversation = world.model_with(&tools, Transport::Stdio).conversation().open().await.unwrap();
    // Interrupted explicitly.
    let stream = conversation.stream("call hang").unwrap();
    notified("the tool is called", &tools.0.hanging).await;
    stream.interrupt();
    let error = stream.finish().await.unwrap_err();
    assert!(matches!(error, ClaudeCodeError::CliInterrupted { .. }), "{error:?}");
    tools.no_handler_goes_on().await;
    assert_eq!(conversation.send("first").await.unwrap().text(), "you said first");
    // Interrupted by dropping the stream.
    let stream = conversation.stream("call hang").unwrap();
    notified("the tool is called", &tools.0.hanging).await;
    drop(stream);
    // A prompt sent before the interrupted answer has ended waits.
    assert_eq!(conversation.send("second").await.unwrap().text(), "you said second");
    tools.no_handler_goes_on().await;
    conversation.close().await;
    world.nothing_is_left();
}

#[tokio::test]
async fn an_answer_that_takes_too_long_is_an_error_and_the_conversation_goes_on() {
    let (world, tools) = (World::answering(follow_prompt), Tools::new());
    // A long limit, so that a busy machine does not trigger it early: the tool never ends, so any limit is
    // reached.
    let limit = Duration::from_secs(20);
    let conversation = world.model_with(&tools, Transport::Sdk).conversation();
    let settings = Settings::default().timeout(limit).timeout_counts_tools(true);
    let mut conversation = conversation.settings(settings).open().await.unwrap();
    let error = conversation.send("call hang").await.unwrap_err();
    let ClaudeCodeError::CliExecution { kind: ExecutionKind::Timeout(of), .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!((*of, error.to_string().as_str()), (limit, "no result within 20 s"));
    assert_eq!(conversation.send("again").await.unwrap().text(), "you said again");
    conversation.close().await;
    world.nothing_is_left();
}

#[tokio::test]
async fn model_and_permissions_change_between_prompts() {
    let (world, tools) = (World::answering(follow_prompt), Tools::new());
    let mut conversation = world.model_with(&tools, Transport::Stdio).conversation().open().await.unwrap();
    conversation.send("first").await.unwrap();
    conversation.set_model(Some("claude-opus-4-5")).await.unwrap();
    conversation.set_permission_mode(PermissionMode::Plan).await.unwrap();
    conversation.send("second").await.unwrap();
    let requests = world.scripted.requests();
    let models: Vec<_> = requests.iter().map(|request| request.body["model"].as_str().unwrap()).collect();
    assert_ne!(models[0], "claude-opus-4-5");
    assert_eq!(models[1], "claude-opus-4-5");
    let servers = conversation.mcp_servers().await.unwrap();
    assert_eq!((servers[0].name.as_str(), servers[0].status.as_str()), ("tools", "connected"));
    let usage = conversation.context_usage().await.unwrap();
    assert!(usage.decode::<serde_json::Value>().unwrap()["totalTokens"].is_number(), "{usage}");
    conversation.close().await;
}

#[tokio::test]
async fn events_belong_to_the_stream_of_their_prompt() {
    let world = World::new("text one | two\n---\ntext three | four");
    let mut conversation = world.model().conversation().open().await.unwrap();
    for want in [["one ", "two"], ["three ", "four"]] {
        let mut stream = conversation.stream("go").unwrap();
        let (mut pieces, mut results) = (Vec::new(), 0);
        while let Some(event) = stream.next().await {
            match event.unwrap() {
                Event::TextDelta(piece) => pieces.push(piece),
                Event::Result(result) => {
                    assert_eq!(result.response.text(), want.concat());
                    results += 1;
                }
                _ => {}
            }
        }
        assert_eq!((pieces, results), (want.map(str::to_owned).to_vec(), 1));
    }
}

/// Echoes prompts. The first one starts a subagent in the background; the CLI tells the model in a turn of its
/// own when that has ended. Both the subagent and that turn call `hold`.
fn works_in_the_background(request: &ModelRequest) -> Turn {
    let last = request.body["messages"].as_array().and_then(|all| all.last()).unwrap().to_string();
    let call = |name, input| Turn::blocks(vec![Block::text("wait"), Block::call(name, input)]);
    if request.system().contains("zebra") {
        return if last.contains("tool_result") {
            Turn::text("of the agent")
        } else {
            call("hold", json!({}))
        };
    }
    if last.contains("prompt second") {
        return Turn::text("you said second");
    }
    match last.contains("tool_result") {
        true if last.contains("held") => Turn::text("own turn"),
        true => Turn::text("you said first"),
        false if last.contains("task-notification") => call("hold", json!({})),
        false => call("Agent", json!({ "description": "x", "prompt": "look", "subagent_type": "sums" })),
    }
}

#[tokio::test]
async fn a_turn_that_the_cli_starts_by_itself_is_not_an_answer() {
    // The next prompt is sent during that turn, or after it.
    for is_during in [true, false] {
        let world = World::answering(works_in_the_background);
        let [held, leave, over] = [(); 3].map(|()| Arc::new(Notify::new()));
        let wait = {
            let (held, leave) = (Arc::clone(&held), Arc::clone(&leave));
            async move |_: NoArgs| {
                held.notify_one();
                leave.notified().await;
                "held"
            }
        };
        let tools = Toolset::builder().tool("hold", "Waits", wait).build().unwrap();
        let agent = Subagent::new("Does sums", "You are a zebra.").tools(["hold"]).background(true);
        let ends = Arc::clone(&over);
        let conversation = world.model().conversation().tools(tools).on_message(move |message| {
            let message: Value = message.decode().unwrap();
            if message["type"] == "result" && message["result"] == "own turn" {
                ends.notify_one();
            }
        });
        let mut conversation =
            conversation.settings(Settings::default().agent("sums", agent)).open().await.unwrap();
        let text = conversation.send("prompt first").await.unwrap().text();
        assert_eq!(text, "you said first");
        notified("the agent holds", &held).await;
        leave.notify_one();
        notified("the turn of its own holds", &held).await;
        if !is_during {
            leave.notify_one();
            notified("that turn is over", &over).await;
        }
        let mut stream = conversation.stream("prompt second").unwrap();
        leave.notify_one();
        let (mut pieces, mut answers, mut own) = (String::new(), Vec::new(), String::new());
        while let Some(event) = stream.next().await {
            match event.unwrap() {
                Event::TextDelta(piece) => pieces.push_str(&piece),
                Event::Result(result) => answers.push(result.response),
                Event::Background(event) => own.push_str(&format!("{event:?}")),
                _ => {}
            }
        }
        let [answer] = &answers[..] else { panic!("{answers:?}") };
        assert_eq!((answer.parts.len(), &*answer.text()), (1, "you said second"), "{answer:?}");
        assert_eq!(pieces, "you said second");
        assert_eq!(own.contains("own turn"), is_during, "{own}");
        assert_eq!(conversation.send("prompt second").await.unwrap().text(), "you said second");
        conversation.close().await;
        world.nothing_is_left();
    }
}

/// Echoes prompts. The first one starts a command in the background; the CLI tells the model in a turn of its own
/// when that has ended, and that turn calls `hold`.
fn runs_a_command_in_the_background(request: &ModelRequest) -> Turn {
    let last = request.body["messages"].as_array().and_then(|all| all.last()).unwrap().to_string();
    let call = |name, input| Turn::blocks(vec![Block::text("wait"), Block::call(name, input)]);
    let echo = |word: &&str| last.contains(&format!("prompt {word}"));
    if let Some(word) = ["second", "third", "fourth"].iter().find(|word| echo(word)) {
        return Turn::text(format!("you said {word}"));
    }
    match last.contains("tool_result") {
        true if last.contains("held") => Turn::text("own turn"),
        true => Turn::text("you said first"),
        false if last.contains("task-notification") => call("hold", json!({})),
        false => {
            let command = "until [ -e finish ]; do sleep 0.05; done";
            call("Bash", json!({ "command": command, "description": "x", "run_in_background": true }))
        }
    }
}

#[tokio::test]
async fn prompts_keep_their_answers_while_a_command_of_claude_code_runs_in_the_background() {
    let world = World::answering(runs_a_command_in_the_background);
    let [held, leave] = [(); 2].map(|()| Arc::new(Notify::new()));
    let wait = {
        let (held, leave) = (Arc::clone(&held), Arc::clone(&leave));
        async move |_: NoArgs| {
            held.notify_one();
            leave.notified().await;
            "held"
        }
    };
    let tools = Toolset::builder().tool("hold", "Waits", wait).build().unwrap();
    let settings = Settings::default().claude_code(true).allowed_tools(["Bash"]);
    let mut conversation = world.model().conversation().tools(tools).settings(settings).open().await.unwrap();
    assert_eq!(conversation.send("prompt first").await.unwrap().text(), "you said first");
    assert_eq!(conversation.send("prompt second").await.unwrap().text(), "you said second");
    std::fs::write(world.home.path().join("finish"), "").unwrap();
    notified("the turn of its own holds", &held).await;
    let mut stream = conversation.stream("prompt third").unwrap();
    leave.notify_one();
    let (mut answers, mut own) = (Vec::new(), String::new());
    while let Some(event) = stream.next().await {
        match event.unwrap() {
            Event::Result(result) => answers.push(result.response.text()),
            Event::Background(event) => own.push_str(&format!("{event:?}")),
            _ => {}
        }
    }
    assert_eq!(answers, ["you said third"]);
    assert!(own.contains("own turn"), "{own}");
    assert_eq!(conversation.send("prompt fourth").await.unwrap().text(), "you said fourth");
    conversation.close().await;
    world.nothing_is_left();
}

#[tokio::test]
async fn a_killed_cli_is_an_error_and_the_conversation_can_be_resumed() {
    let (world, tools) = (World::answering(follow_prompt), Tools::new());
    let model = world.model_with(&tools, Transport::Stdio);
    let keep = Settings::default().keep_session(true);
    let mut conversation = model.conversation().settings(keep).open().await.unwrap();
    conversation.send("zebra first").await.unwrap();
    let stream = conversation.stream("call hang").unwrap();
    notified("the tool is called", &tools.0.hanging).await;
    kill_process(pid_of(&clis(&world)[0]), Signal::KILL).unwrap();
    let error = stream.finish().await.unwrap_err();
    assert!(matches!(error, ClaudeCodeError::CliExecution { kind: ExecutionKind::Exit, .. }), "{error:?}");
    let error = conversation.send("are you there?").await.unwrap_err();
    assert_eq!(error.to_string(), "the conversation is over: the CLI has ended");
    assert!(conversation.set_model(None).await.is_err());

    let session_id = conversation.session_id().unwrap().to_owned();
    conversation.close().await;
    tools.no_handler_goes_on().await;
    let resume = Settings::default().resume(session_id);
    let mut conversation = model.conversation().settings(resume).open().await.unwrap();
    assert_eq!(conversation.send("zebra second").await.unwrap().text(), "you said zebra second");
    let body = world.scripted.requests().last().unwrap().body["messages"].to_string();
    assert!(body.contains("zebra first"), "{body}");
    conversation.close().await;
    world.nothing_is_left();
}

#[tokio::test]
async fn a_failed_start_is_explained_and_an_empty_prompt_is_refused() {
    let world = World::answering(follow_prompt);
    let error =
        world.builder().cli("/nowhere/claude").build().unwrap().conversation().open().await.unwrap_err();
    assert!(matches!(error, ClaudeCodeError::CliNotFound { .. }), "{error:?}");
    let broken = super::support::program(&world, "broken", "echo 'no licence' >&2; exit 3");
    let error = world.builder().cli(broken).build().unwrap().conversation().open().await.unwrap_err();
    assert!(error.to_string().contains("no licence"), "{error}");
    let mut conversation = world.model().conversation().open().await.unwrap();
    assert_eq!(conversation.send("  ").await.unwrap_err().to_string(), "the prompt is empty");
    assert_eq!(conversation.send("hello").await.unwrap().text(), "you said hello");
    conversation.close().await;
    world.nothing_is_left();
}

#[tokio::test]
async fn a_conversation_like_a_request_is_not_ended_by_its_token() {
    let world = World::new("text one\n---\ntext two");
    let end = CancellationToken::new();
    end.cancel();
    let mut conversation =
        world.model().conversation().like(Request::default().until(end)).open().await.unwrap();
    assert_eq!(conversation.send("first").await.unwrap().text(), "one");
    assert_eq!(conversation.send("second").await.unwrap().text(), "two");
    conversation.close().await;
    world.nothing_is_left();
}
