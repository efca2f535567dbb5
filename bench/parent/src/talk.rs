//! The time from a prompt to the model: cold, warm, and in a conversation; ours, and the vendor's SDK.

use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use toolbridge::ClaudeCodeModel;
use toolbridge::model::Transport;
use toolbridge_scripted::{ScriptedModel, Turn, clean_environment};

use crate::say;
use crate::tools::toolset;

/// When the model was called, in seconds of the system clock, which is shared with the SDK's process.
type Asked = Arc<Mutex<Vec<f64>>>;

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Measures `runs` times with that CLI, and the same with the SDK of that interpreter. All in seconds, from
/// the call until the model is called.
#[tokio::main]
pub(crate) async fn talk(cli: &str, runs: usize, python: &str, script: &str) -> Result<()> {
    let asked = Asked::default();
    let noted = Arc::clone(&asked);
    let scripted = ScriptedModel::start_with(move |_| {
        noted.lock().unwrap_or_else(PoisonError::into_inner).push(now());
        Turn::text("hello")
    });
    let home = tempfile::tempdir()?;
    let environment = clean_environment(home.path(), &scripted.url());
    let builder = ClaudeCodeModel::builder().cli(cli).inherit_env(false).working_directory(home.path());
    let builder = environment.iter().fold(builder, |builder, (name, value)| builder.env(name, value));
    let model = builder.build()?;
    model.set_agent_toolsets(toolset(3)?, "tools", Transport::Stdio)?;
    let mut ours = [const { Vec::new() }; 5];
    for run in 0..=runs {
        let mut took = [0.0; 5];
        took[0] = since(&asked, async { model.request("cold").await.map(drop) }).await?;
        let opening = now();
        let mut conversation = model.conversation().open().await?;
        took[1] = now() - opening;
        took[2] = since(&asked, async { conversation.send("first").await.map(drop) }).await?;
        took[3] = since(&asked, async { conversation.send("second").await.map(drop) }).await?;
        conversation.close().await;
        model.keep_warm(1).await?;
        took[4] = since(&asked, async { model.request("warm").await.map(drop) }).await?;
        model.keep_warm(0).await?;
        // The first run reads everything from disk.
        if run > 0 {
            ours.iter_mut().zip(took).for_each(|(samples, took)| samples.push(took));
        }
    }
    let theirs = sdk_turns(python, script, cli, runs, &environment, &asked)?;
    let [cold, open, first, second, warm] = ours;
    let ours = json!({ "cold": cold, "open": open, "first": first, "second": second, "warm": warm });
    say(&json!({ "ours": ours, "sdk": theirs }))
}

/// The time from now until the model is called.
async fn since(
    asked: &Asked,
    asking: impl Future<Output = Result<(), toolbridge::model::ClaudeCodeError>>,
) -> Result<f64> {
    asked.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let began = now();
    asking.await?;
    let first = asked.lock().unwrap_or_else(PoisonError::into_inner).first().copied();
    Ok(first.context("the model was not asked")? - began)
}

/// The SDK's program prints when it has sent each prompt, and how long it took to connect.
fn sdk_turns(
    python: &str,
    script: &str,
    cli: &str,
    runs: usize,
    environment: &[(String, String)],
    asked: &Asked,
) -> Result<Value> {
    asked.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let mut command = Command::new(python);
    command.args([script, cli, &(runs + 1).to_string()]).stdin(Stdio::null());
    command.env_clear().envs(environment.iter().map(|(name, value)| (name, value)));
    let output = command.stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "the SDK's program ended with {}", output.status);
    let told: Vec<Value> = serde_json::from_slice(&output.stdout)?;
    let at = asked.lock().unwrap_or_else(PoisonError::into_inner).clone();
    ensure!(
        at.len() == 3 * told.len(),
        "{} requests of the SDK to the model, not 3 times {}",
        at.len(),
        told.len()
    );
    let mut samples = [const { Vec::new() }; 4];
    for (turns, told) in at.chunks(3).zip(&told).skip(1) {
        let sent = |key: &str| told[key].as_f64().with_context(|| format!("no `{key}`"));
        samples[0].push(turns[0] - sent("cold")?);
        samples[1].push(sent("open")?);
        samples[2].push(turns[1] - sent("first")?);
        samples[3].push(turns[2] - sent("second")?);
    }
    let [cold, open, first, second] = samples;
    Ok(json!({ "cold": cold, "open": open, "first": first, "second": second }))
}
