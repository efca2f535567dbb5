//! Entry points for the fuzz targets; not public and not stable.

use crate::{RawJson, ToolCall};
use bytes::Bytes;

use crate::ipc::IpcError;
use crate::ipc::message::{self, BadRequest, Parts};

/// How a frame is classified as a request.
#[derive(Debug)]
pub enum Request {
    /// A call that can be run.
    Call(ToolCall),
    /// It waits for a change of the tools.
    Watch,
    /// It is no request, and is passed over.
    Answer,
    /// It is answered with an error of this type.
    Refused(String),
    /// It ends the connection.
    Invalid,
}

/// How a frame is classified as a reply.
#[derive(Debug)]
pub enum Reply {
    /// A result.
    Result(RawJson),
    /// An error: its type and its message.
    Error(String, String),
    /// Progress, and whether it could be read.
    Progress(bool),
    /// A question, or that one is taken back.
    Ask,
}

/// Reads a request.
pub fn read_request(frame: &Bytes) -> Request {
    match message::read_request(frame) {
        Ok(message::Request::Call(call, _)) => Request::Call(call),
        Ok(message::Request::Watch(_)) => Request::Watch,
        Ok(message::Request::Answer) => Request::Answer,
        Err(BadRequest::Refused(error)) => Request::Refused(error.type_name().into()),
        Err(BadRequest::Invalid(_)) => Request::Invalid,
    }
}

/// Writes a request.
pub fn write_request(call: &ToolCall) -> Vec<u8> {
    let Parts { head, payload, tail } = message::write_request(call, None);
    [&head[..], payload.as_bytes(), &tail].concat()
}

/// Reads a reply.
///
/// # Errors
///
/// When the frame is not a valid reply.
pub fn read_reply(frame: &Bytes) -> Result<Reply, IpcError> {
    Ok(match message::read_reply(frame)? {
        message::Reply::Result(result) => Reply::Result(result),
        message::Reply::Error(error) => Reply::Error(error.type_name().into(), error.to_string()),
        message::Reply::Progress(progress) => Reply::Progress(progress.is_some()),
        message::Reply::Ask(_) => Reply::Ask,
    })
}
