use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Notify;
use toolbridge_core::call::CancellationToken;
use toolbridge_core::source::{CallEvent, Changes, Combined, Dispatcher, Selection};
use toolbridge_core::tool::{RawJson, ToolCall, ToolList};
use toolbridge_core::toolset::{IntoToolError, IntoToolResult, Json};
use toolbridge_core::trace::{Process, Tracer};
use toolbridge_core::{CallContext, NoArgs, Tool, ToolError, ToolResult, ToolSource, Toolset};

#[derive(Deserialize, JsonSchema)]
struct Add {
    a: f64,
    b: f64,
}

#[derive(Serialize, JsonSchema)]
struct Sum {
    sum: f64,
}

#[derive(Debug)]
struct QuotaError;

impl std::fmt::Display for QuotaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the quota is used up")
    }
}

impl std::error::Error for QuotaError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        static CAUSE: std::sync::LazyLock<std::io::Error> =
            std::sync::LazyLock::new(|| std::io::Error::other("disk full"));
        Some(&*CAUSE)
    }
}

/// serde can write it, but it has its own conversion.
#[derive(Serialize)]
struct Celsius(f64);

impl IntoToolResult for Celsius {
    fn into_tool_result(self) -> Result<ToolResult, ToolError> {
        format!("{} °C", self.0).into_tool_result()
    }
}

struct Refusal;

impl IntoToolError for Refusal {
    fn into_tool_error(self) -> ToolError {
        ToolError::new("ShopClosed", "closed")
    }
}

/// An error that serde can write.
#[derive(Debug, Serialize)]
struct Written;

impl std::fmt::Display for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("written")
    }
}

impl std::error::Error for Written {}

