//! A call from Rust into Python, and its answer.

use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use toolbridge::call::Answer as Answered;
use toolbridge::model::is_awaited;
use toolbridge::tool::{Caller, RawJson};
use toolbridge::{CallContext, ToolError};

use crate::error::{Result, invalid};
use crate::event_loop::{EventLoop, undelivered};
use crate::process::lock;
use crate::task::Task;

type Answer = std::result::Result<RawJson, ToolError>;

/// A call into Python: a tool call, a permission request, or a question from a tool to the user. It is
/// answered once.
#[pyclass(frozen, module = "toolbridge._native")]
pub(crate) struct Call {
    #[pyo3(get)]
    name: String,
    arguments: RawJson,
    #[pyo3(get)]
    tool_use_id: Option<String>,
    /// Whether a CLI waits for it.
    #[pyo3(get)]
    is_awaited: bool,
    /// The tool object that Python registered; `None` for a permission.
    tool: Option<Arc<Py<PyAny>>>,
    client: Option<Box<Caller>>,
    /// Dropped with this object, so that a call that Python drops without an answer fails instead of hanging.
    answer: Mutex<Option<oneshot::Sender<Answer>>>,
    end: Arc<Mutex<End>>,
}

/// State to clean up when the call is answered or cancelled.
struct End {
    cancelled: bool,
    callback: Option<Py<PyAny>>,
    /// For reporting progress, until the call is answered.
    context: Option<CallContext>,
    /// Stored here and not in the call itself, which Python may keep alive.
    turn: Option<Turn>,
}

/// What is known about a client.
type Known<'a> = (Option<&'a str>, Option<&'a str>, Option<&'a str>, Option<u32>);

/// The slot of a call that keeps running after it was cancelled.
type Turn = Box<dyn Send + Sync>;

#[pymethods]
impl Call {
    /// The arguments, as JSON text.
    #[getter]
    fn arguments<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.arguments.as_bytes())
    }

    /// The tool object that is called.
    #[getter]
    fn tool<'py>(&'py self, py: Python<'py>) -> PyResult<&'py Bound<'py, PyAny>> {
        let tool = self.tool.as_ref().ok_or_else(|| PyAttributeError::new_err("a permission has no tool"))?;
        Ok(tool.bind(py))
    }

    /// Whether the answer is still wanted, that is, the call was not cancelled.
    #[getter]
    fn is_wanted(&self) -> bool {
        lock(&self.answer).as_ref().is_some_and(|sender| !sender.is_closed())
    }

    /// The client: name, version, session id and process id, each if known.
    #[getter]
    fn client(&self) -> Option<Known<'_>> {
        let Caller { name, version, session_id, pid, .. } = self.client.as_deref()?;
        Some((name.as_deref(), version.as_deref(), session_id.as_deref(), *pid))
    }

    /// Answers with a result as JSON text.
    fn answer(&self, result: &[u8]) {
        let answer = RawJson::parse(result.to_vec()).map_err(|error| ToolError::Output {
            tool: self.name.clone(),
            reason: format!("it is not JSON: {error}"),
        });
        self.settle(answer);
    }

    /// Answers with an error of the class `type_name`. Accepts any string, because reporting a failure must
    /// not fail.
    fn fail(&self, type_name: &Bound<'_, PyString>, message: &Bound<'_, PyString>) {
        let type_name = type_name.to_string_lossy().into_owned();
        self.settle(Err(ToolError::new(type_name, message.to_string_lossy())));
    }

    /// Reports progress to the caller. Does nothing if the caller wants no progress or the call was answered.
    #[pyo3(signature = (progress, total=None, message=None))]
    fn report_progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let end = lock(&self.end);
        if let Some(context) = &end.context {
            context.progress(progress, total, message);
        }
    }

    /// Asks the user for input that fits a JSON Schema; `done` is called with the answer as JSON text, on the
    /// loop of `place`.
    fn ask(
        &self,
        py: Python<'_>,
        message: String,
        schema: &[u8],
        place: EventLoop,
        done: Py<PyAny>,
    ) -> Result<Task> {
        let schema: Value = serde_json::from_slice(schema).map_err(invalid)?;
        let context = lock(&self.end).context.clone();
        Task::start(py, place, done, async move {
            let answer = match context {
                Some(context) => context.ask_for(message, &schema).await,
                // The call was already answered.
                None => Ok(Answered::Nobody),
            };
            let answer = match answer {
                Ok(Answered::Accepted(value)) => json!({ "action": "accept", "value": value }),
                Ok(Answered::Declined) => json!({ "action": "decline" }),
                Ok(Answered::Cancelled) => json!({ "action": "cancel" }),
                Ok(Answered::Nobody) => json!({ "action": "nobody" }),
                Err(error) => json!({ "error": error.to_string() }),
            };
            Ok(answer.to_string().into_bytes())
        })
    }

    /// Calls `callback` on the event loop when the call is cancelled. Returns whether the call is still
    /// active.
    fn on_cancel(&self, callback: Py<PyAny>) -> bool {
        let mut end = lock(&self.end);
        if !end.cancelled {
            end.callback = Some(callback);
        }
        !end.cancelled
    }
}

