//! The tools of a request, as the CLI calls them.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::{mpsc, watch};
use toolbridge_core::call::{Answer, States};
use toolbridge_core::park::Parked;
use toolbridge_core::source::{CallEvent, CallFuture, Changes, DerivedList};
use toolbridge_core::tool::{RawJson, ToolCall, ToolList};
use toolbridge_core::{CallContext, ToolError, ToolSource};

use crate::Event;
use crate::callbacks::OnAsk;
use crate::callbacks::question::ask_here;
use crate::callbacks::restriction::Restrictions;
use crate::result_limit::{cut, limit_of, with_limit};
use crate::waits::{Waits, awaited};

/// How many progress reports wait for the driver, which always reads. When full, only the newest report of
/// a call is kept.
pub(crate) const MAX_REPORTS: usize = 16;

/// The size of an event besides its text.
const EVENT_BYTES: usize = 256;

/// A progress report and its size in memory.
pub(crate) struct Report {
    pub(crate) event: Event,
    pub(crate) bytes: usize,
}

/// The context of calls, until the next turn.
#[derive(Clone)]
pub(crate) struct Bound {
    pub(crate) source: Arc<dyn ToolSource>,
    /// State that takes precedence over the toolset's own.
    pub(crate) state: Option<Arc<States>>,
    /// Receives progress, if it is reported as events too.
    pub(crate) reports: Option<mpsc::Sender<Report>>,
    /// Counts the running calls.
    pub(crate) waits: Waits,
    /// Answers questions of the tools.
    pub(crate) on_ask: Option<OnAsk>,
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

/// The tools of this process as a CLI sees them. The turn that they belong to changes.
pub(crate) struct RequestTools {
    bound: RwLock<Arc<Bound>>,
    pub(crate) server: String,
    /// Enforced here, independently of the CLI.
    restrictions: Restrictions,
    /// The maximum size of results, if limited; the tool list contains it too.
    limit: Option<usize>,
    /// Whether longer results are kept instead of truncated.
    keeps: AtomicBool,
    limited: DerivedList,
    /// Notified of changes, if there can be any.
    changed: Option<watch::Sender<()>>,
}

/// A tool list without callable tools.
struct Listed(ToolList);

impl ToolSource for Listed {
    fn tools(&self) -> ToolList {
        self.0.clone()
    }

    fn call(&self, _: ToolCall, _: CallContext) -> CallFuture<'_> {
        Box::pin(async {
            Err(ToolError::new("NoRequestError", "no request is running that this call could belong to"))
        })
    }
}

impl RequestTools {
    /// Tools of which only the list is known, until the first turn.
    pub(crate) fn new(
        server: String,
        list: ToolList,
        restrictions: Restrictions,
        limit: Option<usize>,
        may_change: bool,
    ) -> Self {
        let source = Arc::new(Listed(list));
        let bound = Bound { source, state: None, reports: None, waits: Waits::default(), on_ask: None };
        let changed = may_change.then(watch::Sender::default);
        Self {
            bound: RwLock::new(Arc::new(bound)),
            server,
            restrictions,
            limit,
            keeps: AtomicBool::new(false),
            limited: DerivedList::default(),
            changed,
        }
    }

    /// The tools as offered to the CLI: if results are limited, longer ones are kept for as long as the CLI
    /// has the tools. Tools that keep results themselves are unchanged.
    pub(crate) fn offered(self: &Arc<Self>) -> Arc<dyn ToolSource> {
        if let Some(limit) = self.limit
            && let Ok(parked) = Parked::new(Arc::clone(self))
        {
            self.keeps.store(true, Ordering::Release);
            return Arc::new(parked.limit_chars(limit).at_most_chars(limit).on_demand());
        }
        Arc::<Self>::clone(self)
    }

