//! `toolbridge sessions`: what sessions this user has, and what dead ones left.

use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Result;
use serde_json::json;
use toolbridge::ipc::{SessionInfo, SessionState, read_schema_file, session_dirs, sessions, sweep};

use crate::output::{WithHint, print};

pub(crate) fn run(clean: bool, json: bool) -> Result<ExitCode> {
    let mut found = Vec::new();
    let mut removed = Vec::new();
    for dir in session_dirs() {
        let cannot_read = |error| WithHint {
            error: format!("cannot read `{}`: {error}", dir.display()),
            hint: "set TMPDIR to the directory that the sessions' processes use".into(),
        };
        if clean {
            removed.extend(sweep(&dir).map_err(cannot_read)?);
        }
        found.extend(sessions(&dir).map_err(cannot_read)?);
    }
    let text = if json { as_json(&found, &removed) } else { as_table(&found, &removed) };
    print(text.as_bytes())
}

fn state(session: &SessionInfo) -> &'static str {
    match session.state {
        SessionState::Live => "live",
        SessionState::Stale => "stale",
        _ => "unclear",
    }
}

fn tools(session: &SessionInfo) -> Vec<String> {
    let list = read_schema_file(&session.schema);
    list.map(|list| list.iter().map(|tool| tool.name.clone()).collect()).unwrap_or_default()
}

fn age_seconds(session: &SessionInfo) -> u64 {
    SystemTime::now().duration_since(session.since).unwrap_or_default().as_secs()
}

fn as_json(found: &[SessionInfo], removed: &[SessionInfo]) -> String {
    let entry = |state: &str, session: &SessionInfo| {
        json!({
            "state": state,
            // JSON cannot write every path.
            "socket": session.socket.to_string_lossy(),
            "schema": session.schema.to_string_lossy(),
            "age_seconds": age_seconds(session),
            "tools": tools(session),
        })
    };
    let found = found.iter().map(|session| entry(state(session), session));
    let removed = removed.iter().map(|session| entry("removed", session));
    format!("{}\n", found.chain(removed).collect::<serde_json::Value>())
}

fn as_table(found: &[SessionInfo], removed: &[SessionInfo]) -> String {
    let row = |state: &str, session: &SessionInfo| {
        let tools = match tools(session) {
            names if names.is_empty() => String::new(),
            names => format!("  {}", names.join(", ")),
        };
        format!("{state:8} {:>6} s  {}{tools}\n", age_seconds(session), session.socket.display())
    };
    let mut text: String = found.iter().map(|session| row(state(session), session)).collect();
    text.extend(removed.iter().map(|session| row("removed", session)));
    if text.is_empty() {
        return "no sessions\n".into();
    }
    if found.iter().any(|session| session.state == SessionState::Stale) {
        text.push_str("`toolbridge sessions --clean` removes the stale ones\n");
    }
    text
}
