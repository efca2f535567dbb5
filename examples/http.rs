//! A program that offers a function to any MCP client, at <http://127.0.0.1:8000/mcp>.

use tokio::net::TcpListener;
use toolbridge::{Toolset, http};

/// Adds two numbers.
#[toolbridge::tool]
fn add(a: f64, b: f64) -> f64 {
    a + b
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tools = Toolset::builder().with(add {}).build()?;
    let listener = TcpListener::bind("127.0.0.1:8000").await?;
    let until = async { _ = tokio::signal::ctrl_c().await };
    http::Server::builder(tools).serve(listener, until).await?;
    Ok(())
}
