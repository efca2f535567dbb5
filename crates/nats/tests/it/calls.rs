//! Calls, one by one.

use std::sync::{Arc, Mutex};

use futures_util::StreamExt as _;
use serde_json::Value;
use toolbridge_core::source::{CallEvent, CallFuture, Dispatcher};
use toolbridge_core::tool::{Caller, RawJson, ToolCall, ToolList, ToolSpec};
use toolbridge_core::trace::{Process, TraceParent, Tracer};
use toolbridge_core::{CallContext, NoArgs, Tool, ToolResult, ToolSource, Toolset};
use toolbridge_nats as nats;

use crate::support::{HostProcess, Log, Server, call, call_of, connect, text, until, within};

#[tokio::test]
async fn arguments_and_results_pass_byte_for_byte() {
    let server = Server::start();
    let _host = HostProcess::start(&server.url(), "shop", "a", &[]);
    let tools = connect(&server, "shop").await;
    let arguments = r#"{"z": 1.50, "a":12345678901234567890123,"a":[ ]}"#;
    let result = call(&tools, "raw", arguments).await.unwrap();
    let want = format!(
        r#"{{"content":[{{"type":"odd","n":1.50,"given":{arguments}}}],"_meta":{{"z":1,"a":12345678901234567890123}}}}"#
    );
    assert_eq!(result.as_str(), want);
    assert_eq!(text(&call(&tools, "echo", r#"{"text":"größe\n\u0000🙂"}"#).await.unwrap()), "größe\n\0🙂");
}

#[tokio::test]
async fn the_list_is_what_the_host_has() {
    let server = Server::start();
    let tool = Tool::new("a", "größe", async |_: NoArgs| "")
        .title("A")
        .read_only()
        .output_schema(serde_json::json!({ "type": "object" }))
        .meta("x/y", 7);
    let own = Toolset::builder().with(tool).tool("b", "", async |_: NoArgs| "").build().unwrap();
    let host =
        nats::Host::builder(own.clone(), "shop").at(server.url()).host("gpu.lan").start().await.unwrap();
    let tools = connect(&server, "shop").await;
    let mut want = own.tools().to_vec();
    // The host decides which calls are exclusive.
    for tool in &mut want {
        tool.exclusive = false;
    }
    assert_eq!(tools.tools().to_vec(), want);
    assert_eq!(tools.hosts()[0].name, "gpu.lan");
    host.drain().await;
}

#[tokio::test]
async fn an_error_says_what_the_tool_said() {
    let server = Server::start();
    let _host = HostProcess::start(&server.url(), "shop", "a", &[]);
    let tools = connect(&server, "shop").await;
    let rows = [
        ("fail", "{}", "QuotaError", "two\nlines: größe"),
        ("echo", r#"{"text":5}"#, "ToolArgumentsError", "invalid arguments for tool `echo`: at `/text`"),
        ("ech", "{}", "ToolNotFoundError", "there is no tool `ech`; did you mean `echo`?"),
    ];
    for (tool, arguments, kind, says) in rows {
        let error = call(&tools, tool, arguments).await.unwrap_err();
        assert_eq!(error.type_name(), kind, "{error}");
        assert!(error.to_string().starts_with(says), "{error}");
    }
}

#[tokio::test]
async fn progress_and_the_clients_name_come_through() {
    let server = Server::start();
    let _host = HostProcess::start(&server.url(), "shop", "a", &[]);
    let tools = connect(&server, "shop").await;
    let mut asked = call_of("count", "{}");
    asked.meta.progress_token = Some(RawJson::parse("7").unwrap());
    // Listen to progress as any front does.
    let dispatcher = Dispatcher::new(Arc::new(tools), Tracer::without_file(Process::Server));
    let mut counting = dispatcher.call(asked, None).unwrap();
    let mut reports = Vec::new();
    // The newest report comes through, before the answer.
    loop {
        match within(counting.next()).await {
            CallEvent::Progress(report) => {
                assert_eq!((report.total, report.message.as_deref()), (Some(3.0), Some("größe")));
                reports.push(report.progress.to_string());
            }
            CallEvent::Done(answer) => break assert_eq!(text(&answer.unwrap()), "counted"),
            CallEvent::Question(other) => panic!("{other:?}"),
        }
    }
    assert!(reports.is_sorted() && reports.last().unwrap() == "3", "{reports:?}");
    let mut asked = call_of("client", "{}");
    let mut client = Caller::default();
    client.name = Some("größe".into());
    asked.meta.caller = Some(Arc::new(client));
    asked.meta.tool_use_id = Some("toolu_1".into());
    let answer = within(dispatcher.source().call(asked, CallContext::default())).await.unwrap();
    assert_eq!(text(&answer), r#"Some("größe") Some("toolu_1")"#);
}

/// A source that keeps the progress tokens of calls.
#[derive(Debug, Default)]
struct Tokens(Mutex<Vec<Option<String>>>);

impl ToolSource for Tokens {
    fn tools(&self) -> ToolList {
        ToolList::new(vec![ToolSpec::new("take", "", RawJson::parse(r#"{"type":"object"}"#).unwrap())])
            .unwrap()
    }

    fn call(&self, call: ToolCall, _: CallContext) -> CallFuture<'_> {
        let token = call.meta.progress_token.map(|token| token.to_string());
        self.0.lock().unwrap().push(token);
        Box::pin(async { Ok(ToolResult::text("taken").to_json()) })
    }
}

#[tokio::test]
async fn the_source_of_a_host_gets_the_progress_token_of_the_caller_or_none() {
    let server = Server::start();
    let source = Arc::new(Tokens::default());
    let host = nats::Host::builder(Arc::clone(&source), "shop").at(server.url()).start().await.unwrap();
    let tools = connect(&server, "shop").await;
    let tokens = [Some("7"), Some(r#""größe""#), Some("12345678901234567890123"), None];
    for token in tokens {
        let mut asked = call_of("take", "{}");
        asked.meta.progress_token = token.map(|token| RawJson::parse(token).unwrap());
        within(tools.call(asked, CallContext::default())).await.unwrap();
    }
    let got = std::mem::take(&mut *source.0.lock().unwrap());
    let got: Vec<_> =
        got.iter().map(|token| token.as_deref().map(|token| token.parse::<Value>().unwrap())).collect();
    assert_eq!(got, tokens.map(|token| token.map(|token| token.parse::<Value>().unwrap())));
    host.drain().await;
}

#[tokio::test]
async fn no_message_of_a_client_disconnects_a_host() {
    let server = Server::start();
    let _host = HostProcess::start(&server.url(), "shop", "a", &[]);
    let client = async_nats::connect(server.url()).await.unwrap();
    let who = br#"{"content":[{"type":"text","text":"a"}],"isError":false}"#;
    // The server refuses longer lines than 4,096 bytes. This is the longest reply subject that it takes from a client:
    // the host's line is shorter.
    let inbox = "a".repeat(4096 - "PUB toolbridge.shop.call.who  0\r\n".len());
    let mut answers = client.subscribe(inbox.clone()).await.unwrap();
    client.publish_with_reply("toolbridge.shop.call.who", inbox, "".into()).await.unwrap();
    assert_eq!(&within(answers.next()).await.unwrap().payload[..], who);
    for (kind, payload) in
        [("cancel", "two words"), ("cancel", "\u{0}"), ("beat", ""), ("unknown", "{}"), ("", "{}")]
    {
        for subject in ["toolbridge.shop.call.who", "toolbridge.shop.at.a.who", "toolbridge.shop.hosts"] {
            let mut headers = async_nats::HeaderMap::new();
            headers.insert("Toolbridge", kind);
            headers.insert("Toolbridge-Meta", "nonsense");
            client.publish_with_headers(subject, headers, payload.into()).await.unwrap();
        }
    }
    let answer = client.request("toolbridge.shop.call.who", "".into()).await.unwrap();
    assert_eq!(&answer.payload[..], who);
    let log = std::fs::read_to_string(server.folder.path().join("log")).unwrap();
    assert!(!log.contains("maximum control line") && !log.contains("Parser ERROR"), "{log}");
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_at_its_host() {
    let server = Server::start();
    let log = Log::new(&server);
    let _host = HostProcess::start(&server.url(), "shop", "a", &["--log", log.path()]);
    let tools = connect(&server, "shop").await;
    let nap = tools.call(call_of("nap", r#"{"id":"1","ms":100000}"#), CallContext::default());
    tokio::select! {
        answer = nap => panic!("{answer:?}"),
        () = until(|| log.lines().iter().any(|line| line == "begin nap 1 a")) => {}
    }
    until(|| log.lines().iter().any(|line| line == "cancelled 1 a")).await;
}

#[tokio::test]
async fn what_does_not_fit_into_a_message_is_an_error_that_names_the_limit() {
    let server = Server::with("max_payload: 65536\n");
    let _host = HostProcess::start(&server.url(), "shop", "a", &[]);
    let tools = connect(&server, "shop").await;
    // Around the limit, a call succeeds or fails, but always ends.
    for bytes in [60_000, 65_400, 65_480, 65_500, 65_536, 70_000, 1_000_000] {
        let blob = call(&tools, "blob", &format!(r#"{{"bytes":{bytes}}}"#)).await;
        let size = call(&tools, "size", &format!(r#"{{"text":"{}"}}"#, "y".repeat(bytes))).await;
        for (result, what) in [(&blob, "result of tool `blob`"), (&size, "arguments of tool `size`")] {
            match result {
                Ok(_) => assert!(bytes < 65_536, "{bytes}"),
                Err(error) => {
                    let text = error.to_string();
                    assert_eq!(error.type_name(), "NatsMessageSizeError");
                    assert!(
                        bytes > 65_000 && text.contains(what) && text.contains("limit is 65536 bytes"),
                        "{text}"
                    );
                    assert!(text.contains("max_payload") && text.contains("`--park`"), "{text}");
                }
            }
        }
    }
}

#[tokio::test]
async fn any_client_of_nats_can_call() {
    let server = Server::start();
    let _host = HostProcess::start(&server.url(), "shop", "a", &["--max", "1"]);
    let client = async_nats::connect(server.url()).await.unwrap();
    let answer = client.request("toolbridge.shop.call.echo", r#"{"text":"hi"}"#.into()).await.unwrap();
    assert_eq!(&answer.payload[..], br#"{"content":[{"type":"text","text":"hi"}],"isError":false}"#);
    let answer = client.request("toolbridge.shop.call.who", "".into()).await.unwrap();
    assert_eq!(&answer.payload[..], br#"{"content":[{"type":"text","text":"a"}],"isError":false}"#);
    let answer = client.request("toolbridge.shop.at.a.echo", "nonsense".into()).await.unwrap();
    let headers = answer.headers.unwrap();
    assert_eq!(headers.get("Nats-Service-Error-Code").unwrap().as_str(), "500");
    // One after the other: the host runs one call at a time, and plain clients do not try another host.
    let asked = (0..8).map(|_| client.request("toolbridge.shop.call.nap", r#"{"id":"1","ms":5}"#.into()));
    for answer in futures_util::future::join_all(asked).await {
        assert_eq!(
            &answer.unwrap().payload[..],
            br#"{"content":[{"type":"text","text":"1 a"}],"isError":false}"#
        );
    }
    // The statistics of the services API.
    let stats = client.request("$SRV.STATS.shop", "".into()).await.unwrap();
    let stats: Value = serde_json::from_slice(&stats.payload).unwrap();
    let nap = stats["endpoints"].as_array().unwrap().iter().find(|one| one["name"] == "nap").unwrap();
    assert_eq!((&nap["num_requests"], &nap["subject"]), (&8.into(), &"toolbridge.shop.call.nap".into()));
}

#[tokio::test]
async fn plain_clients_that_wait_for_their_turn_leave_room_for_others() {
    let server = Server::start();
    let _host = HostProcess::start(&server.url(), "shop", "a", &["--max", "2"]);
    let client = async_nats::connect(server.url()).await.unwrap();
    for _ in 0..4 {
        let turn = client.publish_with_reply(
            "toolbridge.shop.call.turn",
            "answers",
            r#"{"id":"1","ms":600000}"#.into(),
        );
        turn.await.unwrap();
    }
    // When this is answered, the host has the calls before it.
    client.request("toolbridge.shop.call.who", "".into()).await.unwrap();
    let tools = connect(&server, "shop").await;
    assert_eq!(text(&call(&tools, "who", "{}").await.unwrap()), "a");
}

#[tokio::test]
async fn calls_without_an_inbox_count() {
    let server = Server::start();
    let _host = HostProcess::start(&server.url(), "shop", "a", &["--max", "2"]);
    let client = async_nats::connect(server.url()).await.unwrap();
    let full = async {
        loop {
            // They wait for each other, up to the limit of plain calls.
            let turn = client.publish("toolbridge.shop.call.turn", r#"{"id":"1","ms":600000}"#.into());
            turn.await.unwrap();
            let answer = client.request("toolbridge.shop.call.who", "".into()).await.unwrap();
            if answer.headers.is_some_and(|headers| headers.get("Nats-Service-Error").is_some()) {
                break;
            }
        }
    };
    within(full).await;
}

#[tokio::test]
async fn a_trace_goes_on_at_the_host_and_both_sides_name_it() {
    use tracing_subscriber::layer::SubscriberExt as _;

    #[derive(Clone, Default)]
    struct Seen(Arc<Mutex<Vec<String>>>);
    impl std::io::Write for Seen {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().push(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let seen = Seen::default();
    let writer = seen.clone();
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_span_events(tracing_subscriber::fmt::format::FmtSpan::CLOSE)
        .with_writer(move || writer.clone());
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
    let server = Server::start();
    let own = Toolset::builder().tool("hello", "", async |_: NoArgs| "hello").build().unwrap();
    let host = nats::Host::builder(own, "shop").at(server.url()).host("host-7").start().await.unwrap();
    let tools = connect(&server, "shop").await;
    let dispatcher = Dispatcher::new(Arc::new(tools), Tracer::without_file(Process::Bridge));
    let mut asked = call_of("hello", "{}");
    let parent = TraceParent::child(None);
    asked.meta.traceparent = Some(parent);
    let mut run = dispatcher.call(asked, None).unwrap();
    assert!(matches!(within(run.next()).await, CallEvent::Done(Ok(_))));
    run.written();
    host.drain().await;
    let closed: Vec<_> =
        seen.0.lock().unwrap().iter().filter(|line| line.contains("tool_call{")).cloned().collect();
    let at = |process: &str| {
        closed.iter().find(|line| line.contains(process)).unwrap_or_else(|| panic!("{closed:?}"))
    };
    let trace_id = format!("{:032x}", parent.trace_id);
    let (caller, host) = (at(r#"process="bridge""#), at(r#"process="server""#));
    for side in [caller, host] {
        assert!(side.contains(&trace_id) && side.contains(r#"host="host-7""#), "{side}");
    }
    let span_id = &caller.split(r#" span_id=""#).nth(1).unwrap()[..16];
    assert!(host.contains(&format!(r#"parent_span_id="{span_id}""#)), "{host}");
}
