//! A program that offers a function and asks a model that may call it. The README shows it.
#![allow(clippy::print_stdout, reason = "the answer is what this program is for")]

use schemars::JsonSchema;
use serde::Deserialize;
use toolbridge::{ClaudeCodeModel, Toolset, Transport};

#[derive(Deserialize, JsonSchema)]
struct Add {
    a: f64,
    b: f64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    toolbridge::run_bridge_if_asked(); // the CLI starts this program again, as the bridge
    ask()
}

#[tokio::main]
async fn ask() -> Result<(), Box<dyn std::error::Error>> {
    let tools =
        Toolset::builder().tool("add", "Adds two numbers", async |args: Add| args.a + args.b).build()?;
    let model = ClaudeCodeModel::new();
    model.set_agent_toolsets(tools, "tools", Transport::Auto)?;
    println!("{}", model.request("What is 40 + 2?").await?.text());
    Ok(())
}
