//! The lines of a trace.

use serde::{Deserialize, Serialize};

use crate::tool::outcome::Outcome;
use crate::{RawJson, ToolList};

/// One line of a trace file. `docs/TRACE.md` in the repository describes each member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// What happened.
    #[serde(flatten)]
    pub what: What,
    /// When, in nanoseconds since 1970.
    pub ts_ns: u64,
    /// Which side wrote it.
    pub process: Process,
    /// Its process id.
    pub pid: u32,
}

/// The side of a call that writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Process {
    /// The process with the tools.
    Parent,
    /// The process that the CLI starts.
    Bridge,
    /// An MCP server with its own tools.
    Server,
}

impl Process {
    /// The name in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Parent => "parent",
            Self::Bridge => "bridge",
            Self::Server => "server",
        }
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum What {
    /// A session's socket accepts connections.
    SessionStart {
        /// The session's id, as in the names of its files.
        session: String,
        /// How many tools it has.
        tools: u64,
    },
    /// The session has ended.
    SessionEnd {
        /// The session's id.
        session: String,
    },
    /// An MCP server starts to read.
    FrontStart {
        /// How many tools it has.
        tools: u64,
    },
    /// The MCP server has ended.
    FrontEnd,
    /// A client asked for the list of tools.
    ToolsList {
        /// The request's id.
        request_id: String,
        /// How many there are.
        tools: u64,
        /// How long the answer is.
        result_bytes: u64,
    },
    /// A call has arrived.
    CallStart(Call),
    /// A call has ended.
    CallEnd(CallEnd),
}

impl What {
    /// A client got this `list` of `tools`.
    pub(crate) fn list(request_id: &str, tools: &ToolList, list: &RawJson) -> Self {
        let (tools, result_bytes) = (tools.len() as u64, list.as_bytes().len() as u64);
        Self::ToolsList { request_id: short(request_id), tools, result_bytes }
    }
}

/// Identifies a call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The id of its trace, 32 hexadecimal digits.
    pub trace_id: String,
    /// The id of this side of the call, 16 hexadecimal digits.
    pub span_id: String,
    /// The span that sent it: the bridge's side of the call, or what the client gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_span_id: Option<String>,
    /// The tool.
    pub tool: String,
    /// The model's id for this use of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<String>,
    /// The client's id for the request, if this is an MCP server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// How long the arguments are.
    pub arguments_bytes: u64,
}

/// How a call ended. Times count from its arrival at this side.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallEnd {
    /// Which call.
    #[serde(flatten)]
    pub call: Call,
    /// How it ended.
    pub outcome: Outcome,
    /// The error's class name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_type: Option<String>,
    /// How long the result is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_bytes: Option<u64>,
    /// When its turn came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_ns: Option<u64>,
    /// When it had been sent to the parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_ns: Option<u64>,
    /// When the parent's answer had arrived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_ns: Option<u64>,
    /// When its outcome was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ns: Option<u64>,
    /// When its answer had been written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_ns: Option<u64>,
    /// When it was over, with or without an answer.
    pub total_ns: u64,
}

/// Truncates a text from outside: a line of a trace must stay short enough to be written in one piece.
pub(super) fn short(text: &str) -> String {
    const MOST_CHARS: usize = 120;
    if text.chars().nth(MOST_CHARS).is_none() {
        return text.to_owned();
    }
    text.chars().take(MOST_CHARS - 1).chain(['…']).collect()
}

/// A class name, if it is one: an error's type comes from outside too, and must not carry other text into the
/// trace.
pub(super) fn class(name: &str) -> &str {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_:.&".contains(&byte);
    if !name.is_empty() && name.len() <= 80 && name.bytes().all(fits) { name } else { "?" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_what_the_documentation_says() {
        let call = Call {
            trace_id: "0af7651916cd43dd8448eb211c80319c".into(),
            span_id: "b7ad6b7169203331".into(),
            tool: "add".into(),
            request_id: Some("7".into()),
            arguments_bytes: 13,
            ..Call::default()
        };
        let end = CallEnd {
            call,
            outcome: Outcome::Ok,
            error_type: None,
            result_bytes: Some(60),
            began_ns: Some(1),
            sent_ns: None,
            answered_ns: None,
            ended_ns: Some(2),
            written_ns: Some(3),
            total_ns: 3,
        };
        let event = Event { what: What::CallEnd(end), ts_ns: u64::MAX, process: Process::Server, pid: 1 };
        let line = serde_json::to_string(&event).unwrap();
        assert_eq!(
            line,
            r#"{"event":"call_end","trace_id":"0af7651916cd43dd8448eb211c80319c","span_id":"b7ad6b7169203331","tool":"add","request_id":"7","arguments_bytes":13,"outcome":"ok","result_bytes":60,"began_ns":1,"ended_ns":2,"written_ns":3,"total_ns":3,"ts_ns":18446744073709551615,"process":"server","pid":1}"#
        );
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
    }

    #[test]
    fn names_are_the_same_in_text_and_in_json() {
        use Outcome::{Cancelled, Ok, Refused, TimedOut, ToolError, TransportError};
        for outcome in [Ok, ToolError, Cancelled, TimedOut, Refused, TransportError] {
            assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.as_str());
        }
        for process in [Process::Parent, Process::Bridge, Process::Server] {
            assert_eq!(serde_json::to_value(process).unwrap(), process.as_str());
        }
    }

    #[test]
    fn texts_from_outside_are_kept_short_and_class_names_are_class_names() {
        assert_eq!(short(&"é".repeat(500)).chars().count(), 120);
        assert_eq!(short(&"é".repeat(120)), "é".repeat(120), "a text that fits is not marked as truncated");
        assert_eq!(short("add"), "add");
        assert_eq!(class("QuotaError"), "QuotaError");
        assert_eq!(class("the order of Ms Smith is late"), "?");
        assert_eq!(class(&"x".repeat(81)), "?");
    }
}
