//! What a function with `#[tool]` can take in addition to its arguments.

use crate::{CallContext, CancellationToken, ToolError};

/// A parameter that comes from the call and not from its arguments: the model neither sees nor sends it.
///
/// [`CallContext`] is one, and so is [`State`]. So is a type of yours that implements this trait:
///
/// ```
/// # use toolbridge_core as toolbridge;
/// use toolbridge::toolset::FromContext;
/// use toolbridge::{CallContext, ToolError};
///
/// /// The model's id for this use of the tool.
/// struct UseId(String);
///
/// impl FromContext for UseId {
///     fn from_context(context: &CallContext) -> Result<Self, ToolError> {
///         let id = context.tool_use_id().ok_or_else(|| ToolError::new("NoIdError", "this call has no id"))?;
///         Ok(UseId(id.to_owned()))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not come from a call",
    label = "not a `CallContext`, a `State<T>`, nor any other type that implements `FromContext`",
    note = "an argument has a name and owns its value: `text: String`, not `text: &str`",
    note = "a value that all calls share is `State(pool): State<Arc<Pool>>`"
)]
pub trait FromContext: Sized {
    /// Extracts the value from the call.
    ///
    /// # Errors
    ///
    /// When it is missing. The call is answered with this error, and the function does not run.
    fn from_context(context: &CallContext) -> Result<Self, ToolError>;
}

impl FromContext for CallContext {
    fn from_context(context: &CallContext) -> Result<Self, ToolError> {
        Ok(context.clone())
    }
}

impl FromContext for CancellationToken {
    fn from_context(context: &CallContext) -> Result<Self, ToolError> {
        Ok(context.cancellation().clone())
    }
}

/// A value that calls share ([`ToolsetBuilder::state`](crate::toolset::ToolsetBuilder::state), or the request's own), as a
/// parameter of a function with `#[tool]`. It is cloned for each call, so it should be cheap to clone, such as an
/// `Arc`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct State<T>(pub T);

impl<T: Clone + Send + Sync + 'static> FromContext for State<T> {
    fn from_context(context: &CallContext) -> Result<Self, ToolError> {
        let state = context.try_state::<T>().cloned().map(Self);
        state.ok_or_else(|| ToolError::new("ToolStateError", CallContext::no_state::<T>()))
    }
}
