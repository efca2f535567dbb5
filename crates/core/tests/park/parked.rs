//! Handles from one tool to another.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use toolbridge_core::park::Parked;
use toolbridge_core::source::{Combined, Prefixed, Selection};
use toolbridge_core::tool::{CallMeta, Caller, RawJson, ToolCall};
use toolbridge_core::{CallContext, NoArgs, Tool, ToolResult, ToolSource, Toolset};

pub(crate) fn text(size: usize) -> String {
    "Größe, \"quoted\" \\ and a tab\t日本語\u{2028}\r\n".chars().cycle().take(size).collect()
}

/// Tools that return a text of some size, and tools that store a text, an object or a list.
pub(crate) fn tools(kept: &Arc<Mutex<Vec<Value>>>) -> Toolset {
    let keep = |kept: &Arc<Mutex<Vec<Value>>>| {
        let kept = Arc::clone(kept);
        move |arguments: RawJson| {
            kept.lock().unwrap().push(arguments.decode().unwrap());
            "kept"
        }
    };
    let size =
        json!({ "type": "object", "properties": { "size": { "type": "integer" } }, "required": ["size"] });
    let store = json!({
        "type": "object",
        "properties": { "text": { "type": "string" }, "data": { "type": "object" }, "n": { "type": "number" } },
    });
    let sized = |arguments: &RawJson| -> usize {
        usize::try_from(arguments.decode::<Value>().unwrap()["size"].as_u64().unwrap()).unwrap()
    };
    Toolset::builder()
        .with(Tool::raw("give", "", size.clone(), move |arguments: RawJson| text(sized(&arguments))))
        .with(Tool::raw("give_data", "", size.clone(), move |arguments: RawJson| {
            let data = RawJson::from(&json!({ "n": 1, "text": text(sized(&arguments)) }));
            ToolResult::text("data").structured(data)
        }))
        .with(Tool::raw("fail", "", size, move |arguments: RawJson| {
            ToolResult::error(text(sized(&arguments)))
        }))
        .with(Tool::raw("store", "", store, keep(kept)))
        .build()
        .unwrap()
}

pub(crate) async fn call_as(
    source: &impl ToolSource,
    client: Option<Caller>,
    tool: &str,
    arguments: &Value,
) -> Result<Value, String> {
    let mut call = ToolCall::new(tool, RawJson::from(arguments));
    call.meta = CallMeta { caller: client.map(Arc::new), ..CallMeta::default() };
    match source.call(call, CallContext::default()).await {
        Ok(result) => Ok(result.into_result().unwrap().decode().unwrap()),
        Err(error) => Err(format!("{}: {error}", error.type_name())),
    }
}

pub(crate) async fn call(source: &impl ToolSource, tool: &str, arguments: &Value) -> Result<Value, String> {
    call_as(source, None, tool, arguments).await
}

