//! A source whose calls have a state of their own.

use std::sync::Arc;

use crate::{CallContext, CallFuture, Changes, States, ToolCall, ToolList, ToolSource};

/// A source whose calls find this state before the toolset's own: that of one request, or of one user.
#[derive(Debug, Clone)]
pub struct Stateful<S> {
    source: S,
    state: Arc<States>,
}

impl<S: ToolSource> Stateful<S> {
    /// The tools of `source`, with that state.
    pub fn new(source: S, state: States) -> Self {
        Self { source, state: Arc::new(state) }
    }
}

impl<S: ToolSource> ToolSource for Stateful<S> {
    fn tools(&self) -> ToolList {
        self.source.tools()
    }

    fn changes(&self) -> Changes {
        self.source.changes()
    }

    fn call(&self, call: ToolCall, mut context: CallContext) -> CallFuture<'_> {
        context.set_callers_state(Arc::clone(&self.state));
        self.source.call(call, context)
    }
}
