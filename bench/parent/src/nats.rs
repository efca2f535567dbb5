//! Hosts and a caller of tools over NATS, and plain NATS for comparison.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use toolbridge::client::McpServer;
use toolbridge::nats::Tools;
use toolbridge::tool::{RawJson, ToolCall};
use toolbridge::{CallContext, NoArgs, Tool, ToolSource};

use crate::say;
use crate::tools::toolset;

/// How long a call of the slow tool takes.
const NAP: Duration = Duration::from_millis(20);

async fn end_of_stdin() {
    _ = tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await;
}

/// A host with the tools of the benchmark, and a slow one.
#[tokio::main]
pub(crate) async fn host(url: &str, name: &str, host: &str, calls: usize) -> Result<()> {
    let tools = toolset(crate::tools::OWN)?;
    let nap = async |_: NoArgs| {
        tokio::time::sleep(NAP).await;
        "slept"
    };
    tools.add(Tool::new("nap", "Sleeps for 20 ms", nap).read_only())?;
    let _host =
        toolbridge::nats::Host::builder(tools, name).at(url).host(host).max_calls(calls).start().await?;
    say(&json!({ "host": host }))?;
    end_of_stdin().await;
    Ok(())
}

/// Answers on the subject `bare` with as many bytes as the tool, and does nothing else.
#[tokio::main]
pub(crate) async fn bare(url: &str) -> Result<()> {
    let client = async_nats::connect(url).await?;
    let mut asked = client.subscribe("bare").await?;
    client.flush().await?;
    say(&json!({ "bare": url }))?;
    let answering = async {
        while let Some(message) = asked.next().await {
            let text = message.payload.get(9..message.payload.len() - 2).unwrap_or_default();
            let answer =
                [br#"{"content":[{"type":"text","text":""#, text, br#""}],"isError":false}"#].concat();
            if let Some(reply) = message.reply {
                client.publish(reply, answer.into()).await?;
            }
        }
        anyhow::Ok(())
    };
    tokio::select! {
        answered = answering => answered,
        () = end_of_stdin() => Ok(()),
    }
}

/// Makes calls by command, one per line: `WAY CALLS AT_A_TIME`, and prints the total time in seconds. A way
/// is `nats`, `bare`, `http`, or the name of hosts whose slow tool is called.
#[tokio::main]
pub(crate) async fn call(url: &str, http: &str) -> Result<()> {
    let client = async_nats::connect(url).await?;
    let over_nats = Tools::connect(url, "bench").await?;
    let over_http = McpServer::url(http).start().await?;
    let arguments = RawJson::parse(format!(r#"{{"text":"{}"}}"#, "x".repeat(100)))?;
    let mut named: Option<(String, Tools)> = None;
    say(&json!({ "ready": true }))?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let words: Vec<_> = line.split(' ').collect();
        let [way, calls, at_a_time] = words[..] else { bail!("`{line}`") };
        let (calls, at_a_time) = (calls.parse()?, at_a_time.parse()?);
        let echo = |source| tool(source, "echo", &arguments);
        let seconds = match way {
            "nats" => timed(calls, at_a_time, || echo(&over_nats)).await?,
            "http" => timed(calls, at_a_time, || echo(&over_http)).await?,
            "bare" => {
                let ask = || async {
                    let answer = client.request("bare", arguments.to_bytes()).await?;
                    anyhow::ensure!(answer.payload.len() > 100, "an answer is too short");
                    Ok(())
                };
                timed(calls, at_a_time, ask).await?
            }
            name => {
                if named.as_ref().is_none_or(|(known, _)| known != name) {
                    named = Some((name.into(), Tools::connect(url, name).await?));
                }
                let (_, tools) = named.as_ref().context("there are none")?;
                let none = RawJson::empty_object();
                timed(calls, at_a_time, || tool(tools, "nap", &none)).await?
            }
        };
        say(&json!({ "seconds": seconds }))?;
    }
    Ok(())
}

async fn tool(source: &dyn ToolSource, name: &str, arguments: &RawJson) -> Result<()> {
    let result = source.call(ToolCall::new(name, arguments.clone()), CallContext::default()).await?;
    anyhow::ensure!(result.as_str().contains(r#""isError":false"#), "{name}: {result}");
    Ok(())
}

/// How long that many calls take, with that many in parallel.
async fn timed<F: Future<Output = Result<()>>>(
    calls: usize,
    at_a_time: usize,
    one: impl Fn() -> F,
) -> Result<f64> {
    let began = Instant::now();
    if at_a_time == 1 {
        for _ in 0..calls {
            one().await?;
        }
    } else {
        stream::iter((0..calls).map(|_| one())).buffer_unordered(at_a_time).try_collect::<()>().await?;
    }
    Ok(began.elapsed().as_secs_f64())
}
