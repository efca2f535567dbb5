//! Handlers ask questions, and callers answer them.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use toolbridge_core::call::Answer;
use toolbridge_core::source::CallEvent;
use toolbridge_core::tool::{RawJson, ToolCall};
use toolbridge_core::{CallContext, NoArgs, Tool, ToolError, ToolSource as _, Toolset};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Colour {
    Red,
    Green,
}

async fn paint(_: NoArgs, context: CallContext) -> Result<String, ToolError> {
    Ok(format!("{:?}", context.ask::<Colour>("Which colour?").await?))
}

fn tools() -> Toolset {
    Toolset::builder()
        .tool("paint", "", paint)
        .tool("block", "", |_: NoArgs, context: CallContext| {
            context.ask_blocking::<Colour>("Which colour?").map(|answer| format!("{answer:?}"))
        })
        .tool("odd", "", async |_: NoArgs, context: CallContext| {
            context.ask::<Vec<String>>("Which colours?").await.map(drop)
        })
        .with(
            Tool::new("hasty", "", async |_: NoArgs, context: CallContext| {
                let answer = context.ask::<Colour>("Which colour?").await?;
                // Longer than the remaining time.
                tokio::time::sleep(Duration::from_secs(20)).await;
                Ok::<_, ToolError>(format!("{answer:?}"))
            })
            .timeout(Duration::from_secs(10)),
        )
        .tool("both", "", async |_: NoArgs, context: CallContext| {
            let (first, second) = tokio::join!(context.ask::<u8>("One?"), context.ask::<u8>("Two?"));
            Ok::<_, ToolError>(format!("{:?} {:?}", first?, second?))
        })
        .tool("impatient", "", async |_: NoArgs, context: CallContext| {
            tokio::select! {
                answer = context.ask::<bool>("Really?") => format!("{answer:?}"),
                () = tokio::time::sleep(Duration::from_secs(1)) => "did not wait".into(),
            }
        })
        .build()
        .unwrap()
}

/// Calls a tool and answers its questions in order.
async fn call(tool: &str, answers: &[Answer<&str>]) -> (Vec<String>, String) {
    let tools = tools();
    let mut context = CallContext::default();
    let heard = context.listen(false, true);
    let call = tools.call(ToolCall::new(tool, RawJson::empty_object()), context);
    let mut call = heard.follow(call);
    let (mut asked_for, mut answers) = (Vec::new(), answers.iter());
    loop {
        match call.next().await {
            CallEvent::Progress(report) => panic!("nobody asked for {report:?}"),
            CallEvent::Question(asked) => {
                asked_for.push(format!("{} {}", asked.question.message, asked.question.schema));
                if let Some(answer) = answers.next() {
                    asked.answer(answer.try_map(|text| Ok(RawJson::parse(text.to_owned()).unwrap())));
                } else {
                    // Left unanswered for the rest of the call.
                    std::mem::forget(asked);
                }
            }
            CallEvent::Done(Ok(result)) => return (asked_for, result.to_string()),
            CallEvent::Done(Err(error)) => return (asked_for, format!("{} {error}", error.type_name())),
        }
    }
}

#[tokio::test]
async fn a_handler_learns_what_became_of_its_question() {
    let rows = [
        (Answer::Accepted(r#"{"answer":"red"}"#), "Accepted(Red)"),
        (Answer::Declined, "Declined"),
        (Answer::Cancelled, "Cancelled"),
        (Answer::Nobody, "Nobody"),
        (
            Answer::Accepted(r#"{"answer":"blue"}"#),
            "QuestionError the answer does not fit the question: at `/answer`: unknown variant, expected `red` or `green`",
        ),
    ];
    for tool in ["paint", "block"] {
        for (answer, want) in rows {
            let (asked, result) = call(tool, &[answer]).await;
            let form = r#"{"properties":{"answer":{"enum":["red","green"],"type":"string"}},"required":["answer"],"type":"object"}"#;
            assert_eq!(asked, [format!("Which colour? {form}")]);
            assert!(result.contains(want), "{tool}: {result}");
        }
    }
}

#[tokio::test]
async fn where_nobody_can_be_asked_the_handler_learns_it_at_once() {
    let tools = tools();
    for tool in ["paint", "block"] {
        let call = ToolCall::new(tool, RawJson::empty_object());
        let result = tools.call(call, CallContext::default()).await.unwrap();
        assert!(result.as_str().contains("Nobody"), "{result}");
    }
    // A type that cannot be asked for is an error even without a user to ask.
    let call = ToolCall::new("odd", RawJson::empty_object());
    let error = tools.call(call, CallContext::default()).await.unwrap_err();
    assert_eq!(error.type_name(), "QuestionError");
    assert!(error.to_string().contains("lists cannot be asked for; ask for a string"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_time_limit_does_not_run_while_a_person_thinks() {
    let tools = tools();
    let mut context = CallContext::default();
    let heard = context.listen(false, true);
    let call = tools.call(ToolCall::new("hasty", RawJson::empty_object()), context);
    let mut call = heard.follow(call);
    let CallEvent::Question(asked) = call.next().await else { panic!("no question") };
    let thinking = tokio::time::sleep(Duration::from_secs(3600));
    tokio::select! {
        step = call.next() => panic!("it did not wait: {step:?}"),
        () = thinking => asked.answer(Ok(Answer::Declined)),
    }
    let CallEvent::Done(Err(error)) = call.next().await else { panic!("no error") };
    assert_eq!(error.to_string(), "tool `hasty` timed out after 10000 ms");
}

#[tokio::test(start_paused = true)]
async fn questions_may_be_many_and_may_be_taken_back() {
    let answers = [Answer::Accepted(r#"{"answer":1}"#), Answer::Accepted(r#"{"answer":2}"#)];
    let (asked, result) = call("both", &answers).await;
    assert_eq!(asked.len(), 2);
    assert!(result.contains("Accepted(1) Accepted(2)"), "{result}");
    let (asked, result) = call("impatient", &[]).await;
    assert_eq!(asked.len(), 1);
    assert!(result.contains("did not wait"), "{result}");
}

#[tokio::test]
async fn a_question_ends_with_its_call_even_if_its_handler_blocks() {
    let (tell, told) = std::sync::mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let ask = move |_: NoArgs, context: CallContext| {
        for _ in 0..2 {
            let answer = context.ask_blocking::<bool>("Really?");
            tell.lock().unwrap().send(answer.unwrap_err().to_string()).unwrap();
        }
    };
    let tools = Toolset::builder().tool("block", "", ask).build().unwrap();
    let mut context = CallContext::default();
    let heard = context.listen(false, true);
    let call = tools.call(ToolCall::new("block", RawJson::empty_object()), context);
    let mut call = heard.follow(call);
    let CallEvent::Question(asked) = call.next().await else { panic!("no question") };
    drop((call, asked));
    // The first question was open; the second comes after the receiver is gone.
    for _ in 0..2 {
        let said = told.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(said, "the call ended before its question was answered");
    }
}