    fn bound(&self) -> Arc<Bound> {
        Arc::clone(&self.bound.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Binds calls to a turn from now on. The returned future forwards changes of the turn's list.
    pub(crate) fn bind(self: &Arc<Self>, bound: Bound) -> impl Future<Output = ()> + Send + use<> {
        let mut changes = bound.source.changes();
        let is_changed = *self.bound().source.tools() != *bound.source.tools();
        *self.bound.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(bound);
        let tools = Arc::downgrade(self);
        async move {
            if !is_changed {
                changes.next().await;
            }
            while let Some(tools) = tools.upgrade() {
                if let Some(changed) = &tools.changed {
                    changed.send_replace(());
                }
                drop(tools);
                changes.next().await;
            }
        }
    }

    /// Calls a tool, and forwards its progress to the caller and as events. Questions that the caller
    /// cannot answer are answered here.
    async fn follow(
        &self,
        bound: &Bound,
        name: String,
        call: ToolCall,
        mut context: CallContext,
    ) -> Result<RawJson, ToolError> {
        let on_ask = bound.on_ask.as_ref().filter(|_| !context.can_ask());
        if bound.reports.is_none() && on_ask.is_none() {
            return bound.source.call(call, context).await;
        }
        let (id, caller) = (call.meta.tool_use_id.clone(), context.clone());
        let listener = context.listen(bound.reports.is_some(), on_ask.is_some());
        let mut running = listener.follow(bound.source.call(call, context));
        loop {
            let progress = match (running.next().await, on_ask) {
                (CallEvent::Progress(progress), _) => progress,
                (CallEvent::Question(asked), Some(on_ask)) => {
                    ask_here(on_ask, &self.server, asked);
                    continue;
                }
                (CallEvent::Question(asked), None) => {
                    asked.answer(Ok(Answer::Nobody));
                    continue;
                }
                (CallEvent::Done(result), _) => return result,
            };
            let Some(events) = &bound.reports else { continue };
            caller.progress(progress.progress, progress.total, progress.message.as_deref());
            let bytes = EVENT_BYTES + progress.message.as_ref().map_or(0, String::len);
            let event = Event::ToolProgress { id: id.clone(), name: name.clone(), progress };
            // Fails once the request has its answer; the report is no longer needed then.
            _ = running.during(events.send(Report { event, bytes })).await;
        }
    }
}

impl ToolSource for RequestTools {
    fn tools(&self) -> ToolList {
        let tools = self.bound().source.tools();
        let Some(limit) = self.limit else { return tools };
        self.limited.get(vec![tools], |lists| {
            let tools: Vec<_> = lists[0].iter().map(|tool| with_limit(tool.clone(), limit)).collect();
            ToolList::of(tools.iter())
        })
    }

    fn changes(&self) -> Changes {
        self.changed.as_ref().map_or_else(Changes::never, |changed| Changes::of(changed.subscribe()))
    }

    fn call(&self, call: ToolCall, mut context: CallContext) -> CallFuture<'_> {
        let name = format!("mcp__{}__{}", self.server, call.name);
        let bound = self.bound();
        if let Some(state) = &bound.state {
            context.set_callers_state(Arc::clone(state));
        }
        if bound.on_ask.is_none() {
            context.ask_nobody();
        }
        Box::pin(awaited(async move {
            let _wait = bound.waits.begin();
            if self.restrictions.restrict(&name, Some(&self.server)) {
                let input = call.arguments.decode().unwrap_or_default();
                if let Some(reason) = self.restrictions.objection(&name, Some(&self.server), &input) {
                    return Err(ToolError::new("ToolRestrictedError", reason));
                }
            }
            let limit = self.limit.map(|most| limit_of(self.tools().get(&call.name), most));
            let result = self.follow(&bound, name, call, context).await?;
            Ok(match limit {
                Some(limit) if !self.keeps.load(Ordering::Acquire) => cut(result, limit),
                _ => result,
            })
        }))
    }
}

#[cfg(test)]
mod tests {
    use toolbridge_core::{NoArgs, Toolset};

    use super::*;

    #[tokio::test]
    async fn the_state_of_a_request_overrides_that_of_its_tools() {
        let user = |_: NoArgs, context: CallContext| context.state::<&'static str>().to_string();
        let tools = Toolset::builder().state("nobody").tool("user", "", user).build().unwrap();
        let mut ada = States::default();
        ada.insert("ada");
        for (state, want) in [(None, "nobody"), (Some(Arc::new(ada)), "ada")] {
            let source = Arc::new(tools.clone());
            let bound = Bound { source, state, reports: None, waits: Waits::default(), on_ask: None };
            let list = tools.tools();
            let tools =
                Arc::new(RequestTools::new("tools".into(), list, Restrictions::default(), None, false));
            drop(tools.bind(bound));
            let call = ToolCall::new("user", RawJson::empty_object());
            let result = tools.call(call, CallContext::default()).await.unwrap();
            assert!(result.as_str().contains(&format!(r#""text":"{want}""#)), "{result}");
        }
    }
}
