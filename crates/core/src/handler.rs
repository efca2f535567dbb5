//! From closures to handlers: what a tool may take and what it may return.
//!
//! The type parameters called `M` are never named by anybody; they let the compiler tell closures of
//! different shapes apart.

use std::error::Error;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_path_to_error::Segment;

use crate::error::class_name;
use crate::{CallContext, RawJson, ToolError, ToolResult, json};

/// Arguments of a tool that takes none.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
pub struct NoArgs {}

/// What a handler can take: any type that serde can read, or the arguments as they came ([`RawJson`]).
pub trait FromArguments: Sized + Send + 'static {
    /// Reads the arguments.
    ///
    /// # Errors
    ///
    /// When they do not fit.
    fn from_arguments(arguments: &RawJson) -> Result<Self, serde_json::Error>;

    /// Where in the arguments reading fails, and why. Slower than reading; for the error message.
    fn explain(arguments: &RawJson) -> Option<(String, String)>;
}

impl<T: DeserializeOwned + Send + 'static> FromArguments for T {
    fn from_arguments(arguments: &RawJson) -> Result<Self, serde_json::Error> {
        arguments.decode()
    }

    fn explain(arguments: &RawJson) -> Option<(String, String)> {
        let mut deserializer = serde_json::Deserializer::from_slice(arguments.as_bytes());
        let error = serde_path_to_error::deserialize::<_, T>(&mut deserializer).err()?;
        let step = |step: &Segment| match step {
            Segment::Seq { index } => format!("/{index}"),
            // A JSON pointer has its own way of writing the two characters it needs itself.
            other => format!("/{}", other.to_string().replace('~', "~0").replace('/', "~1")),
        };
        let path = error.path().iter().map(step).collect::<String>();
        Some((path, without_values(&error.into_inner())))
    }
}

/// What serde says, without the value that it says it of, and without the line and column of it: that there is only one
/// line is our doing.
fn without_values(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = text.strip_suffix(&place).unwrap_or(&text);
    let shows_one = ["invalid type: ", "invalid value: ", "unknown variant "];
    if !shows_one.iter().any(|start| text.starts_with(start)) {
        return text.to_owned();
    }
    // The value may hold the words behind it, and those words never hold a value.
    match (text.find(['`', '"']), text.rfind(", expected ").or_else(|| text.rfind(", there are "))) {
        (Some(begin), Some(end)) if begin < end => format!("{}{}", text[..begin].trim_end(), &text[end..]),
        _ => text.to_owned(),
    }
}

impl FromArguments for RawJson {
    fn from_arguments(arguments: &RawJson) -> Result<Self, serde_json::Error> {
        Ok(arguments.clone())
    }

    fn explain(_: &RawJson) -> Option<(String, String)> {
        None
    }
}

/// A handler's value, written once: behind the head of a text block, where most of them stay.
#[derive(Debug)]
pub struct Value {
    text: Vec<u8>,
    /// How many levels of objects and lists it has.
    depth: usize,
}

impl Value {
    pub(crate) const HEAD: &'static str = r#"{"content":[{"type":"text","text":"#;
    pub(crate) const TAIL: &'static str = r#"}],"isError":false}"#;

    fn write(value: &impl Serialize) -> Result<Self, ToolError> {
        let mut text = Self::HEAD.as_bytes().to_vec();
        match json::write(&mut text, value) {
            Ok(depth) => Ok(Self { text, depth }),
            Err(error) => Err(ToolError::new("ToolOutputError", format!("the result is not JSON: {error}"))),
        }
    }

    /// The value's own JSON text.
    pub(crate) fn json(&self) -> &str {
        std::str::from_utf8(&self.text[Self::HEAD.len()..]).expect("serde_json writes UTF-8")
    }

    /// The same, on its own.
    pub(crate) fn to_raw(&self) -> RawJson {
        RawJson::written_to_depth(self.json().into(), self.depth)
    }

    /// A result with one block of text: a JSON string becomes the text itself, everything else becomes text that is
    /// JSON.
    pub(crate) fn into_text_block(mut self) -> RawJson {
        if !self.json().starts_with('"') {
            let quoted = serde_json::Value::from(self.json()).to_string();
            self.text.truncate(Self::HEAD.len());
            self.text.extend_from_slice(quoted.as_bytes());
        }
        self.text.extend_from_slice(Self::TAIL.as_bytes());
        RawJson::written_result(self.text)
    }
}

/// What a handler returned.
#[derive(Debug)]
pub enum Returned {
    /// A value to be shown as text.
    Value(Value),
    /// A result in full.
    Result(ToolResult),
    /// A result in full, as JSON text.
    Json(RawJson),
}

/// A result that is JSON text already, as other systems give it: that of an MCP `CallToolResult`. It is sent as it is.
#[derive(Debug, Clone)]
pub struct ResultJson(pub RawJson);

pub(crate) type Outcome = Result<Returned, ToolError>;

