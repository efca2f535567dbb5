//! A program that combines a function of its own, a server from `PyPI` and one from npm, and offers some of
//! their tools to any MCP client. It needs `pip install mcp-server-time` and `npm install -g
//! @modelcontextprotocol/server-everything`.

use toolbridge::Toolset;
use toolbridge::client::McpServer;
use toolbridge::source::{Combined, Selection};
use toolbridge::stdio::StdioServer;

/// Adds two numbers.
#[toolbridge::tool]
fn add(a: f64, b: f64) -> f64 {
    a + b
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let own = Toolset::builder().with(add {}).build()?;
    let time = McpServer::command("mcp-server-time").start().await?;
    let npm = McpServer::command("mcp-server-everything").start().await?;
    let all = Combined::new().with(own)?.with(time)?.with_prefix("npm", npm)?;
    let names = ["add", "convert_time", "npm_echo", "npm_get-structured-content", "npm_get-tiny-image"];
    let some = Selection::new(all, names)?;
    StdioServer::builder(some).serve().await?;
    Ok(())
}
