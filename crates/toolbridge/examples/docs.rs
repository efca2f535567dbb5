//! The document tools beside a function of your own, in one process: a model may use both.
//!
//! `docs <workspace> <prompt>`; `toolbridge docs --init --workspace <workspace>` makes one.
#![allow(clippy::print_stdout, reason = "the answer is what this program is for")]

use toolbridge::docs::Documents;
use toolbridge::source::Combined;
use toolbridge::{ClaudeCodeModel, Request, Toolset};

/// Says it in capitals.
#[toolbridge::tool]
async fn shout(text: String) -> String {
    text.to_uppercase()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    toolbridge::run_bridge_if_asked();
    let mut args = std::env::args().skip(1);
    let (Some(workspace), Some(prompt)) = (args.next(), args.next()) else {
        return Err("usage: docs <workspace> <prompt>".into());
    };
    let own = Toolset::builder().with(shout {}).build()?;
    let documents = Documents::builder().workspace(workspace).open()?;
    let tools = Combined::new().with(own)?.with(documents)?;
    println!("{}", ClaudeCodeModel::new().request(Request::new(prompt).tools(tools)).await?.text());
    Ok(())
}
