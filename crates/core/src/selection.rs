//! Some of a source's tools.

use crate::{CallContext, CallFuture, RegistrationError, ToolCall, ToolList, ToolSource};

/// A source that has only some of another's tools: it lists no others and calls no others.
///
/// [`Toolset::filter`](crate::Toolset::filter) is the same for a toolset alone.
#[derive(Debug, Clone)]
pub struct Selection<S> {
    source: S,
    list: ToolList,
}

impl<S: ToolSource> Selection<S> {
    /// Those tools of `source`, in its order.
    ///
    /// # Errors
    ///
    /// When a name is not in `source`.
    pub fn new<N: AsRef<str>>(
        source: S,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Self, RegistrationError> {
        let list = source.tools().select(names)?;
        Ok(Self { source, list })
    }
}

impl<S: ToolSource> ToolSource for Selection<S> {
    fn tools(&self) -> &ToolList {
        &self.list
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        if self.list.get(&call.name).is_none() {
            return Box::pin(async { Err(self.list.not_found(call.name)) });
        }
        self.source.call(call, context)
    }

    fn is_exclusive(&self, name: &str) -> bool {
        self.source.is_exclusive(name)
    }
}
