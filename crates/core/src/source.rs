//! Anything that can list tools and call them.

use std::pin::Pin;
use std::sync::Arc;

use crate::{CallContext, RawJson, ToolCall, ToolError, ToolList};

/// A call under way; dropping it cancels the call.
pub type CallFuture<'a> = Pin<Box<dyn Future<Output = Result<RawJson, ToolError>> + Send + 'a>>;

/// Anything that can list tools and call them: functions in this process, a session in another one, a
/// set of documents.
///
/// Fronts hold a source as `Arc<dyn ToolSource>`, so any source fits any front.
#[diagnostic::on_unimplemented(
    note = "`ToolsetBuilder::build` and `Toolset::filter` return a `Result`: add `?`"
)]
pub trait ToolSource: Send + Sync + 'static {
    /// The tools; the same for the life of the source.
    fn tools(&self) -> &ToolList;

    /// Calls a tool. The result is the JSON text of an MCP `CallToolResult`: an object with `content`,
    /// and perhaps `isError`, `structuredContent` and `_meta`.
    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_>;

    /// Whether calls of this tool must not overlap with other exclusive calls of the same session. A
    /// front asks this; a source that leaves the order to somebody else says no.
    fn is_exclusive(&self, _name: &str) -> bool {
        false
    }
}

impl<S: ToolSource + ?Sized> ToolSource for Arc<S> {
    fn tools(&self) -> &ToolList {
        (**self).tools()
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        (**self).call(call, context)
    }

    fn is_exclusive(&self, name: &str) -> bool {
        (**self).is_exclusive(name)
    }
}
