//! `cargo xtask soak --prompts N`: so many prompts in one conversation, each with a call of a tool of this process.
//!
//! What this process holds must not grow with them. A script plays the model, in a process of its own: it keeps what it was asked.
#![expect(clippy::print_stdout, reason = "a program for people")]

use std::error::Error;
use std::io::{self, BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use toolbridge::model::Transport;
use toolbridge::{ClaudeCodeModel, NoArgs, Toolset};
use toolbridge_scripted::{Block, ModelRequest, ScriptedModel, Turn, claude_cli, clean_environment};

/// How much more memory may be held after the last prompts than after the first.
const MAX_GROWTH_KB: usize = 2048;

/// How often it is looked, in the whole conversation.
const LOOKS: usize = 10;

fn main() -> Result<(), Box<dyn Error>> {
    toolbridge::run_bridge_if_asked();
    match std::env::args().nth(1).as_deref() {
        Some("model") => play(),
        Some(prompts) => talk(prompts.parse()?),
        None => Err("usage: long_talk PROMPTS".into()),
    }
}

/// The model: calls the tool for each prompt, and says what it returned.
fn play() -> Result<(), Box<dyn Error>> {
    let model = ScriptedModel::start_with(|request: &ModelRequest| {
        let messages = request.body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
        let last = messages.iter().rfind(|message| message["role"] == "user");
        match last {
            Some(last) if last["content"].to_string().contains("\"tool_result\"") => Turn::text("done"),
            _ => Turn::blocks(vec![Block::call("mcp__tools__count", json!({}))]),
        }
    });
    println!("{}", model.url());
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

#[tokio::main]
async fn talk(prompts: usize) -> Result<(), Box<dyn Error>> {
    let mut player = Command::new(std::env::current_exe()?);
    let mut player = player.arg("model").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut url = String::new();
    BufReader::new(player.stdout.take().ok_or("no stdout")?).read_line(&mut url)?;
    let home = tempfile::TempDir::new()?;
    let count = Toolset::builder().tool("count", "Counts", |_: NoArgs| "x".repeat(100)).build()?;
    for transport in [Transport::Stdio, Transport::Sdk] {
        let mut builder =
            ClaudeCodeModel::builder().cli(claude_cli()).inherit_env(false).session_dir(home.path());
        for (name, value) in clean_environment(home.path(), url.trim()) {
            builder = builder.env(name, value);
        }
        let model = builder.timeout(Duration::from_secs(180)).build()?;
        let opening = model.conversation().tools(count.clone()).transport(transport).open();
        let mut conversation = opening.await?;
        let (began, mut seen) = (Instant::now(), Vec::new());
        for prompt in 1..=prompts {
            let answer = conversation.send(format!("prompt {prompt}")).await?;
            if answer.text() != "done" {
                return Err(format!("prompt {prompt} was answered with `{}`", answer.text()).into());
            }
            if prompt % (prompts / LOOKS).max(1) == 0 {
                seen.push((held_kb()?, descriptors()?));
                let (kb, files) = seen[seen.len() - 1];
                println!(
                    "{transport}: {prompt} prompts, {kb} kB, {files} descriptors, {:.1?}",
                    began.elapsed()
                );
            }
        }
        conversation.close().await;
        if let (Some(first), Some(last)) = (seen.first(), seen.last())
            && (last.0 > first.0 + MAX_GROWTH_KB || last.1 > first.1)
        {
            return Err(format!("over {transport} it grows: {seen:?}").into());
        }
    }
    drop(player.stdin.take());
    player.wait()?;
    Ok(())
}

/// The memory of this process.
fn held_kb() -> Result<usize, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

fn descriptors() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/fd")?.count())
}
