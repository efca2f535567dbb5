//! The scripted model as a client sees it on the wire.

use std::collections::HashSet;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use toolbridge_scripted::{Block, ModelRequest, ScriptedModel, Turn};

use crate::client::{Client, request};

#[test]
fn a_connection_serves_many_requests() {
    let model = ScriptedModel::start("text Let me | see.\n---\ntext Done.");
    let mut client = Client::connect(&model.url());

    client.send("HEAD / HTTP/1.1\r\n\r\n");
    assert_eq!(client.head().0, 200);
    client.send("GET /anything?at=all HTTP/1.1\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    client.post("/v1/messages/count_tokens", &json!({}));
    assert_eq!(client.answer().json(), json!({"input_tokens": 1}));

    client.ask(0, "hi");
    let first = client.answer();
    let kinds: Vec<_> =
        first.events().iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect();
    let want = "message_start content_block_start content_block_delta content_block_delta content_block_stop \
                message_delta message_stop";
    assert_eq!(kinds.join(" "), want);
    assert!(first.body.starts_with("event: message_start\ndata: {"), "{}", first.body);
    assert_eq!(first.events()[0]["message"]["model"], "claude-test");
    assert_eq!(first.text(), "Let me see.");

    client.ask(1, "hi");
    assert_eq!(client.answer().text(), "Done.");
    client.ask(2, "again");
    let refused = client.answer();
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json()["error"]["message"], "the script has ended: it has no turn 3");

    assert_eq!(model.overruns(), 1);
    let prompts: Vec<String> = model.requests().iter().map(ModelRequest::prompt).collect();
    assert_eq!(prompts, ["hi", "hi", "again"]);
}

