//! One line of JSON for each call; never contains body text.

use std::io::{self, Write};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::arguments::Mode;
use crate::refusal::{Code, Refusal};

/// Which calls are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Calls that failed because of a disk error.
    Error,
    /// All failed calls.
    Warn,
    /// All calls.
    #[default]
    Info,
}

impl LogLevel {
    /// The valid names of a level.
    pub(crate) const EXPECTED: &'static str = "`error`, `warn` or `info`";
}

/// A text that is not a [`LogLevel`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not `error`, `warn` or `info`")]
pub struct UnknownLogLevel(String);

impl FromStr for LogLevel {
    type Err = UnknownLogLevel;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_ascii_lowercase().as_str() {
            "error" => Ok(Self::Error),
            "warn" => Ok(Self::Warn),
            "info" => Ok(Self::Info),
            _ => Err(UnknownLogLevel(text.to_owned())),
        }
    }
}

/// Additional fields for tools that write.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Note {
    pub(crate) written_path: String,
    pub(crate) mode: Mode,
    pub(crate) written_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) written_sections: Option<u64>,
    pub(crate) truncated: bool,
}

/// Writes the lines.
pub(crate) struct Log {
    pub(crate) level: LogLevel,
    pub(crate) sink: Mutex<Box<dyn Write + Send>>,
}

impl Default for Log {
    fn default() -> Self {
        Self { level: LogLevel::default(), sink: Mutex::new(Box::new(io::stderr())) }
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("log_level", &self.level).finish_non_exhaustive()
    }
}

impl Log {
    pub(crate) fn call(&self, tool: &str, elapsed: Duration, note: Option<&Note>, refusal: Option<&Refusal>) {
        #[derive(Serialize)]
        struct Line<'a> {
            ts: String,
            level: LogLevel,
            tool: &'a str,
            ok: bool,
            elapsed_ms: f64,
            #[serde(flatten)]
            note: Option<&'a Note>,
            #[serde(skip_serializing_if = "Option::is_none")]
            code: Option<Code>,
        }
        let code = refusal.map(|refusal| refusal.code);
        let level = match code {
            None => LogLevel::Info,
            Some(Code::IoError) => LogLevel::Error,
            Some(_) => LogLevel::Warn,
        };
        if level > self.level {
            return;
        }
        let line = Line {
            ts: now(),
            level,
            tool,
            ok: code.is_none(),
            elapsed_ms: (elapsed.as_secs_f64() * 1e6).round() / 1e3,
            note,
            code,
        };
        let mut text = serde_json::to_vec(&line).expect("strings and numbers can be written");
        text.push(b'\n');
        // One write per line, so that lines of several processes do not mix. A write error does not fail the
        // call.
        _ = self.sink.lock().unwrap_or_else(PoisonError::into_inner).write_all(&text);
    }
}

/// The time in RFC 3339, with milliseconds.
fn now() -> String {
    let now = Timestamp::now();
    let whole = now - SignedDuration::from_nanos(i64::from(now.subsec_nanosecond() % 1_000_000));
    format!("{whole:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_written_in_milliseconds_of_utc() {
        let now = now();
        assert_eq!(now.len(), "2025-01-02T03:04:05.678Z".len(), "{now}");
        assert!(now.ends_with('Z') && now.parse::<Timestamp>().is_ok(), "{now}");
    }

    #[test]
    fn a_level_is_one_of_three_words() {
        for (text, want) in [("error", LogLevel::Error), ("WARN", LogLevel::Warn), ("info", LogLevel::Info)] {
            assert_eq!(text.parse(), Ok(want));
        }
        assert_eq!("debug".parse::<LogLevel>(), Err(UnknownLogLevel("debug".into())));
    }
}
