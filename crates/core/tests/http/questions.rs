//! Questions of tools: on the stream of a call in a session, and by a result that requests input.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use toolbridge_core::{CallContext, NoArgs, Tool, ToolError, Toolset, http};

use crate::client::{Client, Events, Server, in_time, until};

/// How many handlers have started and ended.
#[derive(Default)]
struct Watch {
    runs: AtomicUsize,
    ended: AtomicUsize,
}

struct Ends(Arc<Watch>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::SeqCst);
    }
}

fn asking() -> (http::Server, Arc<Watch>) {
    let watch = Arc::<Watch>::default();
    let ask = async |_: NoArgs, context: CallContext| {
        let watch: &Arc<Watch> = context.state();
        watch.runs.fetch_add(1, Ordering::SeqCst);
        let _ends = Ends(Arc::clone(watch));
        let first = context.ask::<bool>("Really?").await?;
        let second = context.ask::<u8>("How many?").await?;
        Ok::<_, ToolError>(format!("{first:?} {second:?}"))
    };
    let tools = Toolset::builder()
        .state(Arc::clone(&watch))
        .with(Tool::new("ask", "", ask).read_only())
        .tool("other", "", async |_: NoArgs| "other")
        .build()
        .unwrap();
    (http::Server::builder(tools), watch)
}

fn accept(value: impl Into<Value>) -> Value {
    json!({ "action": "accept", "content": { "answer": value.into() } })
}

impl Client {
    /// Opens a session of a client that supports questions.
    async fn can_ask(&mut self) {
        let hello = json!({
            "protocolVersion": "2025-11-25", "capabilities": { "elicitation": { "form": {} } },
            "clientInfo": { "name": "tester", "version": "7" },
        });
        let message = self.message("initialize", &hello);
        let answer = self.post(&message).await;
        let session = answer.headers["mcp-session-id"].to_str().unwrap().to_owned();
        self.set("mcp-session-id", &session);
        self.set("mcp-protocol-version", "2025-11-25");
    }

    /// A call according to 2026-07-28, of a client that supports questions.
    async fn required(&mut self, tool: &str, mut params: Value) -> crate::client::Answer {
        params["name"] = json!(tool);
        let mut message = self.stateless("tools/call", params);
        message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
            json!({ "elicitation": {} });
        self.post(&message).await
    }
}

#[tokio::test]
async fn a_session_is_asked_on_the_stream_of_its_call_and_answers_with_a_request() {
    let (builder, watch) = asking();
    let server = Server::start(builder).await;
    let mut client = server.client().await;
    client.can_ask().await;
    let call = client.message("tools/call", &json!({ "name": "ask", "arguments": {} }));
    let mut other = client.another().await;
    let mut events = Events::of(client.begin("POST", call.to_string()).await);
    for (message, answer) in [("Really?", accept(true)), ("How many?", accept(3))] {
        let asked = events.next().await.unwrap();
        assert_eq!(
            (&asked["method"], &asked["params"]["message"]),
            (&json!("elicitation/create"), &json!(message))
        );
        // An answer from another session is ignored.
        let mut stranger = server.client().await;
        stranger.can_ask().await;
        let reply = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": { "action": "cancel" } });
        assert_eq!(stranger.post(&reply).await.status, 202);
        let reply = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": answer });
        assert_eq!(other.post(&reply).await.status, 202);
    }
    let answer = events.next().await.unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], "Accepted(true) Accepted(3)");
    assert_eq!((events.next().await, watch.runs.load(Ordering::SeqCst)), (None, 1));
}

