//! Converts errors into Python exceptions.

use pyo3::prelude::*;
use pyo3::types::PyType;
use toolbridge::docs::DocsError;
use toolbridge::nats::NatsError;
use toolbridge::{ClaudeCodeError, Hint as _, IpcError, ServerError};

/// The module of the exception classes.
const MODULE: &str = "toolbridge.errors";

/// The class for invalid use by the caller; the specification does not name one.
const INVALID: &str = "InvalidRequestError";

/// The attributes of an exception besides its message.
#[derive(Default, IntoPyObject)]
struct Facts {
    hint: Option<&'static str>,
    recoverable: bool,
    error_type: Option<&'static str>,
    result: Option<String>,
    text: Option<String>,
}

pub(crate) fn exception(error: &ClaudeCodeError) -> PyErr {
    let class = match error {
        ClaudeCodeError::InvalidRequest { .. }
        | ClaudeCodeError::PromptExpansion { .. }
        | ClaudeCodeError::Registration(_) => INVALID,
        error => error.type_name(),
    };
    let facts = Facts {
        hint: match error {
            // The hint does not apply to a wheel, which contains the executable.
            ClaudeCodeError::BridgeStartup { .. } => None,
            ClaudeCodeError::PromptExpansion { .. } => {
                Some("update Claude Code to 2.1.248 or newer, or allow it with `expand_prompts=True`")
            }
            error => error.hint(),
        },
        recoverable: error.is_recoverable(),
        error_type: match error {
            ClaudeCodeError::CliExecution { kind, .. } => Some(kind.as_str()),
            _ => None,
        },
        result: error.result().map(ToString::to_string),
        text: match error {
            ClaudeCodeError::StructuredOutput { text, .. } => Some(text.clone()),
            _ => None,
        },
    };
    make(class, &error.to_string(), facts)
}

pub(crate) fn ipc_exception(error: &IpcError) -> PyErr {
    let class = match error {
        IpcError::Registration(_) | IpcError::Name { .. } => INVALID,
        error => error.type_name(),
    };
    make(class, &error.to_string(), Facts { hint: error.hint(), ..Facts::default() })
}

pub(crate) fn docs_exception(error: &DocsError) -> PyErr {
    let hint = match error {
        DocsError::MissingRoot { .. } => {
            Some("make the folder, name another one, or have both made with an example manual (`init=True`)")
        }
        error => error.hint(),
    };
    make(INVALID, &error.to_string(), Facts { hint, ..Facts::default() })
}

pub(crate) fn server_exception(error: &ServerError) -> PyErr {
    let class = match error {
        ServerError::Config { .. }
        | ServerError::Entry { .. }
        | ServerError::Url { .. }
        | ServerError::Header { .. }
        | ServerError::Registration(_) => INVALID,
        _ => "McpServerError",
    };
    make(class, &error.to_string(), Facts { hint: error.hint(), ..Facts::default() })
}

pub(crate) fn nats_exception(error: &NatsError) -> PyErr {
    let class = match error {
        NatsError::Name { .. } | NatsError::Url { .. } | NatsError::File { .. } => INVALID,
        _ => "NatsError",
    };
    make(class, &error.to_string(), Facts { hint: error.hint(), ..Facts::default() })
}

pub(crate) fn invalid(message: impl std::fmt::Display) -> PyErr {
    make(INVALID, &message.to_string(), Facts::default())
}

fn make(class: &str, message: &str, facts: Facts) -> PyErr {
    Python::attach(|py| {
        let made = || {
            let class = py.import(MODULE)?.getattr(class)?.cast_into::<PyType>()?;
            class.call((message,), Some(&facts.into_pyobject(py)?))
        };
        made().map_or_else(|error| error, PyErr::from_value)
    })
}
