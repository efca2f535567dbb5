//! The calls of the demo, and the expected answers.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::client::{Answer, Client};
use super::report::Row;
use super::tools::Shared;

const PARALLEL_CALLS: usize = 64;
const PARALLEL_WAIT_MS: u64 = 200;
const TIMED_CALLS: usize = 500;

/// Makes every call of the demo in order.
pub(crate) async fn all_calls(client: &Client, shared: &Shared) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (tool, arguments, want) in calls() {
        rows.push(one_call(client, tool, arguments, want).await?);
    }
    rows.push(parallel_calls(client).await?);
    rows.push(exclusive_calls(client).await?);
    rows.push(cancelled_call(client, shared).await?);
    Ok(rows)
}

/// An expected answer.
enum Want {
    Text(&'static str),
    Starts(&'static str),
    Bytes(usize),
    Picture,
    Progress(usize, &'static str),
    Error(&'static str),
    RpcError(i64),
}

fn calls() -> Vec<(&'static str, Value, Want)> {
    vec![
        ("echo", json!({ "text": "grüß dich" }), Want::Text("grüß dich")),
        ("add", json!({ "a": 40, "b": 2 }), Want::Text("42")),
        ("add", json!({ "a": 1, "b": 1.5 }), Want::Text("2.5")),
        ("wait", json!({ "ms": 50 }), Want::Text("waited 50 ms")),
        ("write_note", json!({ "text": "buy milk" }), Want::Text("note 1: buy milk")),
        ("blob", json!({ "bytes": 1_000_000 }), Want::Bytes(1_000_000)),
        ("picture", json!({}), Want::Picture),
        ("countdown", json!({ "from": 3 }), Want::Progress(4, "lift-off")),
        ("fail", json!({ "message": "no such order" }), Want::Error("no such order (type: DemoError)")),
        (
            "panic",
            json!({}),
            Want::Error("tool `panic` panicked: this tool always panics (type: ToolPanicError)"),
        ),
        ("add", json!({ "a": "x", "b": 2 }), Want::Starts("invalid arguments for tool `add`: at `/a`: ")),
        ("blob", json!({ "bytes": 11_000_000 }), Want::Starts("the answer of tool `blob` cannot be sent: ")),
        ("nothing", json!({}), Want::RpcError(-32602)),
    ]
}

async fn one_call(client: &Client, tool: &str, arguments: Value, want: Want) -> Result<Row> {
    let Answer { result, progress, time } = client.call(tool, &arguments).await?;
    let (answer, ok) = match result {
        Ok(result) => check(&result, progress, &want),
        Err(error) => {
            let ok = matches!(want, Want::RpcError(code) if error["code"] == code);
            let how = if ok { ", as expected" } else { "" };
            let message = error["message"].as_str().unwrap_or("?");
            (format!("protocol error {}{how}: {message}", error["code"]), ok)
        }
    };
    Ok(Row { call: format!("{tool} {arguments}"), answer, time, ok })
}

fn check(result: &Value, progress: usize, want: &Want) -> (String, bool) {
    let is_error = result["isError"] == true;
    let block = &result["content"][0];
    let text = block["text"].as_str().unwrap_or_default();
    let wanted = matches!(want, Want::Starts(_) | Want::Error(_));
    let shown = |text: &str| match (is_error, wanted) {
        (true, true) => format!("error, as expected: {text}"),
        (true, false) => format!("error: {text}"),
        (false, _) => text.to_owned(),
    };
    match want {
        Want::Text(want) => (shown(text), !is_error && text == *want),
        Want::Starts(start) => (shown(text), is_error && text.starts_with(start)),
        Want::Error(want) => (shown(text), is_error && text == *want),
        Want::Bytes(want) => (format!("a text of {} bytes", text.len()), !is_error && text.len() == *want),
        Want::Progress(reports, want) => {
            (format!("{} ({progress} progress reports)", shown(text)), text == *want && progress == *reports)
        }
        Want::Picture => {
            let (kind, data) =
                (block["mimeType"].as_str().unwrap_or("?"), block["data"].as_str().unwrap_or(""));
            (
                format!("a picture, {kind}, {} bytes of base64", data.len()),
                kind == "image/png" && !data.is_empty(),
            )
        }
        Want::RpcError(_) => (shown(text), false),
    }
}

/// Read-only tools run in parallel.
async fn parallel_calls(client: &Client) -> Result<Row> {
    let arguments = json!({ "ms": PARALLEL_WAIT_MS });
    let alone = client.call("wait", &arguments).await?.time;
    let one_by_one = Duration::from_millis(PARALLEL_WAIT_MS * PARALLEL_CALLS as u64);
    let (good, time) = at_once(client, "wait", &arguments, PARALLEL_CALLS).await?;
    Ok(Row {
        call: format!("{PARALLEL_CALLS} × wait {arguments}, at once"),
        answer: format!("{good} answers; one alone takes {:.1} ms", alone.as_secs_f64() * 1e3),
        time,
        // Run one after the other, they would take longer on any machine.
        ok: good == PARALLEL_CALLS && time < one_by_one,
    })
}

/// Tools that change something run one at a time.
async fn exclusive_calls(client: &Client) -> Result<Row> {
    const CALLS: u32 = 4;
    const EACH: Duration = Duration::from_millis(50);
    let arguments = json!({ "text": "turn", "ms": EACH.as_millis() });
    let (good, time) = at_once(client, "write_note", &arguments, CALLS as usize).await?;
    Ok(Row {
        call: format!("{CALLS} × write_note {arguments}, at once"),
        answer: format!("{good} answers, one after the other"),
        time,
        ok: good == CALLS as usize && time >= EACH * CALLS,
    })
}

/// Calls a tool many times at once; returns the number of successful results, and the time for all.
async fn at_once(client: &Client, tool: &str, arguments: &Value, times: usize) -> Result<(usize, Duration)> {
    let started = Instant::now();
    let answers = join_all((0..times).map(|_| client.call(tool, arguments))).await;
    let time = started.elapsed();
    let answers = answers.into_iter().collect::<Result<Vec<_>>>()?;
    Ok((answers.iter().filter(|answer| answer.is_good()).count(), time))
}

/// Cancelling a call ends its handler.
async fn cancelled_call(client: &Client, shared: &Shared) -> Result<Row> {
    // Consume the permit that earlier `wait` calls left.
    while tokio::time::timeout(Duration::ZERO, shared.waiting.notified()).await.is_ok() {}
    let arguments = json!({ "ms": 60_000 });
    let started = client.call_and_cancel("wait", &arguments, shared.waiting.notified()).await?;
    let ended = tokio::time::timeout(Duration::from_secs(60), shared.cancelled.notified()).await;
    Ok(Row {
        call: format!("wait {arguments}, then cancelled"),
        answer: if ended.is_ok() { "its handler was ended" } else { "its handler went on" }.into(),
        time: started.elapsed(),
        ok: ended.is_ok(),
    })
}

pub(crate) async fn median_round_trip(client: &Client) -> Result<Duration> {
    let arguments = json!({ "text": "x".repeat(100) });
    let mut times = Vec::with_capacity(TIMED_CALLS);
    for _ in 0..TIMED_CALLS {
        times.push(client.call("echo", &arguments).await?.time);
    }
    times.sort_unstable();
    times.get(TIMED_CALLS / 2).copied().context("no calls were timed")
}
