//! The executable `scripted-model`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::client::Client;

const SCRIPTED_MODEL: &str = env!("CARGO_BIN_EXE_scripted-model");

#[test]
fn it_serves_and_logs_until_stdin_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (script, log) = (dir.path().join("script"), dir.path().join("log"));
    fs::write(&script, "text hello\n").unwrap();
    let mut child = Command::new(SCRIPTED_MODEL)
        .arg("--log")
        .args([&log, &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let started: Value = serde_json::from_str(&line).unwrap();

    let mut client = Client::connect(started["url"].as_str().unwrap());
    for (turn, want) in ["hello", "(the script has ended)"].into_iter().enumerate() {
        client.ask(turn, "hi");
        assert_eq!(client.answer().text(), want);
    }
    let logged = fs::read_to_string(&log).unwrap();
    let turns: Vec<usize> = logged
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["messages"].as_array().unwrap().len())
        .collect();
    assert_eq!(turns, [1, 3]);

    drop(child.stdin.take());
    assert!(client.is_closed());
    assert!(child.wait().unwrap().success());
}

#[test]
fn errors_go_to_stderr() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    fs::write(&script, "text hello\nhang").unwrap();
    let script = script.to_str().unwrap();
    for (args, code, want) in [
        (&[][..], 2, "usage: scripted-model"),
        (&["--help"], 2, "usage: scripted-model"),
        (&["/nowhere/script"], 1, "error: cannot read `/nowhere/script`: "),
        (&[script], 1, "line 2 of the script: "),
        (&["--log", "/nowhere/log", script], 1, "line 2 of the script: "),
    ] {
        let output = Command::new(SCRIPTED_MODEL).args(args).stdin(Stdio::null()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(code) && stderr.contains(want), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty());
    }
}
