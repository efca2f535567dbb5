//! From a prompt to the model: a new CLI, a warm one, and a conversation, compared with the vendor's SDK.

use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;
use xtask::project::{Project, stdout_of};
use xtask::wheel;

use crate::environment::{Runtime, source};
use crate::program::Programs;
use crate::row::Beside;

/// Key, label, and the corresponding measurement of the SDK.
const ROWS: [(&str, &str, &str); 5] = [
    ("talk_cold", "a request", "cold"),
    ("talk_warm", "a request, with `keep_warm`", "cold"),
    ("talk_open", "open a conversation", "open"),
    ("talk_first", "its first prompt", "first"),
    ("talk_second", "its second prompt", "second"),
];

/// Measures with the CLI that comes with the SDK, and a scripted model on loopback.
pub(crate) fn measure(programs: &Programs, runs: usize, profile: &str) -> Result<Vec<Beside>> {
    eprintln!("measuring: from a prompt to the model");
    let project = Project::find()?;
    let python = Runtime::Sdk.install(&project, profile)?;
    let mut talk = Command::new(&programs.parent);
    talk.arg("talk").arg(wheel::bundled_cli(&python)?).arg(runs.to_string());
    let measured: Value =
        serde_json::from_str(&stdout_of(talk.arg(&python).arg(source(&project.root, "sdk_talk.py")))?)?;
    let samples = |who: &str, what: &str| -> Result<Vec<f64>> {
        let samples = measured[who][what].as_array().with_context(|| format!("no `{what}` of `{who}`"))?;
        Ok(samples.iter().filter_map(Value::as_f64).collect())
    };
    let pairs = ROWS.iter().map(|(key, _, theirs)| {
        let ours = key.strip_prefix("talk_").unwrap_or(key);
        Ok((samples("ours", ours)?, samples("sdk", theirs)?))
    });
    let pairs: Vec<_> = pairs.collect::<Result<_>>()?;
    Beside::lines(ROWS.iter().map(|(key, label, _)| (*key, *label)), pairs)
}
