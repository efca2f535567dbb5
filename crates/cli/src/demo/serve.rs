//! `toolbridge demo --serve`: the demo tools for any MCP client.

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use anyhow::Result;
use serde_json::json;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use toolbridge::Session;

use super::{demo_tools, traced};
use crate::output::{WithHint, ending_signal, print};

/// The server's name in the MCP config.
const SERVER: &str = "tools";

/// Hosts the demo tools for any MCP client, until stdin ends or a signal comes.
pub(crate) fn serve(name: Option<String>, trace: Option<&Path>) -> Result<ExitCode> {
    let runtime = toolbridge::runtime(Builder::new_multi_thread())?;
    let served = runtime.block_on(async {
        let signalled = ending_signal()?;
        let end = end_of_stdin()?;
        let mut session = Session::builder(demo_tools(Arc::default())?);
        if let Some(name) = name {
            session = session.name(name);
        }
        let session = traced(session, trace).start().await?;
        let hello = json!({
            "socket": in_json(session.socket_path())?,
            "schema": in_json(session.schema_path())?,
            "mcp_config": session.mcp_config(SERVER)?,
        });
        print(format!("{hello}\n").as_bytes())?;
        tokio::select! {
            () = end => {}
            _ = signalled => {}
        }
        session.stop().await;
        Ok(ExitCode::SUCCESS)
    });
    // A tool that blocks its thread must not hold the process.
    runtime.shutdown_background();
    served
}

/// A path for the config that the CLI reads, which is JSON: that has no way to write every path.
fn in_json(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        let error =
            format!("the path of the session, `{}`, is not UTF-8 and fits into no config", path.display());
        WithHint { error, hint: "set TMPDIR to a directory whose path is UTF-8" }.into()
    })
}

/// Waits for the end of stdin, in a thread of our own: where there is none to be had, tokio's stdin panics.
fn end_of_stdin() -> io::Result<impl Future<Output = ()>> {
    let (tell, told) = oneshot::channel();
    let read = move || {
        _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        _ = tell.send(());
    };
    thread::Builder::new().name("stdin".into()).spawn(read)?;
    Ok(async { _ = told.await })
}
