//! Questions on the socket, with a peer that writes raw bytes.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use toolbridge_core::ipc::Remote;
use toolbridge_core::source::CallEvent;
use toolbridge_core::tool::{RawJson, ToolCall, ToolList};
use toolbridge_core::{CallContext, NoArgs, Session, ToolSource as _, Toolset};

pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) async fn send(wire: &mut UnixStream, message: &Value) {
    let text = message.to_string();
    wire.write_u32(u32::try_from(text.len()).unwrap()).await.unwrap();
    wire.write_all(text.as_bytes()).await.unwrap();
}

/// The next message; `None` when the other end has closed.
pub(crate) async fn receive(wire: &mut UnixStream) -> Option<Value> {
    let size = tokio::time::timeout(PATIENCE, wire.read_u32()).await.expect("a frame in time").ok()?;
    let mut bytes = vec![0; size as usize];
    wire.read_exact(&mut bytes).await.unwrap();
    Some(serde_json::from_slice(&bytes).unwrap())
}

pub(crate) fn request(tool: &str, meta: &Value) -> Value {
    json!({ "method": "call_tool", "params": { "name": tool, "arguments": {}, "meta": meta } })
}

pub(crate) fn text(text: &str) -> Value {
    json!({ "result": { "content": [{ "type": "text", "text": text }], "isError": false } })
}

