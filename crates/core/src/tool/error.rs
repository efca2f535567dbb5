//! Errors of calls and of registrations.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use crate::tool::lock::lock;
use crate::tool::name::nearest;
use crate::tool::outcome::Outcome;

/// Why a call failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// There is no such tool.
    #[error("there is no tool `{name}`{}", or_near(nearest))]
    NotFound {
        /// The name asked for.
        name: String,
        /// Similar names that exist, the nearest first.
        nearest: Vec<String>,
    },
    /// The arguments do not fit the tool's input schema.
    #[error("invalid arguments for tool `{tool}`: at `{path}`: {reason}")]
    Arguments {
        /// The tool.
        tool: String,
        /// Where in the arguments, as a JSON pointer; `/` is the root.
        path: String,
        /// What is wrong there.
        reason: String,
    },
    /// The handler panicked.
    #[error("tool `{tool}` panicked: {message}")]
    Panicked {
        /// The tool.
        tool: String,
        /// What the panic said.
        message: String,
    },
    /// The handler took longer than its limit.
    #[error("tool `{tool}` timed out after {} ms", limit.as_millis())]
    TimedOut {
        /// The tool.
        tool: String,
        /// Its limit.
        limit: Duration,
    },
    /// Another tool's handler does not return, and tools that change something run one at a time.
    #[error(
        "tool `{tool}` cannot run: the handler of tool `{by}` is still running, although its call has ended"
    )]
    Busy {
        /// The tool.
        tool: String,
        /// The tool that has the turn.
        by: String,
    },
    /// The handler's value is not what the tool promised.
    #[error("tool `{tool}` returned an unusable result: {reason}")]
    Output {
        /// The tool.
        tool: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The handler, or the transport that carried the call, failed with an error of its own.
    #[error("{message}")]
    Failed {
        /// The error's text.
        message: String,
        /// The error's class name.
        type_name: Cow<'static, str>,
        /// How the error is classified in a trace.
        outcome: Outcome,
    },
}

impl ToolError {
    /// An error with the class name `type_name` (such as `QuotaError`) and the text `message`.
    #[must_use]
    pub fn new(type_name: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let outcome = Outcome::ToolError;
        Self::Failed { message: message.into(), type_name: type_name.into(), outcome }
    }

    /// The same error, classified in a trace as something else than an error of the tool.
    #[must_use]
    pub fn called(mut self, name: Outcome) -> Self {
        if let Self::Failed { outcome, .. } = &mut self {
            *outcome = name;
        }
        self
    }

    /// How the error is classified in a trace.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::NotFound { .. } | Self::Arguments { .. } | Self::Busy { .. } => Outcome::Refused,
            Self::TimedOut { .. } => Outcome::TimedOut,
            Self::Panicked { .. } | Self::Output { .. } => Outcome::ToolError,
            Self::Failed { outcome, .. } => *outcome,
        }
    }

    /// A handler's own error `E`: its text with its causes, its class name from the name of the type.
    pub(crate) fn from_error<E: ?Sized>(error: &(dyn Error + 'static)) -> Self {
        // A handler may also return a `ToolError`.
        if let Some(own) = error.downcast_ref::<Self>() {
            return own.clone();
        }
        Self::new(class_name(std::any::type_name::<E>()).to_owned(), with_causes(error))
    }

    /// The error's class name, as the wire and the model see it.
    #[must_use]
    pub fn type_name(&self) -> &str {
        match self {
            Self::NotFound { .. } => "ToolNotFoundError",
            Self::Arguments { .. } => "ToolArgumentsError",
            Self::Panicked { .. } => "ToolPanicError",
            Self::TimedOut { .. } => "ToolTimeoutError",
            Self::Busy { .. } => "ToolBusyError",
            Self::Output { .. } => "ToolOutputError",
            Self::Failed { type_name, .. } => type_name,
        }
    }
}

/// The class name of `alloc::boxed::Box<dyn core::error::Error + …>` is `Error`, that of `my::mod::Kind<T>` is
/// `Kind`.
pub(crate) fn class_name(type_name: &str) -> &str {
    let inner = match type_name.split_once("dyn ") {
        Some((_, inner)) => inner,
        None => type_name,
    };
    let end = inner.find(['<', '>', ' ']).unwrap_or(inner.len());
    let is_word = |name: &str| name.chars().all(|char| char.is_alphanumeric() || char == '_');
    match inner[..end].rsplit("::").next().unwrap_or(inner) {
        name if name.starts_with(char::is_uppercase) && is_word(name) => name,
        _ => "Error",
    }
}

/// The texts of an error and its causes on one line, without hints, which are not for a model.
#[must_use]
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in causes(error).filter(|cause| !cause.is::<Advice>()).map(ToString::to_string) {
        // Many errors already repeat their cause.
        if !text.contains(&cause) {
            text += &format!(": {cause}");
        }
    }
    text
}

