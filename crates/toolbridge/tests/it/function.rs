//! Functions and methods as tools. This file uses serde and schemars only where a user would have to.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use toolbridge::call::CancellationToken;
use toolbridge::ipc::{Remote, read_schema_file};
use toolbridge::tool::{RawJson, ToolCall};
use toolbridge::toolset::{IntoToolError, IntoToolResult, Json};
use toolbridge::{
    CallContext, Session, State, Tool, ToolError, ToolResult, ToolSource, Toolset, tool, tools,
};

use crate::fronts::Client;

/// The whole result, or the error as `Type: message`.
async fn call(source: &dyn ToolSource, name: &str, arguments: &Value) -> Result<Value, String> {
    let call = ToolCall::new(name, RawJson::from(arguments));
    match source.call(call, CallContext::default()).await {
        Ok(result) => Ok(serde_json::from_str(result.as_str()).unwrap()),
        Err(error) => Err(format!("{}: {error}", error.type_name())),
    }
}

fn text(text: impl Display) -> Value {
    json!({ "content": [{ "type": "text", "text": text.to_string() }], "isError": false })
}

/// What a client sees of the tools.
fn shown(source: &dyn ToolSource) -> Value {
    let member = |value: &Option<RawJson>| value.as_ref().map(|raw| raw.decode::<Value>().unwrap());
    let list = source.tools();
    let tools = list.iter().map(|tool| {
        json!({
            "name": tool.name,
            "title": tool.title,
            "description": tool.description,
            "input": tool.input_schema.decode::<Value>().unwrap(),
            "output": member(&tool.output_schema),
            "annotations": member(&tool.annotations),
            "meta": member(&tool.meta),
        })
    });
    tools.collect()
}

struct Pool(BTreeMap<u64, f64>);

#[derive(serde::Serialize, toolbridge::schemars::JsonSchema)]
struct Order {
    total: f64,
}

#[derive(Debug)]
struct NoOrder(u64);

impl Display for NoOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "there is no order {}", self.0)
    }
}

impl std::error::Error for NoOrder {}

/// Looks an order up.
///
/// It has `total`.
#[tool(read_only, timeout = "5s", title = "Look up", output = Order, max_result_chars = 1_000)]
async fn lookup(
    State(pool): State<Arc<Pool>>,
    /// The order's number.
    order: u64,
    /// Percent off, if any.
    discount: Option<f64>,
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    count: u8,
) -> Result<Order, NoOrder> {
    let price = pool.0.get(&order).ok_or(NoOrder(order))?;
    Ok(Order { total: price * f64::from(count) * (1.0 - discount.unwrap_or_default() / 100.0) })
}

fn one() -> u8 {
    1
}

/// Adds two numbers.
#[tool]
fn add(a: f64, b: f64) -> f64 {
    a + b
}

#[tool(
    name = "clean-up",
    description = "Removes what is old",
    destructive,
    idempotent = false,
    open_world = false,
    always_load = false
)]
fn clean_up() {}

fn shop() -> Toolset {
    let pool = Arc::new(Pool(BTreeMap::from([(17, 10.0)])));
    Toolset::builder().with(lookup {}).with(add {}).with(clean_up {}).state(pool).build().unwrap()
}

#[test]
fn a_functions_name_comments_parameters_and_settings_are_its_schema() {
    let want = json!([
        {
            "name": "lookup",
            "title": "Look up",
            "description": "Looks an order up.\n\nIt has `total`.",
            "input": {
                "type": "object",
                "properties": {
                    "order": { "type": "integer", "minimum": 0, "description": "The order's number." },
                    "discount": {
                        "type": ["number", "null"],
                        "format": "double",
                        "description": "Percent off, if any.",
                    },
                    "count": { "type": "integer", "minimum": 1, "maximum": 255, "default": 1 },
                },
                "required": ["order"],
            },
            "output": {
                "type": "object",
                "properties": { "total": { "type": "number", "format": "double" } },
                "required": ["total"],
            },
            "annotations": { "readOnlyHint": true },
            "meta": { "anthropic/alwaysLoad": true, "anthropic/maxResultSizeChars": 1000 },
        },
        {
            "name": "add",
            "title": null,
            "description": "Adds two numbers.",
            "input": {
                "type": "object",
                "properties": {
                    "a": { "type": "number", "format": "double" },
                    "b": { "type": "number", "format": "double" },
                },
                "required": ["a", "b"],
            },
            "output": null,
            "annotations": null,
            "meta": { "anthropic/alwaysLoad": true },
        },
        {
            "name": "clean-up",
            "title": null,
            "description": "Removes what is old",
            "input": { "type": "object" },
            "output": null,
            "annotations": { "destructiveHint": true, "idempotentHint": false, "openWorldHint": false },
            "meta": null,
        },
    ]);
    assert_eq!(shown(&shop()), want);
}

