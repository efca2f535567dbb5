//! Several sources as one.

use std::sync::Arc;

use crate::{CallContext, CallFuture, RegistrationError, ToolCall, ToolList, ToolSource};

/// Several sources as one: your own functions beside a ready-made set, say.
///
/// ```
/// use toolbridge_core::{Combined, NoArgs, ToolSource, Toolset};
///
/// let mine = Toolset::builder().tool("hello", "Greets", async |_: NoArgs| "hello").build()?;
/// let more = Toolset::builder().tool("bye", "Says goodbye", async |_: NoArgs| "bye").build()?;
/// let all = Combined::new().with(mine)?.with(more)?;
/// assert_eq!(all.tools().len(), 2);
/// # Ok::<(), toolbridge_core::RegistrationError>(())
/// ```
#[derive(Clone, Default)]
pub struct Combined {
    list: ToolList,
    sources: Vec<Arc<dyn ToolSource>>,
}

impl Combined {
    /// No sources yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// These, and the tools of `source` after them.
    ///
    /// # Errors
    ///
    /// When two tools have the same name.
    pub fn with(mut self, source: impl ToolSource) -> Result<Self, RegistrationError> {
        let tools = self.list.iter().chain(source.tools().iter()).cloned().collect();
        self.list = ToolList::new(tools)?;
        self.sources.push(Arc::new(source));
        Ok(self)
    }

    fn of(&self, name: &str) -> Option<&Arc<dyn ToolSource>> {
        self.sources.iter().find(|source| source.tools().get(name).is_some())
    }
}

impl std::fmt::Debug for Combined {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.list.iter().map(|tool| &tool.name).collect();
        f.debug_tuple("Combined").field(&names).finish()
    }
}

impl ToolSource for Combined {
    fn tools(&self) -> &ToolList {
        &self.list
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        match self.of(&call.name) {
            Some(source) => source.call(call, context),
            None => Box::pin(async { Err(self.list.not_found(call.name)) }),
        }
    }

    fn is_exclusive(&self, name: &str) -> bool {
        self.of(name).is_some_and(|source| source.is_exclusive(name))
    }
}
