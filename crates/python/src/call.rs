//! A question to Python, and its answer.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use tokio::sync::oneshot;
use toolbridge::{CallContext, RawJson, ToolError};

use crate::event_loop::{EventLoop, undelivered};
use crate::threads::Threads;

type Answer = Result<RawJson, ToolError>;

/// A question to Python: a tool to call, or a permission to give. It has one answer.
#[pyclass(frozen, module = "toolbridge._native")]
pub(crate) struct Call {
    #[pyo3(get)]
    name: String,
    arguments: RawJson,
    #[pyo3(get)]
    tool_use_id: Option<String>,
    /// Goes with this object, so that a question which nobody keeps has an answer too: none.
    answer: Mutex<Option<oneshot::Sender<Answer>>>,
    end: Arc<Mutex<End>>,
}

/// What becomes of a question that is no longer asked.
#[derive(Default)]
struct End {
    cancelled: bool,
    callback: Option<Py<PyAny>>,
    /// Whom to tell of progress, until the answer is given.
    context: Option<CallContext>,
    /// Not in the call itself, which Python may keep.
    turn: Option<Turn>,
}

/// The turn of a call that goes on after nobody waits for it any more.
type Turn = Box<dyn Send + Sync>;

#[pymethods]
impl Call {
    /// The arguments, as JSON text.
    #[getter]
    fn arguments<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.arguments.as_bytes())
    }

    /// Answers with the JSON text of a result.
    fn answer(&self, result: &[u8]) {
        let answer = RawJson::parse(result.to_vec()).map_err(|error| ToolError::Output {
            tool: self.name.clone(),
            reason: format!("it is not JSON: {error}"),
        });
        self.settle(answer);
    }

    /// Answers with an error of the class `type_name`. Any text will do: whoever has failed cannot be told that
    /// failing failed, too.
    fn fail(&self, type_name: &Bound<'_, PyString>, message: &Bound<'_, PyString>) {
        let type_name = type_name.to_string_lossy().into_owned();
        self.settle(Err(ToolError::new(type_name, message.to_string_lossy())));
    }

    /// Tells the caller how far it is. Does nothing when nobody listens, or when the answer was given.
    #[pyo3(signature = (progress, total=None, message=None))]
    fn report_progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = &end.context {
            context.progress(progress, total, message);
        }
    }

    /// Has `callback` called on the event loop when the answer is no longer wanted. Returns whether it still
    /// is.
    fn on_cancel(&self, callback: Py<PyAny>) -> bool {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        if !end.cancelled {
            end.callback = Some(callback);
        }
        !end.cancelled
    }
}

impl Call {
    fn new(
        name: String,
        arguments: RawJson,
        tool_use_id: Option<String>,
        context: Option<CallContext>,
    ) -> (Self, oneshot::Receiver<Answer>) {
        let (sender, answer) = oneshot::channel();
        let end = Arc::new(Mutex::new(End { context, ..End::default() }));
        (Self { name, arguments, tool_use_id, answer: Mutex::new(Some(sender)), end }, answer)
    }

    /// Whether somebody waits for its answer.
    pub(crate) fn is_wanted(&self) -> bool {
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        answer.as_ref().is_some_and(|sender| !sender.is_closed())
    }

    fn settle(&self, answer: Answer) {
        let over = {
            let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
            (end.callback.take(), end.context.take(), end.turn.take())
        };
        drop(over);
        if let Some(sender) = self.answer.lock().unwrap_or_else(PoisonError::into_inner).take() {
            _ = sender.send(answer);
        }
    }
}

/// Whom to ask: a function of one [`Call`], on an event loop.
pub(crate) struct Asker {
    event_loop: EventLoop,
    function: Py<PyAny>,
}

impl Asker {
    pub(crate) fn new(event_loop: EventLoop, function: Py<PyAny>) -> Self {
        Self { event_loop, function }
    }

    /// Asks, and waits for the answer. Dropping the future tells Python that it is no longer wanted.
    pub(crate) async fn ask(
        self: Arc<Self>,
        name: String,
        arguments: RawJson,
        tool_use_id: Option<String>,
        context: Option<CallContext>,
    ) -> Answer {
        let (call, answer) = Call::new(name, arguments, tool_use_id, context);
        let _unwanted = Unwanted { asker: Arc::clone(&self), end: Arc::clone(&call.end) };
        let posted = Python::try_attach(|py| {
            let call = Bound::new(py, call)?.into_any();
            self.event_loop.post(py, self.function.bind(py), [call])
        });
        match posted {
            None => return Err(ToolError::new("RuntimeError", "the interpreter is shutting down")),
            Some(Err(error)) => {
                return Err(ToolError::new("RuntimeError", format!("cannot reach the event loop: {error}")));
            }
            Some(Ok(())) => {}
        }
        answer.await.unwrap_or_else(|_| {
            Err(ToolError::new("RuntimeError", "the tool's task was given up by its event loop"))
        })
    }

    /// Asks in a thread where the answer may take long, and waits for it.
    ///
    /// A function that runs when its answer is no longer wanted goes on, and its turn ends when it does.
    pub(crate) async fn ask_in_thread(
        self: Arc<Self>,
        threads: Arc<Threads>,
        name: String,
        arguments: RawJson,
        context: CallContext,
    ) -> Answer {
        let turn = context.keep_turn().map(|turn| -> Turn { Box::new(turn) });
        let tool_use_id = context.tool_use_id().map(Into::into);
        let (call, answer) = Call::new(name, arguments, tool_use_id, Some(context));
        call.end.lock().unwrap_or_else(PoisonError::into_inner).turn = turn;
        let _unwanted = Unwanted { asker: self, end: Arc::clone(&call.end) };
        threads.run(call);
        answer.await.unwrap_or_else(|_| {
            Err(ToolError::new("RuntimeError", "there is no thread for the tool, or it gave no answer"))
        })
    }
}

/// Tells Python that an answer is no longer wanted, unless it was given.
struct Unwanted {
    asker: Arc<Asker>,
    end: Arc<Mutex<End>>,
}

impl Drop for Unwanted {
    fn drop(&mut self) {
        let callback = {
            let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
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
