//! Tools of this process, called by a model in the CLI, over both transports.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use toolbridge::model::{ClaudeCodeError, ModelResponse, Part, Transport};
use toolbridge::{NoArgs, Request, Toolset};
use toolbridge_scripted::{Block, ModelRequest, Turn, thorough};
use tracing::Instrument as _;

use super::support::{BOTH, Tools, World, notified, transports};

#[tokio::test]
async fn the_model_calls_a_tool_of_this_process() {
    // `Auto` is `Stdio` here.
    let stdio = if thorough() { Some(Transport::Stdio) } else { None };
    for transport in [Transport::Auto, Transport::Sdk].into_iter().chain(stdio) {
        let world = World::new("call add {\"a\": 40, \"b\": 2} as toolu_1\n---\ntext The sum is {result}.");
        let tools = Tools::new();
        let model = world.model_with(&tools, transport);
        let response = model.request("What is 40 + 2?").await.unwrap();
        assert_eq!(response.text(), "The sum is 42.", "{transport}");
        assert_eq!(tools.0.calls.load(Ordering::SeqCst), 1);

        let requests = world.scripted.requests();
        assert_eq!(requests[0].prompt(), "What is 40 + 2?");
        assert!(requests[0].tools().contains(&"mcp__tools__add"), "{:?}", requests[0].tools());
        assert_eq!(world.last_results(), ["42"]);
        let [Part::ToolCall { id, name, input }, result, Part::Text { text }] = &response.parts[..] else {
            panic!("{:?}", response.parts)
        };
        assert_eq!((id.as_str(), name.as_str()), ("toolu_1", "mcp__tools__add"));
        assert_eq!(input.decode::<Value>().unwrap(), json!({ "a": 40, "b": 2 }));
        assert!(matches!(result, Part::ToolResult { id, name: Some(name), is_error: false, .. }
            if id == "toolu_1" && name == "mcp__tools__add"));
        assert_eq!(result.text().unwrap(), "42");
        assert_eq!(text, "The sum is 42.");
        world.nothing_is_left();
    }
}

#[tokio::test]
async fn the_span_of_a_request_is_around_its_tool_calls() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt().with_writer(lines.clone()).with_ansi(false).finish();
    // With a single subscriber, other threads, which have none, would decide in tracing's cache whether a
    // span is enabled.
    let _another = tracing::Dispatch::new(tracing_subscriber::registry());
    let _guard = tracing::subscriber::set_default(subscriber);
    for transport in BOTH {
        let world = World::new("call log {}\n---\ntext ok");
        let tools = Toolset::builder().tool("log", "Logs", async |_: NoArgs| tracing::info!("in the tool"));
        let request = Request::new("go").tools(tools.build().unwrap()).transport(transport);
        let asked = tracing::info_span!("order", number = 17);
        world.model().request(request).instrument(asked).await.unwrap();
        let log = std::mem::take(&mut *lines.0.lock().unwrap());
        let log = String::from_utf8(log).unwrap();
        let line = log.lines().find(|line| line.ends_with("in the tool")).unwrap_or_else(|| panic!("{log}"));
        assert!(line.contains("order{number=17}:tool_call{"), "over {transport}: {line}");
        world.nothing_is_left();
    }
}

#[tokio::test]
async fn calls_of_a_reused_cli_are_in_the_span_of_each_request() {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(lines.clone())
        .with_ansi(false)
        .with_span_events(tracing_subscriber::fmt::format::FmtSpan::CLOSE)
        .finish();
    let _another = tracing::Dispatch::new(tracing_subscriber::registry());
    let _guard = tracing::subscriber::set_default(subscriber);
    let tools = || {
        let log = async |_: NoArgs| tracing::info!("in the tool");
        Toolset::builder().tool("log", "Logs", log).build().unwrap()
    };
    let log = || String::from_utf8(std::mem::take(&mut *lines.0.lock().unwrap())).unwrap();
    let said_in = |span: &str, transport| {
        let log = log();
        let line = log.lines().find(|line| line.ends_with("in the tool")).unwrap_or_else(|| panic!("{log}"));
        assert!(line.contains(&format!(" {span}:tool_call{{")), "over {transport}: {line}");
        assert!(!line.contains("start"), "over {transport}: {line}");
        log
    };
    for transport in transports() {
        let calls =
            |request: &ModelRequest| match request.body["messages"].as_array().unwrap().last().unwrap() {
                last if last.to_string().contains("tool_result") => Turn::text("ok"),
                _ if request.prompt().contains("done") => Turn::text("ok"),
                _ => Turn::blocks(vec![Block::call("log", json!({}))]),
            };
        let world = World::answering(calls);
        let model = world.model();
        model.set_agent_toolsets(tools(), "tools", transport).unwrap();
        model.keep_warm(1).instrument(tracing::info_span!("start")).await.unwrap();
        model.request("go").instrument(tracing::info_span!("order", number = 1)).await.unwrap();
        said_in("order{number=1}", transport);
        model.keep_warm(0).await.unwrap();

        let opening = model.conversation().open().instrument(tracing::info_span!("start"));
        let mut conversation = opening.await.unwrap();
        for number in [2, 3] {
            let order = tracing::info_span!("order", number);
            conversation.send("go").instrument(order).await.unwrap();
            let log = said_in(&format!("order{{number={number}}}"), transport);
            // The span has ended with its answer, although the conversation is still open.
            assert!(
                log.lines()
                    .any(|line| line.contains(&format!("order{{number={number}}}: "))
                        && line.contains("close")),
                "{log}"
            );
        }
        conversation.close().await;
        world.nothing_is_left_soon();
    }
}

