//! Functions of this process as a source: what a handler takes, and what it returns.

pub(crate) mod extract;
pub(crate) mod function;
pub(crate) mod handler;
pub(crate) mod returned;
pub(crate) mod tool;

pub use extract::{FromContext, State};
pub use handler::{FromArguments, IntoHandler, NoArgs};
pub use returned::{IntoToolError, IntoToolResult, Json};
pub use tool::{IntoTools, Tool};

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use schemars::JsonSchema;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use crate::call::clock::Clock;
use crate::call::context::States;
use crate::call::panic::caught;
use crate::tool::name::check_tool_name;
use crate::toolset::handler::{Handler, Work};
use crate::{
    CallContext, CallFuture, Changes, Fault, RawJson, RegistrationError, Schema, ToolCall, ToolError,
    ToolList, ToolResult, ToolSource, ToolSpec,
};

/// The CLI truncates descriptions to this length.
const SHOWN_DESCRIPTION_BYTES: usize = 2048;

/// A set of functions in this process. Clones share their tools: adding or removing one is seen by all clones.
#[derive(Clone)]
pub struct Toolset {
    /// The list, and what it was made from, in the same order.
    tools: Arc<RwLock<(ToolList, Vec<Arc<Registered>>)>>,
    changed: watch::Sender<()>,
    state: Arc<States>,
}

struct Registered {
    spec: ToolSpec,
    /// `None` when the handler checks its arguments itself, or their type does.
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
    /// the closures and [`IntoToolResult`] for what they may return.
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
    /// [`State`]. There is one value for each type; a second one replaces the first.
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
    let Tool { mut spec, annotations, meta, handler, is_parallel, checks } = tool;
    check_tool_name(&spec.name)?;
    let input = compile(&spec.name, "input", &mut spec.input_schema, checks[0])?;
    let output = spec.output_schema.as_mut().map(|schema| compile(&spec.name, "output", schema, checks[1]));
    let output = output.transpose()?.flatten();
    spec.exclusive = !is_parallel && annotations.get(Tool::READ_ONLY) != Some(&Value::Bool(true));
    let object = |members: Map<_, _>| (!members.is_empty()).then(|| RawJson::from(&Value::Object(members)));
    (spec.annotations, spec.meta) = (object(annotations), object(meta));
    if spec.description.len() > SHOWN_DESCRIPTION_BYTES {
        let (tool, bytes) = (&spec.name, spec.description.len());
        tracing::warn!(
            "description of tool `{tool}` has {bytes} bytes; the CLI shows the model only the first {SHOWN_DESCRIPTION_BYTES}"
        );
    }
    Ok(Arc::new(Registered { spec, input, output, handler }))
}

/// Compiles the schema of an object if it is to be checked, and removes `$schema` from it: many clients know one
/// draft only and refuse a schema that names another.
fn compile(
    tool: &str,
    which: &'static str,
    schema: &mut RawJson,
    is_checked: bool,
) -> Result<Option<Schema>, RegistrationError> {
    let bad = |reason: String| RegistrationError::BadSchema { tool: tool.into(), which, reason };
    let mut read: Value = schema.decode().unwrap_or_default();
    match read.get("type") {
        _ if !read.is_object() => return Err(bad("it is not a JSON object".into())),
        Some(kind) if kind == "object" => {}
        Some(kind) => return Err(bad(format!("its root has `\"type\": {kind}`, not `\"object\"`"))),
        None => return Err(bad("its root has no `\"type\": \"object\"`".into())),
    }
    let compiled = is_checked.then(|| Schema::compile(&read).map_err(bad)).transpose()?;
    read.as_object_mut().map(|root| root.remove("$schema"));
    *schema = RawJson::from(&read);
    Ok(compiled)
}

/// Where a value does not fit a schema.
fn fault(schema: &Schema, value: &RawJson) -> Option<Fault> {
    value.decode().map_or_else(|error| Some(Fault::new("/", error.to_string())), |value| schema.fault(&value))
}

fn list_of(tools: &[Arc<Registered>]) -> Result<ToolList, RegistrationError> {
    ToolList::new(tools.iter().map(|tool| tool.spec.clone()).collect())
}