#[tokio::test]
async fn a_question_ends_when_the_client_vanishes() {
    let (builder, watch) = asking();
    let server = Server::start(builder).await;
    let mut client = server.client().await;
    client.can_ask().await;
    let call = client.message("tools/call", &json!({ "name": "ask", "arguments": {} }));
    let mut events = Events::of(client.begin("POST", call.to_string()).await);
    events.next().await.unwrap();
    drop((events, client));
    until(|| watch.ended.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn without_a_session_the_call_is_answered_with_the_question_and_goes_on() {
    let (builder, watch) = asking();
    let server = Server::start(builder).await;
    let mut client = server.client().await;
    let first = client.required("ask", json!({})).await.result();
    assert_eq!(first["resultType"], "input_required");
    assert_eq!(first["inputRequests"]["q1"]["params"]["message"], "Really?");
    let state = first["requestState"].as_str().unwrap();
    // Over another connection: only the state identifies the call.
    let mut client = server.client().await;
    let again =
        |state: &str, answer: Value| json!({ "requestState": state, "inputResponses": { "q1": answer } });
    let second = client.required("ask", again(state, accept(true))).await.result();
    assert_eq!(second["inputRequests"]["q1"]["params"]["message"], "How many?");
    let next = second["requestState"].as_str().unwrap();
    for (tool, state) in [("ask", state), ("ask", "nonsense"), ("other", next)] {
        let refused = client.required(tool, again(state, accept(3))).await;
        assert_eq!((refused.status.as_u16(), refused.code()), (400, -32602), "{tool} {state}");
        let text = refused.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(
            text.starts_with("no call of this tool waits for answers under this `requestState`"),
            "{text}"
        );
    }
    let last = client.required("ask", again(next, json!({ "action": "decline" }))).await;
    assert_eq!((last.said().as_str(), watch.runs.load(Ordering::SeqCst)), ("Accepted(true) Declined", 1));
    assert_eq!(last.result()["resultType"], "complete");
}

#[tokio::test]
async fn the_state_of_another_user_is_as_good_as_none() {
    let (builder, watch) = asking();
    let builder = builder.authorize(async |headers| {
        let user = headers.get("x-user").and_then(|user| user.to_str().ok()).map(str::to_owned);
        user.ok_or("say who you are")
    });
    let server = Server::start(builder).await;
    let mut ada = server.client().await;
    ada.set("x-user", "ada");
    let asked = ada.required("ask", json!({})).await.result();
    let again = json!({ "requestState": asked["requestState"], "inputResponses": { "q1": accept(true) } });
    let mut bob = server.client().await;
    bob.set("x-user", "bob");
    assert_eq!(bob.required("ask", again.clone()).await.code(), -32602);
    let next = ada.required("ask", again).await.result();
    assert_eq!(next["inputRequests"]["q1"]["params"]["message"], "How many?");
    assert_eq!(watch.runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn calls_that_wait_for_a_person_keep_no_others_waiting_and_end_with_the_server() {
    let (builder, watch) = asking();
    let server = Server::start(builder.max_calls(1)).await;
    let mut client = server.client().await;
    let asked = client.required("ask", json!({})).await.result();
    assert_eq!(asked["resultType"], "input_required");
    assert_eq!(client.ask_stateless("tools/call", json!({ "name": "other" })).await.said(), "other");
    assert_eq!(watch.ended.load(Ordering::SeqCst), 0);
    server.stop();
    server.ended().await;
    until(|| watch.ended.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn a_session_that_is_asked_keeps_no_others_waiting() {
    let (builder, watch) = asking();
    let server = Server::start(builder.max_calls(1)).await;
    let mut client = server.client().await;
    client.can_ask().await;
    let call = client.message("tools/call", &json!({ "name": "ask", "arguments": {} }));
    let mut other = client.another().await;
    let mut events = Events::of(client.begin("POST", call.to_string()).await);
    for answer in [accept(true), accept(3)] {
        let asked = in_time(events.next()).await.unwrap();
        assert_eq!(in_time(other.call("other", json!({}))).await.said(), "other");
        assert_eq!(watch.ended.load(Ordering::SeqCst), 0);
        let reply = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": answer });
        assert_eq!(other.post(&reply).await.status, 202);
    }
    let answer = in_time(events.next()).await.unwrap();
    assert_eq!(answer["result"]["content"][0]["text"], "Accepted(true) Accepted(3)");
}

#[tokio::test]
async fn a_stream_ends_with_the_result_that_asks() {
    let ask = async |_: NoArgs, context: CallContext| {
        context.progress(1.0, None, None);
        tokio::task::yield_now().await;
        Ok::<_, ToolError>(format!("{:?}", context.ask::<bool>("Really?").await?))
    };
    let tools = Toolset::builder().tool("ask", "", ask).build().unwrap();
    let server = Server::start(http::Server::builder(tools)).await;
    let mut client = server.client().await;
    // The whole response is read before the call goes on.
    let reporting = json!({ "_meta": { "progressToken": 1 } });
    let response = in_time(client.required("ask", reporting)).await;
    assert!(response.is_stream());
    let asked = response.messages().pop().unwrap();
    assert_eq!(asked["result"]["resultType"], "input_required");
    let again = json!({
        "requestState": asked["result"]["requestState"], "inputResponses": { "q1": accept(true) },
    });
    assert_eq!(in_time(client.required("ask", again)).await.said(), "Accepted(true)");
}

#[tokio::test]
async fn a_question_behind_unread_progress_does_not_stop_its_call() {
    let (builder, ended) = {
        let ended = Arc::new(Notify::new());
        let tell = Arc::clone(&ended);
        let chat = move |_: NoArgs, context: CallContext| {
            let ended = Arc::clone(&tell);
            async move {
                // More than sockets and buffers hold, each with a moment in which it may be sent.
                for step in 1..=300 {
                    context.progress(step.into(), None, Some(&"x".repeat(100_000)));
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let asked = tokio::time::timeout(Duration::from_millis(100), context.ask::<bool>("Really?"));
                let is_late = asked.await.is_err();
                ended.notify_one();
                if is_late { "nobody answered" } else { "answered" }
            }
        };
        let tools = Toolset::builder().tool("chat", "", chat).tool("other", "", async |_: NoArgs| "other");
        (http::Server::builder(tools.build().unwrap()).write_timeout(Duration::from_secs(600)), ended)
    };
    let server = Server::start(builder).await;
    let mut deaf = server.client().await;
    let mut message = deaf
        .stateless("tools/call", json!({ "name": "chat", "arguments": {}, "_meta": { "progressToken": 1 } }));
    message["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({ "elicitation": {} });
    let response = deaf.begin("POST", message.to_string()).await;
    in_time(ended.notified()).await;
    assert_eq!(server.session().await.call("other", json!({})).await.said(), "other", "its turn has come");
    drop(response);
}

#[tokio::test]
async fn a_client_that_cannot_ask_is_told_nothing_of_it() {
    let (builder, _) = asking();
    let server = Server::start(builder).await;
    let mut client = server.session().await;
    assert_eq!(client.call("ask", json!({})).await.said(), "Nobody Nobody");
    let mut client = server.client().await;
    let answer = client.ask_stateless("tools/call", json!({ "name": "ask" })).await;
    assert_eq!(answer.said(), "Nobody Nobody");
}
