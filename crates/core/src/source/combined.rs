//! Several sources as one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::source::Prefixed;
use crate::source::changes::DerivedList;
use crate::tool::lock::lock;
use crate::{CallContext, CallFuture, Changes, RegistrationError, ToolCall, ToolList, ToolSource};

/// Several sources as one, for example your own functions and a ready-made set.
///
/// ```
/// # use toolbridge_core as toolbridge;
/// use toolbridge::source::Combined;
/// use toolbridge::{NoArgs, ToolSource, Toolset};
///
/// let mine = Toolset::builder().tool("hello", "Greets", async |_: NoArgs| "hello").build()?;
/// let more = Toolset::builder().tool("bye", "Says goodbye", async |_: NoArgs| "bye").build()?;
/// let all = Combined::new().with(mine)?.with(more)?;
/// assert_eq!(all.tools().len(), 2);
/// # Ok::<(), toolbridge_core::tool::RegistrationError>(())
/// ```
///
/// A name stays with the source that had it first, also while that source does not list it: clients may have allowed
/// this tool, not another one. If another source adds a tool of the same name later, it is left out, with a warning in
/// the log.
#[derive(Debug, Default)]
pub struct Combined {
    /// Each with its name in warnings.
    sources: Vec<(String, Arc<dyn ToolSource>)>,
    list: DerivedList,
    /// For each name that was ever listed, the index of its source, and then of those whose tool is left out.
    owners: Mutex<HashMap<String, Vec<usize>>>,
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
    pub fn with(self, source: impl ToolSource) -> Result<Self, RegistrationError> {
        let name = format!("source {}", self.sources.len() + 1);
        self.with_name(&name, source)
    }

    /// The same, with a name for the source in warnings.
    ///
    /// # Errors
    ///
    /// When two tools have the same name.
    pub fn with_name(mut self, name: &str, source: impl ToolSource) -> Result<Self, RegistrationError> {
        ToolList::new(self.tools().iter().chain(source.tools().iter()).cloned().collect())?;
        self.sources.push((name.into(), Arc::new(source)));
        // The names are its own from now on.
        self.tools();
        Ok(self)
    }

    /// Adds the tools of `source` after the existing ones, each as `<prefix>_<tool>`: `time_now` for the prefix
    /// `time`. See [`Prefixed`].
    ///
    /// # Errors
    ///
    /// When two tools have the same name, or the prefix cannot be part of one.
    pub fn with_prefix(self, prefix: &str, source: impl ToolSource) -> Result<Self, RegistrationError> {
        let full = if prefix.is_empty() { String::new() } else { format!("{prefix}_") };
        self.with_name(prefix, Prefixed::new(full, source)?)
    }

    /// The tools of all `lists`, without those whose name belongs to another source.
    fn owned(&self, lists: &[ToolList]) -> ToolList {
        let mut owners = lock(&self.owners);
        let mut tools = Vec::new();
        for (index, list) in lists.iter().enumerate() {
            for tool in list.iter() {
                let known = owners.entry(tool.name.clone()).or_insert_with(|| vec![index]);
                if known[0] == index {
                    tools.push(tool);
                } else if !known.contains(&index) {
                    known.push(index);
                    let (name, source, owner) =
                        (&tool.name, &self.sources[index].0, &self.sources[known[0]].0);
                    tracing::warn!(
                        "the tool `{name}` of `{source}` is left out: `{owner}` had one with this name first"
                    );
                }
            }
        }
        ToolList::of(tools.into_iter())
    }
}

impl ToolSource for Combined {
    fn tools(&self) -> ToolList {
        let lists = self.sources.iter().map(|(_, source)| source.tools()).collect();
        self.list.get(lists, |lists| self.owned(lists))
    }

    fn changes(&self) -> Changes {
        self.sources.iter().fold(Changes::never(), |all, (_, source)| all.and(source.changes()))
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        let tools = self.tools();
        let owner = lock(&self.owners).get(&call.name).map(|known| known[0]);
        match owner.filter(|_| tools.get(&call.name).is_some()) {
            Some(owner) => self.sources[owner].1.call(call, context),
            None => Box::pin(async move { Err(tools.not_found(call.name)) }),
        }
    }
}
