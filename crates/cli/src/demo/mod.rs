//! `toolbridge demo`: the whole way of a call, on nothing but this machine.

mod client;
mod library;
mod report;
mod tools;

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use toolbridge::{Combined, Session, SessionBuilder};

pub(crate) use self::client::{Answer, Client};
use self::library::Library;
use self::report::{Report, Row};
use self::tools::Shared;
pub(crate) use self::tools::{demo_tools, hide_demo_panic};
use crate::output::{INTERRUPTED, TERMINATED, WithHint, print};

/// The server's name in the MCP config.
const SERVER: &str = "tools";

const PARALLEL_CALLS: usize = 64;
const PARALLEL_WAIT_MS: u64 = 200;
const TIMED_CALLS: usize = 500;

/// Hosts the demo tools for any MCP client, until stdin ends or a signal comes.
pub(crate) fn serve(trace: Option<&Path>) -> Result<ExitCode> {
    let runtime = toolbridge::runtime(Builder::new_multi_thread())?;
    let served = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let end = end_of_stdin()?;
        let session = traced(Session::builder(demo_tools(Arc::default())?), trace).start().await?;
        let hello = json!({
            "socket": in_json(session.socket_path())?,
            "schema": in_json(session.schema_path())?,
            "mcp_config": session.mcp_config(SERVER)?,
        });
        print(format!("{hello}\n").as_bytes())?;
        tokio::select! {
            () = end => {}
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        session.stop().await;
        Ok(ExitCode::SUCCESS)
    });
    // A tool that blocks its thread must not hold the process.
    runtime.shutdown_background();
    served
}

/// A runtime that is enough for a command and the tools it offers.
pub(crate) fn two_threads() -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2);
    toolbridge::runtime(builder)
}

/// A path for the config that the CLI reads, which is JSON: that has no way to write every path.
fn in_json(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        let error =
            format!("the path of the session, `{}`, is not UTF-8 and fits into no config", path.display());
        WithHint { error, hint: "set TMPDIR to a directory whose path is UTF-8".into() }.into()
    })
}

fn traced(session: SessionBuilder, file: Option<&Path>) -> SessionBuilder {
    match file {
        Some(file) => session.trace(file),
        None => session,
    }
}

/// Waits for the end of stdin, in a thread of our own: where there is none to be had, tokio's stdin panics.
fn end_of_stdin() -> io::Result<impl Future<Output = ()>> {
    let (tell, told) = oneshot::channel();
    let read = move || {
        _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        _ = tell.send(());
    };
    thread::Builder::new().name("stdin".into()).spawn(read)?;
    Ok(async { _ = told.await })
}

/// Hosts the demo tools, starts a bridge, and calls each of them through it.
pub(crate) fn run(json: bool, trace: Option<&Path>) -> Result<ExitCode> {
    hide_demo_panic();
    let runtime = two_threads()?;
    let report = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            report = demo(trace) => report.map(Ok),
            _ = interrupt.recv() => Ok(Err(INTERRUPTED)),
            _ = terminate.recv() => Ok(Err(TERMINATED)),
        }
    })?;
    let report = match report {
        Ok(report) => report,
        Err(signalled) => return Ok(ExitCode::from(signalled)),
    };
    print(if json { report.to_json() } else { report.to_text() }.as_bytes())?;
    Ok(if report.all_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn demo(trace: Option<&Path>) -> Result<Report> {
    let shared = Arc::new(Shared::default());
    let library = Library::new()?;
    let started = Instant::now();
    let tools = Combined::new().with(demo_tools(Arc::clone(&shared))?)?.with(library.documents()?)?;
    let session = traced(Session::builder(tools), trace).start().await?;
    let session_time = started.elapsed();

    let started = Instant::now();
    let (client, tools) = Client::start(&session.mcp_server()?).await?;
    let bridge_time = started.elapsed();
    let mut report = Report::new(&session, session_time, client.pid(), bridge_time, tools.len());

    for (tool, arguments, want) in calls() {
        report.add(one_call(&client, tool, arguments, want).await?);
    }
    report.add(parallel_calls(&client).await?);
    report.add(exclusive_calls(&client).await?);
    report.add(cancelled_call(&client, &shared).await?);
    for row in library.copy_a_section(&client).await? {
        report.add(row);
    }
    report.round_trip = median_round_trip(&client).await?;

    let (socket, schema) = (session.socket_path().to_owned(), session.schema_path().to_owned());
    let exit = client.stop().await?;
    session.stop().await;
    ensure!(exit.success(), "the bridge ended with {exit}");
    ensure!(!socket.exists() && !schema.exists(), "the session left a file behind");
    Ok(report)
}

/// What an answer must be.
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
    let started = Instant::now();
    let answer = client.call(tool, &arguments).await?;
    let time = started.elapsed();
    let (answer, ok) = match answer {
        Answer::Result { result, progress } => judge(&result, progress, &want),
        Answer::Error(error) => {
            let ok = matches!(want, Want::RpcError(code) if error["code"] == code);
            let how = if ok { ", as it should be" } else { "" };
            let message = error["message"].as_str().unwrap_or("?");
            (format!("protocol error {}{how}: {message}", error["code"]), ok)
        }
    };
    Ok(Row { call: format!("{tool} {arguments}"), answer, time, ok })
}

