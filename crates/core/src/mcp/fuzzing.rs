//! Entry points for the fuzz targets; not public and not stable.

use crate::RawJson;
use bytes::Bytes;

use crate::mcp::rpc::{self, Era, IdKey, Message, answer_parts, error_line};

/// A line, classified.
#[derive(Debug)]
pub enum Sorted {
    /// A call: its id as written, the tool's name, the arguments and the metadata.
    Call(RawJson, String, RawJson, Option<RawJson>),
    /// A list: its id as written, its metadata, and whether it has a cursor.
    List(RawJson, Option<RawJson>, bool),
    /// A cancellation: the digits of a number, or a text.
    Cancel(Result<String, String>),
    /// Another request.
    Request(RawJson),
    /// Another notification.
    Notification,
    /// A response.
    Response,
    /// Refused: the id for the error, its code, and the line with the error.
    Refused(Option<RawJson>, i32, String),
}

/// Reads a line.
pub fn read(line: &Bytes) -> Sorted {
    match rpc::read(line) {
        Ok(Message::Call(id, call)) => Sorted::Call(id.raw, call.name, call.arguments, call.meta),
        Ok(Message::List { id, meta, has_cursor }) => Sorted::List(id.raw, meta, has_cursor),
        Ok(Message::Cancel(IdKey::Number(digits))) => Sorted::Cancel(Ok(digits)),
        Ok(Message::Cancel(IdKey::Text(text))) => Sorted::Cancel(Err(text)),
        Ok(Message::Request { id, .. }) => Sorted::Request(id.raw),
        Ok(Message::Notification) => Sorted::Notification,
        Ok(Message::Response { .. }) => Sorted::Response,
        Err((id, error)) => {
            let line = error_line(id.as_ref(), &error);
            Sorted::Refused(id.map(|id| id.raw), error.code.0, line)
        }
    }
}

/// The response to the request in `line` with this result, as it is written; `None` if it is not a request.
pub fn answer(line: &Bytes, is_stateless: bool, result: &RawJson) -> Option<Vec<u8>> {
    let Ok(Message::Request { id, .. }) = rpc::read(line) else { return None };
    let era = if is_stateless { Era::Stateless } else { Era::Initialize };
    Some(answer_parts(&id, era, "", result).concat())
}
