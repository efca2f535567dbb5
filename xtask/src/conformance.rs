//! MCP's conformance suite, a client in TypeScript and the inspector's command line, against a server over HTTP.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context as _, Result};
use xtask::project::Project;

use crate::node;

/// The suite and its dependencies, including the official SDK. This version is the first that knows
/// 2026-07-28.
const PACKAGES: &[&str] =
    &["@modelcontextprotocol/conformance@0.2.0-alpha.12", "@modelcontextprotocol/inspector-cli@0.15.0"];

/// The revisions of MCP that the server speaks over HTTP.
const REVISIONS: &[&str] = &["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];

/// The suite, installed.
#[derive(Debug, Clone)]
pub(crate) struct Suite {
    node: PathBuf,
    folder: PathBuf,
}

impl Suite {
    /// Installs the suite under `target/`, if that version is missing.
    pub(crate) fn install(project: &Project, python: &Path) -> Result<Self> {
        let folder = project.target.join("conformance");
        node::install_once(python, &folder, PACKAGES)?;
        Ok(Self { node: node::node(python)?, folder })
    }

    /// The commands that test the server at `url`; each must succeed.
    pub(crate) fn commands(&self, root: &Path, url: &str) -> Vec<Command> {
        let suite = self.folder.join("node_modules/@modelcontextprotocol/conformance/dist/index.js");
        let known = root.join("crates/core/conformance.yml");
        let mut commands: Vec<_> = REVISIONS
            .iter()
            .map(|revision| {
                let mut command = Command::new(&self.node);
                command.arg(&suite).args(["server", "--suite", "all", "--url", url]);
                command.args(["--spec-version", revision, "--expected-failures"]).arg(&known);
                // The machine may be slow.
                command.args(["--timeout", "120000"]);
                command
            })
            .collect();
        let mut client = Command::new(&self.node);
        client.arg(root.join("crates/core/tests/http/typescript.mjs")).arg(&self.folder).arg(url);
        commands.push(client);
        let inspector = self.folder.join("node_modules/@modelcontextprotocol/inspector-cli/build/index.js");
        for method in ["tools/list", "tools/call --tool-name test_simple_text"] {
            let mut command = Command::new(&self.node);
            command.arg(&inspector).args([url, "--transport", "http", "--method"]).args(method.split(' '));
            commands.push(command);
        }
        commands
    }
}

/// The server under test; dropping it ends the server.
pub(crate) struct Server {
    process: Child,
    stdin: Option<ChildStdin>,
    /// Its URL.
    pub(crate) url: String,
}

impl Server {
    /// Starts the example `conformance`.
    pub(crate) fn start(program: &Path) -> Result<Self> {
        let mut process = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run `{}`", program.display()))?;
        let stdin = process.stdin.take();
        let mut server = Self { process, stdin, url: String::new() };
        let stdout = server.process.stdout.take().context("no stdout")?;
        BufReader::new(stdout).read_line(&mut server.url).context("the server did not print its URL")?;
        server.url = server.url.trim().to_owned();
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stdin.take());
        _ = self.process.wait();
    }
}
