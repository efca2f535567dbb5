//! The context of a call, as seen by its handler.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::{OwnedMutexGuard, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::call::clock::Clock;
use crate::call::form::Form;
use crate::call::progress::Listener;
use crate::call::question::{self, question_error};
use crate::call::trace::{CallTrace, Mark, Marks};
use crate::tool::call::CallMeta;
use crate::{Answer, Asked, Caller, Pending, Progress, Question, RawJson, ToolError};

/// The turn of an exclusive call. It is shared by the call and the code that runs its handler, and ends when both have
/// dropped it.
pub(crate) type Turn = Arc<OwnedMutexGuard<()>>;

/// Values that calls share, one for each type. Handlers get them with [`CallContext::state`] or as
/// [`State`](crate::State).
#[derive(Clone, Default)]
pub struct States(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl States {
    /// Adds a value; it replaces one of the same type.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(value));
    }

    /// Whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn get<T: 'static>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref()
    }
}

impl std::fmt::Debug for States {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "States of {} types", self.0.len())
    }
}

/// The context of a call, as seen by its handler: cancellation, progress reports, questions to the user,
/// and the state shared by the toolset.
#[derive(Clone, Default)]
pub struct CallContext {
    cancelled: CancellationToken,
    reporter: Option<watch::Sender<Option<Progress>>>,
    /// Where questions go, if the caller can answer them.
    asker: Option<mpsc::UnboundedSender<Asked>>,
    /// The timeout, which is paused during a question.
    clock: Option<Arc<Clock>>,
    tool_use_id: Option<String>,
    caller: Option<Arc<Caller>>,
    /// The caller's state, which is searched before the toolset's.
    callers: Option<Arc<States>>,
    state: Option<Arc<States>>,
    /// The turn of an exclusive call, passed to the code that runs the handler. Handlers do not get it: the turn
    /// ends when they return, even if clones of the context are still alive.
    turn: Option<Turn>,
    /// The same turn, once the handler's runner has taken it.
    taken: Weak<OwnedMutexGuard<()>>,
    /// Where timestamps of the call are recorded, if tracing is on.
    marks: Option<Arc<Marks>>,
}

impl CallContext {
    /// A context for a call that `cancelled` ends.
    #[must_use]
    pub fn new(cancelled: CancellationToken) -> Self {
        Self { cancelled, ..Self::default() }
    }

    /// Makes the context send progress, questions, or both to the returned listener. The other kind goes to the
    /// same place as before.
    pub fn listen(&mut self, progress: bool, questions: bool) -> Listener {
        let mut listener = Listener::default();
        if progress {
            let (reporter, receiver) = watch::channel(None);
            (self.reporter, listener.progress) = (Some(reporter), Some(receiver));
        }
        if questions {
            let (asker, receiver) = mpsc::unbounded_channel();
            (self.asker, listener.questions) = (Some(asker), Some(receiver));
        }
        listener
    }

    /// Disables questions.
    pub fn ask_nobody(&mut self) {
        self.asker = None;
    }

    /// Pauses `clock` during questions.
    pub(crate) fn stop_while_asking(&mut self, clock: Arc<Clock>) {
        self.clock = Some(clock);
    }

    /// Sets state that takes precedence over the toolset's own: that of one request, or of one user.
    pub fn set_callers_state(&mut self, state: Arc<States>) {
        self.callers = Some(state);
    }

    /// Lets the code that runs the call set timestamps of its trace.
    pub(crate) fn follow(&mut self, trace: &CallTrace) {
        self.marks = Some(Arc::clone(&trace.marks));
    }

    /// Records for a trace that the call's turn has come.
    pub(crate) fn mark_began(&self) {
        self.mark(|marks| &marks.began);
    }

    /// Records for a trace that the call was passed on to another process.
    pub fn mark_sent(&self) {
        self.mark(|marks| &marks.sent);
    }

    /// Records for a trace that the other process has answered.
    pub fn mark_answered(&self) {
        self.mark(|marks| &marks.answered);
    }

    /// Records for a trace which machine answered the call, where there are several.
    pub fn answered_by(&self, host: &str) {
        if let Some(marks) = &self.marks {
            marks.span.record("host", host);
        }
    }

    fn mark(&self, moment: fn(&Marks) -> &Mark) {
        if let Some(marks) = &self.marks {
            marks.set(moment(marks));
        }
    }

    /// The call's span, for work that runs outside of the call's own task; disabled when nothing subscribes.
    #[must_use]
    pub fn span(&self) -> Span {
        self.marks.as_ref().map_or_else(Span::none, |marks| marks.span.clone())
    }

    pub(crate) fn give_turn(&mut self, turn: Turn) {
        self.turn = Some(turn);
    }

    pub(crate) fn take_turn(&mut self) -> Option<Turn> {
        let turn = self.turn.take()?;
        self.taken = Arc::downgrade(&turn);
        Some(turn)
    }

    /// Keeps the turn of an exclusive call, for a handler whose work continues after its future was dropped: no
    /// other exclusive call begins while the returned value lives.
    #[must_use]
    pub fn keep_turn(&self) -> Option<impl Send + Sync + use<>> {
        self.taken.upgrade()
    }

    /// The context for one call of a toolset.
    pub(crate) fn with(self, meta: CallMeta, state: Arc<States>, cancelled: CancellationToken) -> Self {
        Self { cancelled, tool_use_id: meta.tool_use_id, caller: meta.caller, state: Some(state), ..self }
    }

