//! A source of tools that are functions in this process.
pub(crate) mod extract;
pub(crate) mod function;
pub(crate) mod handler;
pub(crate) mod returned;
pub(crate) mod tool;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use schemars::JsonSchema;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use crate::call::clock::Clock;
use crate::call::context::States;
use crate::call::panic::caught;
use crate::tool::arguments::{compile, fault, prepare, read};
use crate::tool::fault::Fault;
use crate::tool::name::check_tool_name;
use crate::toolset::handler::{FromArguments, Handler, IntoHandler, Prepared, Running};
use crate::toolset::returned::{Outcome, Returned};
use crate::{
    CallContext, CallFuture, Changes, IntoTools, RawJson, RegistrationError, Schema, Tool, ToolCall,
    ToolError, ToolList, ToolSource, ToolSpec, Warning, trace,
};

/// The CLI truncates descriptions to this length.
const SHOWN_DESCRIPTION_BYTES: usize = 2048;

/// A set of functions in this process. Clones share their tools: adding or removing one is seen by all clones.
#[derive(Clone)]
pub struct Toolset(Arc<Shared>);

struct Shared {
    tools: RwLock<Arc<Tools>>,
    changed: watch::Sender<()>,
    state: Arc<States>,
}

/// The tools at one moment.
struct Tools {
    list: ToolList,
    /// In the order of `list`.
    registered: Vec<Arc<Registered>>,
}

struct Registered {
    spec: ToolSpec,
    /// `None` when the handler checks its arguments itself.
    input: Option<Schema>,
    output: Option<Schema>,
    handler: Handler,
}

/// Collects tools; [`build`](Self::build) checks them.
#[derive(Default)]
pub struct ToolsetBuilder {
    tools: Vec<Tool>,
    state: States,
}

impl ToolsetBuilder {
    /// Adds a function: a name, what it does, and a closure over its arguments. See [`IntoHandler`] for
    /// the closures and [`IntoToolResult`](crate::IntoToolResult) for what they may return.
    #[must_use]
    pub fn tool<A, M>(
        self,
        name: impl Into<String>,
        description: impl Into<String>,
        handler: impl IntoHandler<A, M>,
    ) -> Self
    where
        A: JsonSchema + FromArguments,
    {
        self.with(Tool::new(name, description, handler))
    }

    /// Adds a tool with more than a name and a description; a function with `#[tool]`, as `lookup {}`; or the
    /// methods of a value whose type has `#[tools]`.
    #[must_use]
    pub fn with(mut self, tools: impl IntoTools) -> Self {
        self.tools.extend(tools.into_tools());
        self
    }

    /// Shares a value with all calls; handlers get it with [`CallContext::state`], functions with `#[tool]` as
    /// [`State`](crate::State). There is one value for each type; a second one replaces the first.
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.state.insert(value);
        self
    }

    /// Checks the tools and makes them callable.
    ///
    /// # Errors
    ///
    /// When a name is empty, duplicated, too long or has other characters than `A-Z a-z 0-9 _ -`, or a schema is
    /// not a JSON Schema of an object.
    pub fn build(self) -> Result<Toolset, RegistrationError> {
        let tools = self.tools.into_iter().map(register).collect::<Result<_, _>>()?;
        Toolset::new(tools, Arc::new(self.state))
    }
}

fn register(tool: Tool) -> Result<Arc<Registered>, RegistrationError> {
    let Tool { mut spec, annotations, meta, handler, is_parallel, is_checked } = tool;
    check_tool_name(&spec.name)?;
    let compile = |which, schema| compile(&spec.name, which, schema, is_checked);
    let input = compile("input", &mut spec.input_schema)?;
    let output = spec.output_schema.as_mut().map(|schema| compile("output", schema)).transpose()?.flatten();
    spec.exclusive = !is_parallel && annotations.get(Tool::READ_ONLY) != Some(&Value::Bool(true));
    let object = |members: Map<_, _>| (!members.is_empty()).then(|| RawJson::from(&Value::Object(members)));
    (spec.annotations, spec.meta) = (object(annotations), object(meta));
    if let Some(warning) = warning(&spec) {
        tracing::warn!("{warning}");
    }
    Ok(Arc::new(Registered { spec, input, output, handler }))
}

