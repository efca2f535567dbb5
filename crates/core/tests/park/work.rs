//! What handles cost: memory, time, and the threads that do the work.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use toolbridge_core::park::Parked;
use toolbridge_core::tool::RawJson;
use toolbridge_core::{NoArgs, Tool, Toolset};

use crate::parked::{call, said};

const LONG: Duration = Duration::from_secs(60);

/// Arguments with a handle that many times.
fn times(handle: &Value, count: usize) -> Value {
    let members = (0..count).map(|number| (format!("a{number}"), handle.clone()));
    Value::Object(members.collect())
}

#[tokio::test]
async fn the_texts_of_all_calls_have_a_limit_and_a_call_that_ends_gives_its_part_back() {
    let (begun, may_end) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let hold = {
        let (begun, may_end) = (Arc::clone(&begun), Arc::clone(&may_end));
        Tool::raw("hold", "", json!({ "type": "object" }), move |_: RawJson| {
            let (begun, may_end) = (Arc::clone(&begun), Arc::clone(&may_end));
            async move {
                begun.fetch_add(1, Ordering::SeqCst);
                may_end.acquire().await.unwrap().forget();
                "held"
            }
        })
    };
    let give = Tool::new("give", "", |_: NoArgs| "a".repeat(16_000_000));
    let tools = Toolset::builder().with(hold).with(give).build().unwrap();
    let source = Arc::new(Parked::new(tools).unwrap());
    let handle = said(&call(&source, "give", &json!({})).await.unwrap())["handle"].clone();
    let start = |count| {
        let (source, arguments) = (Arc::clone(&source), times(&handle, count));
        tokio::spawn(async move { call(&source, "hold", &arguments).await })
    };
    let begins = async |count| {
        let until = async {
            while begun.load(Ordering::SeqCst) < count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, until).await.expect("there is room for it");
    };

    let first = start(10);
    begins(1).await;
    // It does not wait, which would take the place of a call that could run.
    let error = start(10).await.unwrap().unwrap_err();
    assert!(
        error.starts_with("ParkedHandleError") && error.contains("call again when others have ended"),
        "{error}"
    );
    may_end.add_permits(1);
    assert!(first.await.unwrap().is_ok());
    let second = start(10);
    begins(2).await;
    // Its client leaves.
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());
    let third = start(10);
    begins(3).await;
    may_end.add_permits(1);
    assert!(third.await.unwrap().is_ok());

    let error = start(17).await.unwrap().unwrap_err();
    assert!(error.starts_with("ParkedHandleError") && error.contains("more than 268435456 bytes"), "{error}");
}

/// The processor time that this thread, and all of this process, have used.
fn used() -> [Duration; 2] {
    [ClockId::ThreadCPUTime, ClockId::ProcessCPUTime]
        .map(|clock| Duration::try_from(clock_gettime(clock)).unwrap())
}

#[tokio::test]
async fn long_results_are_searched_read_and_saved_beside_the_threads_of_the_runtime() {
    let dir = tempfile::TempDir::new().unwrap();
    let give = Tool::new("give", "", |_: NoArgs| "one line\n".repeat(3_000_000));
    let tools = Toolset::builder().with(give).build().unwrap();
    let source = Parked::new(tools).unwrap().save_to(dir.path()).unwrap();
    let handle = said(&call(&source, "give", &json!({})).await.unwrap())["handle"].clone();
    for (tool, arguments) in [
        ("result_find", json!({ "handle": handle, "query": "two" })),
        ("result_find", json!({ "handle": handle, "query": "TWO", "ignore_case": true })),
        ("result_read", json!({ "handle": handle, "start_line": 2_999_999 })),
        ("result_save", json!({ "handle": handle, "name": "saved" })),
    ] {
        let before = used();
        call(&source, tool, &arguments).await.unwrap();
        let after = used();
        let [here, everywhere] = [0, 1].map(|clock| after[clock].saturating_sub(before[clock]));
        assert!(here * 2 < everywhere, "{arguments}: {here:?} of {everywhere:?}");
    }
}

#[test]
fn a_schema_of_nested_choices_is_looked_at_once() {
    let mut schema =
        json!({ "type": "object", "properties": { "data": { "$ref": "#/$defs/d0" } }, "$defs": {} });
    for level in 0..60 {
        let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
        schema["$defs"][format!("d{level}")] = json!({ "anyOf": [next, next, next] });
    }
    schema["$defs"]["d60"] = json!({ "type": "object" });
    let take = Tool::raw("take", "", schema, |_: RawJson| "taken");
    let give = Tool::new("give", "", |_: NoArgs| "a".repeat(30_000));
    let source = Parked::new(Toolset::builder().with(take).with(give).build().unwrap()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let outcome = runtime.block_on(async {
        let handle = said(&call(&source, "give", &json!({})).await.unwrap())["handle"].clone();
        tokio::time::timeout(LONG, call(&source, "take", &json!({ "data": handle }))).await
    });
    runtime.shutdown_background();
    let error = outcome.unwrap().unwrap_err();
    assert!(error.starts_with("ParkedHandleError: argument `/data`"), "{error}");
}
