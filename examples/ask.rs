//! A program that offers a function and asks a model that may call it. The README shows it.
#![allow(clippy::print_stdout, reason = "the answer is what this program is for")]

use toolbridge::{ClaudeCodeModel, Request, Toolset};

/// Adds two numbers.
#[toolbridge::tool]
fn add(a: f64, b: f64) -> f64 {
    a + b
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    toolbridge::run_bridge_if_asked(); // the CLI starts this program again, as the bridge
    let tools = Toolset::builder().with(add {}).build()?;
    let answer = ClaudeCodeModel::new().request(Request::new("What is 40 + 2?").tools(tools)).await?;
    println!("{}", answer.text());
    Ok(())
}
