//! What a tool may return.
//!
//! These are traits that any crate can implement for its own types. There is no blanket impl for `Serialize`: a
//! `Result` is `Serialize` too, and could not be told from other types.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::error::Error;
use std::ops::Deref;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{RawJson, ToolError, ToolResult};

/// What a handler can return:
///
/// - text, which is shown as it is; numbers, lists, maps and JSON values, shown as JSON;
/// - any type that serde can write, in a [`Json`] (a function with `#[tool]` also without);
/// - a [`ToolResult`], for pictures, several blocks or structured content, or a result that another system has written;
/// - a type of your own that implements this trait;
/// - a `Result` of these, whose error is an [`IntoToolError`]. The model sees the error's text with its causes, and the
///   name of its type.
///
/// `M` is `()` for your own types; it tells `Result`s with different kinds of errors apart, by the `M`s of value and error.
///
/// ```
/// # use toolbridge_core as toolbridge;
/// use toolbridge::toolset::IntoToolResult;
/// use toolbridge::{NoArgs, Tool, ToolError, ToolResult};
///
/// struct Celsius(f64);
///
/// impl IntoToolResult for Celsius {
///     fn into_tool_result(self) -> Result<ToolResult, ToolError> {
///         format!("{} °C", self.0).into_tool_result()
///     }
/// }
///
/// let tool = Tool::new("temperature", "Tells how warm it is", async |_: NoArgs| Celsius(21.5));
/// ```
#[diagnostic::on_unimplemented(
    message = "a tool cannot return `{Self}`",
    label = "this is neither text nor a number, `Json<T>`, `ToolResult`, nor a `Result` of these",
    note = "a type that implements `serde::Serialize` can be returned as `Json(value)`; from a function with `#[tool]` also as it is",
    note = "a type of your own can implement `IntoToolResult`",
    note = "the error of a `Result` implements `std::error::Error`, or is a `ToolError`, text, `anyhow::Error`, or `Box<dyn std::error::Error + Send + Sync>`"
)]
pub trait IntoToolResult<M = ()> {
    /// Converts the value.
    ///
    /// # Errors
    ///
    /// The handler's own error, or an error that its value cannot be written as JSON.
    fn into_tool_result(self) -> Result<ToolResult, ToolError>;
}

/// A value for serde to write: a string is shown as it is, everything else as JSON.
///
/// ```
/// # use serde::Serialize;
/// # use toolbridge_core as toolbridge;
/// use toolbridge::toolset::Json;
/// use toolbridge::{NoArgs, Tool};
///
/// #[derive(Serialize)]
/// struct Order {
///     total: f64,
/// }
///
/// let last = Tool::new("last_order", "Shows the last order", async |_: NoArgs| Json(Order { total: 9.5 }));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
#[schemars(transparent)]
pub struct Json<T>(pub T);

impl<T: Serialize> IntoToolResult for Json<T> {
    fn into_tool_result(self) -> Result<ToolResult, ToolError> {
        let value = RawJson::of(&self.0)
            .map_err(|error| ToolError::new("ToolOutputError", format!("the result is not JSON: {error}")))?;
        Ok(ToolResult::of_value(value))
    }
}

macro_rules! written {
    ($([$($generics:tt)*] $type:ty,)*) => {$(
        impl<$($generics)*> IntoToolResult for $type {
            fn into_tool_result(self) -> Result<ToolResult, ToolError> {
                Json(self).into_tool_result()
            }
        }
    )*};
}

written! {
    [] (), [] bool, [] char,
    [] i8, [] i16, [] i32, [] i64, [] i128, [] isize,
    [] u8, [] u16, [] u32, [] u64, [] u128, [] usize, [] f32, [] f64,
    [] RawJson, [] serde_json::Value, [] serde_json::Map<String, serde_json::Value>, [] serde_json::Number,
    [T: Serialize] Option<T>, [T: Serialize] Vec<T>, [T: Serialize] VecDeque<T>, [T: Serialize] Box<[T]>,
    [T: Serialize] BTreeSet<T>, [T: Serialize, S] HashSet<T, S>,
    [K: Serialize, V: Serialize] BTreeMap<K, V>, [K: Serialize, V: Serialize, S] HashMap<K, V, S>,
    [A: Serialize, B: Serialize] (A, B), [A: Serialize, B: Serialize, C: Serialize] (A, B, C),
}

macro_rules! text {
    ($($type:ty)*) => {$(
        impl IntoToolResult for $type {
            fn into_tool_result(self) -> Result<ToolResult, ToolError> {
                Ok(ToolResult::text(self))
            }
        }

        impl IntoToolError for $type {
            fn into_tool_error(self) -> ToolError {
                ToolError::new("Error", self)
            }
        }
    )*};
}

text! { String Box<str> &str Cow<'_, str> }

impl<T, const N: usize> IntoToolResult for [T; N]
where
    [T; N]: Serialize,
{
    fn into_tool_result(self) -> Result<ToolResult, ToolError> {
        Json(self).into_tool_result()
    }
}

impl IntoToolResult for ToolResult {
    fn into_tool_result(self) -> Result<ToolResult, ToolError> {
        Ok(self)
    }
}

impl<T: IntoToolResult<M>, E: IntoToolError<N>, M, N> IntoToolResult<Result<M, N>> for Result<T, E> {
    fn into_tool_result(self) -> Result<ToolResult, ToolError> {
        self.map_err(E::into_tool_error)?.into_tool_result()
    }
}

/// What the error of a handler's `Result` can be: anything that implements [`std::error::Error`], [`ToolError`] in
/// particular; a box or `anyhow::Error` around one; text; or a type of your own that implements this trait.
///
/// `M` is `()` for your own types; it tells kinds of errors apart.
///
/// ```
/// # use toolbridge_core as toolbridge;
/// use toolbridge::ToolError;
/// use toolbridge::toolset::IntoToolError;
///
/// enum Refusal {
///     Closed,
/// }
///
/// impl IntoToolError for Refusal {
///     fn into_tool_error(self) -> ToolError {
///         match self {
///             Refusal::Closed => ToolError::new("ShopClosed", "the shop is closed"),
///         }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a tool",
    label = "this is not an error",
    note = "it implements `std::error::Error`, or is a `ToolError`, text, `anyhow::Error`, or `Box<dyn std::error::Error + Send + Sync>`",
    note = "a type of your own can implement `IntoToolError`"
)]
pub trait IntoToolError<M = ()> {
    /// The error as the model and the wire see it.
    fn into_tool_error(self) -> ToolError;
}

/// Marks a type that implements `Error`.
#[derive(Debug)]
pub struct IsError;
/// Marks a type that holds an error: `Box<dyn Error>`, `anyhow::Error`.
#[derive(Debug)]
pub struct HoldsError;

impl<E: Error + 'static> IntoToolError<IsError> for E {
    fn into_tool_error(self) -> ToolError {
        ToolError::from_error::<E>(&self)
    }
}

impl<E: Deref<Target = dyn Error + Send + Sync>> IntoToolError<HoldsError> for E {
    fn into_tool_error(self) -> ToolError {
        ToolError::from_error::<E>(&*self)
    }
}
