//! `toolbridge demo`: calls through a real bridge, without network or model.

mod calls;
mod client;
mod library;
mod report;
mod tools;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, ensure};
use toolbridge::source::Combined;
use toolbridge::{Session, set};

use self::calls::{all_calls, median_round_trip};
pub(crate) use self::client::Client;
use self::library::Library;
use self::report::Report;
use self::tools::Shared;
pub(crate) use self::tools::{demo_tools, hide_demo_panic};
use crate::output::{ending_signal, print, small_runtime};

/// Hosts the demo tools, starts a bridge, and calls each tool through it.
pub(crate) fn run(json: bool, trace: Option<&Path>) -> Result<ExitCode> {
    hide_demo_panic();
    let runtime = small_runtime()?;
    let report = runtime.block_on(async {
        let signalled = ending_signal()?;
        tokio::select! {
            report = demo(trace) => report.map(Ok),
            code = signalled => Ok(Err(code)),
        }
    })?;
    let report = match report {
        Ok(report) => report,
        Err(signalled) => return Ok(signalled),
    };
    print(if json { report.to_json() } else { report.to_text() }.as_bytes())?;
    Ok(if report.all_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn demo(trace: Option<&Path>) -> Result<Report> {
    let shared = Arc::new(Shared::default());
    let library = Library::new()?;
    let started = Instant::now();
    let tools = Combined::new().with(demo_tools(Arc::clone(&shared))?)?.with(library.documents()?)?;
    let mut session = Session::builder(tools);
    set!(session: trace = trace);
    let session = session.start().await?;
    let session_time = started.elapsed();

    let started = Instant::now();
    let (client, tools) = Client::start(&session.mcp_server()?).await?;
    let bridge_time = started.elapsed();
    let mut rows = all_calls(&client, &shared).await?;
    rows.extend(library.copy_a_section(&client).await?);
    let round_trip = median_round_trip(&client).await?;

    let (socket, schema) = (session.socket_path().to_owned(), session.schema_path().to_owned());
    let bridge_pid = client.pid();
    let exit = client.stop().await?;
    session.stop().await;
    ensure!(exit.success(), "the bridge ended with {exit}");
    ensure!(!socket.exists() && !schema.exists(), "the session left a file behind");
    Ok(Report { socket, session_time, bridge_pid, bridge_time, tools: tools.len(), rows, round_trip })
}
