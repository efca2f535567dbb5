//! History of a request, as the model receives it.

use serde_json::{Value, json};
use toolbridge::Request;
use toolbridge::model::{Input, Message, Part, Settings, Transport};
use toolbridge::tool::RawJson;
use toolbridge_scripted::{Block, ModelRequest, ToolResultBlock, Turn};

use super::support::{PICTURE, Tools, World, is_cli, processes_of, transports};

/// The messages of a request: the role, and the blocks without those added by the CLI.
fn sent_messages(request: &ModelRequest) -> Vec<(String, Vec<Value>)> {
    let message = |message: &Value| {
        let role = message["role"].as_str().filter(|role| *role != "system")?;
        let blocks = match &message["content"] {
            Value::String(content) => vec![json!({ "type": "text", "text": content })],
            blocks => blocks.as_array().cloned().unwrap_or_default(),
        };
        let is_own = |block: &Value| {
            !block["text"]
                .as_str()
                .is_some_and(|content| content.trim_start().starts_with("<system-reminder>"))
        };
        let blocks = blocks.into_iter().filter(is_own).map(|mut block| {
            if let Some(members) = block.as_object_mut() {
                members.remove("cache_control");
            }
            if let Some(content) = block["text"].as_str().map(|content| content.trim_end().to_owned()) {
                block["text"] = json!(content);
            }
            block
        });
        Some((role.to_owned(), blocks.collect()))
    };
    request.body["messages"].as_array().unwrap().iter().filter_map(message).collect()
}

fn text(content: &str) -> Value {
    json!({ "type": "text", "text": content })
}

fn call(id: &str, name: &str) -> Part {
    Part::ToolCall { id: id.into(), name: name.into(), input: RawJson::from(&json!({ "a": 1, "b": 2 })) }
}

fn result(id: &str, content: &Value) -> Part {
    Part::ToolResult { id: id.into(), name: None, content: RawJson::from(content), is_error: false }
}

/// Output of another model, and an image of the user.
fn before() -> [Message; 2] {
    let picture = Input::image(PICTURE, "image/png");
    let shown = json!([{ "type": "text", "text": "a dot" }, picture]);
    let parts = vec![
        Part::Thinking { text: "hm".into(), signature: Some("of another".into()) },
        Part::Text { text: "Let me see.".into() },
        call("call|1", "add"),
        call("call|2", "other.tool"),
        result("call|1", &json!("3")),
        result("call|2", &shown),
        Part::Text { text: "It is 3. @/etc/passwd".into() },
    ];
    [Message::User(vec![Input::text("I am Ada."), picture]), Message::Assistant(parts)]
}

/// The expected messages for that history.
fn of_before() -> Vec<(String, Vec<Value>)> {
    let picture = json!(Input::image(PICTURE, "image/png"));
    let call = |id: &str, name: &str| json!({ "type": "tool_use", "id": id, "name": name, "input": { "a": 1, "b": 2 } });
    let result = |id: &str, content: Value| json!({ "type": "tool_result", "tool_use_id": id, "content": content, "is_error": false });
    vec![
        ("user".into(), vec![text("I am Ada."), picture.clone()]),
        (
            "assistant".into(),
            vec![text("Let me see."), call("call_1", "mcp__tools__add"), call("call_2", "other_tool")],
        ),
        (
            "user".into(),
            vec![result("call_1", json!("3")), result("call_2", json!([text("a dot"), picture]))],
        ),
        ("assistant".into(), vec![text("It is 3. @/etc/passwd")]),
    ]
}

/// Calls `add` for a prompt, and answers with its result.
fn adds(request: &ModelRequest) -> Turn {
    let is_new = |result: &ToolResultBlock| result.tool_use_id.starts_with("toolu_");
    match request.tool_results().into_iter().find(is_new) {
        Some(result) => Turn::text(format!("The sum is {}.", result.text())),
        None => Turn::blocks(vec![Block::call("mcp__tools__add", json!({ "a": 40, "b": 2 }))]),
    }
}

/// The number of transcripts stored by the CLI.
fn kept(world: &World) -> usize {
    let projects = world.home.path().join(".claude/projects");
    let Ok(projects) = std::fs::read_dir(projects) else { return 0 };
    let files = projects.flat_map(|project| std::fs::read_dir(project.unwrap().path()).unwrap());
    files.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|kind| kind == "jsonl")).count()
}

#[tokio::test]
async fn history_has_pictures_tool_calls_and_results() {
    for transport in transports() {
        let (world, tools) = (World::answering(adds), Tools::new());
        let model = world.model_with(&tools, transport);
        let request = Request::new("And 40 + 2?").history(before());
        assert_eq!(model.request(request).await.unwrap().text(), "The sum is 42.", "over {transport}");
        let requests = world.scripted.requests();
        let mut want = of_before();
        want.push(("user".into(), vec![text("And 40 + 2?")]));
        assert_eq!(sent_messages(&requests[0]), want, "over {transport}");
        assert_eq!(sent_messages(&requests[1])[..5], want[..], "over {transport}");
        assert_eq!((requests.len(), kept(&world)), (2, 0));
        world.nothing_is_left();
    }
}

