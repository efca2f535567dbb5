//! Some of a source's tools.

use std::collections::HashSet;

use crate::source::changes::DerivedList;
use crate::{CallContext, CallFuture, Changes, RegistrationError, ToolCall, ToolList, ToolSource};

/// A source with only some of another source's tools: it lists and calls no others, even if the other source adds
/// tools later.
///
/// [`Toolset::filter`](crate::Toolset::filter) does the same for a toolset.
#[derive(Debug)]
pub struct Selection<S> {
    source: S,
    names: HashSet<String>,
    list: DerivedList,
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
        let chosen = source.tools().select(names)?;
        let names = chosen.iter().map(|tool| tool.name.clone()).collect();
        Ok(Self { source, names, list: DerivedList::default() })
    }
}

impl<S: ToolSource> ToolSource for Selection<S> {
    fn tools(&self) -> ToolList {
        self.list.get(vec![self.source.tools()], |lists| {
            ToolList::of(lists[0].iter().filter(|tool| self.names.contains(&tool.name)))
        })
    }

    fn changes(&self) -> Changes {
        self.source.changes()
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        if !self.names.contains(&call.name) {
            return Box::pin(async { Err(self.tools().not_found(call.name)) });
        }
        self.source.call(call, context)
    }
}
