//! What the code refers to that `#[tool]` and `#[tools]` write (`crates/macros`): [`tool`] makes the tool, and the rest finds
//! out what only the compiler knows.
//!
//! A macro sees tokens and no types, and the name of a type says nothing: an alias has any name, and anybody may call a type
//! `CallContext`. So the generated code asks by calling a method, and method resolution, which knows the type, finds the
//! answer: `(&&&Probe::<T>::NEW).place()` is tried with as many references as are written, and then with one less each time.
//! The impl for the most references comes first therefore; where its bounds do not hold, the next one is taken. This works where
//! `T` is known, which it is in generated code, and nowhere else.
#![expect(missing_docs, clippy::missing_errors_doc, reason = "only generated code refers to it")]

use std::marker::PhantomData;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::RawJson;
pub use crate::extract::FromContext;
use crate::handler::{FromArguments, IntoHandler};
pub use crate::returned::{IntoToolError, IntoToolResult, Json, Returned};
pub use crate::tool::IntoTools;
use crate::tool::schema_of;
pub use crate::{CallContext, RegistrationError, Tool, ToolError, Toolset};

/// A tool of a function. `parameters` are the fields of `A`, and whether they are arguments.
#[must_use]
pub fn tool<A, M>(
    name: &str,
    description: &str,
    parameters: &[(&str, bool)],
    handler: impl IntoHandler<A, M>,
) -> Tool
where
    A: JsonSchema + FromArguments,
{
    let mut schema = schema_of::<A>();
    for (parameter, _) in parameters.iter().filter(|(_, is_argument)| !is_argument) {
        forget(&mut schema, parameter);
    }
    Tool::raw(name, description, schema, handler)
}

/// A future that may go from thread to thread, as handlers' must. Its error is about the function, where that of a handler
/// would be about the closure around it.
pub fn sendable<F: Future + Send + 'static>(work: F) -> F {
    work
}

/// The value whose methods are tools: all calls share it.
pub fn share<T: Send + Sync + 'static>(value: T) -> Arc<T> {
    Arc::new(value)
}

fn forget(schema: &mut Value, property: &str) {
    let Some(root) = schema.as_object_mut() else { return };
    if let Some(properties) = root.get_mut("properties").and_then(Value::as_object_mut) {
        properties.remove(property);
        if properties.is_empty() {
            root.remove("properties");
        }
    }
    if let Some(required) = root.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| name != property);
        if required.is_empty() {
            root.remove("required");
        }
    }
}

/// Asks where a parameter of the type `T` comes from.
#[derive(Debug)]
pub struct Probe<T>(PhantomData<fn() -> T>);

impl<T> Probe<T> {
    pub const NEW: Self = Self(PhantomData);
}

/// First: a type that comes from the call.
pub trait AskCall<T> {
    fn place(&self) -> OfCall<T>;
}

impl<T: FromContext> AskCall<T> for &&Probe<T> {
    fn place(&self) -> OfCall<T> {
        PhantomData
    }
}

/// Then: an argument.
pub trait AskArguments<T> {
    fn place(&self) -> OfArguments<T>;
}

impl<T: DeserializeOwned + JsonSchema + Send + 'static> AskArguments<T> for &Probe<T> {
    fn place(&self) -> OfArguments<T> {
        PhantomData
    }
}

/// Else it cannot be a parameter, and the error says what can.
pub trait AskNobody<T> {
    fn place(&self) -> OfNobody<T>
    where
        T: Argument;
}

impl<T> AskNobody<T> for Probe<T> {
    fn place(&self) -> OfNobody<T>
    where
        T: Argument,
    {
        PhantomData
    }
}

/// Nothing implements this: it is only for its error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a tool",
    label = "neither an argument nor something that comes from the call",
    note = "an argument has `#[derive(serde::Deserialize, schemars::JsonSchema)]`",
    note = "what comes from the call is a `CallContext`, a `State<T>` with a `T` that can be cloned, or implements `FromContext`"
)]
pub trait Argument {}

/// Where the values of a parameter come from.
pub trait Parameter: Copy {
    type Value;
    type Field;

    fn value(self, field: Self::Field, context: &CallContext) -> Result<Self::Value, ToolError>;