struct Ends(Arc<Notify>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

async fn session(dir: &Path) -> (Session, Arc<Notify>) {
    let ended = Arc::new(Notify::new());
    let tell = Arc::clone(&ended);
    let ask = move |_: NoArgs, context: CallContext| {
        let ends = Ends(Arc::clone(&tell));
        async move {
            let _ends = ends;
            context.ask::<bool>("Really?").await.map(|answer| format!("{answer:?}"))
        }
    };
    let impatient = async |_: NoArgs, context: CallContext| {
        tokio::select! {
            answer = context.ask::<bool>("Really?") => format!("{answer:?}"),
            () = tokio::time::sleep(Duration::from_millis(20)) => "did not wait".into(),
        }
    };
    let both = async |_: NoArgs, context: CallContext| {
        let (one, two) = tokio::join!(context.ask::<u8>("One?"), context.ask::<u8>("Two?"));
        format!("{one:?} {two:?}")
    };
    let tools = Toolset::builder()
        .tool("ask", "", ask)
        .tool("impatient", "", impatient)
        .tool("both", "", both)
        .build()
        .unwrap();
    (Session::builder(tools).dir(dir).start().await.unwrap(), ended)
}

#[tokio::test]
async fn a_bridge_that_announces_it_is_asked_and_any_other_never_is() {
    let dir = tempfile::TempDir::new().unwrap();
    let (session, _) = session(dir.path()).await;
    let mut wire = UnixStream::connect(session.socket_path()).await.unwrap();
    // Anything but `true` announces no support.
    for meta in [
        json!({}),
        json!(null),
        json!({ "canAsk": false }),
        json!({ "canAsk": 1 }),
        json!({ "canAsk": "true" }),
    ] {
        send(&mut wire, &request("ask", &meta)).await;
        assert_eq!(receive(&mut wire).await.unwrap(), text("Nobody"), "{meta}");
    }
    let question = json!({ "ask": { "id": 1, "message": "Really?", "schema": {
        "type": "object", "required": ["answer"], "properties": { "answer": { "type": "boolean" } },
    } } });
    let rows = [
        (json!({ "action": "accept", "content": { "answer": true } }), text("Accepted(true)")),
        (json!({ "action": "decline" }), text("Declined")),
        (json!({ "action": "cancel", "new": [] }), text("Cancelled")),
        (json!({ "action": "nobody" }), text("Nobody")),
        (
            json!({ "error": "no form" }),
            json!({ "error": { "message": "no form", "type": "QuestionError" } }),
        ),
    ];
    for (mut answer, want) in rows {
        send(&mut wire, &request("ask", &json!({ "canAsk": true }))).await;
        assert_eq!(receive(&mut wire).await.unwrap(), question);
        answer["id"] = json!(1);
        send(&mut wire, &json!({ "answer": answer })).await;
        assert_eq!(receive(&mut wire).await.unwrap(), want);
    }
    session.stop().await;
}

#[tokio::test]
async fn questions_are_answered_in_any_order_and_late_answers_are_passed_over() {
    let dir = tempfile::TempDir::new().unwrap();
    let (session, _) = session(dir.path()).await;
    let mut wire = UnixStream::connect(session.socket_path()).await.unwrap();
    let answer = |id: u64, value: Value| json!({ "answer": { "id": id, "action": "accept", "content": { "answer": value } } });
    send(&mut wire, &request("both", &json!({ "canAsk": true }))).await;
    let ids = [receive(&mut wire).await.unwrap(), receive(&mut wire).await.unwrap()];
    assert_eq!([&ids[0]["ask"]["id"], &ids[1]["ask"]["id"]], [&json!(1), &json!(2)]);
    for (id, value) in [(7, 7), (2, 22), (1, 11)] {
        send(&mut wire, &answer(id, json!(value))).await;
    }
    assert_eq!(receive(&mut wire).await.unwrap(), text("Ok(Accepted(11)) Ok(Accepted(22))"));

    // Its question is cancelled; the answer arrives after that, or after the result.
    send(&mut wire, &request("impatient", &json!({ "canAsk": true }))).await;
    assert_eq!(receive(&mut wire).await.unwrap()["ask"]["message"], "Really?");
    let mut last = receive(&mut wire).await.unwrap();
    if last == json!({ "ask": { "id": 1 } }) {
        last = receive(&mut wire).await.unwrap();
    }
    assert_eq!(last, text("did not wait"));
    send(&mut wire, &answer(1, json!(true))).await;
    send(&mut wire, &request("ask", &json!({}))).await;
    assert_eq!(receive(&mut wire).await.unwrap(), text("Nobody"));
    session.stop().await;
}

#[tokio::test]
async fn while_a_question_is_open_only_an_answer_may_follow_and_a_close_cancels() {
    let dir = tempfile::TempDir::new().unwrap();
    let (session, ended) = session(dir.path()).await;
    for odd in [request("ask", &json!({})), json!({}), json!({ "answer": { "id": 1, "action": "perhaps" } })]
    {
        let mut wire = UnixStream::connect(session.socket_path()).await.unwrap();
        send(&mut wire, &request("ask", &json!({ "canAsk": true }))).await;
        receive(&mut wire).await.unwrap();
        send(&mut wire, &odd).await;
        assert_eq!(receive(&mut wire).await, None, "{odd}");
        tokio::time::timeout(PATIENCE, ended.notified()).await.expect("the handler ends");
    }
    let mut wire = UnixStream::connect(session.socket_path()).await.unwrap();
    send(&mut wire, &request("ask", &json!({ "canAsk": true }))).await;
    receive(&mut wire).await.unwrap();
    drop(wire);
    tokio::time::timeout(PATIENCE, ended.notified()).await.expect("the handler ends");
    session.stop().await;
}

/// Calls a tool of a parent played by the test, as a client that supports questions.
async fn called(socket: &Path, play: impl AsyncFnOnce(UnixStream, Value)) -> (Vec<String>, String) {
    let listener = UnixListener::bind(socket).unwrap();
    let schema = RawJson::parse(r#"{"type":"object"}"#).unwrap();
    let tools = ToolList::new(vec![toolbridge_core::tool::ToolSpec::new("ask", "", schema)]).unwrap();
    let remote = Remote::new(socket, tools).unwrap();
    let mut context = CallContext::default();
    let heard = context.listen(false, true);
    let call = remote.call(ToolCall::new("ask", RawJson::empty_object()), context);
    let mut call = heard.follow(call);
    let mut asked_for = Vec::new();
    let calling = async {
        loop {
            match call.next().await {
                CallEvent::Progress(report) => panic!("nobody wanted {report:?}"),
                CallEvent::Question(asked) => {
                    asked_for.push(asked.question.message.clone());
                    asked.answer(Ok(toolbridge_core::call::Answer::Declined));
                }
                CallEvent::Done(Ok(result)) => break result.to_string(),
                CallEvent::Done(Err(error)) => break format!("{error} (type: {})", error.type_name()),
            }
        }
    };
    let parent = async {
        let (mut wire, _) = listener.accept().await.unwrap();
        let request = receive(&mut wire).await.unwrap();
        play(wire, request).await;
    };
    let (result, ()) = tokio::join!(calling, parent);
    (asked_for, result)
}

#[tokio::test]
async fn only_a_parent_of_ours_is_told_that_a_bridge_can_ask() {
    let dir = tempfile::TempDir::new().unwrap();
    let ours = dir.path().join("claudecode_ipc_0123456789ab8def8123456789abcdef.sock");
    let (asked, result) = called(&ours, async |mut wire, request| {
        assert_eq!(request["params"]["meta"], json!({ "canAsk": true }));
        send(&mut wire, &json!({ "ask": { "id": 5, "message": "Really?", "schema": {} } })).await;
        let answer = receive(&mut wire).await.unwrap();
        assert_eq!(answer, json!({ "answer": { "id": 5, "action": "decline" } }));
        send(&mut wire, &text("done")).await;
    })
    .await;
    assert_eq!(asked, ["Really?"]);
    assert!(result.contains("done"), "{result}");

    let foreign = dir.path().join("claudecode_ipc_0123456789ab4def8123456789abcdef.sock");
    let (asked, result) = called(&foreign, async |mut wire, request| {
        assert_eq!(request, json!({ "method": "call_tool", "params": { "name": "ask", "arguments": {} } }));
        // The bridge has not announced support for questions.
        send(&mut wire, &json!({ "ask": { "id": 5, "message": "Really?", "schema": {} } })).await;
        assert_eq!(receive(&mut wire).await, None);
    })
    .await;
    assert_eq!(asked, Vec::<String>::new());
    assert!(result.contains("progress or a question that was not requested (type: IPCError)"), "{result}");
}
