//! The tools of a request: how they are described to the CLI, how it reaches them, and what its calls get.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use toolbridge_core::call::{Answer, States};
use toolbridge_core::ipc::IpcError;
use toolbridge_core::mcp::Serving;
use toolbridge_core::park::Parked;
use toolbridge_core::source::{CallEvent, CallFuture, Changes, DerivedList};
use toolbridge_core::tool::{RawJson, ToolCall, ToolList};
use toolbridge_core::trace::{Process as Side, Tracer, trace_path};
use toolbridge_core::{CallContext, Session, ToolError, ToolSource, set};
use tracing::Span;

use crate::builder::Options;
use crate::callbacks::OnAsk;
use crate::callbacks::question::ask_here;
use crate::callbacks::restriction::Restrictions;
use crate::opaque::Opaque;
use crate::permit::{Waits, awaited};
use crate::response::Event;
use crate::result_limit::{cut, limit_of, with_limit};
use crate::{ClaudeCodeError, Transport};

/// How many progress reports wait for the driver, which always reads. When full, only the newest report of
/// a call is kept.
pub(crate) const MAX_REPORTS: usize = 16;

/// The size of an event besides its text.
const EVENT_BYTES: usize = 256;

/// Tools of this process.
pub(crate) type Source = Opaque<dyn ToolSource>;

/// The tools of a server as they are described to the CLI.
#[derive(Debug, Clone)]
pub(crate) struct ServerTools {
    pub(crate) server: String,
    pub(crate) transport: Transport,
    pub(crate) list: ToolList,
    pub(crate) may_change: bool,
}

/// A tool server of a CLI. The turn that its calls belong to changes.
pub(crate) struct ToolServer {
    pub(crate) name: String,
    /// The list until the first turn.
    list: ToolList,
    turn: RwLock<Option<Arc<TurnTools>>>,
    /// Enforced here, independently of the CLI.
    restrictions: Restrictions,
    /// The maximum size of results, if limited; the tool list contains it too.
    limit: Option<usize>,
    limited: DerivedList,
    /// Whether longer results are truncated, because the tools have names that are needed to keep them.
    cuts: AtomicBool,
    /// Notified of changes, if there can be any.
    changed: Option<watch::Sender<()>>,
}

/// How the CLI reaches a tool server.
pub(crate) enum Channel {
    /// Through a bridge that the CLI starts.
    Stdio(Arc<Session>),
    /// Over the control channel.
    Sdk(Arc<dyn ToolSource>, Serving),
}

/// What the calls of a turn get.
#[derive(Debug, Clone)]
pub(crate) struct TurnTools {
    pub(crate) source: Source,
    /// State that takes precedence over the toolset's own.
    pub(crate) state: Option<Arc<States>>,
    /// Receives progress as events and their sizes, if it is reported as events too.
    pub(crate) reports: Option<mpsc::Sender<(Event, usize)>>,
    /// Counts the running calls.
    pub(crate) waits: Waits,
    /// Answers questions of the tools.
    pub(crate) on_ask: Option<OnAsk>,
}

impl ServerTools {
    /// The name by which the CLI knows a tool.
    pub(crate) fn full_name(&self, tool: &str) -> String {
        format!("mcp__{}__{tool}", self.server)
    }

    /// Makes the tools reachable for a CLI; also returns the entry for its MCP servers. If results are limited to
    /// `limit`, longer ones are kept for as long as the CLI has the tools.
    pub(crate) async fn serve(
        &self,
        options: &Options,
        limit: Option<usize>,
    ) -> Result<(Arc<ToolServer>, Channel, Value), ClaudeCodeError> {
        let failed = |error| ClaudeCodeError::session(&self.server, error);
        let tools = Arc::new(ToolServer {
            name: self.server.clone(),
            list: self.list.clone(),
            turn: RwLock::default(),
            restrictions: options.restrictions.clone(),
            limit,
            limited: DerivedList::default(),
            cuts: AtomicBool::new(false),
            changed: self.may_change.then(watch::Sender::default),
        });
        let source: Arc<dyn ToolSource> = match limit.map(|limit| (limit, Parked::new(Arc::clone(&tools)))) {
            Some((limit, Ok(parked))) => Arc::new(parked.limit_chars(limit).at_most_chars(limit).on_demand()),
            parked => {
                tools.cuts.store(parked.is_some(), Ordering::Release);
                Arc::<ToolServer>::clone(&tools)
            }
        };
        if self.transport == Transport::Sdk {
            let file = trace_path(options.trace.as_deref());
            let tracer =
                Tracer::open(Side::Parent, file.as_deref()).map_err(IpcError::from).map_err(failed)?;
            let serving =
                Serving { info: options.info.clone().unwrap_or_default(), tracer, session_id: None };
            let entry = json!({ "type": "sdk", "name": self.server });
            return Ok((tools, Channel::Sdk(source, serving), entry));
        }
        let mut builder = Session::builder(source);
        let info = options.info.clone();
        set!(builder: dir = &options.session_dir, bridge = &options.bridge, trace = &options.trace, info = info);
        let session = builder.start().await.map_err(failed)?;
        let entry = serde_json::to_value(session.mcp_server().map_err(failed)?).map_err(|error| {
            ClaudeCodeError::invalid(format!("the bridge's path cannot be written as JSON: {error}"))
        })?;
        Ok((tools, Channel::Stdio(Arc::new(session)), entry))
    }
}

impl Channel {
    pub(crate) fn session(&self) -> Option<&Arc<Session>> {
        match self {
            Self::Stdio(session) => Some(session),
            Self::Sdk(..) => None,
        }
    }