    fn is_argument(self) -> bool {
        false
    }
}

// Copied into each call, whatever `T` is.
pub type OfCall<T> = PhantomData<fn() -> (CallContext, T)>;
pub type OfArguments<T> = PhantomData<fn() -> (RawJson, T)>;
pub type OfNobody<T> = PhantomData<fn() -> (Absent, T)>;

/// So that there is one error for it, and not several.
impl<T> Parameter for OfNobody<T> {
    type Value = T;
    type Field = Absent;

    fn value(self, Absent: Absent, _: &CallContext) -> Result<T, ToolError> {
        unreachable!("nothing is an `Argument`")
    }
}

impl<T: FromContext> Parameter for OfCall<T> {
    type Value = T;
    type Field = Absent;

    fn value(self, Absent: Absent, context: &CallContext) -> Result<T, ToolError> {
        T::from_context(context)
    }
}

impl<T: DeserializeOwned + JsonSchema + Send + 'static> Parameter for OfArguments<T> {
    type Value = T;
    type Field = T;

    fn value(self, field: T, _: &CallContext) -> Result<T, ToolError> {
        Ok(field)
    }

    fn is_argument(self) -> bool {
        true
    }
}

/// The field of a parameter that is no argument: not in the schema, and read from nothing.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(from = "Option<IgnoredAny>")]
pub struct Absent;

/// serde takes a missing field for `None`.
impl From<Option<IgnoredAny>> for Absent {
    fn from(_: Option<IgnoredAny>) -> Self {
        Self
    }
}

impl JsonSchema for Absent {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Absent".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        Schema::default()
    }
}

/// Asks how a value of the type `T` that a function returned becomes a result:
/// `(&&&&&Reply::to(&value)).finish(value)`.
#[derive(Debug)]
pub struct Reply<T>(PhantomData<fn() -> T>);

impl<T> Reply<T> {
    #[must_use]
    pub fn to(_: &T) -> Self {
        Self(PhantomData)
    }
}

/// First: what says itself how it is returned.
pub trait ReplyByItself<T, M> {
    fn finish(&self, value: T) -> Result<Returned, ToolError>;
}

impl<T: IntoToolResult<M>, M> ReplyByItself<T, M> for &&&&Reply<T> {
    fn finish(&self, value: T) -> Result<Returned, ToolError> {
        value.into_tool_result()
    }
}

/// Then: a `Result` of what serde can write.
pub trait ReplyWrittenOrError<T, E, N> {
    fn finish(&self, value: Result<T, E>) -> Result<Returned, ToolError>;
}

impl<T: Serialize, E: IntoToolError<N>, N> ReplyWrittenOrError<T, E, N> for &&&Reply<Result<T, E>> {
    fn finish(&self, value: Result<T, E>) -> Result<Returned, ToolError> {
        value.map(Json).into_tool_result()
    }
}

/// Then: any other `Result`, which does not fit, even if serde can write it. The error says what would.
pub trait ReplyNoError<T, E> {
    fn finish<M>(&self, value: Result<T, E>) -> Result<Returned, ToolError>
    where
        Result<T, E>: IntoToolResult<M>;
}

impl<T, E> ReplyNoError<T, E> for &&Reply<Result<T, E>> {
    fn finish<M>(&self, value: Result<T, E>) -> Result<Returned, ToolError>
    where
        Result<T, E>: IntoToolResult<M>,
    {
        value.into_tool_result()
    }
}

/// Then: what serde can write.
pub trait ReplyWritten<T> {
    fn finish(&self, value: T) -> Result<Returned, ToolError>;
}

impl<T: Serialize> ReplyWritten<T> for &Reply<T> {
    fn finish(&self, value: T) -> Result<Returned, ToolError> {
        Json(value).into_tool_result()
    }
}

/// Else it does not fit, and the error says what would.
pub trait ReplyNothing<T> {
    fn finish<M>(&self, value: T) -> Result<Returned, ToolError>
    where
        T: IntoToolResult<M>;
}

impl<T> ReplyNothing<T> for Reply<T> {
    fn finish<M>(&self, value: T) -> Result<Returned, ToolError>
    where
        T: IntoToolResult<M>,
    {
        value.into_tool_result()
    }
}