#[tokio::test]
async fn a_call_runs_the_function_with_its_state() {
    let tools = shop();
    let order = |total: f64| {
        json!({
            "content": [{ "type": "text", "text": json!({ "total": total }).to_string() }],
            "structuredContent": { "total": total },
            "isError": false,
        })
    };
    let rows = [
        ("lookup", json!({ "order": 17 }), Ok(order(10.0))),
        ("lookup", json!({ "order": 17, "discount": 50, "count": 3 }), Ok(order(15.0))),
        ("lookup", json!({ "order": 18 }), Err("NoOrder: there is no order 18")),
        (
            "lookup",
            json!({}),
            Err("ToolArgumentsError: invalid arguments for tool `lookup`: at `/`: missing field `order`"),
        ),
        ("add", json!({ "a": 40, "b": 2.5 }), Ok(text("42.5"))),
        ("clean-up", json!({}), Ok(text("null"))),
    ];
    for (name, arguments, want) in rows {
        assert_eq!(call(&tools, name, &arguments).await, want.map_err(str::to_owned), "{name} {arguments}");
    }
    let stateless = Toolset::builder().with(lookup {}).build().unwrap();
    let error = call(&stateless, "lookup", &json!({ "order": 17 })).await.unwrap_err();
    assert!(error.starts_with("ToolStateError: there is no state of type `alloc::sync::Arc<"), "{error}");
}

#[tokio::test]
async fn a_tool_is_still_a_function() {
    assert_eq!(add(40.0, 2.0).to_string(), "42");
    let pool = Arc::new(Pool(BTreeMap::new()));
    assert_eq!(lookup(State(pool), 3, None, 1).await.err().unwrap().0, 3);
    let renamed = Toolset::builder().with(Tool::from(add {}).title("Sum")).build().unwrap();
    assert_eq!(shown(&renamed)[0]["title"], "Sum");
}

/// Not our type, though it has the same name: only the type decides where a parameter comes from.
mod impostor {
    use toolbridge::toolset::FromContext;
    use toolbridge::{CallContext as Call, ToolError};

    #[derive(serde::Deserialize, toolbridge::schemars::JsonSchema)]
    #[serde(transparent)]
    pub(crate) struct CallContext(pub(crate) String);

    /// Our type under another name.
    pub(crate) type Anything = Call;

    pub(crate) struct Caller(pub(crate) bool);

    impl FromContext for Caller {
        fn from_context(context: &Call) -> Result<Self, ToolError> {
            Ok(Self(context.tool_use_id().is_some()))
        }
    }
}