    /// Sets the parent span of tool calls.
    pub(crate) fn surround_calls(&self, span: Option<Span>) {
        match self {
            Self::Stdio(session) => session.surround_calls(span),
            Self::Sdk(_, serving) => serving.tracer.surround(span),
        }
    }
}

impl Drop for Channel {
    /// The session ends with the CLI, even if other holders of it remain.
    fn drop(&mut self) {
        if let Some(session) = self.session() {
            session.abandon();
        }
    }
}

impl ToolServer {
    fn turn(&self) -> Option<Arc<TurnTools>> {
        self.turn.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn unlimited(&self) -> ToolList {
        self.turn().map_or_else(|| self.list.clone(), |turn| turn.source.0.tools())
    }

    /// Calls belong to this turn from now on. The returned future forwards changes of the turn's list.
    pub(crate) fn begin(self: &Arc<Self>, turn: TurnTools) -> impl Future<Output = ()> + Send + use<> {
        let mut changes = turn.source.0.changes();
        let is_changed = *self.unlimited() != *turn.source.0.tools();
        *self.turn.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(turn));
        let server = Arc::downgrade(self);
        async move {
            if !is_changed {
                changes.next().await;
            }
            while let Some(server) = server.upgrade() {
                if let Some(changed) = &server.changed {
                    changed.send_replace(());
                }
                drop(server);
                changes.next().await;
            }
        }
    }

    /// Calls a tool, and forwards its progress to the caller and as events. Questions that the caller
    /// cannot answer are answered here.
    async fn follow(
        &self,
        turn: &TurnTools,
        name: String,
        call: ToolCall,
        mut context: CallContext,
    ) -> Result<RawJson, ToolError> {
        let on_ask = turn.on_ask.as_ref().filter(|_| !context.can_ask());
        if turn.reports.is_none() && on_ask.is_none() {
            return turn.source.0.call(call, context).await;
        }
        let (id, caller) = (call.meta.tool_use_id.clone(), context.clone());
        let listener = context.listen(turn.reports.is_some(), on_ask.is_some());
        let mut running = listener.follow(turn.source.0.call(call, context));
        loop {
            let progress = match (running.next().await, on_ask) {
                (CallEvent::Progress(progress), _) => progress,
                (CallEvent::Question(asked), Some(on_ask)) => {
                    ask_here(on_ask, &self.name, asked);
                    continue;
                }
                (CallEvent::Question(asked), None) => {
                    asked.answer(Ok(Answer::Nobody));
                    continue;
                }
                (CallEvent::Done(result), _) => return result,
            };
            let Some(events) = &turn.reports else { continue };
            caller.progress(progress.progress, progress.total, progress.message.as_deref());
            let bytes = EVENT_BYTES + progress.message.as_ref().map_or(0, String::len);
            let event = Event::ToolProgress { id: id.clone(), name: name.clone(), progress };
            // Fails once the request has its answer; the report is no longer needed then.
            _ = running.during(events.send((event, bytes))).await;
        }
    }
}

impl ToolSource for ToolServer {
    fn tools(&self) -> ToolList {
        let Some(limit) = self.limit else { return self.unlimited() };
        self.limited.get(vec![self.unlimited()], |lists| {
            let tools: Vec<_> = lists[0].iter().map(|tool| with_limit(tool.clone(), limit)).collect();
            ToolList::of(tools.iter())
        })
    }

    fn changes(&self) -> Changes {
        self.changed.as_ref().map_or_else(Changes::never, |changed| Changes::of(changed.subscribe()))
    }

    fn call(&self, call: ToolCall, mut context: CallContext) -> CallFuture<'_> {
        let name = format!("mcp__{}__{}", self.name, call.name);
        let Some(turn) = self.turn() else {
            let reason = "no request is running that this call could belong to";
            return Box::pin(async move { Err(ToolError::new("NoRequestError", reason)) });
        };
        if let Some(state) = &turn.state {
            context.set_callers_state(Arc::clone(state));
        }
        if turn.on_ask.is_none() {
            context.ask_nobody();
        }
        Box::pin(awaited(async move {
            let _wait = turn.waits.begin();
            if self.restrictions.restrict(&name, Some(&self.name)) {
                let input = call.arguments.decode().unwrap_or_default();
                if let Some(reason) = self.restrictions.objection(&name, Some(&self.name), &input) {
                    return Err(ToolError::new("ToolRestrictedError", reason));
                }
            }
            let limit = self.limit.filter(|_| self.cuts.load(Ordering::Acquire));
            let limit = limit.map(|most| limit_of(self.tools().get(&call.name), most));
            let result = self.follow(&turn, name, call, context).await?;
            Ok(match limit {
                Some(limit) => cut(result, limit),
                None => result,
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
        let (list, may_change) = (tools.tools(), false);
        let described = ServerTools { server: "tools".into(), transport: Transport::Sdk, list, may_change };
        for (state, want) in [(None, "nobody"), (Some(Arc::new(ada)), "ada")] {
            let source = Opaque::<dyn ToolSource>(Arc::new(tools.clone()));
            let turn = TurnTools { source, state, reports: None, waits: Waits::default(), on_ask: None };
            let (server, ..) = described.serve(&Options::default(), None).await.unwrap();
            drop(server.begin(turn));
            let call = ToolCall::new("user", RawJson::empty_object());
            let result = server.call(call, CallContext::default()).await.unwrap();
            assert!(result.as_str().contains(&format!(r#""text":"{want}""#)), "{result}");
        }
    }
}
