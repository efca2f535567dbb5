//! What a handler knows about the call it answers.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use tokio::sync::OwnedMutexGuard;
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::Client;
use crate::call::CallMeta;
use crate::lane::Turn;
use crate::progress::{Progress, ProgressReceiver, Reporter, channel};
use crate::trace::{Mark, Marks};

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

/// What a handler knows about the call it answers: whether it was cancelled, where to report progress, and the
/// state shared by the toolset.
#[derive(Clone, Default)]
pub struct CallContext {
    cancelled: CancellationToken,
    reporter: Option<Reporter>,
    tool_use_id: Option<String>,
    client: Option<Arc<Client>>,
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
        // Every field is listed: `..Self::default()` would create a token only to drop it.
        Self {
            cancelled,
            reporter: None,
            tool_use_id: None,
            client: None,
            callers: None,
            state: None,
            turn: None,
            taken: Weak::new(),
            marks: None,
        }
    }

    /// Makes the context report progress to the receiver returned.
    pub fn report_progress(&mut self) -> ProgressReceiver {
        let (reporter, receiver) = channel();
        self.reporter = Some(reporter);
        receiver
    }

    /// Sets state that the call finds before the toolset's own, such as that of one request or one user.
    pub fn set_callers_state(&mut self, state: Arc<States>) {
        self.callers = Some(state);
    }

    pub(crate) fn follow(&mut self, marks: Arc<Marks>) {
        self.marks = Some(marks);
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
        Self { cancelled, tool_use_id: meta.tool_use_id, client: meta.client, state: Some(state), ..self }
    }

    /// Whether the call was cancelled. An asynchronous handler is dropped then anyway; a handler that blocks its
    /// thread has to check this.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    /// The token behind [`is_cancelled`](Self::is_cancelled), to be waited for or handed on.
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
            reporter.report(Progress { progress, total, message: message.map(Into::into) });
        }
    }

    /// The model's id for this use of the tool, where the caller gave one.
    #[must_use]
    pub fn tool_use_id(&self) -> Option<&str> {
        self.tool_use_id.as_deref()
    }

    /// The calling client, as far as it is known; many clients may share a session.
    #[must_use]
    pub fn client(&self) -> Option<&Client> {
        self.client.as_deref()
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