impl Toolset {
    /// Starts an empty set.
    #[must_use]
    pub fn builder() -> ToolsetBuilder {
        ToolsetBuilder::default()
    }

    fn new(tools: Vec<Arc<Registered>>, state: Arc<States>) -> Result<Self, RegistrationError> {
        let tools = Arc::new(RwLock::new((list_of(&tools)?, tools)));
        Ok(Self { tools, changed: watch::Sender::new(()), state })
    }

    fn read(&self) -> RwLockReadGuard<'_, (ToolList, Vec<Arc<Registered>>)> {
        self.tools.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tools' names, in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.tools().iter().map(|tool| tool.name.clone()).collect()
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
        let mut now = self.tools.write().unwrap_or_else(PoisonError::into_inner);
        let mut tools = now.1.clone();
        change(&mut tools);
        if tools.len() == now.1.len() {
            return Ok(false);
        }
        *now = (list_of(&tools)?, tools);
        drop(now);
        self.changed.send_replace(());
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
        let (list, mut tools) = self.read().clone();
        let chosen = list.select(names)?;
        tools.retain(|tool| chosen.get(&tool.spec.name).is_some());
        Self::new(tools, Arc::clone(&self.state))
    }
}

impl std::fmt::Debug for Toolset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Toolset").field(&self.names()).finish()
    }
}

impl ToolSource for Toolset {
    fn tools(&self) -> ToolList {
        self.read().0.clone()
    }

    fn changes(&self) -> Changes {
        Changes::of(self.changed.subscribe())
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        Box::pin(async move {
            let tool = {
                let (list, tools) = &*self.read();
                let position = list.position(&call.name).ok_or_else(|| list.not_found(&call.name))?;
                Arc::clone(&tools[position])
            };
            // When this future ends or is dropped, a handler that blocks its thread sees the cancellation.
            let cancelled = context.cancellation().child_token();
            let _end = cancelled.clone().drop_guard();
            let mut context = context.with(call.meta, Arc::clone(&self.state), cancelled);
            let span = context.span();
            let clock = tool.spec.timeout.map(|limit| (limit, Arc::new(Clock::new(limit))));
            if let Some((_, clock)) = &clock {
                context.stop_while_asking(Arc::clone(clock));
            }
            let work = caught(tool.start(&call.arguments, context)?);
            // They may be large, and the handler may take long.
            drop(call.arguments);
            let ended = match clock {
                None => work.await,
                // A task of its own, so that the limit holds even when the handler blocks its thread (as long as the
                // runtime has another one).
                Some((limit, clock)) => tokio::select! {
                    biased;
                    ended = AbortOnDropHandle::new(tokio::spawn(work.instrument(span))) => {
                        ended.unwrap_or_else(|error| Err(error.to_string()))
                    }
                    () = clock.runs_out() => return Err(ToolError::TimedOut { tool: call.name, limit }),
                },
            };
            let result = ended.map_err(|message| ToolError::Panicked { tool: call.name, message })??;
            tool.finish(result)
        })
    }
}

impl Registered {
    /// Reads the arguments for the handler, which does not run yet.
    fn start(&self, arguments: &RawJson, context: CallContext) -> Result<Work, ToolError> {
        let wrong = self.input.as_ref().and_then(|schema| fault(schema, arguments));
        let work = wrong.map_or_else(|| self.handler.0(arguments, context), Err);
        work.map_err(|Fault { path, reason }| ToolError::Arguments {
            tool: self.spec.name.clone(),
            path,
            reason,
        })
    }

    /// Checks a result against the output schema, and writes it.
    fn finish(&self, mut result: ToolResult) -> Result<RawJson, ToolError> {
        if let Some(schema) = &self.output
            && result.is_promised()
        {
            let wrong = match result.keep_promise() {
                Some(object) if object.is_object() => {
                    fault(schema, object).map(|Fault { path, reason }| format!("at `{path}`: {reason}"))
                }
                _ => Some("it has an output schema, so it must return an object".into()),
            };
            if let Some(reason) = wrong {
                return Err(ToolError::Output { tool: self.spec.name.clone(), reason });
            }
        }
        Ok(result.to_json())
    }
}
