//! Entry points for the fuzz targets. They may change with every version.

use bytes::Bytes;

use crate::RawJson;
pub use crate::ipc::frame::{FrameReader, write_frame};
pub use crate::ipc::message::{
    BridgeMessage, ParentMessage, Parts, read_bridge_message, read_parent_message, write_call,
};
pub use crate::mcp::rpc::{CallParams, IdKey, Message, Refusal, RpcId, error_line, read};
use crate::mcp::rpc::{Era, answer_parts};
pub use crate::tool::budget::Budget;

/// The response to the request in `line` with this result, as it is written; `None` if it is not a request.
pub fn answer(line: &Bytes, is_stateless: bool, result: &RawJson) -> Option<Vec<u8>> {
    let Ok(Message::Request { id, .. }) = read(line) else { return None };
    let era = if is_stateless { Era::Stateless } else { Era::Initialize };
    Some(answer_parts(&id, era, "", result).concat())
}