/// A warning about a tool that works, but perhaps not as intended.
fn warning(tool: &ToolSpec) -> Option<Warning> {
    let (bytes, limit) = (tool.description.len(), SHOWN_DESCRIPTION_BYTES);
    (bytes > limit).then(|| Warning::LongDescription { tool: tool.name.clone(), bytes, limit })
}

impl Tools {
    fn new(registered: Vec<Arc<Registered>>) -> Result<Self, RegistrationError> {
        let list = ToolList::new(registered.iter().map(|tool| tool.spec.clone()).collect())?;
        Ok(Self { list, registered })
    }
}

impl Toolset {
    /// Starts an empty set.
    #[must_use]
    pub fn builder() -> ToolsetBuilder {
        ToolsetBuilder::default()
    }

    fn new(tools: Vec<Arc<Registered>>, state: Arc<States>) -> Result<Self, RegistrationError> {
        let tools = RwLock::new(Arc::new(Tools::new(tools)?));
        Ok(Self(Arc::new(Shared { tools, changed: watch::Sender::new(()), state })))
    }

    fn now(&self) -> Arc<Tools> {
        Arc::clone(&self.0.tools.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The tools' names, in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.now().list.iter().map(|tool| tool.name.clone()).collect()
    }

    /// Adds a tool while the set is in use.
    ///
    /// # Errors
    ///
    /// As [`ToolsetBuilder::build`]; the set is then unchanged.
    pub fn add(&self, tool: Tool) -> Result<(), RegistrationError> {
        let tool = register(tool)?;
        self.change(|tools| tools.push(tool)).map(drop)
    }

    /// Removes a tool while the set is in use; returns whether it existed. Its running calls continue.
    #[expect(clippy::must_use_candidate, reason = "most callers do not need to know")]
    pub fn remove(&self, name: &str) -> bool {
        self.change(|tools| tools.retain(|tool| tool.spec.name != name)).unwrap_or(false)
    }

    /// Returns whether the number of tools has changed.
    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Registered>>)) -> Result<bool, RegistrationError> {
        let mut now = self.0.tools.write().unwrap_or_else(PoisonError::into_inner);
        let mut registered = now.registered.clone();
        change(&mut registered);
        if registered.len() == now.registered.len() {
            return Ok(false);
        }
        *now = Arc::new(Tools::new(registered)?);
        drop(now);
        self.0.changed.send_replace(());
        Ok(true)
    }

    /// The same functions and state, but only those tools, in this set's order. The result is independent: later
    /// additions and removals do not affect the other set.
    ///
    /// # Errors
    ///
    /// When a name is not in this set.
    pub fn filter<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Self, RegistrationError> {
        let now = self.now();
        let places = now.list.places(names)?;
        let tools = places.iter().map(|place| Arc::clone(&now.registered[*place])).collect();
        Self::new(tools, Arc::clone(&self.0.state))
    }

    /// Warnings about tools that work, but perhaps not as intended.
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        self.now().list.iter().filter_map(warning).collect()
    }
}

impl std::fmt::Debug for Toolset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Toolset").field(&self.names()).finish()
    }
}

impl ToolSource for Toolset {
    fn tools(&self) -> ToolList {
        self.now().list.clone()
    }

    fn changes(&self) -> Changes {
        Changes::of(self.0.changed.subscribe())
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        Box::pin(async move {
            let tool = {
                let now = self.now();
                let place = now.list.place(&call.name).ok_or_else(|| now.list.not_found(&call.name))?;
                Arc::clone(&now.registered[place])
            };
            let ready = tool.prepare(&call.arguments)?;
            // They may be large, and the handler may take long.
            drop(call.arguments);
            // When this future ends or is dropped, a handler that blocks its thread sees the cancellation.
            let cancelled = context.cancellation().child_token();
            let _end = cancelled.clone().drop_guard();
            let context = context.with(call.meta, Arc::clone(&self.0.state), cancelled);
            let outcome = match tool.spec.timeout {
                None => run(ready, context).await,
                Some(limit) => run_within(limit, ready, context).await,
            };
            tool.finish(outcome)
        })
    }
}

