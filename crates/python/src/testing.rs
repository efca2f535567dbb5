//! The scripted model, for Python.

use std::collections::BTreeMap;
use std::sync::Mutex;

use pyo3::prelude::*;
use serde_json::{Value, json};
use toolbridge::testing::{ModelRequest, Script, ScriptedModel, ToolResultBlock, Turn};

use crate::error::invalid;
use crate::json;
use crate::process::{Own, lock};

/// A scripted model server on loopback.
#[pyclass(frozen, module = "toolbridge._native")]
pub(crate) struct Scripted {
    /// Only locked by threads that are attached to the interpreter, so no fork can happen while it is locked.
    model: Mutex<Own<ScriptedModel>>,
    url: String,
    environment: BTreeMap<String, String>,
}

#[pymethods]
impl Scripted {
    /// Starts one with a script, or with a function that gets each request as JSON and returns a turn of a script.
    #[new]
    fn new(script: &Bound<'_, PyAny>) -> PyResult<Self> {
        let model = if let Ok(script) = script.extract::<&str>() {
            ScriptedModel::try_start(Script::parse(script).map_err(invalid)?)?
        } else {
            let function = script.clone().unbind();
            ScriptedModel::start_with(move |request| answered(&function, request))
        };
        let (url, environment) = (model.url(), model.environment().into_iter().collect());
        Ok(Self { model: Mutex::new(Own::new(model)), url, environment })
    }

    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    #[getter]
    fn environment(&self) -> BTreeMap<String, String> {
        self.environment.clone()
    }

    /// The requests so far, as JSON, with the commonly needed parts extracted.
    fn requests(&self) -> Vec<u8> {
        let requests = lock(&self.model).get().map(ScriptedModel::requests).unwrap_or_default();
        json(&requests.iter().map(request_json).collect::<Vec<_>>())
    }

    /// How many requests arrived after the end of the script.
    fn overruns(&self) -> usize {
        lock(&self.model).get().map_or(0, ScriptedModel::overruns)
    }

    /// Closes all connections, and removes the home directory.
    fn close(&self, py: Python<'_>) {
        let model = lock(&self.model).take();
        // Waits for its thread, so release the interpreter.
        py.detach(|| drop(model));
    }
}

/// The turn that a function returns for a request; its exception is an answer of the model, so a test sees it.
fn answered(function: &Py<PyAny>, request: &ModelRequest) -> Turn {
    let text = Python::try_attach(|py| -> PyResult<String> {
        function.call1(py, (json(&request_json(request)),))?.extract(py)
    });
    // Only the first turn is wanted, whatever turn of the conversation it is.
    let mut first = request.clone();
    first.body = Value::Null;
    match text {
        None => Turn::error(500, "the interpreter is shutting down"),
        Some(Err(error)) => Turn::error(500, format!("the model's function failed: {error}")),
        Some(Ok(text)) => match Script::parse(&text) {
            Ok(script) => script.turn(&first).unwrap_or_else(|| Turn::error(500, "no turn")),
            Err(error) => Turn::error(500, error.to_string()),
        },
    }
}

fn request_json(request: &ModelRequest) -> Value {
    let results: Vec<_> = request.tool_results().iter().map(result_json).collect();
    json!({
        "body": request.body,
        "prompt": request.prompt(),
        "system": request.system(),
        "tools": request.tools(),
        "tool_results": results,
        "turn": request.turn(),
    })
}

fn result_json(result: &ToolResultBlock) -> Value {
    json!({
        "tool_use_id": result.tool_use_id,
        "is_error": result.is_error,
        "content": result.content,
        "text": result.text(),
    })
}