/// The hint of an error or of one of its causes.
#[must_use]
pub fn hint_of(error: &(dyn Error + 'static)) -> Option<&'static str> {
    causes(error).find_map(|cause| cause.downcast_ref()).map(|Advice(text)| *text)
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause| (*cause).source())
}

/// An error that may have a hint.
pub trait Hint {
    /// What the user can do about the error, if anything.
    fn hint(&self) -> Option<&'static str>;
}

/// Makes the [`Hint`] visible wherever the error is shown: `main` prints its `Debug`, `anyhow` and `eyre` print its
/// causes, and the hint is the last of them. `Display` already includes causes held in fields, so these are not
/// returned as sources; they would be printed twice.
///
/// This is a macro because thiserror only takes fields as sources, and a foreign trait cannot be implemented for
/// all `T: Hint`.
#[doc(hidden)]
#[macro_export]
macro_rules! show_hint {
    ($error:ty) => {
        impl std::error::Error for $error {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                $crate::tool::Hint::hint(self).map($crate::__private::advice)
            }
        }

        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{self}")?;
                $crate::tool::Hint::hint(self).map_or(Ok(()), |hint| write!(f, "\nhint: {hint}"))
            }
        }
    };
}

/// A hint as an error source.
#[derive(Debug, thiserror::Error)]
#[error("hint: {0}")]
struct Advice(&'static str);

/// The source that shows `text`; created once for each text.
#[must_use]
pub fn advice(text: &'static str) -> &'static (dyn Error + 'static) {
    static ALL: Mutex<Vec<&'static Advice>> = Mutex::new(Vec::new());
    let mut all = lock(&ALL);
    if let Some(advice) = all.iter().find(|advice| advice.0 == text) {
        return *advice;
    }
    // A source must live as long as its error, so it is leaked; there are few texts.
    let advice: &Advice = Box::leak(Box::new(Advice(text)));
    all.push(advice);
    advice
}

/// Why a set of tools cannot be registered.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegistrationError {
    /// A tool without a name.
    EmptyName,
    /// A name that the CLI does not take.
    BadName {
        /// What is called so: a tool or a server, or a prefix of tools.
        of: &'static str,
        /// The name.
        name: String,
    },
    /// A full name so long that the CLI silently leaves the tool out.
    LongName {
        /// The server.
        server: String,
        /// The tool.
        tool: String,
        /// How long the full name is.
        chars: usize,
        /// How long it may be.
        limit: usize,
    },
    /// Two tools with the same name.
    Duplicate(String),
    /// A schema that is not a JSON Schema of an object.
    BadSchema {
        /// The tool.
        tool: String,
        /// `input` or `output`.
        which: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A filter names a tool that does not exist.
    UnknownTool {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: Vec<String>,
    },
}

impl fmt::Display for RegistrationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyName => f.write_str("a tool has an empty name"),
            Self::BadName { of, name } => {
                write!(f, "{of} `{name}` is empty or has characters other than `A-Z a-z 0-9 _ -`")
            }
            Self::LongName { server, tool, chars, limit } => {
                write!(f, "`mcp__{server}__{tool}` has {chars} characters, the limit is {limit}")
            }
            Self::Duplicate(name) => write!(f, "two tools are called `{name}`"),
            Self::BadSchema { tool, which, reason } => {
                write!(f, "{which} schema of tool `{tool}` is not usable: {reason}")
            }
            Self::UnknownTool { name, known } => {
                write!(f, "there is no tool `{name}` to choose{}", there_are(name, known))
            }
        }
    }
}

show_hint!(RegistrationError);

impl Hint for RegistrationError {
    fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::EmptyName => "give every tool a name, such as `search_orders`",
            Self::BadName { .. } => "use letters, digits, `_` and `-`, such as `search_orders`",
            Self::LongName { .. } => "shorten the tool's or the server's name",
            Self::Duplicate(_) => "rename one of the two",
            Self::BadSchema { .. } => "give a JSON Schema whose root has `\"type\": \"object\"`",
            Self::UnknownTool { known, .. } if known.is_empty() => "register tools before choosing from them",
            Self::UnknownTool { .. } => "choose from the names above",
        })
    }
}

fn there_are(name: &str, known: &[String]) -> String {
    if known.is_empty() {
        return "; there are none".into();
    }
    let near = or_near(&nearest(name, known.iter().map(String::as_str)));
    let link = if near.is_empty() { ";" } else { "" };
    format!("{near}{link} there are: {}", known.join(", "))
}

/// Asks whether the name that is nearest to `name` was meant: `; did you mean …?`, or nothing if none is near.
pub fn did_you_mean<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    or_near(nearest(name, known).get(..1).unwrap_or_default())
}

/// Asks whether one of these names was meant, if there are any.
pub(crate) fn or_near(names: &[String]) -> String {
    let quoted = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
    match &quoted[..] {
        [] => String::new(),
        [one] => format!("; did you mean {one}?"),
        [others @ .., last] => format!("; did you mean {} or {last}?", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_name_is_the_last_segment_of_the_type() {
        let rows = [
            ("std::io::error::Error", "Error"),
            ("()", "Error"),
            ("my_crate::error::QuotaError", "QuotaError"),
            ("my_crate::Wrapped<other::Thing>", "Wrapped"),
            ("alloc::boxed::Box<dyn core::error::Error + core::marker::Send>", "Error"),
        ];
        for (type_name, want) in rows {
            assert_eq!(class_name(type_name), want);
        }
    }
}
