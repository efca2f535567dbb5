//! Several sources as one.

use std::sync::Arc;

use crate::changes::DerivedList;
use crate::{CallContext, CallFuture, Changes, Prefixed, RegistrationError, ToolCall, ToolList, ToolSource};

/// Several sources as one, for example your own functions and a ready-made set.
///
/// ```
/// # use toolbridge_core as toolbridge;
/// use toolbridge::{Combined, NoArgs, ToolSource, Toolset};
///
/// let mine = Toolset::builder().tool("hello", "Greets", async |_: NoArgs| "hello").build()?;
/// let more = Toolset::builder().tool("bye", "Says goodbye", async |_: NoArgs| "bye").build()?;
/// let all = Combined::new().with(mine)?.with(more)?;
/// assert_eq!(all.tools().len(), 2);
/// # Ok::<(), toolbridge_core::RegistrationError>(())
/// ```
///
/// If the sources change later and two tools get the same name, the tool of the first source is listed and called.
#[derive(Debug, Default)]
pub struct Combined {
    sources: Vec<Arc<dyn ToolSource>>,
    list: DerivedList,
}

impl Combined {
    /// No sources yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the tools of `source` after the existing ones.
    ///
    /// # Errors
    ///
    /// When two tools have the same name.
    pub fn with(mut self, source: impl ToolSource) -> Result<Self, RegistrationError> {
        ToolList::new(self.tools().iter().chain(source.tools().iter()).cloned().collect())?;
        self.sources.push(Arc::new(source));
        Ok(self)
    }

    /// Adds the tools of `source` after the existing ones, each as `<prefix>_<tool>`: `time_now` for the prefix
    /// `time`. See [`Prefixed`].
    ///
    /// # Errors
    ///
    /// When two tools have the same name, or the prefix cannot be part of one.
    pub fn with_prefix(self, prefix: &str, source: impl ToolSource) -> Result<Self, RegistrationError> {
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}_") };
        self.with(Prefixed::new(prefix, source)?)
    }
}

impl ToolSource for Combined {
    fn tools(&self) -> ToolList {
        let lists = self.sources.iter().map(ToolSource::tools).collect();
        self.list.get(lists, |lists| ToolList::of(lists.iter().flat_map(|list| list.iter())))
    }

    fn changes(&self) -> Changes {
        self.sources.iter().fold(Changes::never(), |all, source| all.and(source.changes()))
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        match self.sources.iter().find(|source| source.tools().get(&call.name).is_some()) {
            Some(source) => source.call(call, context),
            None => Box::pin(async { Err(self.tools().not_found(call.name)) }),
        }
    }
}