fn judge(result: &Value, progress: usize, want: &Want) -> (String, bool) {
    let is_error = result["isError"] == true;
    let block = &result["content"][0];
    let text = block["text"].as_str().unwrap_or_default();
    let wanted = matches!(want, Want::Starts(_) | Want::Error(_));
    let shown = |text: &str| match (is_error, wanted) {
        (true, true) => format!("error, as it should be: {text}"),
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

/// Read-only tools run side by side.
async fn parallel_calls(client: &Client) -> Result<Row> {
    let arguments = json!({ "ms": PARALLEL_WAIT_MS });
    let started = Instant::now();
    client.call("wait", &arguments).await?;
    let alone = started.elapsed();
    let started = Instant::now();
    let good = all(client, "wait", &vec![arguments.clone(); PARALLEL_CALLS]).await?;
    let time = started.elapsed();
    Ok(Row {
        call: format!("{PARALLEL_CALLS} × wait {arguments}, at once"),
        answer: format!("{good} answers; one alone takes {:.1} ms", alone.as_secs_f64() * 1e3),
        time,
        ok: good == PARALLEL_CALLS && time < alone * 2,
    })
}

/// Tools that change something take turns.
async fn exclusive_calls(client: &Client) -> Result<Row> {
    const CALLS: u32 = 4;
    const EACH: Duration = Duration::from_millis(50);
    let arguments = json!({ "text": "turn", "ms": EACH.as_millis() });
    let started = Instant::now();
    let good = all(client, "write_note", &vec![arguments.clone(); CALLS as usize]).await?;
    let time = started.elapsed();
    Ok(Row {
        call: format!("{CALLS} × write_note {arguments}, at once"),
        answer: format!("{good} answers, one after the other"),
        time,
        ok: good == CALLS as usize && time >= EACH * CALLS,
    })
}

/// Calls a tool many times at once; how many results were no error.
async fn all(client: &Client, tool: &str, arguments: &[Value]) -> Result<usize> {
    let mut good = 0;
    for answer in join_all(arguments.iter().map(|arguments| client.call(tool, arguments))).await {
        good += usize::from(matches!(answer?, Answer::Result { result, .. } if result["isError"] == false));
    }
    Ok(good)
}

/// A client that changes its mind ends the handler.
async fn cancelled_call(client: &Client, shared: &Shared) -> Result<Row> {
    // Earlier waits have left a permit.
    while tokio::time::timeout(Duration::ZERO, shared.waiting.notified()).await.is_ok() {}
    let arguments = json!({ "ms": 60_000 });
    let started = client.call_and_cancel("wait", &arguments, shared.waiting.notified()).await?;
    let ended = tokio::time::timeout(Duration::from_secs(5), shared.cancelled.notified()).await;
    Ok(Row {
        call: format!("wait {arguments}, then cancelled"),
        answer: if ended.is_ok() { "its handler was ended" } else { "its handler went on" }.into(),
        time: started.elapsed(),
        ok: ended.is_ok(),
    })
}

async fn median_round_trip(client: &Client) -> Result<Duration> {
    let arguments = json!({ "text": "x".repeat(100) });
    let mut times = Vec::with_capacity(TIMED_CALLS);
    for _ in 0..TIMED_CALLS {
        let started = Instant::now();
        client.call("echo", &arguments).await?;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    times.get(TIMED_CALLS / 2).copied().context("no calls were timed")
}
