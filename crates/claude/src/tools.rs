//! The tools of a request, as the CLI calls them.

use std::sync::Arc;

use tokio::sync::mpsc;
use toolbridge_core::{
    CallContext, CallFuture, Changes, DerivedList, RawJson, States, Step, ToolCall, ToolError, ToolList,
    ToolSource, Underway,
};

use crate::Event;
use crate::restriction::Restrictions;
use crate::result_limit::{cut, limit_of, with_limit};

/// How many reports wait for the driver, which always reads. Of what a call says meanwhile, the newest is kept.
pub(crate) const MAX_REPORTS: usize = 16;

/// What an event takes besides the text in it.
const EVENT_BYTES: usize = 256;

/// What a tool says of its progress, and how much memory that takes.
pub(crate) struct Report {
    pub(crate) event: Event,
    pub(crate) bytes: usize,
}

/// Tools of this process within a request.
pub(crate) struct RequestTools {
    pub(crate) source: Arc<dyn ToolSource>,
    pub(crate) server: String,
    /// What the calls of this request find before a toolset's own state.
    pub(crate) state: Option<Arc<States>>,
    /// Kept here, whatever the CLI does.
    pub(crate) restrictions: Restrictions,
    /// How long results may be, where that is limited; the list says so too.
    pub(crate) limit: Option<usize>,
    pub(crate) limited: DerivedList,
    /// Where progress goes, where it is an event too.
    pub(crate) reports: Option<mpsc::Sender<Report>>,
}

impl RequestTools {
    /// Calls a tool, and passes its progress on both to the caller and as events.
    async fn report(
        &self,
        name: String,
        call: ToolCall,
        mut context: CallContext,
        events: &mpsc::Sender<Report>,
    ) -> Result<RawJson, ToolError> {
        let (id, caller) = (call.meta.tool_use_id.clone(), context.clone());
        let reports = context.report_progress();
        let mut underway = Underway::new(self.source.call(call, context), Some(reports));
        loop {
            let progress = match underway.next().await {
                Step::Progress(progress) => progress,
                Step::Done(result) => return result,
            };
            caller.progress(progress.progress, progress.total, progress.message.as_deref());
            let bytes = EVENT_BYTES + progress.message.as_ref().map_or(0, String::len);
            let event = Event::ToolProgress { id: id.clone(), name: name.clone(), progress };
            // Once the request has its answer, nobody wants to know.
            _ = events.send(Report { event, bytes }).await;
        }
    }
}

impl ToolSource for RequestTools {
    fn tools(&self) -> ToolList {
        let tools = self.source.tools();
        let Some(limit) = self.limit else { return tools };
        self.limited.get(vec![tools], |lists| {
            let tools: Vec<_> = lists[0].iter().map(|tool| with_limit(tool.clone(), limit)).collect();
            ToolList::of(tools.iter())
        })
    }

    fn changes(&self) -> Changes {
        self.source.changes()
    }

    fn call(&self, call: ToolCall, mut context: CallContext) -> CallFuture<'_> {
        let name = format!("mcp__{}__{}", self.server, call.name);
        if let Some(state) = &self.state {
            context.set_callers_state(Arc::clone(state));
        }
        Box::pin(async move {
            if self.restrictions.cover(&name, Some(&self.server)) {
                let input = call.arguments.decode().unwrap_or_default();
                if let Some(reason) = self.restrictions.objection(&name, Some(&self.server), &input) {
                    return Err(ToolError::new("ToolRestrictedError", reason));
                }
            }
            let limit = self.limit.map(|most| limit_of(self.tools().get(&call.name), most));
            let result = match &self.reports {
                Some(events) => self.report(name, call, context, events).await?,
                None => self.source.call(call, context).await?,
            };
            Ok(match limit {
                Some(limit) => cut(result, limit),
                None => result,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use toolbridge_core::{NoArgs, Toolset};

    use super::*;

    #[tokio::test]
    async fn the_state_of_a_request_goes_before_that_of_its_tools() {
        let user = |_: NoArgs, context: CallContext| context.state::<&'static str>().to_string();
        let tools = Toolset::builder().state("nobody").tool("user", "", user).build().unwrap();
        let mut ada = States::default();
        ada.insert("ada");
        for (state, want) in [(None, "nobody"), (Some(Arc::new(ada)), "ada")] {
            let tools = RequestTools {
                source: Arc::new(tools.clone()),
                server: "tools".into(),
                state,
                restrictions: Restrictions::default(),
                limit: None,
                limited: DerivedList::default(),
                reports: None,
            };
            let call = ToolCall::new("user", RawJson::empty_object());
            let result = tools.call(call, CallContext::default()).await.unwrap();
            assert!(result.as_str().contains(&format!(r#""text":"{want}""#)), "{result}");
        }
    }
}
