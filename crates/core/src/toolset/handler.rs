//! Turns closures into handlers: what a tool may take. What it may return is in `returned.rs`.
//!
//! The type parameters called `M` are inferred and never written; they let the compiler tell closures of different
//! shapes apart.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

use crate::toolset::returned::Outcome;
use crate::{CallContext, IntoToolResult, RawJson};

/// Arguments of a tool that takes none.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
pub struct NoArgs {}

/// What a handler can take: any type that serde can read, or the undecoded arguments ([`RawJson`]).
pub trait FromArguments: Sized + Send + 'static {
    /// Reads the arguments.
    ///
    /// # Errors
    ///
    /// When they do not fit.
    fn from_arguments(arguments: &RawJson) -> Result<Self, serde_json::Error>;

    /// Where in the arguments reading fails, and why. Slower than reading; only used for the error message.
    fn explain(arguments: &RawJson) -> Option<(String, String)>;
}

impl<T: DeserializeOwned + Send + 'static> FromArguments for T {
    fn from_arguments(arguments: &RawJson) -> Result<Self, serde_json::Error> {
        // A handler that takes `RawJson` gets the arguments undecoded.
        let mut whole = Some(arguments.clone());
        let wanted = (&mut whole as &mut dyn Any).downcast_mut::<Option<T>>();
        wanted.and_then(Option::take).map_or_else(|| arguments.decode(), Ok)
    }

    fn explain(arguments: &RawJson) -> Option<(String, String)> {
        let mut deserializer = serde_json::Deserializer::from_slice(arguments.as_bytes());
        let error = serde_path_to_error::deserialize::<_, T>(&mut deserializer).err()?;
        let step = |step: &Segment| match step {
            Segment::Seq { index } => format!("/{index}"),
            // JSON pointers escape these two characters.
            other => format!("/{}", other.to_string().replace('~', "~0").replace('/', "~1")),
        };
        let path = error.path().iter().map(step).collect::<String>();
        Some((path, without_values(&error.into_inner())))
    }
}

/// serde's error message without the value it refers to, and without its line and column: the JSON is always one
/// line.
fn without_values(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = text.strip_suffix(&place).unwrap_or(&text);
    let shows_one = ["invalid type: ", "invalid value: ", "unknown variant "];
    if !shows_one.iter().any(|start| text.starts_with(start)) {
        return text.to_owned();
    }
    // The value may contain the words that follow it; those words never contain a value.
    match (text.find(['`', '"']), text.rfind(", expected ").or_else(|| text.rfind(", there are "))) {
        (Some(begin), Some(end)) if begin < end => format!("{}{}", text[..begin].trim_end(), &text[end..]),
        _ => text.to_owned(),
    }
}

/// A call whose arguments have been read, but which has not started.
pub(crate) type Prepared = Box<dyn FnOnce(CallContext) -> Running + Send>;

/// A call that has started, or that must be started on a thread for blocking work.
pub(crate) enum Running {
    Async(Pin<Box<dyn Future<Output = Outcome> + Send>>),
    Blocking(Box<dyn FnOnce() -> Outcome + Send>),
}

type Prepare = dyn Fn(&RawJson) -> Result<Prepared, serde_json::Error> + Send + Sync;

/// A closure that can answer any call.
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
/// An asynchronous handler runs on the runtime and must not block it. One that is not asynchronous runs on a thread
/// for blocking work and may block.
///
/// A closure may capture. The captures of an asynchronous one are cloned for each call, so they should be cheap to
/// clone, such as an `Arc`.
#[diagnostic::on_unimplemented(
    message = "this closure cannot be a tool",
    label = "not `Fn(Args) -> R` or `Fn(Args, CallContext) -> R`, asynchronous or not",
    note = "`Args` is one struct with `#[derive(serde::Deserialize, schemars::JsonSchema)]`; for none, take `_: NoArgs`",
    note = "`R` is text, a number, `Json(value)` of a type with `#[derive(serde::Serialize)]`, a `ToolResult`, a type that implements `IntoToolResult`, or a `Result` of these whose error implements `std::error::Error`"
)]
pub trait IntoHandler<A, M> {
    /// Converts the closure.
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

// The future of an `async` closure borrows from the closure unless it is called as `FnOnce`, so each call gets a
// clone. The `AsyncFn` bound keeps the closure from mutating its captures, since changes to a clone would be lost.
impl<F, A, R, M> IntoHandler<A, Async1<M>> for F
where
    F: AsyncFn(A) -> R::Output + FnOnce(A) -> R + Clone + Send + Sync + 'static,
    A: FromArguments,
    R: Future<Output: IntoToolResult<M>> + Send + 'static,
{
    fn into_handler(self) -> Handler {
        Async2::<M>::handler(move |arguments, _| self.clone()(arguments))
    }
}

impl<F, A, R, M> IntoHandler<A, Async2<M>> for F
where
    F: AsyncFn(A, CallContext) -> R::Output + FnOnce(A, CallContext) -> R + Clone + Send + Sync + 'static,
    A: FromArguments,
    R: Future<Output: IntoToolResult<M>> + Send + 'static,
{
    fn into_handler(self) -> Handler {
        Async2::<M>::handler(move |arguments, context| self.clone()(arguments, context))
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
                    // The turn is kept until the thread is done, even if the call is no longer awaited.
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