/// Not a `Result`, though it has its name and its variants.
mod other {
    #[derive(serde::Serialize)]
    pub(crate) enum Result {
        Err(&'static str),
    }
}

fn text(text: &str) -> String {
    format!(r#"{{"content":[{{"type":"text","text":{}}}],"isError":false}}"#, json!(text))
}

/// Calls the only tool of a set; the error is written as `Type: message`.
async fn call_one(tool: Tool, arguments: &str) -> Result<String, String> {
    let tools = Toolset::builder().with(tool).build().unwrap();
    call(&tools, arguments).await
}

async fn call(tools: &Toolset, arguments: &str) -> Result<String, String> {
    let name = tools.names().remove(0);
    let call = ToolCall::new(name, RawJson::parse(arguments.to_owned()).unwrap());
    match tools.call(call, CallContext::default()).await {
        Ok(result) => Ok(result.as_str().to_owned()),
        Err(error) => Err(format!("{}: {error}", error.type_name())),
    }
}

#[tokio::test]
async fn every_shape_of_closure_and_return_value_works() {
    let add = r#"{"a":1,"b":2}"#;
    let rows = [
        (Tool::new("t", "", |args: Add| args.a + args.b), add, Ok(text("3.0"))),
        (Tool::new("t", "", async |args: Add| args.a + args.b), add, Ok(text("3.0"))),
        (Tool::new("t", "", |args: Add, _: CallContext| args.a), add, Ok(text("1.0"))),
        (Tool::new("t", "", async |args: Add, _: CallContext| args.b), add, Ok(text("2.0"))),
        (Tool::new("t", "", |_: NoArgs| "plain"), "{}", Ok(text("plain"))),
        (Tool::new("t", "", |_: NoArgs| String::from("a\n\"é\"")), "{}", Ok(text("a\n\"é\""))),
        (Tool::new("t", "", |_: NoArgs| Json(Sum { sum: 1.5 })), "{}", Ok(text(r#"{"sum":1.5}"#))),
        (Tool::new("t", "", |_: NoArgs| vec!["a", "b"]), "{}", Ok(text(r#"["a","b"]"#))),
        (Tool::new("t", "", |_: NoArgs| ()), "{}", Ok(text("null"))),
        (Tool::new("t", "", |_: NoArgs| Celsius(1.5)), "{}", Ok(text("1.5 °C"))),
        (Tool::new("t", "", async |_: NoArgs| Ok::<_, Refusal>(Celsius(1.5))), "{}", Ok(text("1.5 °C"))),
        (Tool::new("t", "", |_: NoArgs| Err::<Celsius, _>(Refusal)), "{}", Err("ShopClosed: closed")),
        (Tool::new("t", "", |_: NoArgs| Err::<u8, _>(Written)), "{}", Err("Written: written")),
        (Tool::new("t", "", |_: NoArgs| Json(other::Result::Err("x"))), "{}", Ok(text(r#"{"Err":"x"}"#))),
        (Tool::new("t", "", |_: NoArgs| ToolResult::text("full")), "{}", Ok(text("full"))),
        (Tool::new("t", "", |_: NoArgs| Ok::<_, QuotaError>("fine")), "{}", Ok(text("fine"))),
        (Tool::new("t", "", |_: NoArgs| Ok::<_, QuotaError>(ToolResult::text("fine"))), "{}", Ok(text("fine"))),
        (
            Tool::new("t", "", |_: NoArgs| Err::<String, _>(QuotaError)),
            "{}",
            Err("QuotaError: the quota is used up: disk full"),
        ),
        (
            Tool::new("t", "", async |_: NoArgs| Err::<ToolResult, _>(QuotaError)),
            "{}",
            Err("QuotaError: the quota is used up: disk full"),
        ),
        (Tool::new("t", "", |_: NoArgs| Ok::<_, String>("fine")), "{}", Ok(text("fine"))),
        (Tool::new("t", "", |_: NoArgs| Err::<u8, _>(String::from("no"))), "{}", Err("Error: no")),
        (Tool::new("t", "", |_: NoArgs| Err::<u8, _>(anyhow::anyhow!("no"))), "{}", Err("Error: no")),
        (Tool::new("t", "", |_: NoArgs| Ok::<_, String>(ToolResult::text("fine"))), "{}", Ok(text("fine"))),
        (Tool::new("t", "", |_: NoArgs| Err::<ToolResult, _>(String::from("no"))), "{}", Err("Error: no")),
        (Tool::new("t", "", async |_: NoArgs| Err::<ToolResult, _>("no")), "{}", Err("Error: no")),
        (
            Tool::new("t", "", |_: NoArgs| -> Result<u8, Box<dyn std::error::Error + Send + Sync>> {
                Ok("x".parse()?)
            }),
            "{}",
            Err("Error: invalid digit found in string"),
        ),
        (
            Tool::new("t", "", |_: NoArgs| Err::<u8, _>(ToolError::new("PaymentRequired", "pay first"))),
            "{}",
            Err("PaymentRequired: pay first"),
        ),
        (
            Tool::raw("t", "", json!({"type": "object"}), |raw: RawJson| raw.as_str().to_owned()),
            r#"{ "n": 12345678901234567890123, "n": 1.0 }"#,
            Ok(text(r#"{ "n": 12345678901234567890123, "n": 1.0 }"#)),
        ),
        (
            Tool::raw("t", "", json!({"type": "object"}), async |args: serde_json::Value| args["x"].clone()),
            r#"{"x":[1]}"#,
            Ok(text("[1]")),
        ),
        (
            Tool::new("t", "", |_: NoArgs| Json(Sum { sum: 2.0 })).output::<Sum>(),
            "{}",
            Ok(r#"{"content":[{"type":"text","text":"{\"sum\":2.0}"}],"structuredContent":{"sum":2.0},"isError":false}"#
                .to_owned()),
        ),
        (
            Tool::new("t", "", |_: NoArgs| "text").output::<Sum>(),
            "{}",
            Err("ToolOutputError: tool `t` returned an unusable result: it has an output schema, so it must return an object"),
        ),
        (
            Tool::new("t", "", |_: NoArgs| json!({"sum": "x"})).output::<Sum>(),
            "{}",
            Err("ToolOutputError: tool `t` returned an unusable result: at `/sum`: want number, but got string"),
        ),
        (
            Tool::new("t", "", |_: NoArgs| std::collections::HashMap::from([((1, 2), 3)])),
            "{}",
            Err("ToolOutputError: the result is not JSON: key must be a string"),
        ),
        (Tool::new("t", "", |_: NoArgs| -> u8 { panic!("oh {}", 1) }), "{}", Err("ToolPanicError: tool `t` panicked: oh 1")),
        (
            Tool::new("t", "", async |_: NoArgs| -> u8 { panic!("oh") }),
            "{}",
            Err("ToolPanicError: tool `t` panicked: oh"),
        ),
    ];
    for (row, (tool, arguments, want)) in rows.into_iter().enumerate() {
        assert_eq!(call_one(tool, arguments).await, want.map_err(str::to_owned), "row {row}");
    }
}

#[tokio::test]
async fn wrong_arguments_are_refused_with_their_place() {
    #[derive(Deserialize, JsonSchema)]
    struct Order {
        name: String,
        lines: Vec<Line>,
        #[serde(default)]
        labels: BTreeMap<String, std::net::Ipv4Addr>,
    }
    #[derive(Deserialize, JsonSchema)]
    struct Line {
        count: u8,
    }
    let tools = Toolset::builder()
        .tool("t", "", async |args: Order| {
            let count = args.lines.iter().map(|line| line.count).sum::<u8>();
            format!("{}{count} {}", args.name, args.labels.len())
        })
        .build()
        .unwrap();
    let rows = [
        (r#"{"name":"ab","lines":[{"count":3}]}"#, Ok("ab3 0")),
        (
            r#"{"name":"ab","lines":[{"count":1},{"count":300}]}"#,
            Err("at `/lines/1/count`: invalid value: integer, expected u8"),
        ),
        (
            r#"{"name":"ab","lines":[{"count":"x"}]}"#,
            Err("at `/lines/0/count`: invalid type: string, expected u8"),
        ),
        (r#"{"lines":[]}"#, Err("at `/`: missing field `name`")),
        (
            r#"{"name":"ab","lines":[],"labels":{"a/b~c":"x"}}"#,
            Err("at `/labels/a~1b~0c`: invalid IPv4 address syntax"),
        ),
        ("[]", Err("at `/`: arguments must be a JSON object")),
    ];
    for (arguments, want) in rows {
        match (call(&tools, arguments).await, want) {
            (Ok(got), Ok(want)) => assert_eq!(got, text(want), "{arguments}"),
            (Err(got), Err(want)) => {
                let want = format!("ToolArgumentsError: invalid arguments for tool `t`: {want}");
                assert!(got.starts_with(&want), "{arguments}: {got}");
            }
            (got, want) => panic!("{arguments}: {got:?}, not {want:?}"),
        }
    }
}

fn from_text<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        Number(u8),
        Text(String),
    }
    match Either::deserialize(deserializer)? {
        Either::Number(number) => Ok(number),
        Either::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}

#[tokio::test]
async fn a_handlers_type_decides_what_it_takes() {
    #[derive(Deserialize, JsonSchema, Serialize)]
    #[serde(deny_unknown_fields)]
    struct Order {
        #[serde(alias = "amount")]
        count: u8,
        #[serde(deserialize_with = "from_text", default)]
        number: u8,
        #[serde(default)]
        unit: Unit,
        #[serde(default, alias = "parts")]
        lines: Vec<Line>,
        shape: Option<Shape>,
    }
    #[derive(Deserialize, JsonSchema, Serialize)]
    struct Line {
        #[serde(alias = "n", deserialize_with = "from_text")]
        number: u8,
    }
    #[derive(Deserialize, JsonSchema, Serialize, Default)]
    #[serde(rename_all = "lowercase")]
    enum Unit {
        #[default]
        #[serde(alias = "meter")]
        Metre,
        Foot,
    }
    #[derive(Deserialize, JsonSchema, Serialize)]
    #[serde(tag = "kind", rename_all = "lowercase")]
    enum Shape {
        #[serde(alias = "round")]
        Circle {
            #[serde(alias = "r")]
            radius: u8,
        },
        Square {
            side: u8,
        },
    }
    let tools = Toolset::builder()
        .tool("t", "", async |order: Order| {
            let lines = order.lines.iter().map(|line| line.number).sum::<u8>();
            let (unit, shape) = (json!(order.unit), json!(order.shape));
            format!("{} {} {lines} {unit} {shape}", order.count, order.number)
        })
        .build()
        .unwrap();
    let rows = [
        // Accepted by serde, though the schema does not mention it.
        (r#"{"amount":1}"#, Ok(r#"1 0 0 "metre" null"#)),
        (r#"{"count":1,"number":"5"}"#, Ok(r#"1 5 0 "metre" null"#)),
        (r#"{"count":1.0,"number":2e0}"#, Ok(r#"1 2 0 "metre" null"#)),
        (r#"{"count":1,"unit":"meter"}"#, Ok(r#"1 0 0 "metre" null"#)),
        (r#"{"count":1,"parts":[{"n":1.0},{"number":"2"}]}"#, Ok(r#"1 0 3 "metre" null"#)),
        (
            r#"{"count":1,"shape":{"kind":"circle","r":1}}"#,
            Ok(r#"1 0 0 "metre" {"kind":"circle","radius":1}"#),
        ),
        (
            r#"{"count":1,"shape":{"kind":"round","radius":1}}"#,
            Ok(r#"1 0 0 "metre" {"kind":"circle","radius":1}"#),
        ),
        (r#"{"cuont":1}"#, Err("at `/cuont`: unknown field `cuont`, expected one of `amount`, `count`, ")),
        (r#"{"amount":1,"number":"x"}"#, Err("at `/number`: invalid digit found in string")),
        (r#"{"count":"1"}"#, Err("at `/count`: invalid type: string, expected u8")),
        (r#"{"count":1.5}"#, Err("at `/count`: invalid type: floating point, expected u8")),
        (
            r#"{"count":1,"shape":{"kind":"SECRET"}}"#,
            Err("at `/shape/kind`: unknown variant, expected one of `circle`, `round`, `square`"),
        ),
        (r#"{"count":1,"shape":{"kind":"circle"}}"#, Err("at `/shape`: missing field `radius`")),
    ];
    for (arguments, want) in rows {
        match (call(&tools, arguments).await, want) {
            (Ok(got), Ok(want)) => assert_eq!(got, text(want), "{arguments}"),
            (Err(got), Err(want)) => {
                let want = format!("ToolArgumentsError: invalid arguments for tool `t`: {want}");
                assert!(got.starts_with(&want), "{arguments}: {got}");
            }
            (got, want) => panic!("{arguments}: {got:?}, not {want:?}"),
        }
    }
}

#[tokio::test]
async fn a_schema_says_more_than_a_type_that_takes_anything() {
    #[derive(Deserialize)]
    struct Loose {
        #[serde(rename = "a")]
        _a: Option<serde_json::Value>,
        #[serde(rename = "b")]
        _b: Option<String>,
    }
    let schema = || {
        json!({
            "type": "object",
            "properties": { "a": { "type": "integer" }, "b": { "enum": ["x", "y"] } },
            "required": ["a"],
            "additionalProperties": false,
        })
    };
    let raw = Toolset::builder().with(Tool::raw("t", "", schema(), |_: RawJson| "")).build().unwrap();
    let value =
        Toolset::builder().with(Tool::raw("t", "", schema(), |_: serde_json::Value| "")).build().unwrap();
    let loose = Toolset::builder().with(Tool::raw("t", "", schema(), |_: Loose| "")).build().unwrap();
    let rows = [
        (r#"{"a":"x"}"#, "at `/a`: want integer, but got string"),
        (r#"{"a":1,"b":"z"}"#, "at `/b`: value must be one of 'x', 'y'"),
        (r#"{"a":1,"c":2}"#, "at `/`: additionalProperties 'c' not allowed"),
        (r#"{"b":"x"}"#, "at `/`: missing properties 'a'"),
    ];
    for tools in [&raw, &value, &loose] {
        assert_eq!(call(tools, r#"{"a":1,"b":"x"}"#).await, Ok(text("")));
        for (arguments, want) in rows {
            let want = format!("ToolArgumentsError: invalid arguments for tool `t`: {want}");
            assert_eq!(call(tools, arguments).await, Err(want), "{arguments}");
        }
    }
}

#[tokio::test]
async fn what_serde_says_of_a_value_does_not_repeat_it() {
    #[derive(Deserialize)]
    struct Args {
        #[serde(rename = "number")]
        _number: Option<u8>,
        #[serde(rename = "unit")]
        _unit: Option<Unit>,
    }
    #[derive(Deserialize)]
    enum Unit {
        Metre,
        Foot,
    }
    let schema = json!({ "type": "object" });
    let tools = Toolset::builder().with(Tool::raw("t", "", schema, |_: Args| "")).build().unwrap();
    let rows = [
        (r#"{"number":"SECRET, expected `x`"}"#, "at `/number`: invalid type: string, expected u8"),
        (r#"{"number":7777777}"#, "at `/number`: invalid value: integer, expected u8"),
        (r#"{"unit":"SECRET"}"#, "at `/unit`: unknown variant, expected `Metre` or `Foot`"),
    ];
    for (arguments, want) in rows {
        let want = format!("ToolArgumentsError: invalid arguments for tool `t`: {want}");
        assert_eq!(call(&tools, arguments).await, Err(want), "{arguments}");
    }
}

#[tokio::test]
async fn a_wrong_argument_deep_in_a_choice_of_itself_is_found_at_once() {
    #[derive(Deserialize, JsonSchema)]
    #[serde(tag = "kind", rename_all = "lowercase")]
    enum Expression {
        Negative {
            of: Box<Expression>,
        },
        Absolute {
            of: Box<Expression>,
        },
        Number {
            #[serde(rename = "value")]
            _value: f64,
        },
    }
    #[derive(Deserialize, JsonSchema)]
    struct Args {
        expression: Expression,
    }
    fn depth(expression: &Expression) -> usize {
        match expression {
            Expression::Negative { of } | Expression::Absolute { of } => 1 + depth(of),
            Expression::Number { .. } => 0,
        }
    }
    let tools = Toolset::builder().tool("t", "", async |args: Args| depth(&args.expression)).build().unwrap();
    let nested = |levels: usize, value: serde_json::Value| {
        let number = json!({ "kind": "number", "value": value });
        let nested = (0..levels).fold(number, |of, _| json!({ "kind": "negative", "of": of }));
        json!({ "expression": nested }).to_string()
    };
    let want = "ToolArgumentsError: invalid arguments for tool `t`: at `/expression";
    assert_eq!(call(&tools, &nested(40, json!(1))).await, Ok(text("40")));
    let deep = call(&tools, &nested(40, json!("SECRET"))).await.unwrap_err();
    assert!(deep.starts_with(want) && deep.ends_with("invalid type: string, expected f64"), "{deep}");
}

#[tokio::test]
async fn hints_are_not_for_the_model() {
    let fails = |_: NoArgs| Toolset::builder().tool("", "", |_: NoArgs| "").build().map(|_| "");
    let got = call_one(Tool::new("t", "", fails), "{}").await;
    assert_eq!(got, Err("RegistrationError: a tool has an empty name".into()));
}

#[tokio::test]
async fn a_deep_argument_is_an_error_and_no_stack_overflow() {
    let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let got = call_one(Tool::new("t", "", async |args: Add| args.a), &deep).await.unwrap_err();
    assert!(got.starts_with("ToolArgumentsError: "), "{got}");
}

#[tokio::test]
async fn an_error_message_does_not_repeat_a_big_argument() {
    let big = format!(r#"{{"a":"{}","b":1}}"#, "x".repeat(1_000_000));
    let got = call_one(Tool::new("t", "", async |args: Add| args.a), &big).await.unwrap_err();
    assert!(got.len() < 300, "{} bytes", got.len());
}

#[tokio::test]
async fn an_unknown_tool_is_an_error_that_names_the_nearest_ones() {
    let tool = |name: &str| Tool::new(name, "", |_: NoArgs| "");
    let tools = ["add", "echo", "and", "odd"]
        .iter()
        .fold(Toolset::builder(), |tools, name| tools.with(tool(name)))
        .build()
        .unwrap();
    let some = Selection::new(tools.clone(), ["add", "echo"]).unwrap();
    let all = Combined::new().with(tools.clone()).unwrap();
    let sources: [&dyn ToolSource; 3] = [&tools, &some, &all];
    let rows = [
        ("nothing", ["there is no tool `nothing`"; 3]),
        ("ech", ["there is no tool `ech`; did you mean `echo`?"; 3]),
        (
            "ad",
            [
                "there is no tool `ad`; did you mean `add` or `and`?",
                "there is no tool `ad`; did you mean `add`?",
                "there is no tool `ad`; did you mean `add` or `and`?",
            ],
        ),
    ];
    for (name, want) in rows {
        for (source, want) in sources.iter().zip(want) {
            let call = ToolCall::new(name, RawJson::empty_object());
            let error = source.call(call, CallContext::default()).await.unwrap_err();
            assert_eq!((error.type_name(), error.to_string().as_str()), ("ToolNotFoundError", want));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_ends_handlers_that_wait_and_handlers_that_block() {
    let limit = Duration::from_millis(50);
    let (free, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let blocks = move || _ = released.lock().unwrap().recv_timeout(Duration::from_secs(120));
    let blocks = Arc::new(blocks);
    let blocks_too = Arc::clone(&blocks);
    let want = Err("ToolTimeoutError: tool `t` timed out after 50 ms".to_owned());

    assert_eq!(
        call_one(Tool::new("t", "", async |_: NoArgs| pending::<u8>().await).timeout(limit), "{}").await,
        want
    );
    assert_eq!(call_one(Tool::new("t", "", move |_: NoArgs| blocks()).timeout(limit), "{}").await, want);
    let in_async = move |_: NoArgs| {
        let blocks = Arc::clone(&blocks_too);
        async move { blocks() }
    };
    assert_eq!(call_one(Tool::new("t", "", in_async).timeout(limit), "{}").await, want);
    drop(free);
}

#[tokio::test]
async fn a_dropped_call_cancels_its_handler() {
    let seen = Arc::new(Notify::new());
    let tell = Arc::clone(&seen);
    let tools = Toolset::builder()
        .tool("t", "", move |_: NoArgs, context: CallContext| {
            let tell = Arc::clone(&tell);
            // Blocks its thread, so it has to poll.
            tell.notify_one();
            while !context.is_cancelled() {
                std::thread::yield_now();
            }
            tell.notify_one();
        })
        .build()
        .unwrap();
    let task = tokio::spawn(async move {
        tools.call(ToolCall::new("t", RawJson::empty_object()), CallContext::default()).await
    });
    seen.notified().await;
    task.abort();
    tokio::time::timeout(Duration::from_secs(120), seen.notified()).await.unwrap();
}

#[tokio::test]
async fn state_and_tool_use_id_reach_the_handler() {
    let tools = Toolset::builder()
        .state(AtomicUsize::new(5))
        .tool("t", "", async |_: NoArgs, context: CallContext| {
            let count = context.state::<AtomicUsize>().fetch_add(1, Ordering::Relaxed);
            format!(
                "{count} {} {}",
                context.tool_use_id().unwrap_or("-"),
                context.try_state::<u8>().is_some()
            )
        })
        .build()
        .unwrap();
    let mut call = ToolCall::new("t", RawJson::empty_object());
    call.meta.tool_use_id = Some("toolu_1".into());
    let got = tools.call(call.clone(), CallContext::default()).await.unwrap();
    assert_eq!(got.as_str(), text("5 toolu_1 false"));
    call.meta.tool_use_id = None;
    let got = tools.filter(["t"]).unwrap().call(call, CallContext::default()).await.unwrap();
    assert_eq!(got.as_str(), text("6 - false"));
}

#[tokio::test]
async fn missing_state_is_an_answer_that_says_what_to_do() {
    let got =
        call_one(Tool::new("t", "", |_: NoArgs, c: CallContext| *c.state::<u8>()), "{}").await.unwrap_err();
    assert_eq!(
        got,
        "ToolPanicError: tool `t` panicked: there is no state of type `u8`: add it with `ToolsetBuilder::state`, or to the request"
    );
}

#[tokio::test]
async fn progress_comes_before_the_result_and_in_order() {
    let tools = Toolset::builder()
        .tool("t", "", async |_: NoArgs, context: CallContext| {
            for step in 1..=3 {
                context.progress(f64::from(step), Some(3.0), Some("step"));
                tokio::task::yield_now().await;
            }
        })
        .build()
        .unwrap();
    let mut context = CallContext::new(CancellationToken::new());
    let reports = context.listen(true, false);
    let mut seen = Vec::new();
    let call = tools.call(ToolCall::new("t", RawJson::empty_object()), context);
    let mut call = reports.follow(call);
    let result = loop {
        match call.next().await {
            CallEvent::Progress(report) => seen.push(serde_json::to_string(&report).unwrap()),
            CallEvent::Question(asked) => panic!("nobody can answer {asked:?}"),
            CallEvent::Done(result) => break result,
        }
    };
    assert!(result.is_ok());
    let want = [1, 2, 3].map(|step| format!(r#"{{"progress":{step},"total":3,"message":"step"}}"#));
    assert_eq!(seen, want);
}

#[tokio::test]
async fn exclusive_calls_take_turns_and_read_only_or_parallel_ones_do_not() {
    type OfKind = fn(Tool) -> Tool;
    #[derive(Default)]
    struct Overlap {
        now: AtomicUsize,
        most: AtomicUsize,
    }
    async fn busy(context: CallContext) {
        let overlap = context.state::<Overlap>();
        let now = overlap.now.fetch_add(1, Ordering::SeqCst) + 1;
        overlap.most.fetch_max(now, Ordering::SeqCst);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        overlap.now.fetch_sub(1, Ordering::SeqCst);
    }
    let kinds: [(OfKind, usize, bool); 3] =
        [(|tool| tool, 1, false), (Tool::read_only, 8, true), (Tool::parallel, 8, false)];
    for (of_kind, most, reads) in kinds {
        let tool = Tool::new("t", "", async |_: NoArgs, context: CallContext| {
            busy(context.clone()).await;
            context.state::<Overlap>().most.load(Ordering::SeqCst)
        });
        let tool = of_kind(tool);
        let tools = Toolset::builder().state(Overlap::default()).with(tool).build().unwrap();
        // Only what reads alone says so: in the CLI's plan mode such a tool may run.
        let listed = serde_json::to_value(tools.tools().get("t").unwrap()).unwrap();
        assert_eq!(listed["annotations"]["readOnlyHint"] == true, reads, "{listed}");
        let tools = dispatcher(tools);
        let calls = (0..8).map(|_| {
            let tools = tools.clone();
            tokio::spawn(async move { dispatched(&tools, "t").await })
        });
        let mut last = RawJson::empty_object();
        for call in calls.collect::<Vec<_>>() {
            last = call.await.unwrap().unwrap();
        }
        assert_eq!(last.as_str(), text(&most.to_string()));
    }
}

#[tokio::test]
async fn a_source_that_panics_does_not_take_its_front_down() {
    struct Broken(ToolList);
    impl ToolSource for Broken {
        fn tools(&self) -> ToolList {
            self.0.clone()
        }
        fn call(&self, _: ToolCall, _: CallContext) -> toolbridge_core::source::CallFuture<'_> {
            panic!("broken")
        }
    }
    let list = Toolset::builder().with(named("t")).build().unwrap().tools();
    let error = dispatched(&dispatcher(Broken(list)), "t").await.unwrap_err();
    assert_eq!(
        (error.type_name(), error.to_string().as_str()),
        ("ToolPanicError", "tool `t` panicked: broken")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_goes_on_after_its_call_ended_keeps_the_turn() {
    #[derive(Default)]
    struct Overlap {
        now: AtomicUsize,
        most: AtomicUsize,
    }
    let overlap = Arc::new(Overlap::default());
    let enter = |overlap: &Overlap, context: &CallContext| {
        let now = overlap.now.fetch_add(1, Ordering::SeqCst) + 1;
        overlap.most.fetch_max(now, Ordering::SeqCst);
        // Continues after its call has ended.
        while !context.is_cancelled() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(60));
        overlap.now.fetch_sub(1, Ordering::SeqCst);
    };
    let in_thread = {
        let overlap = Arc::clone(&overlap);
        move |_: NoArgs, context: CallContext| enter(&overlap, &context)
    };
    let in_async = {
        let overlap = Arc::clone(&overlap);
        move |_: NoArgs, context: CallContext| {
            let overlap = Arc::clone(&overlap);
            async move { enter(&overlap, &context) }
        }
    };
    let tools = Toolset::builder()
        .with(Tool::new("thread", "", in_thread).timeout(Duration::from_millis(5)))
        .with(Tool::new("async", "", in_async).timeout(Duration::from_millis(5)))
        .build()
        .unwrap();
    let tools = dispatcher(tools);
    for tool in ["thread", "async", "thread", "async"] {
        let error = dispatched(&tools, tool).await.unwrap_err();
        // `ToolBusyError` if the previous handler ends late on a busy machine.
        assert!(["ToolTimeoutError", "ToolBusyError"].contains(&error.type_name()), "{error}");
    }
    assert_eq!(overlap.most.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_a_source_returns_is_checked_whatever_the_source() {
    struct Odd(ToolList, String);
    impl ToolSource for Odd {
        fn tools(&self) -> ToolList {
            self.0.clone()
        }
        fn call(&self, _: ToolCall, _: CallContext) -> toolbridge_core::source::CallFuture<'_> {
            Box::pin(async { Ok(RawJson::parse(self.1.clone()).unwrap()) })
        }
    }
    let deep = |levels| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let with =
        |member: &str, levels| format!(r#"{{"content":[{{"type":"new"}}],"{member}":{}}}"#, deep(levels));
    let rows = [
        ("[1]".to_owned(), Some("it is not an object")),
        ("null".into(), Some("it is not an object")),
        ("{}".into(), Some("it has no `content`")),
        (r#"{"content":null}"#.into(), Some("its `content` is not a list")),
        (r#"{"content":"text"}"#.into(), Some("its `content` is not a list")),
        (r#"{"content":[]}"#.into(), Some("its `content` is empty")),
        (r#"{"content":["text"]}"#.into(), Some("`content[0]` is not an object")),
        (r#"{"content":[{"text":"a"}]}"#.into(), Some("`content[0]` has no `type` that is a string")),
        (
            r#"{"content":[{"type":"text"}]}"#.into(),
            Some("`content[0]` is a text block without a `text` that is a string"),
        ),
        (with("structuredContent", 128), Some("it is nested 129 levels deep, the limit is 128")),
        (with("_meta", 50_000), Some("it is nested 50001 levels deep, the limit is 128")),
        (with("structuredContent", 127), None),
        (r#"{"content":[{"type":"text","text":""}]}"#.into(), None),
    ];
    let list = Toolset::builder().with(named("t")).build().unwrap().tools();
    for (result, want) in rows {
        let got = dispatched(&dispatcher(Odd(list.clone(), result.clone())), "t").await;
        match (got, want) {
            (Ok(passed), None) => assert_eq!(passed.as_str(), result),
            (Err(error), Some(want)) => {
                assert_eq!(error.type_name(), "ToolOutputError");
                let text = error.to_string();
                let begin = format!("tool `t` returned an unusable result: {want}");
                assert!(text.starts_with(&begin), "{text}");
                let right = "; a result is an object whose `content` is a list of at least one block, an object with a `type`";
                assert!(text[begin.len()..].is_empty() || &text[begin.len()..] == right, "{text}");
            }
            (got, want) => panic!("{got:?} and not {want:?} for {result:.100}"),
        }
    }
}

#[tokio::test]
async fn nothing_is_a_good_answer_and_a_deep_value_of_a_handler_is_not() {
    // Lists in lists, as deep as requested.
    let nested =
        |levels: usize| RawJson::parse(format!("{}{}", "[".repeat(levels), "]".repeat(levels))).unwrap();
    let object = move |levels: usize| {
        RawJson::of(&std::collections::BTreeMap::from([("a", nested(levels - 1))])).unwrap()
    };
    let (good, bad, other) = (object(127), object(128), object(126));
    let tools = Toolset::builder()
        .tool("nothing", "", async |_: NoArgs| {})
        .tool("none", "", async |_: NoArgs| None::<String>)
        .tool("no_blocks", "", async |_: NoArgs| toolbridge_core::ToolResult::default())
        .tool("good", "", move |_: NoArgs| toolbridge_core::ToolResult::text("t").structured(good.clone()))
        .tool("bad", "", move |_: NoArgs| toolbridge_core::ToolResult::text("t").structured(bad.clone()))
        .tool("bad_meta", "", move |_: NoArgs| toolbridge_core::ToolResult::text("t").meta(object(128)))
        .tool("bad_block", "", move |_: NoArgs| {
            toolbridge_core::ToolResult::default().and(toolbridge_core::tool::Content::Other(other.clone()))
        })
        .tool("bad_resource", "", move |_: NoArgs| {
            toolbridge_core::ToolResult::default()
                .and(toolbridge_core::tool::Content::Resource { resource: object(126) })
        })
        .build()
        .unwrap();
    let tools = dispatcher(tools);
    let text =
        |text: &str| Ok(format!(r#"{{"content":[{{"type":"text","text":"{text}"}}],"isError":false}}"#));
    let deep = || Err("it is nested 129 levels deep, the limit is 128");
    for (tool, want) in [
        ("nothing", text("null")),
        ("none", text("null")),
        ("no_blocks", text("")),
        ("good", Ok(String::new())),
        ("bad", deep()),
        ("bad_meta", deep()),
        ("bad_block", Err("`content[0]` has no `type` that is a string")),
        ("bad_resource", deep()),
    ] {
        match (dispatched(&tools, tool).await, want) {
            (Ok(result), Ok(want)) => assert!(want.is_empty() || result.as_str() == want, "{tool}: {result}"),
            (Err(error), Err(want)) => {
                let begin = format!("tool `{tool}` returned an unusable result: {want}");
                assert!(error.to_string().starts_with(&begin), "{tool}: {error}");
                assert_eq!(error.type_name(), "ToolOutputError");
            }
            (got, want) => panic!("{tool}: {got:?} and not {want:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_never_returns_is_named_to_those_who_wait_for_its_turn() {
    let (free, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let is_stuck = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&is_stuck);
    let stuck = move |_: NoArgs, context: CallContext| {
        tell.store(true, Ordering::SeqCst);
        // A clone of the context that is kept elsewhere does not keep the turn.
        std::mem::forget(context.clone());
        _ = released.lock().unwrap().recv_timeout(Duration::from_secs(120));
    };
    let tools = Toolset::builder()
        .with(Tool::new("stuck", "", stuck).timeout(Duration::from_millis(10)))
        .tool("next", "", async |_: NoArgs| "done")
        .build()
        .unwrap();
    let tools = dispatcher(tools);
    let call =
        async |tool: &str| dispatched(&tools, tool).await.map_err(|error| error.type_name().to_owned());
    // On a busy machine the time limit may pass before the handler begins.
    while !is_stuck.load(Ordering::SeqCst) {
        assert_eq!(call("stuck").await.unwrap_err(), "ToolTimeoutError");
    }
    assert_eq!(call("next").await.unwrap_err(), "ToolBusyError");
    drop(free);
    let free = async {
        loop {
            match call("next").await {
                Ok(result) => break result,
                Err(error) => assert_eq!(error, "ToolBusyError"),
            }
        }
    };
    let result = tokio::time::timeout(Duration::from_secs(120), free).await.expect("the turn is free again");
    assert_eq!(result.as_str(), text("done"));
}

#[tokio::test]
async fn a_selection_lists_and_calls_no_others() {
    let tools = Toolset::builder()
        .tool("a", "", |_: NoArgs| "a")
        .with(Tool::new("b", "", |_: NoArgs| "b").read_only())
        .tool("c", "", |_: NoArgs| "c")
        .build()
        .unwrap();
    let some = Selection::new(tools, ["b", "a", "b"]).unwrap();
    assert_eq!(some.tools().iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let is_exclusive = |name: &str| some.tools().get(name).unwrap().exclusive;
    assert!(is_exclusive("a") && !is_exclusive("b"));
    let call = async |name: &str| {
        some.call(ToolCall::new(name, RawJson::empty_object()), CallContext::default()).await
    };
    assert!(call("b").await.unwrap().as_str().contains(r#""text":"b""#));
    assert_eq!(call("c").await.unwrap_err().to_string(), "there is no tool `c`");
    let error = Selection::new(some, ["c"]).unwrap_err();
    assert_eq!(error.to_string(), "there is no tool `c` to choose; there are: a, b");
}

#[tokio::test]
async fn combined_sources_are_one() {
    let set = |name: &'static str| Toolset::builder().tool(name, "", move |_: NoArgs| name).build().unwrap();
    let quiet = Toolset::builder().with(Tool::new("c", "", |_: NoArgs| "c").read_only()).build().unwrap();
    let all = Combined::new().with(set("a")).unwrap().with(set("b")).unwrap();
    let all = all.with(quiet).unwrap();
    assert_eq!(all.tools().iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    let is_exclusive = |name: &str| all.tools().get(name).is_some_and(|tool| tool.exclusive);
    assert!(is_exclusive("a") && !is_exclusive("c") && !is_exclusive("d"));
    for name in ["a", "b", "c"] {
        let call = ToolCall::new(name, RawJson::empty_object());
        let result = all.call(call, CallContext::default()).await.unwrap();
        assert!(result.as_str().contains(&format!(r#""text":"{name}""#)), "{result}");
    }
    let missing = all.call(ToolCall::new("d", RawJson::empty_object()), CallContext::default()).await;
    assert_eq!(missing.unwrap_err().type_name(), "ToolNotFoundError");
    let error = all.with(set("b")).unwrap_err();
    assert_eq!(error.to_string(), "two tools are called `b`");
}

fn dispatcher(source: impl ToolSource) -> Dispatcher {
    Dispatcher::new(source, Tracer::without_file(Process::Server))
}

/// Calls a tool as a front does.
async fn dispatched(dispatcher: &Dispatcher, tool: &str) -> Result<RawJson, ToolError> {
    let call = ToolCall::new(tool, RawJson::empty_object());
    match dispatcher.call(call, None)?.next().await {
        CallEvent::Done(outcome) => outcome,
        CallEvent::Progress(report) => panic!("nobody asked for {report:?}"),
        CallEvent::Question(asked) => panic!("nobody can answer {asked:?}"),
    }
}

fn named(name: &'static str) -> Tool {
    Tool::new(name, "", move |_: NoArgs| name)
}

fn names(source: &impl ToolSource) -> Vec<String> {
    source.tools().iter().map(|tool| tool.name.clone()).collect()
}

/// Whether a change has come since the last call.
fn has_changed(changes: &mut Changes) -> bool {
    changes.next().now_or_never().is_some()
}

#[tokio::test]
async fn tools_come_and_go_while_a_set_is_in_use() {
    let tools = Toolset::builder().with(named("a")).build().unwrap();
    let (served, mut changes) = (tools.clone(), tools.changes());
    let before = served.tools();
    assert!(!has_changed(&mut changes));

    tools.add(named("b")).unwrap();
    assert!(has_changed(&mut changes) && !has_changed(&mut changes));
    assert_eq!((names(&served), before.len()), (vec!["a".into(), "b".into()], 1), "a list is a snapshot");
    let call = |name: &str| served.call(ToolCall::new(name, RawJson::empty_object()), CallContext::default());
    assert_eq!(call("b").await.unwrap().as_str(), text("b"));
    assert_eq!(tools.add(named("b")).unwrap_err().to_string(), "two tools are called `b`");
    assert_eq!(tools.add(named("")).unwrap_err().to_string(), "a tool has an empty name");
    assert_eq!((names(&served), has_changed(&mut changes)), (vec!["a".into(), "b".into()], false));

    // A call that has begun would continue; this one has not begun.
    let under_way = call("a");
    assert!(tools.remove("a") && has_changed(&mut changes));
    assert_eq!(under_way.await.unwrap_err().type_name(), "ToolNotFoundError", "it had not begun");
    assert!(!tools.remove("a"));
    assert_eq!(names(&served), ["b"]);
    drop((tools, served));
    assert!(!has_changed(&mut changes), "nothing changes any more");
}

#[tokio::test]
async fn derived_sources_change_with_their_sources() {
    let set = |name| Toolset::builder().with(named(name)).build().unwrap();
    let (one, other) = (set("a"), set("b"));
    let some = Selection::new(one.clone(), ["a"]).unwrap();
    let all = Combined::new().with(some).unwrap().with(other.clone()).unwrap();
    let mut changes = all.changes();
    assert!(all.tools().is(&all.tools()), "an unchanged list is not derived again");

    one.add(named("c")).unwrap();
    assert!(has_changed(&mut changes));
    assert_eq!(names(&all), ["a", "b"], "`c` was not selected");
    other.add(named("d")).unwrap();
    assert!(has_changed(&mut changes));
    assert_eq!(names(&all), ["a", "b", "d"]);
}

#[tokio::test]
async fn a_name_stays_with_the_source_that_had_it_first() {
    let set = |name| Toolset::builder().with(named(name)).build().unwrap();
    let (one, other) = (set("a"), set("b"));
    let all = Combined::new().with(one.clone()).unwrap().with(other.clone()).unwrap();
    let call = async |name: &str| {
        all.call(ToolCall::new(name, RawJson::empty_object()), CallContext::default()).await
    };
    for (late, owner, name) in [(&one, &other, "b"), (&other, &one, "a")] {
        late.add(Tool::new(name, "another", |_: NoArgs| "another")).unwrap();
        assert_eq!(names(&all).len(), 2);
        assert_eq!(call(name).await.unwrap().as_str(), text(name));
        // Not even while the owner does not have it.
        owner.remove(name);
        assert_eq!(call(name).await.unwrap_err().type_name(), "ToolNotFoundError");
        assert!(!names(&all).contains(&name.to_owned()));
        owner.add(named(name)).unwrap();
        assert_eq!(call(name).await.unwrap().as_str(), text(name));
    }
}

#[tokio::test]
async fn a_handler_may_check_its_arguments_and_results_itself() {
    let schema = json!({ "type": "object", "properties": { "a": { "type": "integer" } }, "required": ["a"] });
    let tool = Tool::raw("t", "", schema.clone(), |arguments: RawJson| ToolResult::text(arguments.as_str()));
    let tool = tool.unchecked().output_schema(schema);
    assert_eq!(call_one(tool, r#"{"a":"1"}"#).await.unwrap(), text(r#"{"a":"1"}"#));
    let json = r#"{"content":[{"type":"text","text":"x"}],"_meta":{"n":1.00}}"#;
    let tool =
        Tool::new("t", "", move |_: NoArgs| ToolResult::complete(RawJson::parse(json.to_owned()).unwrap()));
    assert_eq!(call_one(tool, "{}").await.unwrap(), json, "it is sent as it is");
    let bad = Tool::raw("t", "", json!({ "type": "string" }), |_: RawJson| "").unchecked();
    let error = Toolset::builder().with(bad).build().unwrap_err();
    assert!(error.to_string().contains(r#"its root has `"type": "string"`"#), "{error}");
}