/// The log output.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl tracing_subscriber::fmt::MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn every_kind_of_result_is_the_same_over_both_transports() {
    let script = "call add {\"a\": 1, \"b\": 1.5}\ncall picture {}\ncall fail {}\ncall panic {}\n\
                  call weather {}\ncall large {}\ncall huge {}\ncall add {\"a\": \"x\", \"b\": 1}\n---\ntext done";
    let mut seen = Vec::new();
    for transport in BOTH {
        let world = World::new(script);
        world.model_with(&Tools::new(), transport).request("go").await.unwrap();
        let requests = world.scripted.requests();
        let mut results = requests.last().unwrap().tool_results();
        results.sort_by_key(|result| result.tool_use_id.clone());
        let mut shown: Vec<_> = results
            .iter()
            .map(|result| (result.is_error, result.text(), has_picture(&result.content)))
            .collect();
        assert_eq!(shown[0], (false, "2.5".into(), false), "{transport}");
        assert!(!shown[1].0 && shown[1].1.starts_with("a dot") && shown[1].2, "{:?}", shown[1]);
        assert_eq!(shown[2], (true, "no such order (type: Error)".into(), false));
        assert_eq!(shown[3], (true, "tool `panic` panicked: oh no (type: ToolPanicError)".into(), false));
        assert_eq!(shown[4], (false, r#"{"degrees":21.5,"sky":"clear"}"#.into(), false));
        assert_eq!((shown[5].0, shown[5].1.len()), (false, 400_000));
        // Results that no CLI can show are kept here; the handle differs each time.
        let mut kept: Value = serde_json::from_str(&shown[6].1).unwrap();
        assert!(kept["handle"].take().as_str().unwrap().starts_with("parked:"), "{kept}");
        assert_eq!((shown[6].0, &kept["bytes"]), (false, &json!(1_000_000)));
        shown[6].1 = kept.to_string();
        assert!(shown[7].0 && shown[7].1.starts_with("invalid arguments for tool `add`: at `/a`: "));
        world.nothing_is_left();
        seen.push(shown);
    }
    assert_eq!(seen[0], seen[1]);
}

fn has_picture(content: &Value) -> bool {
    let blocks = content.as_array().into_iter().flatten();
    blocks.into_iter().any(|block| {
        block["type"] == "image"
            && block["source"]["media_type"] == "image/png"
            && block["source"]["data"] != ""
    })
}

#[tokio::test]
async fn read_only_calls_overlap_and_others_do_not() {
    for transport in transports() {
        for (tool, most) in [("look", 4), ("change", 1)] {
            let world = World::new(&*format!("{}---\ntext done", format!("call {tool} {{}}\n").repeat(4)));
            let tools = Tools::new();
            tools.0.together.store(most, Ordering::SeqCst);
            world.model_with(&tools, transport).request("go").await.unwrap();
            assert_eq!(world.last_results(), ["done"; 4]);
            assert_eq!(tools.0.most_at_once.load(Ordering::SeqCst), most, "{tool} over {transport}");
        }
    }
}

#[tokio::test]
async fn a_users_interrupt_cancels_the_handler() {
    for transport in transports() {
        let (world, tools, model) = World::hanging(transport);
        let (outcome, ()) = tokio::join!(model.request("go"), async {
            notified("the tool starts", &tools.0.hanging).await;
            assert_eq!(model.interrupt(), 1);
        });
        assert!(matches!(outcome, Err(ClaudeCodeError::CliInterrupted { result: Some(_) })), "{outcome:?}");
        notified("the handler is dropped", &tools.0.cancelled).await;
        assert_eq!(model.interrupt(), 0);
        world.nothing_is_left();
    }
}

/// Makes the CLI cancel a call whose handler runs; on a busy machine the handler may start late.
async fn given_up(transport: Transport) -> (World, Tools, ModelResponse) {
    for limit in ["1000", "10000", "60000"] {
        let world = World::new("call hang {}\n---\ntext I was told: {result}");
        let tools = Tools::new();
        let model = world.builder().env("MCP_TOOL_TIMEOUT", limit).build().unwrap();
        model.set_agent_toolsets(tools.toolset(), "tools", transport).unwrap();
        let response = model.request("go").await.unwrap();
        if tools.0.hanging.notified().now_or_never().is_some() {
            return (world, tools, response);
        }
    }
    panic!("the handler does not begin");
}

#[tokio::test]
async fn a_call_that_times_out_in_the_cli_cancels_the_handler() {
    for transport in BOTH {
        let (world, tools, response) = given_up(transport).await;
        notified("the handler is dropped", &tools.0.cancelled).await;
        assert!(response.text().contains("timed out"), "{}", response.text());
        assert!(matches!(response.parts[1], Part::ToolResult { is_error: true, .. }));
        world.nothing_is_left();
    }
}
