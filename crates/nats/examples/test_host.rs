//! A host for tests: `test_host URL NAME HOST [--max N] [--version V] [--log FILE] [--wait MS]`. It prints
//! `ready`. It ends at once when its stdin is closed, and on SIGTERM after its running calls.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for tests")]

use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio::io::AsyncReadExt as _;
use tokio::signal::unix::{SignalKind, signal};
use toolbridge_core::tool::{RawJson, ServerInfo};
use toolbridge_core::{CallContext, NoArgs, Tool, ToolError, Toolset};
use toolbridge_nats as nats;

#[derive(Deserialize, JsonSchema)]
struct Work {
    /// The call's id.
    id: String,
    /// How long it takes.
    ms: u64,
}

#[derive(Deserialize, JsonSchema)]
struct Size {
    bytes: usize,
}

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

/// State shared by calls.
struct Here {
    host: String,
    /// The log of calls that have run.
    log: Option<Mutex<std::fs::File>>,
    /// How much longer everything takes on this host.
    slower: Duration,
}

impl Here {
    async fn work(&self, tool: &str, work: Work, context: &CallContext) -> String {
        self.note(&format!("begin {tool} {} {}", work.id, self.host));
        let cancelled = Cancelled { here: self, id: &work.id, is_done: false };
        tokio::time::sleep(Duration::from_millis(work.ms) + self.slower).await;
        let mut cancelled = cancelled;
        cancelled.is_done = true;
        context.progress(1.0, Some(1.0), Some("done"));
        self.note(&format!("end {tool} {} {}", work.id, self.host));
        format!("{} {}", work.id, self.host)
    }

    fn note(&self, line: &str) {
        if let Some(log) = &self.log {
            // One write: several hosts share the file.
            log.lock().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
        }
    }
}

struct Cancelled<'a> {
    here: &'a Here,
    id: &'a str,
    is_done: bool,
}

impl Drop for Cancelled<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.here.note(&format!("cancelled {} {}", self.id, self.here.host));
        }
    }
}

fn tools(here: &Arc<Here>, says: &str) -> Toolset {
    let worker = |tool: &'static str| {
        let here = Arc::clone(here);
        move |work: Work, context: CallContext| {
            let here = Arc::clone(&here);
            async move { here.work(tool, work, &context).await }
        }
    };
    let host = here.host.clone();
    let client = async |_: NoArgs, context: CallContext| {
        let client = context.caller().and_then(|client| client.name.clone());
        format!("{client:?} {:?}", context.tool_use_id())
    };
    let count = async |_: NoArgs, context: CallContext| {
        for step in 1..=3 {
            context.progress(f64::from(step), Some(3.0), Some("größe"));
        }
        "counted"
    };
    let fail = async |_: NoArgs| Err::<String, _>(ToolError::new("QuotaError", "two\nlines: größe"));
    let raw = async |arguments: RawJson| {
        let text = format!(
            r#"{{"content":[{{"type":"odd","n":1.50,"given":{arguments}}}],"_meta":{{"z":1,"a":12345678901234567890123}}}}"#
        );
        toolbridge_core::ToolResult::complete(RawJson::parse(text).unwrap())
    };
    Toolset::builder()
        .with(Tool::new("nap", "Sleeps", worker("nap")).read_only())
        .with(Tool::new("write", "Changes something", worker("write")).parallel())
        .with(Tool::new("turn", "Changes something, one call at a time", worker("turn")))
        .with(
            Tool::new("who", format!("Says which host this is{says}"), async move |_: NoArgs| host.clone())
                .read_only(),
        )
        .with(Tool::new("echo", "Says it again", async |it: Text| it.text).read_only())
        .with(Tool::new("size", "Counts", async |it: Text| it.text.len().to_string()).read_only())
        .with(Tool::new("blob", "Much", async |size: Size| "x".repeat(size.bytes)).read_only())
        .with(Tool::new("client", "Names the client", client).read_only())
        .with(Tool::new("count", "Counts to three", count).read_only())
        .with(Tool::new("fail", "Fails", fail).read_only())
        .with(Tool::raw("raw", "As it is", serde_json::json!({ "type": "object" }), raw).read_only())
        .build()
        .unwrap()
}

#[tokio::main]
async fn main() {
    let mut args = std::env::args().skip(1);
    let mut next = || args.next();
    let (url, name, host) = (next().unwrap(), next().unwrap(), next().unwrap());
    let (mut max, mut version, mut log, mut slower) = (512, None, None, 0);
    while let Some(option) = next() {
        let value = next().unwrap();
        match &*option {
            "--max" => max = value.parse().unwrap(),
            "--version" => version = Some(value),
            "--log" => log = Some(value),
            "--wait" => slower = value.parse().unwrap(),
            _ => panic!("{option}"),
        }
    }
    let open = |path| Mutex::new(std::fs::File::options().create(true).append(true).open(path).unwrap());
    let here =
        Arc::new(Here { host: host.clone(), log: log.map(open), slower: Duration::from_millis(slower) });
    // Hosts of different versions describe a tool differently.
    let says = version.as_ref().map_or_else(String::new, |version| format!(", {version}"));
    let tools = tools(&here, &says);
    let mut info = ServerInfo::new("test host");
    if let Some(version) = version {
        info = info.version(version);
    }
    let builder = nats::Host::builder(tools.clone(), name).at(url).host(host).max_calls(max).info(info);
    let host = builder.start().await.unwrap();
    println!("ready");
    let mut terminated = signal(SignalKind::terminate()).unwrap();
    let mut changed = signal(SignalKind::user_defined1()).unwrap();
    let mut stdin = tokio::io::stdin();
    loop {
        tokio::select! {
            _ = terminated.recv() => {
                host.drain().await;
                // The thread that reads stdin would keep the process alive.
                std::process::exit(0);
            }
            _ = changed.recv() => {
                tools.add(Tool::new("late", "Comes later", async |_: NoArgs| "late").read_only()).unwrap();
                tools.remove("echo");
            }
            read = stdin.read_u8() => if read.is_err() { std::process::exit(0) },
        }
    }
}