    /// Whether the call was cancelled. An asynchronous handler is dropped then anyway; a handler that blocks its
    /// thread has to check this.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    /// The token behind [`is_cancelled`](Self::is_cancelled), to wait for or to pass on.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// Whether the caller asked for [`progress`](Self::progress).
    #[must_use]
    pub fn wants_progress(&self) -> bool {
        self.reporter.is_some()
    }

    /// Reports progress. Never blocks: when reports come faster than the caller reads them, a newer one replaces an
    /// older one. A report is dropped if the caller did not ask for progress or the number is not finite.
    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        if let Some(reporter) = &self.reporter
            && progress.is_finite()
        {
            let total = total.filter(|total| total.is_finite());
            reporter.send_replace(Some(Progress { progress, total, message: message.map(Into::into) }));
        }
    }

    /// Whether [`ask`](Self::ask) may reach a user.
    #[must_use]
    pub fn can_ask(&self) -> bool {
        self.asker.is_some()
    }

    /// Asks the user on whose behalf the tool is called, and waits for the answer: a string, a number, a
    /// boolean, an enum without data, or a struct of such fields.
    ///
    /// The tool's timeout is paused meanwhile; an exclusive tool keeps its turn. If the call is cancelled,
    /// so is the question.
    ///
    /// ```
    /// # use toolbridge_core as toolbridge;
    /// use toolbridge::call::Answer;
    /// use toolbridge::{CallContext, ToolError};
    ///
    /// #[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
    /// enum Colour {
    ///     Red,
    ///     Green,
    /// }
    ///
    /// async fn paint(context: CallContext) -> Result<String, ToolError> {
    ///     Ok(match context.ask::<Colour>("Which colour?").await? {
    ///         Answer::Accepted(colour) => format!("painted in {colour:?}"),
    ///         Answer::Declined | Answer::Cancelled => "not painted".into(),
    ///         Answer::Nobody => "painted in white: there was nobody to ask".into(),
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// When `T` cannot be asked for, the client fails to ask, or its answer is invalid.
    pub async fn ask<T: JsonSchema + DeserializeOwned>(
        &self,
        message: impl Into<String>,
    ) -> Result<Answer<T>, ToolError> {
        let form = Form::of::<T>()?;
        form.read(self.ask_form(message.into(), &form).await?)
    }

    /// Like [`ask`](Self::ask), for a handler that is not asynchronous.
    ///
    /// # Errors
    ///
    /// As [`ask`](Self::ask).
    ///
    /// # Panics
    ///
    /// Outside of a runtime, and in an asynchronous handler.
    pub fn ask_blocking<T: JsonSchema + DeserializeOwned>(
        &self,
        message: impl Into<String>,
    ) -> Result<Answer<T>, ToolError> {
        Handle::current().block_on(self.ask(message))
    }

    /// Like [`ask`](Self::ask), with a JSON Schema instead of a type; an accepted answer is a value that
    /// matches it.
    ///
    /// # Errors
    ///
    /// As [`ask`](Self::ask).
    pub async fn ask_for(&self, message: impl Into<String>, schema: &Value) -> Result<Answer, ToolError> {
        let form = Form::new(schema)
            .map_err(|reason| question_error(format!("this cannot be asked for: {reason}")))?;
        let answer = self.ask_form(message.into(), &form).await?;
        answer.try_map(|content: RawJson| form.value(&content))
    }

    async fn ask_form(&self, message: String, form: &Form) -> Result<Answer, ToolError> {
        match self.put(Question { message, schema: form.schema.clone() }) {
            Some(pending) => pending.await,
            None => Ok(Answer::Nobody),
        }
    }

    /// Sends a question unchanged, for code that forwards questions; `None` if questions are not supported.
    #[must_use]
    pub fn put(&self, question: Question) -> Option<Pending> {
        let to = self.asker.as_ref()?;
        let (asked, pending) = question::ask(question, self.clock.as_ref());
        // Fails if the call has ended; the question is dropped then, and so fails too.
        _ = to.send(asked);
        Some(pending)
    }

    /// The model's id for this use of the tool, where the caller gave one.
    #[must_use]
    pub fn tool_use_id(&self) -> Option<&str> {
        self.tool_use_id.as_deref()
    }

    /// The calling client, as far as it is known; many clients may share a session.
    #[must_use]
    pub fn caller(&self) -> Option<&Caller> {
        self.caller.as_deref()
    }

    /// The state of type `T`: the request's if it has one, otherwise the toolset's.
    ///
    /// # Panics
    ///
    /// When there is none; the call is then answered with a `ToolPanicError`.
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(&self) -> &T {
        self.try_state().unwrap_or_else(|| panic!("{}", Self::no_state::<T>()))
    }

    pub(crate) fn no_state<T>() -> String {
        let name = std::any::type_name::<T>();
        format!("there is no state of type `{name}`: add it with `ToolsetBuilder::state`, or to the request")
    }

    /// The state of type `T`, if there is one.
    #[must_use]
    pub fn try_state<T: Send + Sync + 'static>(&self) -> Option<&T> {
        [&self.callers, &self.state].into_iter().flatten().find_map(|states| states.get())
    }
}

impl std::fmt::Debug for CallContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallContext")
            .field("cancelled", &self.cancelled.is_cancelled())
            .field("tool_use_id", &self.tool_use_id)
            .finish_non_exhaustive()
    }
}
