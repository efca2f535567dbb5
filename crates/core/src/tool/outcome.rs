//! How calls end.

use serde::{Deserialize, Serialize};

use crate::{RawJson, ToolError};

/// How a call ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It returned a result.
    Ok,
    /// The tool failed.
    ToolError,
    /// The caller cancelled the call or was gone.
    #[default]
    Cancelled,
    /// The tool took longer than its limit.
    TimedOut,
    /// The tool was not run: it does not exist, the arguments do not fit, or it is busy.
    Refused,
    /// The transport between the two processes failed.
    TransportError,
}

impl Outcome {
    /// How a call with this outcome ended.
    #[must_use]
    pub fn of(outcome: &Result<RawJson, ToolError>) -> Self {
        match outcome {
            // Most results do not even contain the word.
            Ok(result) if memchr::memmem::find(result.as_bytes(), b"isError").is_none() => Self::Ok,
            Ok(result) if result.member("isError") == Some(true) => Self::ToolError,
            Ok(_) => Self::Ok,
            Err(error) => error.outcome(),
        }
    }

    /// The name in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ToolError => "tool_error",
            Self::Cancelled => "cancelled",
            Self::TimedOut => "timed_out",
            Self::Refused => "refused",
            Self::TransportError => "transport_error",
        }
    }
}
