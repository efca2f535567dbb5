//! Turns closures into handlers: what a tool may take. What it may return is in `returned.rs`.
//!
//! The type parameters called `M` are inferred and never written; they let the compiler tell closures of different
//! shapes apart.

use std::any::Any;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::task::spawn_blocking;
use tokio_util::task::AbortOnDropHandle;

use crate::tool::arguments::read;
use crate::toolset::IntoToolResult;
use crate::trace::Outcome;
use crate::{CallContext, Fault, RawJson, ToolError, ToolResult};

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
    fn from_arguments(arguments: &RawJson) -> Result<Self, Fault>;
}

impl<T: DeserializeOwned + Send + 'static> FromArguments for T {
    fn from_arguments(arguments: &RawJson) -> Result<Self, Fault> {
        // A handler that takes `RawJson` gets the arguments undecoded.
        let mut whole = Some(arguments.clone());
        let wanted = (&mut whole as &mut dyn Any).downcast_mut::<Option<T>>();
        match wanted.and_then(Option::take) {
            Some(whole) => Ok(whole),
            // serde would read a list into a struct.
            None if !arguments.is_object() => Err(Fault::new("/", "arguments must be a JSON object")),
            None => read(arguments),
        }
    }
}

/// The work of one call.
pub(crate) type Work = Pin<Box<dyn Future<Output = Result<ToolResult, ToolError>> + Send>>;

type Start = dyn Fn(&RawJson, CallContext) -> Result<Work, Fault> + Send + Sync;

/// A closure that can answer any call: it reads the arguments, and returns the work that uses them.
#[derive(Clone)]
pub struct Handler(pub(crate) Arc<Start>);

impl std::fmt::Debug for Handler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handler")
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

/// Marks a closure that is not asynchronous.
#[derive(Debug)]
pub struct Blocking<M>(M);
/// Marks an asynchronous closure.
#[derive(Debug)]
pub struct Waiting<M>(M);

impl<F, A, R, M> IntoHandler<A, fn(A) -> Blocking<M>> for F
where
    F: Fn(A) -> R + Send + Sync + 'static,
    A: FromArguments,
    R: IntoToolResult<M>,
{
    fn into_handler(self) -> Handler {
        blocking(move |arguments, _| self(arguments))
    }
}

impl<F, A, R, M> IntoHandler<A, fn(A, CallContext) -> Blocking<M>> for F
where
    F: Fn(A, CallContext) -> R + Send + Sync + 'static,
    A: FromArguments,
    R: IntoToolResult<M>,
{
    fn into_handler(self) -> Handler {
        blocking(self)
    }
}

// The future of an `async` closure borrows from the closure unless it is called as `FnOnce`, so each call gets a
// clone. The `AsyncFn` bound keeps the closure from mutating its captures, since changes to a clone would be lost.
impl<F, A, R, M> IntoHandler<A, fn(A) -> Waiting<M>> for F
where
    F: AsyncFn(A) -> R::Output + FnOnce(A) -> R + Clone + Send + Sync + 'static,
    A: FromArguments,
    R: Future<Output: IntoToolResult<M>> + Send + 'static,
{
    fn into_handler(self) -> Handler {
        waiting(move |arguments, _| self.clone()(arguments))
    }
}

impl<F, A, R, M> IntoHandler<A, fn(A, CallContext) -> Waiting<M>> for F
where
    F: AsyncFn(A, CallContext) -> R::Output + FnOnce(A, CallContext) -> R + Clone + Send + Sync + 'static,
    A: FromArguments,
    R: Future<Output: IntoToolResult<M>> + Send + 'static,
{
    fn into_handler(self) -> Handler {
        waiting(move |arguments, context| self.clone()(arguments, context))
    }
}

/// Runs `f` on a thread for blocking work.
fn blocking<A, R, M>(f: impl Fn(A, CallContext) -> R + Send + Sync + 'static) -> Handler
where
    A: FromArguments,
    R: IntoToolResult<M>,
{
    let f = Arc::new(f);
    Handler(Arc::new(move |arguments, mut context| {
        let (f, arguments) = (Arc::clone(&f), A::from_arguments(arguments)?);
        Ok(Box::pin(async move {
            let (span, turn) = (context.span(), context.take_turn());
            let work = move || {
                // The turn is kept until the thread is done, even if the call is no longer awaited.
                let _turn = turn;
                f(arguments, context).into_tool_result()
            };
            // If the call is dropped while its work still waits for a thread, the work never runs.
            let work = AbortOnDropHandle::new(spawn_blocking(move || span.in_scope(work)));
            work.await.unwrap_or_else(|error| match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(error) => {
                    Err(ToolError::new("ToolCancelledError", error.to_string()).called(Outcome::Cancelled))
                }
            })
        }))
    }))
}

/// Awaits the future that `f` returns.
fn waiting<A, R, M>(f: impl Fn(A, CallContext) -> R + Send + Sync + 'static) -> Handler
where
    A: FromArguments,
    R: Future<Output: IntoToolResult<M>> + Send + 'static,
{
    let f = Arc::new(f);
    Handler(Arc::new(move |arguments, mut context| {
        let (f, arguments) = (Arc::clone(&f), A::from_arguments(arguments)?);
        Ok(Box::pin(async move {
            let _turn = context.take_turn();
            f(arguments, context).await.into_tool_result()
        }))
    }))
}
