//! Questions of tools, in both eras.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;
use toolbridge_core::{CallContext, NoArgs, ToolError, Toolset};

use super::Client;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Colour {
    Red,
    Green,
}

/// What the handlers record.
#[derive(Default)]
struct Watch {
    runs: AtomicUsize,
    ended: Notify,
}

struct Ends(Arc<Watch>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.ended.notify_one();
    }
}

fn tools() -> (Toolset, Arc<Watch>) {
    let watch = Arc::<Watch>::default();
    let paint = async |_: NoArgs, context: CallContext| {
        let watch: &Arc<Watch> = context.state();
        watch.runs.fetch_add(1, Ordering::SeqCst);
        let _ends = Ends(Arc::clone(watch));
        let colour = context.ask::<Colour>("Which colour?").await?;
        let sure = context.ask::<bool>("Sure?").await?;
        Ok::<_, ToolError>(format!("{colour:?} {sure:?}"))
    };
    let both = async |_: NoArgs, context: CallContext| {
        let (first, second) = tokio::join!(context.ask::<u8>("One?"), context.ask::<u8>("Two?"));
        Ok::<_, ToolError>(format!("{:?} {:?}", first?, second?))
    };
    let impatient = async |_: NoArgs, context: CallContext| {
        tokio::select! {
            answer = context.ask::<bool>("Really?") => format!("{answer:?}"),
            () = tokio::time::sleep(Duration::from_millis(50)) => "did not wait".into(),
        }
    };
    let tools = Toolset::builder()
        .state(Arc::clone(&watch))
        .tool("paint", "", paint)
        .tool("both", "", both)
        .tool("impatient", "", impatient)
        .build();
    (tools.unwrap(), watch)
}

fn can_ask() -> Value {
    json!({ "elicitation": {} })
}

fn accept(value: impl Into<Value>) -> Value {
    json!({ "action": "accept", "content": { "answer": value.into() } })
}

impl Client {
    async fn answer(&mut self, id: &Value, result: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "result": result })).await;
    }

    /// A call according to 2026-07-28.
    async fn call_stateless(&mut self, id: u64, tool: &str, more: Value) {
        let mut params = json!({ "name": tool, "arguments": {}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": can_ask(),
        } });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })).await;
    }

    /// The first question of such a call, and its state.
    async fn required(&mut self, id: u64) -> (Value, String) {
        let mut answer = self.receive().await;
        assert_eq!(answer["id"], id, "{answer}");
        let result = &mut answer["result"];
        assert_eq!(result["resultType"], "input_required", "{result}");
        (result["inputRequests"].take(), result["requestState"].as_str().unwrap().to_owned())
    }
}

