//! Sources: anything that can list tools and call them. [`Selection`], [`Prefixed`] and [`Combined`] wrap other sources, and the
//! [`Dispatcher`] stands between a source and a front.
pub(crate) mod changes;
pub(crate) mod combined;
pub(crate) mod dispatcher;
pub(crate) mod prefixed;
pub(crate) mod running;
pub(crate) mod selection;
mod turn;

use std::pin::Pin;
use std::sync::Arc;

pub use changes::{Changes, DerivedList};
pub use combined::Combined;
pub use dispatcher::Dispatcher;
pub use prefixed::Prefixed;
pub use running::{CallEvent, RunningCall};
pub use selection::Selection;

use crate::{CallContext, RawJson, ToolCall, ToolError, ToolList};

/// A running call; dropping it cancels the call.
pub type CallFuture<'a> = Pin<Box<dyn Future<Output = Result<RawJson, ToolError>> + Send + 'a>>;

/// Anything that can list tools and call them: functions in this process, a session in another process, a set of
/// documents.
///
/// Fronts hold a source as `Arc<dyn ToolSource>`, so any source fits any front.
#[diagnostic::on_unimplemented(
    note = "`ToolsetBuilder::build` and `Toolset::filter` return a `Result`: add `?`"
)]
pub trait ToolSource: Send + Sync + 'static {
    /// The current tools; cheap.
    fn tools(&self) -> ToolList;

    /// Notifies when [`tools`](Self::tools) would return another list; most sources never change.
    fn changes(&self) -> Changes {
        Changes::never()
    }

    /// Calls a tool. The result is the JSON text of an MCP `CallToolResult`: an object with `content`, and
    /// optionally `isError`, `structuredContent` and `_meta`.
    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_>;
}

impl std::fmt::Debug for dyn ToolSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.tools().iter().map(|tool| &tool.name)).finish()
    }
}

/// A pointer to a source is a source.
macro_rules! source_behind {
    ($pointer:ident) => {
        impl<S: ToolSource + ?Sized> ToolSource for $pointer<S> {
            fn tools(&self) -> ToolList {
                (**self).tools()
            }

            fn changes(&self) -> Changes {
                (**self).changes()
            }

            fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
                (**self).call(call, context)
            }
        }
    };
}

source_behind!(Arc);
source_behind!(Box);
