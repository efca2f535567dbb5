//! Reads the lines of a trace.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use anyhow::Result;
use toolbridge::trace::Event;

use crate::output::WithHint;

/// A line that is not an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The line number, from 1.
    pub(super) line: usize,
    pub(super) reason: String,
}

/// Reads the events of a trace. Other lines are skipped and returned as faults.
pub(super) fn read(path: &Path) -> Result<(Vec<Event>, Vec<Fault>)> {
    let cannot = |error: std::io::Error| WithHint {
        error: format!("cannot read the trace `{}`: {error}", path.display()),
        hint: "a session writes one with `--trace FILE` or TOOLBRIDGE_TRACE=FILE",
    };
    let mut lines = BufReader::new(File::open(path).map_err(cannot)?);
    let (mut events, mut faults) = (Vec::new(), Vec::new());
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if lines.read_until(b'\n', &mut line).map_err(cannot)? == 0 {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice(&line) {
            Ok(event) => events.push(event),
            Err(error) => {
                let reason = if !line.ends_with(b"\n") && error.is_eof() {
                    "the last line is incomplete; its writer was killed".to_owned()
                } else {
                    format!("not an event of a trace: {}", short(&error.to_string()))
                };
                faults.push(Fault { line: number, reason });
            }
        }
    }
    Ok((events, faults))
}

/// The reason without its position, which would be relative to the line.
fn short(reason: &str) -> &str {
    reason.split(" at line ").next().unwrap_or(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_and_foreign_lines_are_reported_and_the_rest_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace.jsonl");
        let good = r#"{"event":"front_end","ts_ns":1,"process":"bridge","pid":2}"#;
        let lines = [
            good,
            "hello",
            "",
            r#"{"event":"party","ts_ns":1,"process":"bridge","pid":2}"#,
            r#"{"event":"front_end","ts_ns":1,"process":"bridge","pid":2,"new":[1]}"#,
            "[1]",
            &good[..30],
        ];
        std::fs::write(&path, lines.join("\n")).unwrap();
        let (events, faults) = read(&path).unwrap();
        assert_eq!(events.len(), 2);
        let told: Vec<_> = faults.iter().map(|fault| fault.line).collect();
        assert_eq!(told, [2, 4, 6, 7], "{faults:?}");
        assert!(
            faults[1].reason.starts_with("not an event of a trace: unknown variant `party`"),
            "{faults:?}"
        );
        assert_eq!(faults[3].reason, "the last line is incomplete; its writer was killed");
    }
}
