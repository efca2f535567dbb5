//! The demo's report.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use unicode_width::UnicodeWidthStr as _;

use crate::excerpt::fit;

/// How many columns of a call are shown.
const SHOWN_CALL_COLUMNS: usize = 44;

pub(crate) struct Report {
    pub(crate) socket: PathBuf,
    pub(crate) session_time: Duration,
    pub(crate) bridge_pid: Option<u32>,
    pub(crate) bridge_time: Duration,
    pub(crate) tools: usize,
    pub(crate) rows: Vec<Row>,
    /// The median over many calls with 100 bytes.
    pub(crate) round_trip: Duration,
}

pub(crate) struct Row {
    pub(crate) call: String,
    pub(crate) answer: String,
    pub(crate) time: Duration,
    pub(crate) ok: bool,
}

impl Report {
    pub(crate) fn all_ok(&self) -> bool {
        self.rows.iter().all(|row| row.ok)
    }

    pub(crate) fn to_json(&self) -> String {
        let rows = self
            .rows
            .iter()
            .map(|row| json!({ "call": row.call, "answer": row.answer, "ms": ms(row.time), "ok": row.ok }));
        let report = json!({
            "ok": self.all_ok(),
            "tools": self.tools,
            "session_ms": ms(self.session_time),
            "bridge_ms": ms(self.bridge_time),
            "round_trip_us": self.round_trip.as_secs_f64() * 1e6,
            "calls": rows.collect::<Vec<_>>(),
        });
        format!("{report}\n")
    }

    pub(crate) fn to_text(&self) -> String {
        let here = std::process::id();
        let bridge = self.bridge_pid.map_or_else(|| "?".into(), |pid| pid.to_string());
        let mut text = format!(
            "{} tools live in this process ({here}); a bridge process ({bridge}) offers them over MCP.\n\n\
             session opened in {:.1} ms   {}\n\
             bridge listed its tools {:.1} ms after its start\n\n",
            self.tools,
            ms(self.session_time),
            self.socket.display(),
            ms(self.bridge_time),
        );
        let width = self.rows.iter().map(|row| row.call.width()).max().unwrap_or_default();
        let width = width.min(SHOWN_CALL_COLUMNS);
        text += &format!("     {:width$}  {:>11}   answer\n", "call", "time");
        for row in &self.rows {
            let call = fit(&row.call, width);
            let mark = if row.ok { "ok  " } else { "FAIL" };
            text += &format!("{mark} {call}  {:>8.2} ms   {}\n", ms(row.time), row.answer);
        }
        text += &format!(
            "\nround trip of a small call: {:.0} µs, the median of many\n",
            self.round_trip.as_secs_f64() * 1e6
        );
        match self.rows.iter().filter(|row| !row.ok).count() {
            0 => {
                text += "the bridge has ended and the session has left nothing behind; everything worked\n\n";
            }
            bad => text += &format!("{bad} of {} rows are not as expected\n\n", self.rows.len()),
        }
        let program =
            std::env::current_exe().map_or_else(|_| "toolbridge".into(), |path| path.display().to_string());
        text + &format!(
            "Next:\n  {program} demo --serve\n      \
             hosts these tools for any MCP client; what it prints as `mcp_config` is for\n      \
             claude --mcp-config CONFIG --allowedTools mcp__tools -p \"add 40 and 2\"\n  \
             README.md shows how to offer functions of your own program\n"
        )
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
