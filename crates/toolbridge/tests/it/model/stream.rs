//! Streams of events.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use toolbridge::call::{CancellationToken, Progress};
use toolbridge::model::{McpServerStatus, Part};
use toolbridge::{Event, Request};

use super::support::{BOTH, Tools, World, notified, transports};

/// A short form of an event.
fn short(event: &Event) -> Option<String> {
    Some(match event {
        Event::Started(started) => {
            let server = |server: &McpServerStatus| format!("{} {}", server.name, server.status);
            format!("started: {}", started.mcp_servers.iter().map(server).collect::<String>())
        }
        Event::TextDelta(text) => format!("+{text}"),
        Event::ThinkingDelta(text) => format!("~{text}"),
        Event::ToolCallDelta { id, name, json } => {
            assert!(id.starts_with("toolu_"), "{id:?}");
            format!("{name} +{json}")
        }
        Event::Part(Part::Text { text }) => format!("text {text}"),
        Event::Part(Part::Thinking { text, .. }) => format!("thought {text}"),
        Event::Part(Part::ToolCall { name, input, .. }) => format!("call {name} {input}"),
        Event::Part(part @ Part::ToolResult { name, is_error, .. }) => {
            format!("result {} {is_error} {}", name.as_deref().unwrap_or("?"), part.text().unwrap())
        }
        Event::ToolProgress { id, name, progress: Progress { progress, total, message } } => {
            assert!(id.as_ref().is_some_and(|id| id.starts_with("toolu_")), "{id:?}");
            format!("progress {name} {progress} of {} {}", total.unwrap(), message.as_deref().unwrap_or("-"))
        }
        Event::Result(whole) => format!("answer {}", whole.response.text()),
        Event::Other(_) => return None,
        event => panic!("{event:?}"),
    })
}

#[tokio::test]
async fn events_come_in_order_and_the_answer_is_the_last() {
    for transport in transports() {
        let world = World::new(
            "think Hm.\ntext Let me | see.\ncall add {\"a\": 1, \"b\": 1}\n---\ntext It is | {result}.",
        );
        let mut stream = world.model_with(&Tools::new(), transport).request_stream("go").await.unwrap();
        let mut seen = Vec::new();
        let mut others = 0;
        while let Some(event) = stream.next().await {
            match short(&event.unwrap()) {
                Some(event) => seen.push(event),
                None => others += 1,
            }
        }
        let want = [
            "started: tools connected",
            "~Hm.",
            "thought Hm.",
            "+Let me ",
            "+see.",
            "text Let me see.",
            "mcp__tools__add +{\"a\":",
            "mcp__tools__add +1,\"b\"",
            "mcp__tools__add +:1}",
            "call mcp__tools__add {\"a\":1,\"b\":1}",
            "result mcp__tools__add false 2",
            "+It is ",
            "+2.",
            "text It is 2.",
            "answer It is 2.",
        ];
        assert_eq!(seen, want, "over {transport}");
        assert!(others > 0, "what is not understood is kept");
        assert!(stream.next().await.is_none());
        world.nothing_is_left();
    }
}

#[tokio::test]
async fn a_request_ended_early_returns_the_output_so_far() {
    for transport in transports() {
        let script = "text Let me see.\ncall add {\"a\": 1, \"b\": 1}\n---\ntext Now.\ncall hang {}\ncall add {}\n---\ntext done";
        let (world, tools, end) = (World::new(script), Tools::new(), CancellationToken::new());
        let model = world.model_with(&tools, transport);
        let request = Request::new("go").until(end.clone());
        let (answer, ()) = tokio::join!(model.request_with_metadata(request), async {
            notified("the tool is called", &tools.0.hanging).await;
            end.cancel();
        });
        let answer = answer.unwrap();
        let parts: Vec<_> = answer.response.parts.into_iter().map(Event::Part).collect();
        let shown: Vec<_> = parts.iter().filter_map(short).collect();
        let want = [
            "text Let me see.",
            "call mcp__tools__add {\"a\":1,\"b\":1}",
            "result mcp__tools__add false 2",
            "text Now.",
            "call mcp__tools__hang {}",
            "call mcp__tools__add {}",
        ];
        assert_eq!(shown, want, "over {transport}");
        assert!(answer.metadata.session_id.is_some() && answer.metadata.total_cost_usd.is_none());
        // The model gets no further request, and no handler keeps running.
        assert_eq!(world.scripted.requests().len(), 2);
        tools.no_handler_goes_on().await;
        world.nothing_is_left();
    }
}

#[tokio::test]
async fn progress_of_a_tool_comes_before_its_result() {
    for transport in BOTH {
        let world = World::new("call progress {}\n---\ntext {result}");
        let mut stream = world.model_with(&Tools::new(), transport).request_stream("go").await.unwrap();
        let mut seen = Vec::new();
        while let Some(event) = stream.next().await {
            let event = event.unwrap();
            let json = serde_json::to_string(&event).unwrap();
            let read: Event = serde_json::from_str(&json).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), json);
            seen.extend(short(&event));
        }
        seen.retain(|event| event.starts_with("progress") || event.starts_with("result"));
        // The first report may have been replaced by the second.
        seen.retain(|event| event != "progress mcp__tools__progress 1 of 2 half");
        let want = ["progress mcp__tools__progress 2 of 2 -", "result mcp__tools__progress false true"];
        assert_eq!(seen, want, "over {transport}");
        world.nothing_is_left();
    }
}

#[tokio::test]
async fn every_message_is_shown_to_the_callback() {
    let world = World::new("text ok");
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let list = Arc::clone(&seen);
    let model = world
        .builder()
        .on_message(move |message| {
            let message: Value = message.decode().unwrap();
            list.lock().unwrap().push(message["type"].as_str().unwrap().to_owned());
        })
        .build()
        .unwrap();
    model.request("go").await.unwrap();
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.iter().filter(|kind| *kind == "assistant").count(), 1, "{seen:?}");
    assert_eq!(seen.iter().filter(|kind| *kind == "system").count(), 1);
    assert_eq!(seen.last().unwrap(), "result");
    assert!(!seen.iter().any(|kind| kind.starts_with("control")));
}

#[tokio::test]
async fn an_error_is_the_streams_last_item_and_not_text_of_the_model() {
    let world = World::new("error 529 overloaded");
    let mut stream = world.model().request_stream("go").await.unwrap();
    let mut seen = Vec::new();
    while let Some(event) = stream.next().await {
        seen.extend(match event {
            Ok(event) => short(&event),
            Err(error) => Some(error.type_name().into()),
        });
    }
    assert_eq!(seen, ["started: ", "CLIExecutionError"]);
    world.nothing_is_left();
}