/// What a handler can return:
///
/// - anything that serde can write: a string is shown as it is, everything else as JSON;
/// - a [`ToolResult`], for pictures, several blocks or structured content;
/// - a `Result` of these, whose error is an [`std::error::Error`], a boxed or `anyhow` one, or a string.
///   The model sees the error's text with its causes, and the name of its type.
///
/// An error type that is both [`std::error::Error`] and [`Serialize`] leaves the compiler in doubt; turn
/// it into a [`ToolError`] with [`ToolError::new`].
pub trait IntoToolResult<M> {
    /// Takes the value over.
    ///
    /// # Errors
    ///
    /// The handler's own error, or that its value cannot be written as JSON.
    fn into_tool_result(self) -> Result<Returned, ToolError>;
}

/// Marks a value that serde writes.
#[derive(Debug)]
pub struct Plain;
/// Marks a [`ToolResult`] or [`ResultJson`].
#[derive(Debug)]
pub struct Full;
/// Marks a `Result` with an error that is one.
#[derive(Debug)]
pub struct Fallible<M>(M);
/// Marks a `Result` with an error that holds one: `Box<dyn Error>`, `anyhow::Error`.
#[derive(Debug)]
pub struct FallibleDyn<M>(M);

impl<T: Serialize> IntoToolResult<Plain> for T {
    fn into_tool_result(self) -> Result<Returned, ToolError> {
        let value = Value::write(&self)?;
        // `Result<T, String>` is itself something that serde writes, and must not pass as a success.
        match error_type_of_result(std::any::type_name::<T>()) {
            Some(error_type) => unwrap_written_result(&value, error_type).map(Returned::Value),
            None => Ok(Returned::Value(value)),
        }
    }
}

impl IntoToolResult<Full> for ToolResult {
    fn into_tool_result(self) -> Result<Returned, ToolError> {
        Ok(Returned::Result(self))
    }
}

impl IntoToolResult<Full> for ResultJson {
    fn into_tool_result(self) -> Result<Returned, ToolError> {
        Ok(Returned::Json(self.0))
    }
}

impl<T: IntoToolResult<M>, E: Error + 'static, M> IntoToolResult<Fallible<M>> for Result<T, E> {
    fn into_tool_result(self) -> Result<Returned, ToolError> {
        self.map_err(|error| ToolError::from_error::<E>(&error))?.into_tool_result()
    }
}

impl<T, E, M> IntoToolResult<FallibleDyn<M>> for Result<T, E>
where
    T: IntoToolResult<M>,
    E: Deref<Target = dyn Error + Send + Sync>,
{
    fn into_tool_result(self) -> Result<Returned, ToolError> {
        self.map_err(|error| ToolError::from_error::<E>(&*error))?.into_tool_result()
    }
}

/// Marks a `Result` of a [`ToolResult`] with an error that is only text.
#[derive(Debug)]
pub struct FullOrText;

impl<E: Into<String> + TextError> IntoToolResult<FullOrText> for Result<ToolResult, E> {
    fn into_tool_result(self) -> Result<Returned, ToolError> {
        match self {
            Ok(result) => Ok(Returned::Result(result)),
            Err(text) => Err(ToolError::new(class_name(std::any::type_name::<E>()).to_owned(), text)),
        }
    }
}

/// Errors that are only text.
pub trait TextError {}
impl TextError for String {}
impl TextError for &'static str {}

/// `E` of a type called `core::result::Result<T, E>`.
fn error_type_of_result(type_name: &str) -> Option<&str> {
    let both = type_name.strip_prefix("core::result::Result<")?.strip_suffix('>')?;
    let mut depth = 0;
    let comma = both.char_indices().find_map(|(place, char)| {
        match char {
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth -= 1,
            ',' if depth == 0 => return Some(place),
            _ => {}
        }
        None
    })?;
    Some(both[comma + 1..].trim())
}

/// serde writes a result as `{"Ok":…}` or `{"Err":…}`.
fn unwrap_written_result(value: &Value, error_type: &str) -> Result<Value, ToolError> {
    let unusable = || ToolError::new("ToolOutputError", "the result is neither `Ok` nor `Err`");
    match json::members(value.json(), &["Ok", "Err"]).map_err(|_| unusable())? {
        Some([Some(ok), None]) => {
            let text = [Value::HEAD, ok.get()].concat().into_bytes();
            Ok(Value { text, depth: value.depth - 1 })
        }
        Some([None, Some(error)]) => {
            let text = serde_json::from_str::<String>(error.get()).unwrap_or_else(|_| error.get().to_owned());
            Err(ToolError::new(class_name(error_type).to_owned(), text))
        }
        _ => Err(unusable()),
    }
}

/// A call whose arguments have been read, and that has not begun.
pub(crate) type Prepared = Box<dyn FnOnce(CallContext) -> Running + Send>;

/// A call that has begun, or that a thread for blocking work must begin.
pub(crate) enum Running {
    Async(Pin<Box<dyn Future<Output = Outcome> + Send>>),
    Blocking(Box<dyn FnOnce() -> Outcome + Send>),
}

