//! The CLI's end of the control channel, played by a test.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::unix::pipe;

/// The parameters of `initialize`.
const HELLO: &str =
    r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}"#;

/// A program that is started instead of the CLI and passes every line on, so that a test can call the MCP
/// server on its control channel.
///
/// The real CLI does not show results as they are on the wire.
#[derive(Debug)]
pub struct ControlChannel {
    program: PathBuf,
    lines: Lines<BufReader<pipe::Receiver>>,
    writer: pipe::Sender,
}

impl ControlChannel {
    /// Creates the program in this directory. Must be called inside a runtime.
    ///
    /// # Panics
    ///
    /// If the directory cannot be used.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        let [read, write, program] = ["read", "write", "claude"].map(|name| dir.join(name));
        let made = Command::new("mkfifo").args([&read, &write]).status();
        assert!(made.is_ok_and(|made| made.success()), "no pipes in `{}`", dir.display());
        let version = "[ \"$1\" = --version ] && { echo 2.1.326; exit; }";
        let script =
            format!("#!/bin/sh\n{version}\ncat <{} &\nexec cat >{}\n", write.display(), read.display());
        fs::write(&program, script).expect("a program");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a program");
        // Open for reading and writing, so that opening does not block.
        let open = |path| fs::OpenOptions::new().read(true).write(true).open(path).expect("a pipe");
        let lines = pipe::Receiver::from_file(open(&read)).expect("a pipe");
        let writer = pipe::Sender::from_file(open(&write)).expect("a pipe");
        Self { program, lines: BufReader::new(lines).lines(), writer }
    }

    /// The program to start instead of the CLI.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Waits until it has been started, and does the handshake with the server `tools`.
    ///
    /// # Panics
    ///
    /// If its first line is not the expected one.
    pub async fn greet(&mut self) {
        let first = self.line().await;
        assert!(first.contains(r#""subtype":"initialize""#), "{first}");
        self.ask("initialize", HELLO).await;
    }

    /// Sends a request to the server `tools` and returns the text of the result, not decoded.
    ///
    /// # Panics
    ///
    /// If the answer is not a result.
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
