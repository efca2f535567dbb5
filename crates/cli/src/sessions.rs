//! `toolbridge sessions`: what sessions this user has, and what dead ones left.

use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Result;
use serde::Serialize;
use serde_json::json;
use toolbridge::ipc::{SessionInfo, SessionState, read_schema_file, session_dirs, sessions, sweep};

use crate::output::{WithHint, print};

/// A session as it is shown.
#[derive(Serialize)]
struct Shown {
    state: &'static str,
    // JSON cannot write every path.
    socket: String,
    schema: String,
    age_seconds: u64,
    tools: Vec<String>,
}

impl Shown {
    fn new(state: &'static str, session: &SessionInfo) -> Self {
        let list = read_schema_file(&session.schema);
        Self {
            state,
            socket: session.socket.to_string_lossy().into(),
            schema: session.schema.to_string_lossy().into(),
            age_seconds: SystemTime::now().duration_since(session.since).unwrap_or_default().as_secs(),
            tools: list.map(|list| list.iter().map(|tool| tool.name.clone()).collect()).unwrap_or_default(),
        }
    }
}

pub(crate) fn run(clean: bool, json: bool) -> Result<ExitCode> {
    let (mut shown, mut removed) = (Vec::new(), Vec::new());
    for dir in session_dirs() {
        let cannot_read = |error| WithHint {
            error: format!("cannot read `{}`: {error}", dir.display()),
            hint: "set TMPDIR to the directory that the sessions' processes use",
        };
        if clean {
            removed.extend(sweep(&dir).map_err(cannot_read)?.iter().map(|one| Shown::new("removed", one)));
        }
        shown.extend(sessions(&dir).map_err(cannot_read)?.iter().map(|session| {
            let state = match session.state {
                SessionState::Live => "live",
                SessionState::Stale => "stale",
                _ => "unclear",
            };
            Shown::new(state, session)
        }));
    }
    shown.extend(removed);
    let text = if json { format!("{}\n", json!(shown)) } else { table(&shown) };
    print(text.as_bytes())
}

fn table(shown: &[Shown]) -> String {
    if shown.is_empty() {
        return "no sessions\n".into();
    }
    let row = |Shown { state, socket, age_seconds, tools, .. }: &Shown| {
        let tools = if tools.is_empty() { String::new() } else { format!("  {}", tools.join(", ")) };
        format!("{state:8} {age_seconds:>6} s  {socket}{tools}\n")
    };
    let mut text: String = shown.iter().map(row).collect();
    if shown.iter().any(|session| session.state == "stale") {
        text.push_str("`toolbridge sessions --clean` removes the stale ones\n");
    }
    text
}
