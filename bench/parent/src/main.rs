//! A program with tools, as a user would write one. `cargo xtask bench` tells it what to do, a line at a time:
//!
//! - `start TOOLS` starts a session with so many tools, and says where it is and how long that took;
//! - `name TOOLS NAME` starts one that has a name;
//! - `stop` stops the session that was started last;
//! - `ask CLI` makes a request over the transport `sdk`, with that program in place of the Claude Code CLI.
//!
//! Each line has a line of JSON for an answer. Started as `bench-parent TOOLS` it is an MCP server with so many tools instead,
//! on its stdin and stdout; as `bench-parent TOOLS http` over HTTP, and it says where. `nats.rs` has what is measured over NATS, `talk.rs` what is with the CLI. It always ends
//! with its stdin.
#![allow(clippy::print_stdout, reason = "the answers are what this program is for")]

mod nats;
mod talk;
mod tools;

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;
use toolbridge::{ClaudeCodeModel, ServerInfo, Session, Toolset, Transport, http};

use crate::tools::toolset;

/// The benchmark ends a request when it has measured enough; until then nothing else may.
const REQUEST_PATIENCE: Duration = Duration::from_secs(3600);

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => obey_all(),
        [tools] => {
            let tools = toolset(tools.parse()?)?;
            Ok(toolbridge::serve_stdio(Arc::new(tools), ServerInfo::default(), None)?)
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
    Ok(http::serve(listener, http::service(tools).build(), until).await?)
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
            // A model that can read files gets every result whole.
            let builder = ClaudeCodeModel::builder().cli(cli).builtin_tools(["Read"]);
            let model = builder.timeout(REQUEST_PATIENCE).build()?;
            model.set_agent_toolsets(toolset(tools::OWN)?, "tools", Transport::Sdk)?;
            tokio::spawn(async move { model.request("Call the tools.").await.map(drop) });
            Ok(json!({}))
        }
        _ => bail!("not a command"),
    }
}
