//! A program that offers a function and is its own bridge.
//!
//! Run it, and give the line it prints to `claude --mcp-config`, or to any MCP client. It ends when its stdin
//! ends.
#![allow(clippy::print_stdout, reason = "the config is what this program is for")]

use tokio::io::AsyncReadExt as _;
use toolbridge::{Session, Toolset};

/// Adds two numbers.
#[toolbridge::tool]
fn add(a: f64, b: f64) -> f64 {
    a + b
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    toolbridge::run_bridge_if_asked();
    let tools = Toolset::builder().with(add {}).build()?;
    let session = Session::start(tools).await?;
    println!("{}", session.mcp_config("tools")?);
    tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
    session.stop().await;
    Ok(())
}
