//! `toolbridge sessions`: lists the sessions of this user and removes the files of dead ones.

use std::collections::HashMap;
use std::io::{IsTerminal as _, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use serde::Serialize;
use serde_json::json;
use toolbridge::ipc::{
    Remote, SessionInfo, SessionState, named_sessions, names_dirs, read_schema_file, session_dirs, sessions,
    sweep,
};
use toolbridge::tool::ToolList;

use crate::output::{WithHint, ending_signal, print, small_runtime};

/// How often `--watch` refreshes.
const PERIOD: Duration = Duration::from_secs(1);

/// The timeout for asking a session for its number of calls; a stopped process does not answer.
const COUNT_PATIENCE: Duration = Duration::from_millis(500);

/// Moves the cursor to the top of the terminal and clears it.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// A session as it is shown.
#[derive(Serialize)]
struct Shown {
    state: &'static str,
    // Strings, because JSON cannot hold every path.
    socket: String,
    schema: String,
    age_seconds: u64,
    tools: Vec<String>,
    /// The process that holds the session's name, if it has one.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    holder: Option<Holder>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calls: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calls_per_second: Option<f64>,
}

#[derive(Clone, Serialize)]
struct Holder {
    name: String,
    program: String,
    pid: u32,
}

impl Shown {
    fn new(state: &'static str, session: &SessionInfo, holders: &HashMap<PathBuf, Holder>) -> Self {
        let list = read_schema_file(&session.schema);
        Self {
            state,
            socket: session.socket.to_string_lossy().into(),
            schema: session.schema.to_string_lossy().into(),
            age_seconds: SystemTime::now().duration_since(session.since).unwrap_or_default().as_secs(),
            tools: list.map(|list| list.iter().map(|tool| tool.name.clone()).collect()).unwrap_or_default(),
            holder: holders.get(&session.socket).cloned(),
            calls: None,
            calls_per_second: None,
        }
    }

    /// Asks a live session for its number of calls.
    async fn count(&mut self) {
        if self.state == "live"
            && let Ok(remote) = Remote::new(&*self.socket, ToolList::default())
        {
            self.calls = tokio::time::timeout(COUNT_PATIENCE, remote.count_calls()).await.ok().flatten();
        }
    }
}

pub(crate) fn run(clean: bool, json: bool) -> Result<ExitCode> {
    let mut shown = found(clean)?;
    small_runtime()?.block_on(async {
        for session in &mut shown {
            session.count().await;
        }
    });
    print(text(&shown, json).as_bytes())
}

/// Refreshes the list until a signal arrives or stdout is closed.
pub(crate) fn watch(json: bool) -> Result<ExitCode> {
    small_runtime()?.block_on(async {
        let mut signalled = std::pin::pin!(ending_signal()?);
        let mut before = HashMap::<String, (u64, Instant)>::new();
        let clear = if !json && stdout().is_terminal() { CLEAR } else { "" };
        loop {
            let mut shown = found(false)?;
            for session in &mut shown {
                session.count().await;
                let Some(calls) = session.calls else { continue };
                if let Some((old, since)) = before.insert(session.socket.clone(), (calls, Instant::now())) {
                    #[expect(clippy::cast_precision_loss, reason = "it is shown with one digit")]
                    let new = calls.saturating_sub(old) as f64;
                    session.calls_per_second =
                        Some((new / since.elapsed().as_secs_f64() * 10.0).round() / 10.0);
                }
            }
            print(format!("{clear}{}", text(&shown, json)).as_bytes())?;
            tokio::select! {
                _ = &mut signalled => return Ok(ExitCode::SUCCESS),
                () = tokio::time::sleep(PERIOD) => {}
            }
        }
    })
}

/// The sessions of this user; `clean` removes the stale ones.
fn found(clean: bool) -> Result<Vec<Shown>> {
    let holders: HashMap<_, _> = named_sessions(&names_dirs())
        .into_iter()
        .map(|session| {
            let program = session.program.to_string_lossy().into();
            (session.socket, Holder { name: session.name, program, pid: session.pid })
        })
        .collect();
    let (mut shown, mut removed) = (Vec::new(), Vec::new());
    for dir in session_dirs() {
        let cannot_read = |error| WithHint {
            error: format!("cannot read `{}`: {error}", dir.display()),
            hint: "set TMPDIR to the directory that the sessions' processes use",
        };
        if clean {
            let swept = sweep(&dir).map_err(cannot_read)?;
            removed.extend(swept.iter().map(|one| Shown::new("removed", one, &holders)));
        }
        shown.extend(sessions(&dir).map_err(cannot_read)?.iter().map(|session| {
            let state = match session.state {
                SessionState::Live => "live",
                SessionState::Stale => "stale",
                _ => "unclear",
            };
            Shown::new(state, session, &holders)
        }));
    }
    shown.extend(removed);
    Ok(shown)
}

fn text(shown: &[Shown], json: bool) -> String {
    if json { format!("{}\n", json!(shown)) } else { table(shown) }
}

fn table(shown: &[Shown]) -> String {
    if shown.is_empty() {
        return "no sessions\n".into();
    }
    let row = |Shown { state, socket, age_seconds, tools, holder, calls, calls_per_second, .. }: &Shown| {
        let mut row = format!("{state:8} {age_seconds:>6} s  {socket}");
        if let Some(Holder { name, program, pid }) = holder {
            row.push_str(&format!("  {name} ({program}, pid {pid})"));
        }
        match (calls_per_second, calls) {
            (Some(rate), Some(calls)) => row.push_str(&format!("  {rate:.1} calls/s of {calls}")),
            (None, Some(calls @ 1..)) => row.push_str(&format!("  {calls} calls")),
            _ => {}
        }
        if !tools.is_empty() {
            row.push_str(&format!("  {}", tools.join(", ")));
        }
        row + "\n"
    };
    let mut text: String = shown.iter().map(row).collect();
    if shown.iter().any(|session| session.state == "stale") {
        text.push_str("`toolbridge sessions --clean` removes the stale ones\n");
    }
    text
}
