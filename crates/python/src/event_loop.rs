//! The event loop that a request came from.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// An asyncio event loop, and the context variables for callbacks on it.
#[derive(FromPyObject)]
pub(crate) struct EventLoop {
    #[pyo3(attribute("loop"))]
    event_loop: Py<PyAny>,
    context: Py<PyAny>,
}

impl EventLoop {
    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self { event_loop: self.event_loop.clone_ref(py), context: self.context.clone_ref(py) }
    }

    /// Schedules `callback` on the loop; may be called from any thread.
    ///
    /// # Errors
    ///
    /// Fails if the loop is closed.
    pub(crate) fn post<'py>(
        &self,
        py: Python<'py>,
        callback: &Bound<'py, PyAny>,
        arguments: impl IntoIterator<Item = Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let all = PyTuple::new(py, [callback.clone()].into_iter().chain(arguments).collect::<Vec<_>>())?;
        let context = PyDict::new(py);
        context.set_item("context", &self.context)?;
        self.event_loop.bind(py).call_method("call_soon_threadsafe", all, Some(&context)).map(drop)
    }
}

/// Logs that a message could not be delivered.
pub(crate) fn undelivered(py: Python<'_>, error: &PyErr) {
    if error.is_instance_of::<PyRuntimeError>(py) {
        tracing::debug!("the event loop is closed: {error}");
    } else {
        tracing::warn!("cannot reach the event loop: {error}");
    }
}
