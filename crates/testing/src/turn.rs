//! The model's answer to one request.

use std::time::Duration;

use serde_json::Value;

const FILL_PIECE_BYTES: usize = 64 * 1024;

/// The model's answer to one request.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Turn {
    /// A message of these blocks.
    Blocks(Vec<Block>),
    /// An HTTP error.
    Error {
        /// The HTTP status; it decides the error's `type`.
        status: u16,
        /// The error's text.
        message: String,
    },
    /// No answer, until the model is dropped or the client disconnects.
    Hang,
    /// The connection is closed after `message_start`.
    Drop,
    /// Status 200 and a body that is not an event stream.
    Garbage,
}

impl Turn {
    /// A message of these blocks.
    #[must_use]
    pub fn blocks(blocks: Vec<Block>) -> Self {
        Self::Blocks(blocks)
    }

    /// A message of one text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Blocks(vec![Block::text(text)])
    }

    /// An HTTP error, such as 529 `overloaded`.
    #[must_use]
    pub fn error(status: u16, message: impl Into<String>) -> Self {
        Self::Error { status, message: message.into() }
    }
}

/// A part of a message, or a pause between two parts.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Block {
    /// Text, with one delta per piece.
    Text(Vec<String>),
    /// Thinking, with one delta per piece.
    Think(Vec<String>),
    /// A tool call.
    Call {
        /// The tool's name.
        name: String,
        /// The arguments.
        input: Value,
        /// The tool-use id; by default `toolu_<turn>_<index>`, both counted from 0, the index among the calls
        /// of the turn.
        id: Option<String>,
    },
    /// A pause.
    Sleep(Duration),
}

impl Block {
    /// A text, sent in one piece.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(vec![text.into()])
    }

    /// A text of `size` times `x`, sent in pieces of 64 KiB.
    #[must_use]
    pub fn fill(size: usize) -> Self {
        let starts = (0..size).step_by(FILL_PIECE_BYTES);
        Self::Text(starts.map(|start| "x".repeat(FILL_PIECE_BYTES.min(size - start))).collect())
    }

    /// A tool call. A bare lower-case name means a tool of an MCP server: `add` is `mcp__tools__add`, or, if
    /// the CLI offers no such tool, the `add` of the one server that has it. A name with a capital letter or
    /// `mcp__` is used as it is.
    #[must_use]
    pub fn call(name: &str, input: Value) -> Self {
        Self::Call { name: name.into(), input, id: None }
    }

    /// A tool call with its own tool-use id.
    #[must_use]
    pub fn call_as(name: &str, input: Value, id: impl Into<String>) -> Self {
        match Self::call(name, input) {
            Self::Call { name, input, .. } => Self::Call { name, input, id: Some(id.into()) },
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_is_cut_into_pieces_and_complete() {
        for size in [0, 1, FILL_PIECE_BYTES, FILL_PIECE_BYTES + 1, 5_000_000] {
            let Block::Text(pieces) = Block::fill(size) else { panic!("not a text") };
            assert_eq!(pieces.concat().len(), size);
            assert_eq!(pieces.len(), size.div_ceil(FILL_PIECE_BYTES));
        }
    }
}