/// The JSON in a result's first block.
#[track_caller]
pub(crate) fn said(result: &Value) -> Value {
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"));
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

#[tokio::test]
async fn five_megabytes_pass_from_tool_to_tool_and_the_model_sees_a_few_hundred_bytes() {
    let kept = Arc::default();
    let source = Parked::new(Combined::new().with_prefix("a", tools(&kept)).unwrap()).unwrap();
    let given = call(&source, "a_give", &json!({ "size": 5_000_000 })).await.unwrap();
    let note = said(&given);
    assert!(given.to_string().len() < 800, "{given}");
    let whole = text(5_000_000);
    assert_eq!((&note["kind"], &note["bytes"]), (&json!("text"), &json!(whole.len())));
    assert_eq!(note["lines"], whole.lines().count());
    assert!(whole.starts_with(note["preview"].as_str().unwrap()));
    let arguments = json!({ "text": note["handle"], "n": 1 });
    assert_eq!(said(&call(&source, "a_store", &arguments).await.unwrap()), "kept");
    assert_eq!(kept.lock().unwrap()[0], json!({ "text": whole, "n": 1 }));
}

#[tokio::test]
async fn short_results_and_errors_are_not_kept() {
    let kept = Arc::default();
    let source = Parked::new(tools(&kept)).unwrap();
    for (tool, size) in [("give", 25_000), ("fail", 100_000)] {
        let result = call(&source, tool, &json!({ "size": size })).await.unwrap();
        assert_eq!(result["content"][0]["text"], text(size), "{tool}");
    }
    assert_eq!(said(&call(&source, "give", &json!({ "size": 25_001 })).await.unwrap())["kind"], "text");
    // The tool's own limit takes precedence.
    let own = Tool::new("own", "", |_: NoArgs| text(60_000)).max_result_chars(60_000);
    let source = Parked::new(Toolset::builder().with(own).build().unwrap()).unwrap();
    assert_eq!(call(&source, "own", &json!({})).await.unwrap()["content"][0]["text"], text(60_000));
}

#[tokio::test]
async fn structured_content_is_given_on_as_an_object_or_as_its_text() {
    let kept = Arc::default();
    let source = Parked::new(tools(&kept)).unwrap();
    let given = call(&source, "give_data", &json!({ "size": 50_000 })).await.unwrap();
    assert!(given.get("structuredContent").is_none(), "{given:.300}");
    let note = said(&given);
    assert_eq!(note["kind"], "json");
    let data = json!({ "n": 1, "text": text(50_000) });
    call(&source, "store", &json!({ "data": note["handle"] })).await.unwrap();
    call(&source, "store", &json!({ "text": note["handle"] })).await.unwrap();
    let kept = kept.lock().unwrap();
    assert_eq!(kept[0], json!({ "data": data }));
    assert_eq!(serde_json::from_str::<Value>(kept[1]["text"].as_str().unwrap()).unwrap(), data);
}

#[tokio::test]
async fn text_where_an_object_is_taken_is_an_error_and_the_tool_does_not_run() {
    let kept = Arc::default();
    let source = Parked::new(tools(&kept)).unwrap();
    let note = said(&call(&source, "give", &json!({ "size": 30_000 })).await.unwrap());
    let error = call(&source, "store", &json!({ "data": note["handle"] })).await.unwrap_err();
    assert!(error.starts_with("ParkedHandleError: argument `/data`"), "{error}");
    assert!(kept.lock().unwrap().is_empty());
}

#[tokio::test]
async fn kept_results_can_be_read_searched_and_saved() {
    let dir = tempfile::TempDir::new().unwrap();
    let kept = Arc::default();
    let source = Parked::new(tools(&kept)).unwrap().save_to(dir.path()).unwrap();
    let note = said(&call(&source, "give", &json!({ "size": 100_000 })).await.unwrap());
    let handle = &note["handle"];
    let whole = text(100_000);
    let mut read = String::new();
    let mut offset = json!(0);
    while !offset.is_null() {
        let arguments = json!({ "handle": handle, "offset": offset, "max_chars": 9_999 });
        let part = said(&call(&source, "result_read", &arguments).await.unwrap());
        read.push_str(part["text"].as_str().unwrap());
        offset = part["next_offset"].clone();
    }
    assert_eq!(read, whole);
    let found = said(
        &call(&source, "result_find", &json!({ "handle": handle, "query": "quoted", "limit": 2 }))
            .await
            .unwrap(),
    );
    assert_eq!(found["total"], whole.matches("quoted").count());
    assert_eq!(found["items"][1]["line"], 2);
    let saved =
        said(&call(&source, "result_save", &json!({ "handle": handle, "name": "out.txt" })).await.unwrap());
    assert_eq!(saved["bytes"], whole.len());
    assert_eq!(std::fs::read_to_string(dir.path().join("out.txt")).unwrap(), whole);
    // At most as much as the model may read.
    let most = json!({ "handle": handle, "max_chars": 1_000_000 });
    let part = said(&call(&source, "result_read", &most).await.unwrap());
    assert!(part["text"].as_str().unwrap().chars().count() <= 25_000);
}

/// A handle is valid only in its own session.
#[tokio::test]
async fn a_handle_of_another_session_is_refused() {
    let kept = Arc::default();
    let source = Parked::new(tools(&kept)).unwrap();
    let client = |set: fn(&mut Caller, u32), number| {
        let mut client = Caller::default();
        set(&mut client, number);
        Some(client)
    };
    let ways: [fn(&mut Caller, u32); 3] = [
        |client, number| client.session_id = Some(number.to_string()),
        |client, number| client.connection = Some(u64::from(number)),
        |client, number| client.pid = Some(number),
    ];
    for set in ways {
        let given = call_as(&source, client(set, 1), "give", &json!({ "size": 30_000 })).await.unwrap();
        let handle = said(&given)["handle"].clone();
        for other in [client(set, 2), None] {
            for (tool, arguments) in [
                ("store", json!({ "text": handle })),
                ("result_read", json!({ "handle": handle })),
                ("result_find", json!({ "handle": handle, "query": "a" })),
            ] {
                let error = call_as(&source, other.clone(), tool, &arguments).await.unwrap_err();
                assert!(
                    error.contains("there is no result `parked:") && error.contains("in this session"),
                    "{error}"
                );
            }
        }
        call_as(&source, client(set, 1), "store", &json!({ "text": handle })).await.unwrap();
        // Another source does not know it either.
        let elsewhere = Parked::new(tools(&kept)).unwrap();
        call_as(&elsewhere, client(set, 1), "store", &json!({ "text": handle })).await.unwrap_err();
    }
    assert_eq!(kept.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn the_tools_for_results_are_listed_at_once_or_when_there_is_one() {
    let names = |source: &dyn ToolSource| -> Vec<String> {
        source.tools().iter().map(|tool| tool.name.clone()).collect()
    };
    let kept = Arc::default();
    let own = ["give", "give_data", "fail", "store"];
    let eager = Parked::new(tools(&kept)).unwrap();
    assert_eq!(names(&eager), [&own[..], &["result_read", "result_find"]].concat());
    assert!(eager.tools().is(&eager.tools()), "the same list as long as nothing changes");
    let late = Parked::new(tools(&kept)).unwrap().on_demand();
    assert_eq!(names(&late), own);
    let error = call(&late, "result_read", &json!({ "handle": "parked:0" })).await.unwrap_err();
    assert!(error.starts_with("ToolNotFoundError"), "{error}");
    let mut changes = late.changes();
    let note = said(&call(&late, "give", &json!({ "size": 30_000 })).await.unwrap());
    changes.next().await;
    assert_eq!(names(&late), [&own[..], &["result_read", "result_find"]].concat());
    call(&late, "result_read", &json!({ "handle": note["handle"] })).await.unwrap();
    // A source that has such a tool itself is refused.
    let taken = Toolset::builder().tool("result_read", "", |_: NoArgs| "mine").build().unwrap();
    assert_eq!(Parked::new(taken).unwrap_err().to_string(), "two tools are called `result_read`");
}

#[tokio::test]
async fn a_tool_that_comes_later_does_not_take_the_name_of_a_tool_for_results() {
    let source = tools(&Arc::default());
    let parked = Parked::new(source.clone()).unwrap();
    let late = Parked::new(source.clone()).unwrap().on_demand();
    for name in ["result_read", "result_save"] {
        source.add(Tool::new(name, "", |_: NoArgs| "not yours")).unwrap();
    }
    for (source, is_listed) in [(&parked, true), (&late, false)] {
        let listed = source.tools();
        assert!(listed.get("result_save").is_none());
        assert_eq!(listed.get("result_read").is_some_and(|tool| !tool.description.is_empty()), is_listed);
        let note = said(&call(source, "give", &json!({ "size": 30_000 })).await.unwrap());
        let read = call(source, "result_read", &json!({ "handle": note["handle"] })).await.unwrap();
        assert!(read.to_string().contains("Größe"), "{read}");
    }
}

#[tokio::test]
async fn it_is_a_source_like_any_other() {
    let kept = Arc::default();
    let parked: Arc<dyn ToolSource> = Arc::new(Parked::new(tools(&kept)).unwrap());
    let some = Selection::new(Prefixed::new("p_", parked).unwrap(), ["p_give", "p_store"]).unwrap();
    let note = said(&call(&some, "p_give", &json!({ "size": 30_000 })).await.unwrap());
    call(&some, "p_store", &json!({ "text": note["handle"] })).await.unwrap();
    assert_eq!(kept.lock().unwrap()[0]["text"], text(30_000));
}

#[test]
fn a_folder_that_is_not_there_is_an_error() {
    let error = Parked::new(tools(&Arc::default())).unwrap().save_to("/nowhere/at/all").unwrap_err();
    assert!(
        error.to_string().starts_with("results cannot be saved to `/nowhere/at/all`: No such file"),
        "{error}"
    );
}
