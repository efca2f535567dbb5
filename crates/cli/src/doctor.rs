//! `toolbridge doctor`: checks everything that a model with tools needs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;
use serde_json::json;
use toolbridge::Session;
use toolbridge::ipc::{SessionState, session_dir, session_dirs, sessions};
use toolbridge::model::{
    ClaudeCodeError, ExecutionKind, cli_login, cli_version, find_cli, takes_plain_prompts,
};
use toolbridge::tool::{hint_of, with_causes};

use crate::demo::{Client, demo_tools};
use crate::output::{print, small_runtime};

/// The result of one check: its name, its status (`ok`, `warn` or `fail`), a text, and a hint.
#[derive(Serialize)]
struct Check {
    health: &'static str,
    what: &'static str,
    text: String,
    hint: Option<String>,
}

impl Check {
    fn ok(what: &'static str, text: impl Into<String>) -> Self {
        Self { health: "ok", what, text: text.into(), hint: None }
    }

    fn warn(what: &'static str, text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { health: "warn", what, text: text.into(), hint: Some(hint.into()) }
    }

    fn fail(what: &'static str, error: &anyhow::Error) -> Self {
        Self {
            health: "fail",
            what,
            text: with_causes(error.as_ref()),
            hint: hint_of(error.as_ref()).map(Into::into),
        }
    }
}

pub(crate) fn run(claude: Option<&Path>, as_json: bool) -> Result<ExitCode> {
    let mut checks = vec![program()];
    checks.extend(cli(claude));
    checks.extend([temp_dir(), socket_path(), stale_sessions(), bridge()]);
    let line = |check: &Check| {
        let hint = check.hint.as_ref().map(|hint| format!("{:6}hint: {hint}\n", "")).unwrap_or_default();
        format!("{:6}{}: {}\n{hint}", check.health, check.what, check.text)
    };
    let text = if as_json { format!("{}\n", json!(checks)) } else { checks.iter().map(line).collect() };
    print(text.as_bytes())?;
    let failed = checks.iter().any(|check| check.health == "fail");
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn program() -> Check {
    let path = std::env::current_exe().unwrap_or_else(|_| "?".into());
    Check::ok("toolbridge", format!("{} at `{}`", env!("CARGO_PKG_VERSION"), path.display()))
}

/// The CLI, and its login if it works.
fn cli(given: Option<&Path>) -> Vec<Check> {
    const WHAT: &str = "Claude Code CLI";
    let found = find_cli(given).map_err(anyhow::Error::from);
    let found = found.and_then(|path| Ok((path, small_runtime()?)));
    let (path, runtime) = match found {
        Ok(found) => found,
        Err(error) => return vec![Check::fail(WHAT, &error)],
    };
    let at = path.display();
    let cli = match runtime.block_on(cli_version(&path)) {
        Ok(version) if takes_plain_prompts(&version) => Check::ok(WHAT, format!("{version} at `{at}`")),
        Ok(version) => Check::warn(
            WHAT,
            format!("{version} at `{at}` reads files that a prompt names with `@`; such prompts are refused"),
            "update it to 2.1.248 or newer",
        ),
        Err(error) => {
            let hint = "is that the Claude Code CLI? run it by hand, or give another with `--claude`";
            return vec![Check { hint: Some(hint.into()), ..Check::fail(WHAT, &error.into()) }];
        }
    };
    vec![cli, runtime.block_on(login(&path))]
}

async fn login(path: &Path) -> Check {
    const WHAT: &str = "login";
    match cli_login(path).await {
        Ok(Some(method)) if method == "none" => {
            let message = "there is none, so the CLI cannot ask a model".into();
            let kind = ExecutionKind::Authentication;
            let error = ClaudeCodeError::CliExecution { kind, message, result: None };
            Check { health: "warn", ..Check::fail(WHAT, &error.into()) }
        }
        Ok(Some(method)) => Check::ok(WHAT, format!("`{method}`; whether it is valid is not checked")),
        Ok(None) => {
            Check::warn(WHAT, "this CLI does not tell whether it has one", "run `claude` once to see")
        }
        Err(error) => Check::fail(WHAT, &error.into()),
    }
}

fn temp_dir() -> Check {
    const WHAT: &str = "temporary directory";
    const OTHERS_WRITE: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    let dir = session_dir();
    let shown = dir.display();
    let missing = |why: &str| Check {
        health: "fail",
        what: WHAT,
        text: format!("`{shown}` {why}"),
        hint: Some("set TMPDIR to a directory that exists and can be written".into()),
    };
    let mode = match std::fs::metadata(&dir) {
        Ok(data) if data.is_dir() => data.permissions().mode(),
        Ok(_) => return missing("is not a directory"),
        Err(error) => return missing(&format!("cannot be used: {error}")),
    };
    if mode & OTHERS_WRITE != 0 && mode & STICKY == 0 {
        let text = format!("`{shown}` can be written by others, who could remove your sessions");
        return Check::warn(WHAT, text, format!("run `chmod +t {shown}`, or set TMPDIR to one of your own"));
    }
    Check::ok(WHAT, format!("`{shown}`"))
}

fn socket_path() -> Check {
    const WHAT: &str = "socket paths";
    let (wanted, used) = (std::env::temp_dir(), session_dir());
    // An empty TMPDIR counts as unset.
    if wanted.as_os_str().is_empty() || wanted.canonicalize().ok() == used.canonicalize().ok() {
        return Check::ok(WHAT, format!("short enough in `{}`", used.display()));
    }
    let text = format!("too long in `{}`, so sessions are in `{}`", wanted.display(), used.display());
    Check::warn(WHAT, text, "set TMPDIR to a shorter directory")
}

fn stale_sessions() -> Check {
    const WHAT: &str = "sessions";
    let mut counts = [0, 0];
    for dir in session_dirs() {
        let Ok(found) = sessions(&dir) else { continue };
        counts[0] += found.iter().filter(|session| session.state == SessionState::Live).count();
        counts[1] += found.iter().filter(|session| session.state == SessionState::Stale).count();
    }
    match counts {
        [live, 0] => Check::ok(WHAT, format!("{live} live, none stale")),
        [live, stale] => Check::warn(
            WHAT,
            format!("{live} live, {stale} stale"),
            "`toolbridge sessions --clean` removes them; so does the next session",
        ),
    }
}

fn bridge() -> Check {
    const WHAT: &str = "bridge";
    let runtime = small_runtime();
    match runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(round_trip())) {
        Ok(text) => Check::ok(WHAT, text),
        Err(error) => Check::fail(WHAT, &error),
    }
}

/// Starts a session and a bridge, and calls a tool through both.
async fn round_trip() -> Result<String> {
    let session = Session::start(demo_tools(Arc::default())?).await?;
    let server = session.mcp_server()?;
    let started = Instant::now();
    let (client, tools) = Client::start(&server).await?;
    let listed = started.elapsed();
    let answer = client.call("echo", &json!({ "text": "hello" })).await?;
    let ok = answer.result.is_ok_and(|result| result["content"][0]["text"] == "hello");
    client.stop().await?;
    session.stop().await;
    ensure!(ok, "a call returned something other than what was sent");
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    Ok(format!(
        "`{}` lists {} tools after {:.1} ms and answers a call in {:.2} ms",
        server.command.display(),
        tools.len(),
        ms(listed),
        ms(answer.time)
    ))
}
