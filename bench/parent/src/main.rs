//! A program with tools, as a user would write one. `cargo xtask bench` sends it commands, one per line:
//!
//! - `start TOOLS` starts a session with that many tools, and prints its paths and the time that it took;
//! - `name TOOLS NAME` starts one with a name;
//! - `stop` stops the last session;
//! - `ask CLI` makes a request over the transport `sdk`, with that program instead of the Claude Code CLI.
//!
//! Each command is answered with a line of JSON. `bench-parent TOOLS` is an MCP server with that many tools
//! instead, on its stdin and stdout; `bench-parent TOOLS http` serves HTTP and prints its URL. `nats.rs` is
//! for measurements over NATS, `talk.rs` for those with the CLI. It always ends when its stdin ends.
#![allow(clippy::print_stdout, reason = "the answers are what this program is for")]

mod nats;
mod talk;
mod tools;

use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use toolbridge::model::Transport;
use toolbridge::{ClaudeCodeModel, Session, Toolset, http};

use crate::tools::toolset;

/// The benchmark ends a request when it has measured enough; a timeout must not.
const REQUEST_PATIENCE: Duration = Duration::from_secs(3600);

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => obey_all(),
        [tools] => {
            let tools = toolset(tools.parse()?)?;
            Ok(toolbridge::stdio::serve_stdio(tools)?)
        }
        [tools, "http"] => serve_http(toolset(tools.parse()?)?),
        ["nats", "host", url, name, host, calls] => nats::host(url, name, host, calls.parse()?),
        ["nats", "bare", url] => nats::bare(url),
        ["nats", "call", url, http] => nats::call(url, http),
        ["talk", cli, runs, python, script] => talk::talk(cli, runs.parse()?, python, script),
        _ => bail!(
            "not `bench-parent [TOOLS [http]]`, `bench-parent nats host|bare|call …` or `bench-parent talk …`"
        ),
    }
}

#[tokio::main]
async fn serve_http(tools: Toolset) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    say(&json!({ "url": format!("http://{}/mcp", listener.local_addr()?) }))?;
    let until = async { _ = tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await };
    Ok(http::Server::builder(tools).serve(listener, until).await?)
}

#[tokio::main]
async fn obey_all() -> Result<()> {
    let mut sessions = Vec::new();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let answer = obey(&line, &mut sessions).await.with_context(|| format!("`{line}`"))?;
        say(&answer)?;
    }
    Ok(())
}

fn say(answer: &Value) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{answer}")?;
    Ok(stdout.flush()?)
}

async fn obey(line: &str, sessions: &mut Vec<Session>) -> Result<Value> {
    match line.split_once(' ').unwrap_or((line, "")) {
        ("start", tools) => {
            let began = Instant::now();
            let tools = toolset(tools.parse()?)?;
            let registered = Instant::now();
            let session = Session::start(tools).await?;
            let answer = json!({
                "socket": session.socket_path(),
                "schema": session.schema_path(),
                "register_seconds": (registered - began).as_secs_f64(),
                "start_seconds": registered.elapsed().as_secs_f64(),
            });
            sessions.push(session);
            Ok(answer)
        }
        ("name", what) => {
            let (tools, name) = what.split_once(' ').context("a number and a name")?;
            sessions.push(Session::builder(toolset(tools.parse()?)?).name(name).start().await?);
            Ok(json!({}))
        }
        ("stop", "") => {
            sessions.pop().context("there is no session")?.stop().await;
            Ok(json!({}))
        }
        ("ask", cli) => {
            // With the builtin tool `Read`, the model gets every result whole.
            let builder = ClaudeCodeModel::builder().cli(cli).builtin_tools(["Read"]);
            let model = builder.timeout(REQUEST_PATIENCE).build()?;
            model.set_agent_toolsets(toolset(tools::OWN)?, "tools", Transport::Sdk)?;
            tokio::spawn(async move { model.request("Call the tools.").await.map(drop) });
            Ok(json!({}))
        }
        _ => bail!("not a command"),
    }
}
