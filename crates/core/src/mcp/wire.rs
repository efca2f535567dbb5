//! What other fronts for MCP share with this one; not public and not stable.

pub use rmcp::ErrorData;
pub use rmcp::model::{ErrorCode, ProtocolVersion};

pub use crate::mcp::front::{
    LAST_ANSWERS, LAST_CALLS, LIST_CACHE_HINTS, MAX_ARGUMENT_BYTES, MAX_CALLS, error_result, progress_line,
    read_meta,
};
pub use crate::mcp::list::write_list;
pub use crate::mcp::protocol::{KNOWN_VERSIONS, Protocol, version_of};
pub use crate::mcp::question::{Entrance, OpenQuestions, Round, WaitingRoom, no_such_call};
pub use crate::mcp::rpc::{
    Call, Era, IdKey, Message, Retry, RpcId, error_line, in_one_line, invalid_params, invalid_request, read,
    result_head,
};
pub use crate::mcp::subscription::{LIST_CHANGED, Subscriptions};