type Prepare = dyn Fn(&RawJson) -> Result<Prepared, serde_json::Error> + Send + Sync;

/// A closure made ready for any call.
#[derive(Clone)]
pub struct Handler {
    pub(crate) prepare: Arc<Prepare>,
    pub(crate) explain: fn(&RawJson) -> Option<(String, String)>,
}

impl std::fmt::Debug for Handler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handler")
    }
}

impl Handler {
    fn new<A: FromArguments>(run: impl Fn(A) -> Prepared + Send + Sync + 'static) -> Self {
        Self {
            prepare: Arc::new(move |arguments| A::from_arguments(arguments).map(&run)),
            explain: A::explain,
        }
    }
}

/// Closures that can be tools: `Fn(Args)` or `Fn(Args, CallContext)`, asynchronous or not.
///
/// An asynchronous handler runs on the runtime and must not block it. One that is not asynchronous runs
/// on a thread for blocking work, so it may take its time.
///
/// An `async` closure cannot capture; give the toolset its state instead
/// ([`ToolsetBuilder::state`](crate::ToolsetBuilder::state)), or return an `async move` block from a closure
/// that clones what it needs.
#[diagnostic::on_unimplemented(
    message = "this closure cannot be a tool",
    label = "not `Fn(Args) -> R` or `Fn(Args, CallContext) -> R`, asynchronous or not",
    note = "`Args` is one struct with `#[derive(serde::Deserialize, schemars::JsonSchema)]`; for none, take `_: NoArgs`",
    note = "`R` is text, a type with `#[derive(serde::Serialize)]`, a `ToolResult`, or a `Result` of these whose error implements `std::error::Error`"
)]
pub trait IntoHandler<A, M> {
    /// Makes the closure ready for any call.
    fn into_handler(self) -> Handler;
}

/// Marks `Fn(A) -> R`.
#[derive(Debug)]
pub struct Sync1<M>(M);
/// Marks `Fn(A, CallContext) -> R`.
#[derive(Debug)]
pub struct Sync2<M>(M);
/// Marks `Fn(A) -> Future<R>`.
#[derive(Debug)]
pub struct Async1<M>(M);
/// Marks `Fn(A, CallContext) -> Future<R>`.
#[derive(Debug)]
pub struct Async2<M>(M);

impl<F, A, R, M> IntoHandler<A, Sync1<M>> for F
where
    F: Fn(A) -> R + Send + Sync + 'static,
    A: FromArguments,
    R: IntoToolResult<M>,
{
    fn into_handler(self) -> Handler {
        Sync2::<M>::handler(move |arguments, _| self(arguments))
    }
}

impl<F, A, R, M> IntoHandler<A, Sync2<M>> for F
where
    F: Fn(A, CallContext) -> R + Send + Sync + 'static,
    A: FromArguments,
    R: IntoToolResult<M>,
{
    fn into_handler(self) -> Handler {
        Sync2::<M>::handler(self)
    }
}

impl<F, A, R, M> IntoHandler<A, Async1<M>> for F
where
    F: Fn(A) -> R + Send + Sync + 'static,
    A: FromArguments,
    R: Future<Output: IntoToolResult<M>> + Send + 'static,
{
    fn into_handler(self) -> Handler {
        Async2::<M>::handler(move |arguments, _| self(arguments))
    }
}

impl<F, A, R, M> IntoHandler<A, Async2<M>> for F
where
    F: Fn(A, CallContext) -> R + Send + Sync + 'static,
    A: FromArguments,
    R: Future<Output: IntoToolResult<M>> + Send + 'static,
{
    fn into_handler(self) -> Handler {
        Async2::<M>::handler(self)
    }
}

impl<M> Sync2<M> {
    fn handler<A, R>(f: impl Fn(A, CallContext) -> R + Send + Sync + 'static) -> Handler
    where
        A: FromArguments,
        R: IntoToolResult<M>,
    {
        let f = Arc::new(f);
        Handler::new(move |arguments: A| {
            let f = Arc::clone(&f);
            Box::new(|mut context| {
                let turn = context.take_turn();
                Running::Blocking(Box::new(move || {
                    // Until the thread is done, even if the call is not waited for any more.
                    let _turn = turn;
                    f(arguments, context).into_tool_result()
                }))
            })
        })
    }
}

impl<M> Async2<M> {
    fn handler<A, R>(f: impl Fn(A, CallContext) -> R + Send + Sync + 'static) -> Handler
    where
        A: FromArguments,
        R: Future<Output: IntoToolResult<M>> + Send + 'static,
    {
        let f = Arc::new(f);
        Handler::new(move |arguments: A| {
            let f = Arc::clone(&f);
            Box::new(move |mut context| {
                let turn = context.take_turn();
                let work = f(arguments, context);
                Running::Async(Box::pin(async {
                    let _turn = turn;
                    work.await.into_tool_result()
                }))
            })
        })
    }
}