/// How a handler ended, without its tool's name.
enum Ended {
    Returned(Outcome),
    Panicked(String),
    TimedOut(Duration),
}

async fn run(ready: Prepared, context: CallContext) -> Ended {
    let span = context.span();
    let work = async move {
        match ready(context) {
            Running::Async(work) => work.await,
            // If the call is dropped while its work still waits for a thread, the work never runs.
            Running::Blocking(work) => {
                let work = tokio::task::spawn_blocking(move || span.in_scope(work));
                match AbortOnDropHandle::new(work).await {
                    Ok(outcome) => outcome,
                    Err(error) => match error.try_into_panic() {
                        Ok(panic) => std::panic::resume_unwind(panic),
                        Err(error) => {
                            let error = ToolError::new("ToolCancelledError", error.to_string());
                            Err(error.called(trace::Outcome::Cancelled))
                        }
                    },
                }
            }
        }
    };
    match caught(work).await {
        Ok(outcome) => Ended::Returned(outcome),
        Err(message) => Ended::Panicked(message),
    }
}

/// Runs the handler as a task of its own, so that the limit holds even when it blocks its thread (as long
/// as the runtime has another one).
async fn run_within(limit: Duration, ready: Prepared, mut context: CallContext) -> Ended {
    let span = context.span();
    let clock = context.can_ask().then(|| Arc::new(Clock::new(limit)));
    if let Some(clock) = &clock {
        context.stop_while_asking(Arc::clone(clock));
    }
    let task = AbortOnDropHandle::new(tokio::spawn(run(ready, context).instrument(span)));
    let ended = match clock {
        None => tokio::time::timeout(limit, task).await.ok(),
        Some(clock) => tokio::select! {
            biased;
            ended = task => Some(ended),
            () = clock.runs_out() => None,
        },
    };
    match ended {
        Some(Ok(ended)) => ended,
        Some(Err(error)) => Ended::Panicked(error.to_string()),
        None => Ended::TimedOut(limit),
    }
}

impl Registered {
    fn prepare(&self, arguments: &RawJson) -> Result<Prepared, ToolError> {
        if let Some(schema) = &self.input {
            return prepare(&self.spec.name, schema, &self.handler, arguments);
        }
        read(&self.handler, arguments).map_err(|error| {
            let (tool, path) = (self.spec.name.clone(), "/".to_owned());
            ToolError::Arguments { tool, path, reason: error.to_string() }
        })
    }

    fn finish(&self, ended: Ended) -> Result<RawJson, ToolError> {
        let tool = || self.spec.name.clone();
        let returned = match ended {
            Ended::Returned(outcome) => outcome?,
            Ended::Panicked(message) => return Err(ToolError::Panicked { tool: tool(), message }),
            Ended::TimedOut(limit) => return Err(ToolError::TimedOut { tool: tool(), limit }),
        };
        match (returned, &self.output) {
            (Returned::Json(result), _) => Ok(result),
            (Returned::Value(value), None) => Ok(value.into_text_block()),
            (Returned::Value(value), Some(promised)) => {
                let object = value.to_raw();
                self.check_promise(promised, Some(&object))?;
                let text = object.as_str().to_owned();
                Ok(crate::ToolResult::text(text).structured(object).to_json())
            }
            (Returned::Result(result), promised) => {
                if let Some(promised) = promised
                    && !result.is_error()
                {
                    self.check_promise(promised, result.structured_content())?;
                }
                Ok(result.to_json())
            }
        }
    }

    fn check_promise(&self, promised: &Schema, structured: Option<&RawJson>) -> Result<(), ToolError> {
        let wrong = |reason| Err(ToolError::Output { tool: self.spec.name.clone(), reason });
        match structured {
            Some(object) if object.is_object() => match fault(promised, object, None) {
                None => Ok(()),
                Some(Fault { path, reason }) => wrong(format!("at `{path}`: {reason}")),
            },
            _ => wrong("it has an output schema, so it must return an object".into()),
        }
    }
}
