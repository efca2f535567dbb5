//! Progress for a caller that does not read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::sync::Notify;
use toolbridge_core::{CallContext, NoArgs, Session, Tool, Toolset};

use crate::questions::{PATIENCE, receive, request, send, text};

/// More than a socket holds.
const REPORTS: u32 = 10_000;

fn report(context: &CallContext, step: u32) {
    context.progress(step.into(), None, Some(&"x".repeat(100)));
}

#[tokio::test]
async fn a_caller_that_does_not_read_its_progress_keeps_nobody_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let ended = Arc::new(Notify::new());
    let tell = Arc::clone(&ended);
    let chat = move |_: NoArgs, context: CallContext| {
        let ended = Arc::clone(&tell);
        async move {
            for step in 1..=REPORTS {
                report(&context, step);
                tokio::task::yield_now().await;
            }
            ended.notify_one();
            "chatted"
        }
    };
    let tools = Toolset::builder()
        .tool("chat", "Reports a lot", chat)
        .tool("hello", "Greets", async |_: NoArgs| "hello")
        .build()
        .unwrap();
    let session = Session::builder(tools).dir(dir.path()).start().await.unwrap();
    let mut deaf = UnixStream::connect(session.socket_path()).await.unwrap();
    send(&mut deaf, &request("chat", &json!({ "progressToken": 1 }))).await;
    tokio::time::timeout(PATIENCE, ended.notified()).await.expect("the tool goes on");
    let mut other = UnixStream::connect(session.socket_path()).await.unwrap();
    send(&mut other, &request("hello", &json!({}))).await;
    assert_eq!(receive(&mut other).await.unwrap(), text("hello"), "its turn has come");
    // Once it reads, it gets the newest report and the answer.
    let mut newest = json!(null);
    let answer = loop {
        let message = receive(&mut deaf).await.unwrap();
        match message.get("progress") {
            Some(report) => newest = report["progress"].clone(),
            None => break message,
        }
    };
    assert_eq!((newest, answer), (json!(REPORTS), text("chatted")));
}

#[tokio::test]
async fn a_timeout_ends_a_call_that_reports_without_a_pause() {
    let dir = tempfile::tempdir().unwrap();
    // It blocks its thread, and so ends only when it is told to.
    let chat = |_: NoArgs, context: CallContext| {
        let (began, mut step) = (Instant::now(), 0);
        while !context.is_cancelled() && began.elapsed() < 2 * PATIENCE {
            step += 1;
            report(&context, step);
        }
    };
    let chat = Tool::new("chat", "Reports without end", chat).timeout(Duration::from_millis(100));
    let tools = Toolset::builder().with(chat).build().unwrap();
    let session = Session::builder(tools).dir(dir.path()).start().await.unwrap();
    let mut reader = UnixStream::connect(session.socket_path()).await.unwrap();
    send(&mut reader, &request("chat", &json!({ "progressToken": 1 }))).await;
    let ends = async {
        loop {
            let message = receive(&mut reader).await.unwrap();
            if message.get("progress").is_none() {
                return message;
            }
        }
    };
    let answer = tokio::time::timeout(PATIENCE, ends).await.expect("an answer in time");
    assert_eq!(answer["error"]["type"], "ToolTimeoutError");
    let mut deaf = UnixStream::connect(session.socket_path()).await.unwrap();
    send(&mut deaf, &request("chat", &json!({ "progressToken": 1 }))).await;
    assert!(receive(&mut deaf).await.unwrap().get("progress").is_some(), "it has its turn");
    // Exclusive, so this one is answered only when the one before has ended.
    send(&mut reader, &request("chat", &json!({}))).await;
    assert_eq!(receive(&mut reader).await.unwrap()["error"]["type"], "ToolTimeoutError");
}

#[tokio::test]
async fn a_long_result_behind_unread_progress_is_counted_as_unread() {
    const CALLS: usize = 80;
    const BYTES: usize = 9_900_000;
    let dir = tempfile::tempdir().unwrap();
    let ended = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ended);
    let chat = move |_: NoArgs, context: CallContext| {
        let ended = Arc::clone(&count);
        async move {
            for step in 1..=100_u32 {
                context.progress(step.into(), None, Some(&"x".repeat(10_000)));
                tokio::task::yield_now().await;
            }
            ended.fetch_add(1, Ordering::SeqCst);
            "a".repeat(BYTES)
        }
    };
    let chat = Tool::new("chat", "Reports a lot, and says a lot", chat).read_only();
    let tools = Toolset::builder().with(chat).build().unwrap();
    let session = Session::builder(tools).dir(dir.path()).start().await.unwrap();
    let mut deaf = Vec::new();
    for _ in 0..CALLS {
        let mut one = UnixStream::connect(session.socket_path()).await.unwrap();
        send(&mut one, &request("chat", &json!({ "progressToken": 1 }))).await;
        deaf.push(one);
    }
    let all_ended = async {
        while ended.load(Ordering::SeqCst) < CALLS {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all_ended).await.expect("all calls end");
    // There is room for 1 GiB if they end at once, and for less if they do not.
    let (mut results, mut errors) = (0, 0);
    for mut one in deaf {
        loop {
            let size = one.read_u32().await.unwrap() as usize;
            if size > BYTES {
                results += 1;
                break;
            }
            let mut message = vec![0; size];
            one.read_exact(&mut message).await.unwrap();
            let message: Value = serde_json::from_slice(&message).unwrap();
            if message.get("progress").is_none() {
                let why = message["error"]["message"].as_str().unwrap();
                assert!(why.contains("bytes of answers wait to be read, which is the limit"), "{why}");
                errors += 1;
                break;
            }
        }
    }
    assert!(results >= 20 && errors >= 15, "{results} results and {errors} errors");
}
