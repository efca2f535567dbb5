//! Tools ask questions, and this process answers.

use std::sync::{Arc, Mutex};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Notify;
use toolbridge::call::Answer;
use toolbridge::model::{AskRequest, ClaudeCodeError, Transport};
use toolbridge::schemars::{self, JsonSchema};
use toolbridge::{CallContext, ClaudeCodeModel, NoArgs, Request, Session, ToolError, Toolset};

use super::support::{BOTH, PATIENCE, World, notified, transports};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Colour {
    Red,
    Green,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "shown as a whole")]
struct Order {
    count: u8,
    colour: Option<Colour>,
    gift: bool,
}

const PAINT: &str = "call paint {}\n---\ntext {result}";

fn tools() -> Toolset {
    Toolset::builder()
        .tool("paint", "Paints", async |_: NoArgs, context: CallContext| {
            context.ask::<Colour>("Which colour?").await.map(|answer| format!("{answer:?}"))
        })
        .tool("order", "Orders", async |_: NoArgs, context: CallContext| {
            let order = context.ask::<Order>("What exactly?").await?;
            let sure = context.ask::<bool>("Sure?").await?;
            Ok::<_, ToolError>(format!("{order:?} {sure:?}"))
        })
        .build()
        .unwrap()
}

fn with_tools(model: ClaudeCodeModel, transport: Transport) -> ClaudeCodeModel {
    model.set_agent_toolsets(tools(), "tools", transport).unwrap();
    model
}

#[tokio::test]
async fn questions_of_tools_are_answered_by_this_process() {
    for transport in BOTH {
        let rows = [
            (Answer::Accepted(json!("red")), "Accepted(Red)"),
            (Answer::Accepted(json!({ "answer": "green" })), "Accepted(Green)"),
            (Answer::Declined, "Declined"),
            (Answer::Cancelled, "Cancelled"),
            (Answer::Accepted(json!("blue")), "the answer does not fit the question"),
        ];
        // One question after the other, in one run.
        let world = World::new(&*("call paint {}\n---\n".repeat(rows.len()) + "text done"));
        let asked = Arc::<Mutex<Vec<AskRequest>>>::default();
        let list = Arc::clone(&asked);
        let answers = rows.clone().map(|(answer, _)| answer);
        let on_ask = move |question: AskRequest| {
            let mut list = list.lock().unwrap();
            list.push(question);
            std::future::ready(answers[list.len() - 1].clone())
        };
        let model = with_tools(world.builder().on_ask(on_ask).build().unwrap(), transport);
        model.request("go").await.unwrap();
        let asked = asked.lock().unwrap();
        assert_eq!(asked.len(), rows.len(), "over {transport}");
        for (question, (request, (_, want))) in
            asked.iter().zip(world.scripted.requests()[1..].iter().zip(&rows))
        {
            let text = request.tool_results().last().unwrap().text();
            assert!(text.contains(want), "over {transport}: {text}");
            let about = (question.server_name.as_str(), question.message.as_str());
            assert_eq!(about, ("tools", "Which colour?"));
            assert_eq!(question.schema["properties"]["answer"]["enum"], json!(["red", "green"]));
        }
        world.nothing_is_left();
    }
}

#[tokio::test]
async fn without_an_on_ask_function_a_tool_cannot_ask() {
    for transport in transports() {
        let world = World::new(PAINT);
        let text = with_tools(world.model(), transport).request("go").await.unwrap().text();
        assert_eq!(text, "Nobody", "over {transport}");
    }
}

#[tokio::test]
async fn a_form_has_several_fields_and_a_tool_may_ask_again() {
    for transport in transports() {
        let world = World::new("call order {}\n---\ntext {result}");
        let answer = async |question: AskRequest| match question.message.as_str() {
            "Sure?" => Answer::Accepted(json!(true)),
            _ => Answer::Accepted(json!({ "count": 2, "gift": false })),
        };
        let model = with_tools(world.model(), transport);
        let text = model.request(Request::new("go").on_ask(answer)).await.unwrap().text();
        let order = "Accepted(Order { count: 2, colour: None, gift: false }) Accepted(true)";
        assert_eq!(text, order, "over {transport}");
    }
}

/// Notifies when it is dropped.
struct Told(Arc<Notify>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[tokio::test]
async fn a_question_is_cancelled_with_its_request() {
    for transport in transports() {
        let world = World::new(PAINT);
        let (asked, dropped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (tell, tell_dropped) = (Arc::clone(&asked), Arc::clone(&dropped));
        let on_ask = move |_: AskRequest| {
            let (tell, dropped) = (Arc::clone(&tell), Told(Arc::clone(&tell_dropped)));
            async move {
                tell.notify_one();
                let _dropped = dropped;
                std::future::pending::<Answer<Value>>().await
            }
        };
        let model = with_tools(world.builder().on_ask(on_ask).build().unwrap(), transport);
        let request = tokio::spawn({
            let model = model.clone();
            async move { model.request("go").await }
        });
        notified("the question", &asked).await;
        assert_eq!(model.interrupt(), 1);
        let outcome = request.await.unwrap();
        assert!(matches!(outcome, Err(ClaudeCodeError::CliInterrupted { .. })), "{outcome:?}");
        notified("the end of the question", &dropped).await;
        world.nothing_is_left();
    }
}

#[tokio::test]
async fn questions_of_other_servers_are_answered() {
    let world = World::new("call paint {}\n---\ntext {result}");
    let session = Session::builder(tools())
        .dir(world.home.path())
        .bridge(super::support::bridge())
        .start()
        .await
        .unwrap();
    let server = serde_json::to_value(session.mcp_server().unwrap()).unwrap();
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let list = Arc::clone(&asked);
    let on_ask = move |question: AskRequest| {
        list.lock().unwrap().push(question.server_name);
        std::future::ready(Answer::Accepted(json!("green")))
    };
    let builder = world.builder().mcp_server("other", server).allowed_tools(["mcp__other"]);
    let model = builder.on_ask(on_ask).build().unwrap();
    let answer = tokio::time::timeout(PATIENCE, model.request("go")).await.unwrap().unwrap();
    assert_eq!(answer.text(), "Accepted(Green)");
    assert_eq!(*asked.lock().unwrap(), ["other"]);
    session.stop().await;
}