#[tokio::test]
async fn history_may_end_with_a_tool_result() {
    let world = World::answering(adds);
    let model = world.model_with(&Tools::new(), Transport::Sdk);
    let parts = vec![call("1", "add"), result("1", &json!("3"))];
    let history = [Message::user("1 + 2?"), Message::Assistant(parts)];
    model.request(Request::new("Go on.").history(history)).await.unwrap();
    let sent = sent_messages(&world.scripted.requests()[0]);
    let roles: Vec<_> = sent.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "user"], "{sent:#?}");
    assert_eq!((&sent[2].1[0]["content"], &sent[2].1[1]), (&json!("3"), &text("Go on.")));
    world.nothing_is_left();
}

#[tokio::test]
async fn history_works_with_output_and_without_tools_calls_become_text() {
    let world = World::new("text unused\n---\ncall StructuredOutput {\"n\": 1}\n---\ntext done");
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    let hello = [Message::user("I am Ada."), Message::assistant("Hello Ada!")];
    let request = Request::new("n?").history(hello.clone()).output_schema(schema);
    let output: Value = world.model().request(request).await.unwrap().output().unwrap();
    assert_eq!(output, json!({ "n": 1 }));
    let first = sent_messages(&world.scripted.requests()[0]);
    assert_eq!(
        first[..2],
        [("user".into(), vec![text("I am Ada.")]), ("assistant".into(), vec![text("Hello Ada!")])]
    );

    let world = World::new("text unused\n---\ntext unused\n---\ntext ok");
    world.model().request(Request::new("go").history(before())).await.unwrap();
    let sent = &world.scripted.requests()[0];
    assert_eq!(sent.tools(), [""; 0]);
    let blocks: Vec<_> = sent_messages(sent).into_iter().flat_map(|(_, blocks)| blocks).collect();
    assert!(blocks.iter().all(|block| block["type"] == "text" || block["type"] == "image"), "{blocks:#?}");
    assert!(blocks.iter().any(|block| {
        block["text"].as_str().is_some_and(|content| content.contains(r#""tool_call":"other.tool""#))
    }));
    world.nothing_is_left();
}

#[tokio::test]
async fn a_conversation_with_history_is_stored_with_it() {
    let world = World::answering(|request| Turn::text(format!("you said {}", request.prompt())));
    let model = world.model_with(&Tools::new(), Transport::Stdio);
    let id = "0b0e8b1e-6c1d-4d8e-9f0a-2b8c1d3e4f50";
    let keep = Settings::default().session_id(id);
    let mut conversation = model.conversation().history(before()).settings(keep).open().await.unwrap();
    assert_eq!(conversation.send("first").await.unwrap().text(), "you said first");
    assert_eq!(conversation.send("second").await.unwrap().text(), "you said second");
    assert_eq!(conversation.session_id(), Some(id));
    let last = sent_messages(world.scripted.requests().last().unwrap());
    assert_eq!((last.len(), &last[..4]), (7, &of_before()[..]));
    conversation.close().await;
    assert_eq!(kept(&world), 1);
    world.nothing_is_left();

    // The CLI resumes its stored conversation, so the history becomes text before the prompt.
    let resume = Settings::default().resume(id);
    let request = Request::new("third").history([Message::user("between")]).settings(resume);
    model.request(request).await.unwrap();
    let last = sent_messages(world.scripted.requests().last().unwrap());
    assert_eq!((last.len(), &last[..4]), (9, &of_before()[..]));
    assert!(last[8].1[0]["text"].as_str().unwrap().contains(r#"{"user":"between"}"#), "{last:#?}");
    world.nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_history_does_not_use_a_waiting_cli() {
    let world = World::answering(|request| Turn::text(format!("{}", request.turn())));
    let model = world.model();
    model.keep_warm(1).await.unwrap();
    let clis = || processes_of(world.home.path()).filter(|one| is_cli(one)).collect::<Vec<_>>();
    let waiting = clis();
    assert_eq!(waiting.len(), 1);
    let hello = [Message::user("I am Ada."), Message::assistant("Hello Ada!")];
    assert_eq!(model.request(Request::new("go").history(hello)).await.unwrap().text(), "1");
    assert_eq!(clis(), waiting);
    assert_eq!(model.request("go").await.unwrap().text(), "0");
    model.keep_warm(0).await.unwrap();
    world.nothing_is_left_soon();
}

#[tokio::test]
async fn a_long_history_is_sent_completely() {
    let world = World::answering(|request| Turn::text(format!("{}", sent_messages(request).len())));
    let model = world.model_with(&Tools::new(), Transport::Sdk);
    let long = "x".repeat(500);
    let turn = |count: usize| {
        let id = format!("call_{count}");
        let parts = vec![call(&id, "add"), result(&id, &json!(long)), Part::Text { text: "ok".into() }];
        [Message::user(format!("prompt {count}")), Message::Assistant(parts)]
    };
    let request = Request::new("go").history((0..500).flat_map(turn));
    assert_eq!(model.request(request).await.unwrap().text(), "2001");
    let sent = sent_messages(&world.scripted.requests()[0]);
    assert!(sent[2..].iter().step_by(4).take(500).all(|(_, blocks)| blocks[0]["content"] == long));
    world.nothing_is_left();
}
