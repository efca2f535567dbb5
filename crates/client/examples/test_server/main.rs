//! The server of the tests: `test_server` is our own front, `test_server pinned VERSION` a script that knows one version
//! of MCP.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "servers talk to their clients")]

mod pinned;
mod tools;

use std::sync::Arc;

use toolbridge_mcp::{LineReader, LineWriter, ServerInfo, serve, stdio};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    if let Some((mode, rest)) = args.split_first().filter(|(mode, _)| *mode != "tools") {
        return pinned::run(mode, rest).map_err(Into::into);
    }
    let info = ServerInfo::new("test").instructions("be kind");
    let (stdin, stdout, _client) = stdio()?;
    serve(Arc::new(tools::Tools::new()?), info, LineReader::new(stdin), LineWriter::new(stdout)).await?;
    Ok(())
}