/// Takes one of each.
#[tool]
fn each(
    State(prefix): State<&'static str>,
    name: impostor::CallContext,
    /// Where the call comes from.
    anything: impostor::Anything,
    caller: impostor::Caller,
    borrowed: &CallContext,
    token: CancellationToken,
    mut r#type: String,
) -> String {
    r#type.push('!');
    let quiet = !anything.is_cancelled() && !borrowed.wants_progress() && !token.is_cancelled();
    format!("{prefix} {} {} {} {}", name.0, r#type, quiet, caller.0)
}

#[tokio::test]
async fn context_parameters_are_recognised_by_type_and_not_by_name() {
    let tools = Toolset::builder().with(each {}).state("the").build().unwrap();
    let want = json!({
        "type": "object",
        "properties": { "name": { "type": "string" }, "type": { "type": "string" } },
        "required": ["name", "type"],
    });
    assert_eq!(shown(&tools)[0]["input"], want);
    let arguments = json!({ "name": "n", "type": "t", "anything": { "ignored": 1 }, "caller": null });
    assert_eq!(call(&tools, "each", &arguments).await, Ok(text("the n t! true false")));
}

/// Says whether it is still wanted.
#[tool]
fn wanted(context: CallContext) -> bool {
    !context.is_cancelled()
}

#[tokio::test]
async fn a_function_without_arguments_has_none_in_its_schema() {
    let tools = Toolset::builder().with(wanted {}).build().unwrap();
    assert_eq!(shown(&tools)[0]["input"], json!({ "type": "object" }));
    assert_eq!(call(&tools, "wanted", &json!({})).await, Ok(text(true)));
}

struct Celsius(f64);

impl IntoToolResult for Celsius {
    fn into_tool_result(self) -> Result<ToolResult, ToolError> {
        format!("{} °C", self.0).into_tool_result()
    }
}

/// It implements `Serialize`, but also its own conversion.
#[derive(serde::Serialize)]
struct Picture(&'static str);

impl IntoToolResult for Picture {
    fn into_tool_result(self) -> Result<ToolResult, ToolError> {
        ToolResult::image(self.0, "image/png").into_tool_result()
    }
}

struct Refusal;

impl IntoToolError for Refusal {
    fn into_tool_error(self) -> ToolError {
        ToolError::new("ShopClosed", "closed")
    }
}

/// Not a `Result`, though it has the same name and variants.
mod other {
    #[derive(serde::Serialize)]
    pub(crate) enum Result {
        Err(&'static str),
    }
}

/// An error that implements `Serialize`.
#[derive(Debug, serde::Serialize)]
struct Written;

impl Display for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("written")
    }
}

impl std::error::Error for Written {}

macro_rules! returning {
    ($($name:ident $type:ty = $value:expr, $want:expr;)*) => {
        $(
            /// Returns something.
            #[tool]
            fn $name() -> $type {
                $value
            }
        )*

        #[tokio::test]
        async fn the_result_of_a_function_depends_on_its_traits() {
            let tools = Toolset::builder()$(.with($name {}))*.build().unwrap();
            $({
                let want: Result<Value, &str> = $want;
                assert_eq!(call(&tools, stringify!($name), &json!({})).await, want.map_err(str::to_owned));
            })*
        }
    };
}

returning! {
    own Celsius = Celsius(21.5), Ok(text("21.5 °C"));
    own_before_serde Picture = Picture("png"),
        Ok(json!({ "content": [{ "type": "image", "data": "cG5n", "mimeType": "image/png" }], "isError": false }));
    own_or_own_error Result<Celsius, Refusal> = Err(Refusal), Err("ShopClosed: closed");
    written Order = Order { total: 1.5 }, Ok(text(r#"{"total":1.5}"#));
    in_json Json<Order> = Json(Order { total: 1.5 }), Ok(text(r#"{"total":1.5}"#));
    written_or_text Result<Order, String> = Err("no".into()), Err("Error: no");
    written_or_written Result<Order, Written> = Err(Written), Err("Written: written");
    text_or_boxed Result<String, Box<dyn std::error::Error + Send + Sync>> = Ok("x".parse::<u8>()?.to_string()),
        Err("Error: invalid digit found in string");
    full ToolResult = ToolResult::error("I could not"),
        Ok(json!({ "content": [{ "type": "text", "text": "I could not" }], "isError": true }));
    named_like_a_result other::Result = other::Result::Err("a value"), Ok(text(r#"{"Err":"a value"}"#));
    nothing () = (), Ok(text("null"));
    opaque impl serde::Serialize = [1, 2], Ok(text("[1,2]"));
}

/// A shop whose tools share what it has sold.
struct Shop<P> {
    sold: AtomicU64,
    limit: u64,
    prices: P,
}

trait Prices: Send + Sync + 'static {
    fn of(&self, article: &str) -> Option<u64>;
}

impl Prices for BTreeMap<&'static str, u64> {
    fn of(&self, article: &str) -> Option<u64> {
        self.get(article).copied()
    }
}

#[tools]
impl<P: Prices> Shop<P> {
    const LIMIT: u64 = 3;

    fn new(prices: P) -> Self {
        Self { sold: AtomicU64::new(0), limit: Self::LIMIT, prices }
    }

    /// Sells an article.
    #[tool(timeout = "1min")]
    async fn sell(
        &self,
        context: CallContext,
        /// Its name.
        article: String,
        #[serde(default)] count: Option<u64>,
    ) -> Result<u64, Refusal> {
        context.progress(1.0, None, None);
        let price = self.prices.of(&article).ok_or(Refusal)?;
        let count = self.clamp(count.unwrap_or(1));
        tokio::task::yield_now().await;
        Ok(self.sold.fetch_add(price * count, Ordering::Relaxed) + price * count)
    }

    /// Tells for how much has been sold.
    #[toolbridge::tool(read_only)]
    fn takings(&self) -> u64 {
        self.sold.load(Ordering::Relaxed)
    }

    #[tool(skip)]
    fn clamp(&self, count: u64) -> u64 {
        count.min(self.limit)
    }

    #[cfg(any())]
    /// Is not there.
    fn absent(&self) {}
}

#[tokio::test]
async fn methods_are_tools_that_share_their_value() {
    let tools = Shop::new(BTreeMap::from([("tea", 4)])).into_toolset().unwrap();
    let want = json!([
        {
            "name": "sell",
            "title": null,
            "description": "Sells an article.",
            "input": {
                "type": "object",
                "properties": {
                    "article": { "type": "string", "description": "Its name." },
                    "count": { "type": ["integer", "null"], "minimum": 0, "default": null },
                },
                "required": ["article"],
            },
            "output": null,
            "annotations": null,
            "meta": { "anthropic/alwaysLoad": true },
        },
        {
            "name": "takings",
            "title": null,
            "description": "Tells for how much has been sold.",
            "input": { "type": "object" },
            "output": null,
            "annotations": { "readOnlyHint": true },
            "meta": { "anthropic/alwaysLoad": true },
        },
    ]);
    assert_eq!(shown(&tools), want);
    assert_eq!(call(&tools, "sell", &json!({ "article": "tea" })).await, Ok(text(4)));
    assert_eq!(call(&tools, "sell", &json!({ "article": "tea", "count": 9 })).await, Ok(text(16)));
    assert_eq!(call(&tools, "sell", &json!({ "article": "tar" })).await, Err("ShopClosed: closed".into()));
    assert_eq!(call(&tools, "takings", &json!({})).await, Ok(text(16)));
}

#[tokio::test]
async fn methods_functions_and_closures_go_together_and_closures_may_capture() {
    let greeting = Arc::<str>::from("hello");
    let (second, third) = (Arc::clone(&greeting), Arc::clone(&greeting));
    let tools = Toolset::builder()
        .with(Shop::new(BTreeMap::new()))
        .with(add {})
        .tool("greet", "Greets", move |_: toolbridge::NoArgs| greeting.to_string())
        .tool("greet_later", "Greets", async move |_: toolbridge::NoArgs| {
            tokio::task::yield_now().await;
            second.to_string()
        })
        .tool("greet_so", "Greets", move |_: toolbridge::NoArgs, _: CallContext| {
            let greeting = Arc::clone(&third);
            async move { greeting.to_string() }
        })
        .build()
        .unwrap();
    assert_eq!(tools.names(), ["sell", "takings", "add", "greet", "greet_later", "greet_so"]);
    for name in ["greet", "greet_later", "greet_so", "greet_later"] {
        assert_eq!(call(&tools, name, &json!({})).await, Ok(text("hello")), "{name}");
    }
}

#[test]
fn two_tools_with_one_name_are_refused() {
    let error = Toolset::builder().with(add {}).with(add {}).build().unwrap_err();
    assert_eq!(error.to_string(), "two tools are called `add`");
}

#[tokio::test]
async fn a_function_answers_through_a_session_and_a_bridge() {
    let dir = tempfile::TempDir::new().unwrap();
    let session = Session::builder(shop()).dir(dir.path()).start().await.unwrap();
    let listed = read_schema_file(session.schema_path()).unwrap();
    let remote = Arc::new(Remote::new(session.socket_path(), listed).unwrap());
    assert_eq!(shown(&*remote), shown(&shop()));
    assert_eq!(call(&*remote, "add", &json!({ "a": 1, "b": 2 })).await, Ok(text("3.0")));
    let mut client = Client::of(remote).await;
    let answer = client.ask("tools/call", r#"{"name":"lookup","arguments":{"order":18}}"#).await;
    let want =
        r#"{"content":[{"type":"text","text":"there is no order 18 (type: NoOrder)"}],"isError":true}"#;
    assert_eq!(answer, want);
    session.stop().await;
}
