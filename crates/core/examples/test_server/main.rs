//! The test server: `test_server` is our own front, `test_server pinned VERSION` a script that knows one
//! version of MCP, and `test_server host ARGS` a program that starts such a server.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "servers talk to their clients")]

mod pinned;
mod tools;

use toolbridge_core::client::McpServer;
use toolbridge_core::mcp::{LineReader, LineWriter, serve, stdio};
use toolbridge_core::tool::ServerInfo;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    if let Some((mode, rest)) = args.split_first().filter(|(mode, _)| *mode != "tools") {
        if mode == "host" {
            return host(rest).await;
        }
        return pinned::run(mode, rest).map_err(Into::into);
    }
    let info = ServerInfo::new("test").instructions("be kind");
    let (stdin, stdout, _client) = stdio()?;
    serve(tools::Tools::new()?, info, LineReader::new(stdin), LineWriter::new(stdout)).await?;
    Ok(())
}

/// Prints the pid of the server, and waits to be killed.
async fn host(args: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let server = McpServer::command(std::env::current_exe()?).args(args).start().await?;
    println!("{}", server.process_id().unwrap_or_default());
    std::future::pending().await
}
