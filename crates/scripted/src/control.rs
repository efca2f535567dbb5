//! The CLI's end of the control channel, in the hands of a test.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::unix::pipe;

/// What an MCP client says first.
const HELLO: &str =
    r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}"#;

/// A program that is taken for the CLI, and passes every line on: a test asks the MCP server on its control channel.
///
/// No CLI shows results as they are on the wire, so this one is no CLI.
#[derive(Debug)]
pub struct ControlChannel {
    program: PathBuf,
    lines: Lines<BufReader<pipe::Receiver>>,
    writer: pipe::Sender,
}

impl ControlChannel {
    /// Makes the program, in this directory. Must be called inside a runtime.
    ///
    /// # Panics
    ///
    /// If the directory cannot be used.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        let [read, write, program] = ["read", "write", "claude"].map(|name| dir.join(name));
        let made = Command::new("mkfifo").args([&read, &write]).status();
        assert!(made.is_ok_and(|made| made.success()), "no pipes in `{}`", dir.display());
        let version = "[ \"$1\" = --version ] && { echo 2.1.325; exit; }";
        let script =
            format!("#!/bin/sh\n{version}\ncat <{} &\nexec cat >{}\n", write.display(), read.display());
        fs::write(&program, script).expect("a program");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a program");
        // Open for reading and writing, so that opening waits for nobody.
        let lines = pipe::OpenOptions::new().read_write(true).open_receiver(&read).expect("a pipe");
        let writer = pipe::OpenOptions::new().read_write(true).open_sender(&write).expect("a pipe");
        Self { program, lines: BufReader::new(lines).lines(), writer }
    }

    /// What to start instead of the CLI.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Waits until it has been started, and greets the server `tools`.
    ///
    /// # Panics
    ///
    /// If somebody else has started it.
    pub async fn greet(&mut self) {
        let first = self.line().await;
        assert!(first.contains(r#""subtype":"initialize""#), "{first}");
        self.ask("initialize", HELLO).await;
    }

    /// Asks the server `tools`. This is the text of the result; nothing of it has been decoded.
    ///
    /// # Panics
    ///
    /// If the answer is no result.
    pub async fn ask(&mut self, method: &str, params: &str) -> String {
        let message = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let request = format!(r#"{{"subtype":"mcp_message","server_name":"tools","message":{message}}}"#);
        let line = format!("{{\"type\":\"control_request\",\"request_id\":\"r\",\"request\":{request}}}\n");
        self.writer.write_all(line.as_bytes()).await.expect("a reader");
        let answer = self.line().await;
        let frame = r#"{"type":"control_response","response":{"subtype":"success","request_id":"r","response":{"mcp_response":"#;
        let result = answer
            .strip_prefix(frame)
            .and_then(|rest| rest.strip_prefix(r#"{"jsonrpc":"2.0","id":1,"result":"#));
        result.and_then(|rest| rest.strip_suffix("}}}}")).unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    async fn line(&mut self) -> String {
        self.lines.next_line().await.ok().flatten().expect("a line")
    }
}