impl Call {
    fn settle(&self, answer: Answer) {
        let over = {
            let mut end = lock(&self.end);
            (end.callback.take(), end.context.take(), end.turn.take())
        };
        drop(over);
        if let Some(sender) = lock(&self.answer).take() {
            _ = sender.send(answer);
        }
    }
}

/// Calls the functions of a host, on its event loop or in one of its threads.
pub(crate) struct Asker {
    event_loop: EventLoop,
    start: Py<PyAny>,
    run_in_thread: Py<PyAny>,
    tool: Arc<Py<PyAny>>,
}

impl Asker {
    pub(crate) fn new(
        event_loop: EventLoop,
        start: Py<PyAny>,
        run_in_thread: Py<PyAny>,
        tool: Py<PyAny>,
    ) -> Self {
        Self { event_loop, start, run_in_thread, tool: Arc::new(tool) }
    }

    /// Calls a tool. In a thread a function may block; if its call is cancelled, it keeps running, and keeps
    /// its slot.
    pub(crate) async fn call_tool(
        self: Arc<Self>,
        name: String,
        arguments: RawJson,
        tool: Arc<Py<PyAny>>,
        context: CallContext,
        is_direct: bool,
    ) -> Answer {
        let id = context.tool_use_id().map(Into::into);
        let function = (!is_direct).then(|| Arc::clone(&self.tool));
        self.answered(function, name, arguments, id, Some((tool, context))).await
    }

    /// Calls a callback.
    pub(crate) async fn ask(
        self: Arc<Self>,
        function: Arc<Py<PyAny>>,
        name: String,
        arguments: RawJson,
        tool_use_id: Option<String>,
    ) -> Answer {
        self.answered(Some(function), name, arguments, tool_use_id, None).await
    }

    /// Calls a function on the event loop, or the tool's own in a thread, and waits for the answer. Dropping the
    /// future cancels the call in Python.
    async fn answered(
        self: Arc<Self>,
        function: Option<Arc<Py<PyAny>>>,
        name: String,
        arguments: RawJson,
        tool_use_id: Option<String>,
        called: Option<(Arc<Py<PyAny>>, CallContext)>,
    ) -> Answer {
        let failed = |message: String| Err(ToolError::new("RuntimeError", message));
        let (tool, context) = called.unzip();
        let client = context.as_ref().and_then(CallContext::caller).cloned().map(Box::new);
        let kept = context.as_ref().filter(|_| function.is_none()).and_then(CallContext::keep_turn);
        let turn = kept.map(|turn| -> Turn { Box::new(turn) });
        let (sender, answer) = oneshot::channel();
        let end = Arc::new(Mutex::new(End { cancelled: false, callback: None, context, turn }));
        let _unwanted = Unwanted { asker: Arc::clone(&self), end: Arc::clone(&end) };
        let answered = Mutex::new(Some(sender));
        let is_awaited = is_awaited();
        let call = Call { name, arguments, tool_use_id, is_awaited, tool, client, answer: answered, end };
        let started = Python::try_attach(|py| {
            let call = Bound::new(py, call)?.into_any();
            match &function {
                Some(function) => {
                    self.event_loop.post(py, self.start.bind(py), [call, function.bind(py).clone()])
                }
                None => self.run_in_thread.bind(py).call1((call,)).map(drop),
            }
        });
        match started {
            None => return failed("the interpreter is shutting down".into()),
            Some(Err(error)) if function.is_some() => {
                return failed(format!("cannot reach the event loop: {error}"));
            }
            Some(Err(error)) => return failed(format!("no thread could be started for the tool: {error}")),
            Some(Ok(())) => {}
        }
        let lost =
            if function.is_some() { "the event loop ended before its task" } else { "its thread ended" };
        answer.await.unwrap_or_else(|_| failed(format!("the tool returned no answer: {lost}")))
    }
}

/// Cancels the call in Python on drop, unless it was answered.
struct Unwanted {
    asker: Arc<Asker>,
    end: Arc<Mutex<End>>,
}

impl Drop for Unwanted {
    fn drop(&mut self) {
        let callback = {
            let mut end = lock(&self.end);
            end.cancelled = true;
            end.callback.take()
        };
        if let Some(callback) = callback {
            Python::try_attach(|py| {
                if let Err(error) = self.asker.event_loop.post(py, callback.bind(py), []) {
                    undelivered(py, &error);
                }
            });
        }
    }
}
