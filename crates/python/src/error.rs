//! Converts errors into Python exceptions.

use std::result;

use pyo3::prelude::*;
use pyo3::types::PyType;
use toolbridge::client::{ServerError, ServerFault};
use toolbridge::docs::DocsError;
use toolbridge::ipc::IpcError;
use toolbridge::model::{ClaudeCodeError, ExecutionKind};
use toolbridge::nats::NatsError;
use toolbridge::tool::{Hint as _, RegistrationError};

/// The module of the exception classes.
const MODULE: &str = "toolbridge.errors";

/// The class for invalid use by the caller; the specification does not name one.
const INVALID: &str = "InvalidRequestError";

/// A Python exception. It is made from any error of the Rust crates.
pub(crate) struct Error(PyErr);

pub(crate) type Result<T> = result::Result<T, Error>;

impl From<PyErr> for Error {
    fn from(error: PyErr) -> Self {
        Self(error)
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        error.0
    }
}

/// The attributes of an exception besides its message.
#[derive(Default, IntoPyObject)]
struct Attributes {
    hint: Option<&'static str>,
    recoverable: bool,
    error_type: Option<&'static str>,
    result: Option<String>,
    text: Option<String>,
}

impl From<ClaudeCodeError> for Error {
    fn from(error: ClaudeCodeError) -> Self {
        let class = match &error {
            ClaudeCodeError::InvalidRequest { .. }
            | ClaudeCodeError::PromptExpansion { .. }
            | ClaudeCodeError::Registration(_) => INVALID,
            error => error.type_name(),
        };
        let attributes = Attributes {
            hint: match &error {
                // The hint does not apply to a wheel, which contains the executable.
                ClaudeCodeError::BridgeStartup { .. } | ClaudeCodeError::Ipc(IpcError::NoBridge { .. }) => {
                    None
                }
                ClaudeCodeError::CliExecution { kind: ExecutionKind::NoConversation, .. } => Some(
                    "keep a conversation when it begins (`claude_code_keep_session`), and resume it in the same working \
                     directory",
                ),
                ClaudeCodeError::PromptExpansion { .. } => Some(
                    "update Claude Code to 2.1.248 or newer, or allow it with `claude_code_expand_prompts`",
                ),
                error => error.hint(),
            },
            recoverable: error.is_recoverable(),
            error_type: match &error {
                ClaudeCodeError::CliExecution { kind, .. } => Some(kind.as_str()),
                _ => None,
            },
            result: error.result().map(ToString::to_string),
            text: match &error {
                ClaudeCodeError::StructuredOutput { text, .. } => Some(text.clone()),
                _ => None,
            },
        };
        Self(make(class, &error.to_string(), attributes))
    }
}

impl From<IpcError> for Error {
    fn from(error: IpcError) -> Self {
        let class = match &error {
            IpcError::Registration(_) | IpcError::Name { .. } => INVALID,
            error => error.type_name(),
        };
        // The hint does not apply to a wheel, which contains the executable.
        let hint = if matches!(error, IpcError::NoBridge { .. }) { None } else { error.hint() };
        Self(make(class, &error.to_string(), Attributes { hint, ..Attributes::default() }))
    }
}

impl From<DocsError> for Error {
    fn from(error: DocsError) -> Self {
        let hint = match &error {
            DocsError::MissingRoot { .. } => {
                Some("name an existing folder of notes, or create one with an example (`init=True`)")
            }
            error => error.hint(),
        };
        Self(make(INVALID, &error.to_string(), Attributes { hint, ..Attributes::default() }))
    }
}

impl From<ServerError> for Error {
    fn from(error: ServerError) -> Self {
        let class = match &error {
            ServerError::Config { .. } | ServerError::Start { fault: ServerFault::Url(_), .. } => INVALID,
            _ => "McpServerError",
        };
        Self(make(class, &error.to_string(), Attributes { hint: error.hint(), ..Attributes::default() }))
    }
}

impl From<NatsError> for Error {
    fn from(error: NatsError) -> Self {
        let class = match &error {
            NatsError::Name { .. } | NatsError::Url { .. } | NatsError::File { .. } => INVALID,
            _ => "NatsError",
        };
        Self(make(class, &error.to_string(), Attributes { hint: error.hint(), ..Attributes::default() }))
    }
}

impl From<RegistrationError> for Error {
    fn from(error: RegistrationError) -> Self {
        ClaudeCodeError::from(error).into()
    }
}

/// An error for invalid use by the caller.
pub(crate) fn invalid(message: impl std::fmt::Display) -> Error {
    Error(make(INVALID, &message.to_string(), Attributes::default()))
}

fn make(class: &str, message: &str, attributes: Attributes) -> PyErr {
    Python::attach(|py| {
        let made = || {
            let class = py.import(MODULE)?.getattr(class)?.cast_into::<PyType>()?;
            class.call((message,), Some(&attributes.into_pyobject(py)?))
        };
        made().map_or_else(|error| error, PyErr::from_value)
    })
}
