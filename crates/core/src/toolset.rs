//! Functions in this process, as a source of tools.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use crate::arguments::{ObjectSchema, prepare};
use crate::context::States;
use crate::fault::Fault;
use crate::handler::{FromArguments, Handler, IntoHandler, Prepared, Running};
use crate::name::check_tool_name;
use crate::panic::caught;
use crate::returned::{Outcome, Returned};
use crate::{
    Annotations, CallContext, CallFuture, IntoTools, RawJson, RegistrationError, Tool, ToolCall, ToolError,
    ToolList, ToolSchema, ToolSource, Warning,
};

/// The CLI cuts a description here.
const SHOWN_DESCRIPTION_BYTES: usize = 2048;

/// A set of functions in this process. Cloning is cheap.
#[derive(Clone)]
pub struct Toolset {
    list: ToolList,
    /// In the order of `list`.
    tools: Arc<[Arc<Registered>]>,
    state: Arc<States>,
}

struct Registered {
    name: String,
    input: ObjectSchema,
    output: Option<ObjectSchema>,
    handler: Handler,
    timeout: Option<Duration>,
    read_only: bool,
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

    /// Adds a tool of which more is to be said than its name and description; a function with `#[tool]`, as
    /// `lookup {}`; or the methods of a value whose type has `#[tools]`.
    #[must_use]
    pub fn with(mut self, tools: impl IntoTools) -> Self {
        self.tools.extend(tools.into_tools());
        self
    }

    /// Shares a value with all calls; handlers get it with [`CallContext::state`], functions with `#[tool]` as
    /// [`State`](crate::State). One value for each type; a second one replaces the first.
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.state.insert(value);
        self
    }

    /// Checks the tools and makes them callable.
    ///
    /// # Errors
    ///
    /// When a name is empty, used twice, too long or has other characters than `A-Z a-z 0-9 _ -`, or a
    /// schema is not a JSON Schema of an object.
    pub fn build(self) -> Result<Toolset, RegistrationError> {
        let (schemas, tools) =
            self.tools.into_iter().map(register).collect::<Result<(Vec<_>, Vec<_>), _>>()?;
        let toolset =
            Toolset { list: ToolList::new(schemas)?, tools: tools.into(), state: Arc::new(self.state) };
        for warning in toolset.warnings() {
            tracing::warn!("{warning}");
        }
        Ok(toolset)
    }
}

fn register(tool: Tool) -> Result<(ToolSchema, Arc<Registered>), RegistrationError> {
    check_tool_name(&tool.name)?;
    let input = ObjectSchema::compile(&tool.name, "input", &tool.input_schema)?;
    let output = match &tool.output_schema {
        Some(schema) => Some(ObjectSchema::compile(&tool.name, "output", schema)?),
        None => None,
    };
    let mut schema = ToolSchema::new(tool.name.clone(), tool.description, shown(tool.input_schema));
    schema.title = tool.title;
    schema.output_schema = tool.output_schema.map(shown);
    if tool.annotations != Annotations::default() {
        schema.annotations = Some(RawJson::of(&tool.annotations).expect("booleans can be written"));
    }
    if !tool.meta.is_empty() {
        schema.meta = Some(RawJson::from(&serde_json::Value::Object(tool.meta)));
    }
    let registered = Registered {
        name: tool.name,
        input,
        output,
        handler: tool.handler,
        timeout: tool.timeout,
        read_only: tool.annotations.read_only_hint == Some(true),
    };
    Ok((schema, Arc::new(registered)))
}

/// A schema as clients get it: many know one draft, and refuse a schema that names another one.
fn shown(mut schema: serde_json::Value) -> RawJson {
    schema.as_object_mut().map(|root| root.remove("$schema"));
    RawJson::from(&schema)
}

impl Toolset {
    /// Starts an empty set.
    #[must_use]
    pub fn builder() -> ToolsetBuilder {
        ToolsetBuilder::default()
    }

