//! A source under a prefix.

use crate::source::changes::DerivedList;
use crate::tool::name::{SHORTEST_SERVER, check_full_name, check_plain};
use crate::{CallContext, CallFuture, Changes, RegistrationError, ToolCall, ToolList, ToolSource, ToolSpec};

/// The tools of a source, each with a prefix before its name.
///
/// ```
/// # use toolbridge_core as toolbridge;
/// use toolbridge::source::Prefixed;
/// use toolbridge::{NoArgs, ToolSource, Toolset};
///
/// let tools = Toolset::builder().tool("now", "Says what time it is", async |_: NoArgs| "noon").build()?;
/// let tools = Prefixed::new("time_", tools)?;
/// assert_eq!(tools.tools()[0].name, "time_now");
/// # Ok::<(), toolbridge_core::tool::RegistrationError>(())
/// ```
///
/// A tool whose name would be too long for the CLI is left out, with a warning in the log.
#[derive(Debug)]
pub struct Prefixed<S> {
    prefix: String,
    source: S,
    list: DerivedList,
}

impl<S: ToolSource> Prefixed<S> {
    /// The tools of `source`, each with `prefix` before its name.
    ///
    /// # Errors
    ///
    /// When the prefix is empty or has other characters than `A-Z a-z 0-9 _ -`.
    pub fn new(prefix: impl Into<String>, source: S) -> Result<Self, RegistrationError> {
        let prefix = prefix.into();
        check_plain("prefix", &prefix)?;
        Ok(Self { prefix, source, list: DerivedList::default() })
    }
}

/// The same tool with a prefix before its name; `None`, with a warning in the log, when that is too long for the CLI.
#[must_use]
pub(crate) fn with_prefix(prefix: &str, tool: &ToolSpec) -> Option<ToolSpec> {
    let name = format!("{prefix}{}", tool.name);
    if let Err(error) = check_full_name(SHORTEST_SERVER, &name) {
        tracing::warn!(%error, "a tool is left out: the CLI would not offer it under this name");
        return None;
    }
    Some(ToolSpec { name, ..tool.clone() })
}

impl<S: ToolSource> ToolSource for Prefixed<S> {
    fn tools(&self) -> ToolList {
        self.list.get(vec![self.source.tools()], |lists| {
            let tools: Vec<_> = lists[0].iter().filter_map(|tool| with_prefix(&self.prefix, tool)).collect();
            ToolList::of(tools.iter())
        })
    }

    fn changes(&self) -> Changes {
        self.source.changes()
    }

    fn call(&self, mut call: ToolCall, context: CallContext) -> CallFuture<'_> {
        match call.name.strip_prefix(&self.prefix) {
            // A tool that was left out cannot be called either.
            Some(name) if self.tools().get(&call.name).is_some() => {
                call.name = String::from(name);
                self.source.call(call, context)
            }
            _ => Box::pin(async { Err(self.tools().not_found(call.name)) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::source::Combined;
    use crate::{NoArgs, RawJson, Toolset};

    fn tools(names: &[&str]) -> Toolset {
        let mut tools = Toolset::builder();
        for name in names {
            let own = (*name).to_owned();
            tools = tools.tool(*name, "", move |_: NoArgs| {
                let own = own.clone();
                async move { own }
            });
        }
        tools.build().unwrap()
    }

    fn names(source: &impl ToolSource) -> Vec<String> {
        source.tools().iter().map(|tool| tool.name.clone()).collect()
    }

    async fn call(source: &impl ToolSource, name: &str) -> String {
        let call = ToolCall::new(name, RawJson::empty_object());
        match source.call(call, CallContext::default()).await {
            Ok(result) => result.to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn sources_of_any_kind_are_told_apart_by_their_prefixes() {
        let boxed: Box<dyn ToolSource> = Box::new(tools(&["now"]));
        let shared: Arc<dyn ToolSource> = Arc::new(tools(&["now", "then"]));
        let all = Combined::new().with(tools(&["now"])).unwrap();
        let all = all.with_prefix("a", boxed).unwrap().with_prefix("b", shared).unwrap();
        assert_eq!(names(&all), ["now", "a_now", "b_now", "b_then"]);
        assert!(call(&all, "b_then").await.contains(r#""text":"then""#));
        assert!(call(&all, "a_now").await.contains(r#""text":"now""#));
        assert_eq!(call(&all, "b_new").await, "there is no tool `b_new`; did you mean `b_now`?");
    }

    #[tokio::test]
    async fn a_name_that_is_too_long_is_left_out_and_not_called() {
        let (fits, long) = ("x".repeat(115), "x".repeat(116));
        let source = Prefixed::new("time_", tools(&[&fits, &long])).unwrap();
        assert_eq!(names(&source), [format!("time_{fits}")]);
        let refused = call(&source, &format!("time_{long}")).await;
        assert!(refused.starts_with("there is no tool"), "{refused}");
    }

    #[test]
    fn a_prefix_has_only_characters_of_names() {
        for prefix in ["", "a b", "a.", "é"] {
            let error = Prefixed::new(prefix, tools(&[])).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("prefix `{prefix}` is empty or has characters other than `A-Z a-z 0-9 _ -`")
            );
        }
    }

    #[test]
    fn two_of_the_same_name_are_refused() {
        let all = Combined::new().with_prefix("a", tools(&["b_c"])).unwrap();
        let error = all.with_prefix("a_b", tools(&["c"])).unwrap_err();
        assert_eq!(error.to_string(), "two tools are called `a_b_c`");
    }
}