#[tokio::test]
async fn a_client_that_can_is_asked_by_a_request() {
    let (tools, watch) = tools();
    let mut client = Client::start_with(tools, 1 << 16, can_ask()).await;
    client.call(1, "paint").await;
    let asked = client.receive().await;
    assert_eq!(asked["method"], "elicitation/create");
    assert_eq!(
        asked["params"],
        json!({ "message": "Which colour?", "requestedSchema": {
            "type": "object", "required": ["answer"],
            "properties": { "answer": { "type": "string", "enum": ["red", "green"] } },
        } })
    );
    // An answer to an unknown question, and a second one to the same question, are ignored.
    client.answer(&json!("ask-77"), accept("green")).await;
    client.answer(&asked["id"], accept("red")).await;
    client.answer(&asked["id"], accept("green")).await;
    let asked = client.receive().await;
    assert_eq!(asked["params"]["message"], "Sure?");
    client.answer(&asked["id"], json!({ "action": "decline" })).await;
    let answer = client.receive().await;
    assert_eq!(answer["result"]["content"][0]["text"], "Accepted(Red) Declined");
    assert_eq!(watch.runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_a_client_answers_wrongly_is_an_error_that_says_so() {
    let rows = [
        (
            json!({ "result": { "action": "perhaps" } }),
            "the action `perhaps`; there are `accept`, `decline` and `cancel`",
        ),
        (json!({ "result": {} }), "the client's answer cannot be read: missing field `action`"),
        (json!({ "result": { "action": "accept", "content": [] } }), "a `content` that is not an object"),
        (json!({ "result": accept("blue") }), "the answer does not fit the question: at `/answer`: "),
        (json!({ "error": { "code": -32602, "message": "no form" } }), "the client cannot ask: no form"),
    ];
    let (tools, _) = tools();
    let mut client = Client::start_with(tools, 1 << 16, can_ask()).await;
    for (id, (mut response, want)) in (1..).zip(rows) {
        client.call(id, "paint").await;
        let asked = client.receive().await;
        response["jsonrpc"] = json!("2.0");
        response["id"] = asked["id"].clone();
        client.send(&response).await;
        let answer = client.receive().await;
        let text = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(want) && text.ends_with("(type: QuestionError)"), "{text}");
    }
    // A client that turns out not to support the method has no user to ask.
    client.call(9, "impatient").await;
    let asked = client.receive().await;
    let error = json!({ "code": -32601, "message": "what?" });
    client.send(&json!({ "jsonrpc": "2.0", "id": asked["id"], "error": error })).await;
    assert_eq!(client.receive().await["result"]["content"][0]["text"], "Ok(Nobody)");
}

#[tokio::test]
async fn a_client_that_cannot_ask_is_not_asked() {
    for capabilities in [json!({}), json!({ "elicitation": { "url": {} } })] {
        let (tools, _) = tools();
        let mut client = Client::start_with(tools, 1 << 16, capabilities).await;
        client.call(1, "paint").await;
        assert_eq!(client.receive().await["result"]["content"][0]["text"], "Nobody Nobody");
    }
}

#[tokio::test]
async fn a_question_is_cancelled_with_its_call_and_when_the_handler_does_not_wait() {
    let (tools, watch) = tools();
    let mut client = Client::start_with(tools, 1 << 16, can_ask()).await;
    client.call(1, "paint").await;
    let asked = client.receive().await;
    let cancel =
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
    client.send(&cancel).await;
    let told = client.receive().await;
    assert_eq!((&told["method"], &told["params"]["requestId"]), (&cancel["method"], &asked["id"]));
    watch.ended.notified().await;

    client.call(2, "impatient").await;
    let asked = client.receive().await;
    let (mut cancelled, mut answered) = (false, false);
    while !(cancelled && answered) {
        let message = client.receive().await;
        cancelled |= message["params"]["requestId"] == asked["id"];
        answered |= message["result"]["content"][0]["text"] == "did not wait";
    }
}

#[tokio::test]
async fn a_question_ends_when_the_client_goes() {
    for is_stateless in [false, true] {
        let (tools, watch) = tools();
        let mut client = Client::start_with(tools, 1 << 16, can_ask()).await;
        if is_stateless {
            client.call_stateless(1, "paint", json!({})).await;
        } else {
            client.call(1, "paint").await;
        }
        client.receive().await;
        let Client { lines, writer, server } = client;
        drop((lines, writer));
        watch.ended.notified().await;
        server.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn from_2026_on_the_call_is_answered_with_the_question_and_goes_on_with_the_answer() {
    let (tools, watch) = tools();
    let mut client = Client::start_with(tools, 1 << 16, json!({})).await;
    client.call_stateless(1, "paint", json!({})).await;
    let (requests, state) = client.required(1).await;
    assert_eq!(
        requests,
        json!({ "q1": { "method": "elicitation/create", "params": {
            "mode": "form", "message": "Which colour?", "requestedSchema": {
                "type": "object", "required": ["answer"],
                "properties": { "answer": { "type": "string", "enum": ["red", "green"] } },
            },
        } } })
    );
    client
        .call_stateless(
            2,
            "paint",
            json!({ "requestState": state, "inputResponses": { "q1": accept("red") } }),
        )
        .await;
    let (requests, second) = client.required(2).await;
    assert_eq!(requests["q1"]["params"]["message"], "Sure?");
    assert_ne!(state, second);
    // A missing answer is requested again.
    client.call_stateless(3, "paint", json!({ "requestState": second })).await;
    let (requests, third) = client.required(3).await;
    assert_eq!(requests["q1"]["params"]["message"], "Sure?");
    let cancel = json!({ "q1": { "action": "cancel" } });
    client.call_stateless(4, "paint", json!({ "requestState": third, "inputResponses": cancel })).await;
    let answer = client.receive().await;
    assert_eq!((&answer["id"], &answer["result"]["resultType"]), (&json!(4), &json!("complete")));
    assert_eq!(answer["result"]["content"][0]["text"], "Accepted(Red) Cancelled");
    assert_eq!(watch.runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn questions_that_are_asked_together_are_answered_together() {
    let (tools, _) = tools();
    let mut client = Client::start_with(tools, 1 << 16, json!({})).await;
    client.call_stateless(1, "both", json!({})).await;
    let (requests, state) = client.required(1).await;
    assert_eq!(requests["q1"]["params"]["message"], "One?");
    assert_eq!(requests["q2"]["params"]["message"], "Two?");
    let answers = json!({ "q1": accept(1), "q2": accept(2) });
    client.call_stateless(2, "both", json!({ "requestState": state, "inputResponses": answers })).await;
    assert_eq!(client.receive().await["result"]["content"][0]["text"], "Accepted(1) Accepted(2)");
}

#[tokio::test]
async fn a_state_that_is_not_the_calls_own_is_refused() {
    let (tools, watch) = tools();
    let mut client = Client::start_with(tools, 1 << 16, json!({})).await;
    client.call_stateless(1, "paint", json!({})).await;
    let (_, state) = client.required(1).await;
    let with = |state: &str| json!({ "requestState": state, "inputResponses": { "q1": accept("red") } });
    for (id, tool, state) in [(2, "paint", "nonsense"), (3, "paint", ""), (4, "both", state.as_str())] {
        client.call_stateless(id, tool, with(state)).await;
        let answer = client.receive().await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        let text = answer["error"]["message"].as_str().unwrap();
        assert!(
            text.starts_with("no call of this tool waits for answers under this `requestState`"),
            "{text}"
        );
    }
    // None of this has affected the call; and each state is valid only once.
    client.call_stateless(5, "paint", with(&state)).await;
    client.required(5).await;
    client.call_stateless(6, "paint", with(&state)).await;
    assert_eq!(client.receive().await["error"]["code"], -32602);
    assert_eq!(watch.runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_call_that_goes_on_can_be_cancelled_under_its_new_id() {
    let (tools, watch) = tools();
    let mut client = Client::start_with(tools, 1 << 16, json!({})).await;
    client.call_stateless(1, "impatient", json!({})).await;
    // The call has ended meanwhile; its result is returned to the next retry.
    let (_, state) = client.required(1).await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    client.call_stateless(2, "impatient", json!({ "requestState": state })).await;
    assert_eq!(client.receive().await["result"]["content"][0]["text"], "did not wait");

    client.call_stateless(3, "paint", json!({})).await;
    let (_, state) = client.required(3).await;
    client
        .call_stateless(
            4,
            "paint",
            json!({ "requestState": state, "inputResponses": { "q1": accept("red") } }),
        )
        .await;
    let (_, state) = client.required(4).await;
    // No request of the call is open, so there is nothing to cancel; it still waits.
    for id in [3, 4] {
        client
            .send(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }))
            .await;
    }
    client
        .call_stateless(
            5,
            "paint",
            json!({ "requestState": state, "inputResponses": { "q1": accept(true) } }),
        )
        .await;
    assert_eq!(client.receive().await["result"]["content"][0]["text"], "Accepted(Red) Accepted(true)");
    assert_eq!(watch.runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_calls_again_is_not_waited_for_without_end() {
    let (tools, watch) = tools();
    let mut client = Client::start_with(tools, 1 << 16, json!({})).await;
    client.call_stateless(1, "paint", json!({})).await;
    let (_, state) = client.required(1).await;
    let begun = tokio::time::Instant::now();
    watch.ended.notified().await;
    assert_eq!(begun.elapsed().as_secs(), 3600);
    client.call_stateless(2, "paint", json!({ "requestState": state })).await;
    assert_eq!(client.receive().await["error"]["code"], -32602);
}

#[tokio::test]
async fn only_so_many_calls_wait_for_answers() {
    let tools = Toolset::builder()
        .with(
            toolbridge_core::Tool::new("ask", "", async |_: NoArgs, context: CallContext| {
                context.ask::<bool>("Really?").await.map(|answer| format!("{answer:?}"))
            })
            .read_only(),
        )
        .build()
        .unwrap();
    let mut client = Client::start_with(tools, 1 << 16, json!({})).await;
    for id in 0..256 {
        client.call_stateless(id, "ask", json!({})).await;
        client.required(id).await;
    }
    client.call_stateless(1000, "ask", json!({})).await;
    let answer = client.receive().await;
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert_eq!(text, "256 questions wait for an answer, which is the limit (type: QuestionError)");
}
