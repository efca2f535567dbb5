use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use toolbridge_core::tool::{Hint as _, RawJson, ToolCall, check_server_name};
use toolbridge_core::toolset::ToolsetBuilder;
use toolbridge_core::{CallContext, NoArgs, Tool, ToolSource, Toolset};

fn nothing(name: &str) -> Tool {
    Tool::new(name, "Does nothing", |_: NoArgs| "")
}

fn with_schema(schema: Value) -> Tool {
    Tool::raw("t", "", schema, |_: Value| "")
}

#[test]
fn bad_registrations_are_refused_and_say_what_would_be_right() {
    let rows = [
        (vec![nothing("a"), nothing("a")], "two tools are called `a`", "rename one of the two"),
        (vec![nothing("")], "a tool has an empty name", "give every tool a name, such as `search_orders`"),
        (
            vec![nothing("a b")],
            "tool name `a b` is empty or has characters other than `A-Z a-z 0-9 _ -`",
            "use letters, digits, `_` and `-`, such as `search_orders`",
        ),
        (
            vec![nothing("日本")],
            "tool name `日本` is empty or has characters other than `A-Z a-z 0-9 _ -`",
            "use letters, digits, `_` and `-`, such as `search_orders`",
        ),
        (
            vec![nothing(&"x".repeat(121))],
            &format!("`mcp__s__{}` has 129 characters, the limit is 128", "x".repeat(121)),
            "shorten the tool's or the server's name",
        ),
        (
            vec![with_schema(json!([]))],
            "input schema of tool `t` is not usable: it is not a JSON object",
            "give a JSON Schema whose root has `\"type\": \"object\"`",
        ),
        (
            vec![with_schema(json!({"type": "array"}))],
            "input schema of tool `t` is not usable: its root has `\"type\": \"array\"`, not `\"object\"`",
            "give a JSON Schema whose root has `\"type\": \"object\"`",
        ),
        (
            vec![with_schema(json!({"properties": {}}))],
            "input schema of tool `t` is not usable: its root has no `\"type\": \"object\"`",
            "give a JSON Schema whose root has `\"type\": \"object\"`",
        ),
        (
            vec![nothing("t").output_schema(json!({"type": "string"}))],
            "output schema of tool `t` is not usable: its root has `\"type\": \"string\"`, not `\"object\"`",
            "give a JSON Schema whose root has `\"type\": \"object\"`",
        ),
    ];
    for (tools, message, hint) in rows {
        let error = tools.into_iter().fold(Toolset::builder(), ToolsetBuilder::with).build().unwrap_err();
        assert_eq!(error.to_string(), message);
        assert_eq!(error.hint(), Some(hint), "{message}");
    }
    let broken = with_schema(json!({"type": "object", "properties": {"a": {"type": "strnig"}}}));
    let error = Toolset::builder().with(broken).build().unwrap_err().to_string();
    assert!(error.starts_with("input schema of tool `t` is not usable: "), "{error}");
}

#[test]
fn the_full_name_is_checked_with_the_servers_name() {
    let tools = Toolset::builder().with(nothing(&"x".repeat(120))).build().unwrap();
    assert!(check_server_name("s", &tools.tools()).is_ok());
    let error = check_server_name("tools", &tools.tools()).unwrap_err().to_string();
    assert_eq!(error, format!("`mcp__tools__{}` has 132 characters, the limit is 128", "x".repeat(120)));
    for bad in ["", "a b", "a/b"] {
        let error = check_server_name(bad, &tools.tools()).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("server name `{bad}` is empty or has characters other than `A-Z a-z 0-9 _ -`")
        );
    }
}