    /// The tools' names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|tool| tool.name.as_str())
    }

    /// The same functions and state, but only those tools; in this set's order.
    ///
    /// # Errors
    ///
    /// When a name is not in this set.
    pub fn filter<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Self, RegistrationError> {
        let places = self.list.places(names)?;
        let schemas = places.iter().map(|place| self.list[*place].clone()).collect();
        let tools = places.iter().map(|place| Arc::clone(&self.tools[*place])).collect();
        Ok(Self { list: ToolList::new(schemas)?, tools, state: Arc::clone(&self.state) })
    }

    /// What works, but perhaps not as the author thinks.
    pub fn warnings(&self) -> impl Iterator<Item = Warning> {
        self.list.iter().filter(|tool| tool.description.len() > SHOWN_DESCRIPTION_BYTES).map(|tool| {
            Warning::LongDescription {
                tool: tool.name.clone(),
                bytes: tool.description.len(),
                limit: SHOWN_DESCRIPTION_BYTES,
            }
        })
    }

    fn get(&self, name: &str) -> Option<&Arc<Registered>> {
        self.list.place(name).map(|place| &self.tools[place])
    }
}

impl std::fmt::Debug for Toolset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Toolset").field(&self.names().collect::<Vec<_>>()).finish()
    }
}

impl ToolSource for Toolset {
    fn tools(&self) -> &ToolList {
        &self.list
    }

    fn call(&self, call: ToolCall, context: CallContext) -> CallFuture<'_> {
        Box::pin(async move {
            let tool = self.get(&call.name).ok_or_else(|| self.list.not_found(&call.name))?;
            let ready = prepare(&tool.name, &tool.input, &tool.handler, &call.arguments)?;
            // They may be large, and the handler may take long.
            drop(call.arguments);
            // Whatever ends this future also tells a handler that blocks its thread.
            let cancelled = context.cancellation().child_token();
            let _end = cancelled.clone().drop_guard();
            let context = context.with(call.meta.tool_use_id, Arc::clone(&self.state), cancelled);
            let outcome = match tool.timeout {
                None => run(ready, context).await,
                Some(limit) => run_within(limit, ready, context).await,
            };
            tool.finish(outcome)
        })
    }

    fn is_exclusive(&self, name: &str) -> bool {
        self.get(name).is_some_and(|tool| !tool.read_only)
    }
}

/// How a handler ended, before its tool's name is put to it.
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
            // Work that still waits for a thread is taken back when the call is dropped.
            Running::Blocking(work) => {
                let work = tokio::task::spawn_blocking(move || span.in_scope(work));
                match AbortOnDropHandle::new(work).await {
                    Ok(outcome) => outcome,
                    Err(error) => match error.try_into_panic() {
                        Ok(panic) => std::panic::resume_unwind(panic),
                        Err(error) => Err(ToolError::new("ToolCancelledError", error.to_string())),
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
async fn run_within(limit: Duration, ready: Prepared, context: CallContext) -> Ended {
    let span = context.span();
    let task = AbortOnDropHandle::new(tokio::spawn(run(ready, context).instrument(span)));
    match tokio::time::timeout(limit, task).await {
        Ok(Ok(ended)) => ended,
        Ok(Err(error)) => Ended::Panicked(error.to_string()),
        Err(_) => Ended::TimedOut(limit),
    }
}

impl Registered {
    fn finish(&self, ended: Ended) -> Result<RawJson, ToolError> {
        let tool = || self.name.clone();
        let returned = match ended {
            Ended::Returned(outcome) => outcome?,
            Ended::Panicked(message) => return Err(ToolError::Panicked { tool: tool(), message }),
            Ended::TimedOut(limit) => return Err(ToolError::TimedOut { tool: tool(), limit }),
        };
        match (returned, &self.output) {
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

    fn check_promise(&self, promised: &ObjectSchema, structured: Option<&RawJson>) -> Result<(), ToolError> {
        let wrong = |reason| Err(ToolError::Output { tool: self.name.clone(), reason });
        match structured {
            Some(object) if object.is_object() => match promised.fault(object) {
                None => Ok(()),
                Some(Fault { path, reason }) => wrong(format!("at `{path}`: {reason}")),
            },
            _ => wrong("it has an output schema, so it must return an object".into()),
        }
    }
}