#[test]
fn without_stream_the_answer_is_one_message() {
    let model = ScriptedModel::start(r#"call add {"a": 1}"#);
    let mut client = Client::connect(&model.url());
    client.post("/v1/messages", &request(0, "hi", false));
    let message = client.answer().json();
    assert_eq!(message["content"][0]["input"], json!({"a": 1}));
    assert_eq!(message["stop_reason"], "tool_use");
}

#[test]
fn each_event_is_sent_as_it_is_written() {
    // The model sleeps far longer than the test may take: what arrives was sent before.
    let model = ScriptedModel::start("text now\nsleep 600000\ntext later");
    let mut client = Client::connect(&model.url());
    client.ask(0, "hi");
    let (status, headers) = client.head();
    assert_eq!(status, 200);
    assert!(headers.contains(&"content-type: text/event-stream; charset=utf-8".to_owned()), "{headers:?}");
    for want in ["message_start", "content_block_start", "\"now\"", "content_block_stop"] {
        let chunk = client.chunk();
        assert!(chunk.contains(want), "{chunk}");
    }
    drop_promptly(model);
    assert!(client.is_closed());
}

#[test]
fn a_body_in_chunks_is_read() {
    let model = ScriptedModel::start_with(|request| Turn::text(request.prompt()));
    let mut client = Client::connect(&model.url());
    let body = request(0, "in chunks", true).to_string();
    let (one, two) = body.split_at(10);
    client.send("POST /v1/messages HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n");
    client.send(&format!("{:x}\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n", one.len(), two.len()));
    assert_eq!(client.answer().text(), "in chunks");
    client.ask(0, "and on");
    assert_eq!(client.answer().text(), "and on");
}

#[test]
fn errors_are_those_of_the_api() {
    let model = ScriptedModel::start("error 529 overloaded\n---\ngarbage");
    let mut client = Client::connect(&model.url());
    client.ask(0, "hi");
    let answer = client.answer();
    assert_eq!(answer.status, 529);
    let want = json!({"type": "error", "error": {"type": "overloaded_error", "message": "overloaded"}});
    assert_eq!(answer.json(), want);

    client.ask(1, "hi");
    let answer = client.answer();
    assert_eq!((answer.status, answer.events().len()), (200, 0));

    client.post("/v1/complete", &json!({}));
    assert_eq!(client.answer().json()["error"]["type"], "not_found_error");
    client.send("POST /v1/messages HTTP/1.1\r\ncontent-length: 1\r\n\r\n{");
    assert_eq!(client.answer().json()["error"]["type"], "invalid_request_error");
    assert_eq!(model.requests().len(), 2);

    client.send("hello\r\n\r\n");
    assert_eq!(client.answer().status, 400);
    assert!(client.is_closed());
}

#[test]
fn drop_closes_after_the_start() {
    let model = ScriptedModel::start("drop");
    let mut client = Client::connect(&model.url());
    client.ask(0, "hi");
    assert_eq!(client.head().0, 200);
    assert!(client.chunk().contains("message_start"));
    assert!(client.is_closed());
}

#[test]
fn hang_ends_when_the_model_is_dropped() {
    let model = ScriptedModel::start("hang");
    let mut clients: Vec<_> = (0..3).map(|_| Client::connect(&model.url())).collect();
    for client in &mut clients {
        client.ask(0, "hi");
    }
    wait_for(|| model.requests().len() == 3);
    drop_promptly(model);
    for client in &mut clients {
        assert!(client.is_closed());
    }
}

#[test]
fn an_idle_connection_does_not_delay_the_end() {
    let model = ScriptedModel::start("text hi");
    let url = model.url();
    let mut idle = Client::connect(&url);
    let mut torn = Client::connect(&url);
    torn.send("POST /v1/messages HTTP/1.1\r\ncontent-length: 100\r\n\r\n{");
    idle.ask(0, "hi");
    assert_eq!(idle.answer().text(), "hi");
    drop_promptly(model);
    assert!(idle.is_closed());
    assert!(std::net::TcpStream::connect(url.strip_prefix("http://").unwrap()).is_err());
}

#[test]
fn a_client_that_reads_nothing_does_not_delay_the_end() {
    let model = ScriptedModel::start("fill 50000000");
    let mut client = Client::connect(&model.url());
    client.ask(0, "hi");
    assert_eq!(client.head().0, 200);
    drop_promptly(model);
}

#[test]
fn a_large_text_arrives_whole() {
    let model = ScriptedModel::start("fill 5000000");
    let mut client = Client::connect(&model.url());
    client.ask(0, "hi");
    assert_eq!(client.answer().text().len(), 5_000_000);
}

#[test]
fn conversations_at_once_do_not_mix() {
    const TURNS: usize = 5;
    let turns: Vec<String> = (0..TURNS).map(|turn| format!("text turn {turn}\nsleep 1\ntext !")).collect();
    let model = ScriptedModel::start(turns.join("\n---\n"));
    let url = model.url();
    let converse = || {
        let mut client = Client::connect(&url);
        let ids = (0..TURNS).map(|turn| {
            client.ask(turn, "hi");
            let answer = client.answer();
            assert_eq!(answer.text(), format!("turn {turn}!"));
            answer.events()[0]["message"]["id"].to_string()
        });
        ids.collect::<Vec<_>>()
    };
    let ids: HashSet<String> = thread::scope(|scope| {
        let conversations: Vec<_> = (0..16).map(|_| scope.spawn(converse)).collect();
        conversations.into_iter().flat_map(|conversation| conversation.join().unwrap()).collect()
    });
    assert_eq!(ids.len(), 16 * TURNS);
    assert_eq!((model.requests().len(), model.overruns()), (16 * TURNS, 0));
}

#[test]
fn a_closure_answers_by_the_prompt() {
    let model = ScriptedModel::start_with(|request| match &*request.prompt() {
        "add" => Turn::blocks(vec![Block::text("Now."), Block::call("add", json!({"a": 1}))]),
        "fail" => Turn::error(429, "slow down"),
        prompt => panic!("unexpected prompt `{prompt}`"),
    });
    let mut client = Client::connect(&model.url());
    client.ask(0, "add");
    assert_eq!(client.answer().text(), "Now.");
    client.ask(0, "fail");
    assert_eq!(client.answer().status, 429);
    client.ask(0, "surprise");
    let answer = client.answer();
    assert_eq!(answer.status, 500);
    assert_eq!(answer.json()["error"]["message"], "the script panicked: unexpected prompt `surprise`");
    client.ask(0, "add");
    assert_eq!(client.answer().status, 200);
}

#[test]
#[should_panic(expected = "line 2 of the script: `say` is not a keyword")]
fn a_bad_script_does_not_start() {
    let _ = ScriptedModel::start("text a\nsay b");
}

/// Drops a model, which must not wait for its clients.
#[track_caller]
fn drop_promptly(model: ScriptedModel) {
    let (done, dropped) = mpsc::channel();
    thread::spawn(move || {
        drop(model);
        let _ = done.send(());
    });
    dropped.recv_timeout(Duration::from_secs(120)).expect("the model ends");
}

#[track_caller]
fn wait_for(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !condition() {
        assert!(Instant::now() < deadline, "it never came true");
        thread::sleep(Duration::from_millis(5));
    }
}