#[test]
fn everything_said_about_a_tool_is_in_its_schema() {
    #[derive(Deserialize, JsonSchema)]
    struct Args {
        /// How many.
        #[expect(dead_code, reason = "only its schema counts")]
        count: u8,
    }
    let tool = Tool::new("t", "Counts", |_: Args| json!({}))
        .title("Counter")
        .read_only()
        .destructive(false)
        .idempotent(true)
        .open_world(false)
        .output_schema(json!({"type": "object"}))
        .max_result_chars(500_000)
        .meta("vendor/x", json!([1]));
    let tools = Toolset::builder().with(tool).with(nothing("u").always_load(false)).build().unwrap();
    let list = tools.tools();
    let schema = list.get("t").unwrap();
    assert_eq!(schema.title.as_deref(), Some("Counter"));
    assert_eq!(
        schema.input_schema.as_str(),
        r#"{"properties":{"count":{"description":"How many.","maximum":255,"minimum":0,"type":"integer"}},"required":["count"],"type":"object"}"#
    );
    assert_eq!(
        schema.annotations.as_ref().unwrap().as_str(),
        r#"{"destructiveHint":false,"idempotentHint":true,"openWorldHint":false,"readOnlyHint":true}"#
    );
    assert_eq!(
        schema.meta.as_ref().unwrap().as_str(),
        r#"{"anthropic/alwaysLoad":true,"anthropic/maxResultSizeChars":500000,"vendor/x":[1]}"#
    );
    assert_eq!(schema.output_schema.as_ref().unwrap().as_str(), r#"{"type":"object"}"#);
    let plain = list.get("u").unwrap();
    assert!(plain.meta.is_none() && plain.annotations.is_none() && plain.output_schema.is_none());
}

#[test]
fn schemas_have_no_formats_that_only_rust_knows() {
    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Args {
        wide: Vec<Option<u64>>,
        size: usize,
        offset: isize,
        narrow: i16,
        known: (i32, i64),
        ratio: f64,
    }
    let tools = Toolset::builder().with(Tool::new("t", "Counts", |_: Args| json!({}))).build().unwrap();
    let schema = tools.tools()[0].input_schema.to_string();
    let formats: Vec<_> =
        schema.split(r#""format":""#).skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(formats, ["int32", "int64", "double"], "{schema}");
    assert_eq!(schema.matches(r#""minimum":0"#).count(), 2, "{schema}");
}

#[tokio::test]
async fn a_schema_may_say_its_draft_and_clients_are_not_told() {
    for draft in ["https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"] {
        let schema = json!({ "$schema": draft, "type": "object", "properties": { "a": { "type": "integer", "minimum": 1 } } });
        let tool = Tool::raw("t", "", schema.clone(), |args: Value| args).output_schema(schema);
        let tools = Toolset::builder().with(tool).build().unwrap();
        let shown = &tools.tools()[0];
        let want = r#"{"properties":{"a":{"minimum":1,"type":"integer"}},"type":"object"}"#;
        assert_eq!(shown.input_schema.as_str(), want);
        assert_eq!(shown.output_schema.as_ref().unwrap().as_str(), want);
        for (arguments, is_right) in [(r#"{"a":1}"#, true), (r#"{"a":0}"#, false)] {
            let call = ToolCall::new("t", RawJson::parse(arguments).unwrap());
            assert_eq!(
                tools.call(call, CallContext::default()).await.is_ok(),
                is_right,
                "{draft} {arguments}"
            );
        }
    }
}

#[test]
fn a_filter_keeps_exactly_the_named_tools() {
    let tools =
        ["a", "b", "c"].iter().fold(Toolset::builder(), |set, name| set.with(nothing(name))).build().unwrap();
    let names = |names: &[&str]| tools.filter(names).unwrap().names();
    assert_eq!(names(&["c", "a", "c"]), ["a", "c"]);
    assert!(names(&[]).is_empty());
    let error = tools.filter(["a", "x"]).unwrap_err();
    assert_eq!(error.to_string(), "there is no tool `x` to choose; there are: a, b, c");
    assert_eq!(error.hint(), Some("choose from the names above"));
    let orders = Toolset::builder().with(nothing("search_orders")).with(nothing("echo")).build().unwrap();
    let error = orders.filter(["search_order"]).unwrap_err().to_string();
    assert_eq!(
        error,
        "there is no tool `search_order` to choose; did you mean `search_orders`? there are: search_orders, echo"
    );
    let error = Toolset::builder().build().unwrap().filter(["x"]).unwrap_err();
    assert_eq!(error.to_string(), "there is no tool `x` to choose; there are none");
    assert_eq!(error.hint(), Some("register tools before choosing from them"));
}
