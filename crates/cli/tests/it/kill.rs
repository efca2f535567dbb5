//! Kill -9 of any process at any moment: the others end, and the next start leaves no files.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

use crate::support::{Host, McpClient, PATIENCE, Process, eventually, files, toolbridge};

const ROUNDS: usize = 100;

/// Processes whose command line mentions `dir`.
fn processes_of(dir: &Path) -> Vec<String> {
    let dir = dir.to_string_lossy().into_owned();
    let mentions = |entry: &std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(&dir).then_some(line)
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| mentions(&entry)).collect()
}

/// Random moments between 0 and 30 ms.
fn moments() -> impl Iterator<Item = Duration> {
    std::iter::repeat_with(|| Duration::from_micros(RandomState::new().build_hasher().finish() % 30_000))
}

#[test]
fn a_host_killed_at_any_moment_leaves_nothing_after_the_next_start() {
    let dir = TempDir::new().unwrap();
    for moment in moments().take(ROUNDS) {
        let mut command = toolbridge();
        command.args(["demo", "--serve"]).env("TMPDIR", dir.path());
        let child =
            command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(moment);
        drop(Process(child));
    }
    assert_next_start_is_clean(dir);
}

#[test]
fn a_host_killed_with_calls_under_way_leaves_nothing_after_the_next_start() {
    let mut dir = TempDir::new().unwrap();
    for moment in moments().take(ROUNDS) {
        let host = Host::start_in(dir);
        let mut client = host.client();
        let calls: Vec<_> = (0..4).map(|_| client.start_call("wait", json!({ "ms": 600_000 }))).collect();
        std::thread::sleep(moment / 10);
        host.process.signal(Signal::KILL);
        for call in calls {
            assert_eq!(client.answer(call)["result"]["isError"], true);
        }
        client.end_input();
        assert_eq!(client.bridge.wait_within(PATIENCE).code(), Some(0));
        dir = host.dir;
    }
    assert_next_start_is_clean(dir);
}

#[test]
fn a_bridge_killed_at_any_moment_cancels_its_calls_and_the_host_lives() {
    let mut host = Host::start();
    for moment in moments().take(ROUNDS) {
        let mut client = McpClient::start(&host.socket, &host.schema);
        client.initialize();
        client.start_call("write_note", json!({ "text": "x", "ms": 600_000 }));
        std::thread::sleep(moment / 10);
        client.bridge.signal(Signal::KILL);
        client.bridge.wait_within(PATIENCE);
    }
    // All those handlers have ended, so the exclusive lane is free.
    assert_eq!(host.client().call_text("write_note", json!({ "text": "free" })), "note 1: free");
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", host.process.pid())).unwrap().count();
    eventually("the host closes what the dead left", PATIENCE, || descriptors() < 30);
    host.process.signal(Signal::KILL);
    // The next start removes its files only if it is dead.
    host.process.wait_within(PATIENCE);
    assert_next_start_is_clean(host.dir);
}

/// Starts one more host and ends it normally: no file and no process may be left.
fn assert_next_start_is_clean(dir: TempDir) {
    let path = dir.path().to_owned();
    let mut host = Host::start_in(dir);
    eventually("only the live session has files", PATIENCE, || {
        let own =
            [&host.socket, &host.schema].map(|path| path.file_name().unwrap().to_string_lossy().into_owned());
        files(&path) == own
    });
    host.stdin.take();
    assert!(host.process.wait_within(PATIENCE).success());
    assert_eq!(files(&path), Vec::<String>::new());
    eventually("no process is left", PATIENCE, || processes_of(&path).is_empty());
}
