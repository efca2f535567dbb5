//! Servers, calls and waiting.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use toolbridge_core::client::{CommandTarget, McpServer, McpServerBuilder};
use toolbridge_core::tool::{RawJson, ToolCall};
use toolbridge_core::{CallContext, ToolError, ToolSource};

/// The limit for every wait.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// The test server. Cargo builds the examples before it runs the tests, beside their executables.
pub(crate) fn test_server() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.parent().unwrap().parent().unwrap().join("examples/test_server")
}

pub(crate) fn server(args: &[&str]) -> McpServerBuilder<CommandTarget> {
    McpServer::command(test_server()).args(args).name("test").start_timeout(LONG)
}

pub(crate) async fn started(args: &[&str]) -> McpServer {
    server(args).start().await.unwrap()
}

pub(crate) fn call_of(name: &str, arguments: &str) -> ToolCall {
    ToolCall::new(name, RawJson::parse(arguments.to_owned()).unwrap())
}

pub(crate) async fn call(
    source: &impl ToolSource,
    name: &str,
    arguments: &str,
) -> Result<RawJson, ToolError> {
    within(source.call(call_of(name, arguments), CallContext::default())).await
}

/// The text of the first block of a result.
pub(crate) fn text(result: &RawJson) -> String {
    result.decode::<Value>().unwrap()["content"][0]["text"].as_str().unwrap().to_owned()
}

pub(crate) fn names(source: &impl ToolSource) -> Vec<String> {
    source.tools().iter().map(|tool| tool.name.clone()).collect()
}

pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(LONG, future).await.expect("it takes far too long")
}

/// Waits until the condition holds.
pub(crate) async fn until(mut is_so: impl FnMut() -> bool) {
    within(async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// The captured log.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A log, and a subscriber that writes to it.
pub(crate) fn log() -> (Log, impl tracing::Subscriber + Send + Sync) {
    let log = Log::default();
    let writer = log.clone();
    (log, tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish())
}

/// Whether a process exists and has not ended.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Kills a process, and waits until its parent knows of its end. Calls that are made before that fail.
pub(crate) async fn killed(pid: u32) {
    kill(pid);
    until(|| !std::fs::exists(format!("/proc/{pid}")).unwrap()).await;
}

pub(crate) fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}
