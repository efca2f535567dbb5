//! Entry points for the fuzz targets; not public and not stable.

use bytes::Bytes;

pub use crate::mcp::rpc::{Call, IdKey, Message, Refusal, RpcId, error_line, read};

use crate::RawJson;
use crate::mcp::rpc::{Era, answer_parts};

/// The response to the request in `line` with this result, as it is written; `None` if it is not a request.
pub fn answer(line: &Bytes, is_stateless: bool, result: &RawJson) -> Option<Vec<u8>> {
    let Ok(Message::Request { id, .. }) = read(line) else { return None };
    let era = if is_stateless { Era::Stateless } else { Era::Initialize };
    Some(answer_parts(&id, era, "", result).concat())
}
