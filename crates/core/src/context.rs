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

    /// Whether there is none.
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

/// What a handler knows about the call it answers: whether it is still wanted, whom to tell about
/// progress, and the state shared by the toolset.
#[derive(Clone, Default)]
pub struct CallContext {
    cancelled: CancellationToken,
    reporter: Option<Reporter>,
    tool_use_id: Option<String>,
    client: Option<Arc<Client>>,
    /// The state that belongs to the caller; it goes before the toolset's.
    callers: Option<Arc<States>>,
    state: Option<Arc<States>>,
    /// The turn of an exclusive call, on its way to whatever runs the handler. Handlers do not get it: it
    /// ends when they return, however many clones of the context there are.
    turn: Option<Turn>,
    /// The same turn, once it has been taken.
    taken: Weak<OwnedMutexGuard<()>>,
    /// Where moments of the call are noted, if anybody wants to know.
    marks: Option<Arc<Marks>>,
}

impl CallContext {
    /// A context for a call that `cancelled` ends.
    #[must_use]
    pub fn new(cancelled: CancellationToken) -> Self {
        // Each member by itself: a default token would be made, and thrown away.
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

    /// Lets the call find this state before the toolset's own: that of one request, or of one user.
    pub fn set_callers_state(&mut self, state: Arc<States>) {
        self.callers = Some(state);
    }

    pub(crate) fn follow(&mut self, marks: Arc<Marks>) {
        self.marks = Some(marks);
    }

    /// Notes that the call's turn has come, for a trace.
    pub(crate) fn mark_began(&self) {
        self.mark(|marks| &marks.began);
    }

    /// Notes that the call has been passed on to another process, for a trace.
    pub fn mark_sent(&self) {
        self.mark(|marks| &marks.sent);
    }

    /// Notes that the other process has answered, for a trace.
    pub fn mark_answered(&self) {
        self.mark(|marks| &marks.answered);
    }

    /// Notes the machine that has answered the call, where there are several, for a trace.
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

    /// The call's span, to be entered by what runs elsewhere than the call; none when nobody listens.
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

    /// Keeps the turn of an exclusive call, for a handler whose work goes on after its future was dropped: as long as
    /// what is returned lives, no other exclusive call begins.
    #[must_use]
    pub fn keep_turn(&self) -> Option<impl Send + Sync + use<>> {
        self.taken.upgrade()
    }

    /// The same for one call of a toolset.
    pub(crate) fn with(self, meta: CallMeta, state: Arc<States>, cancelled: CancellationToken) -> Self {
        Self { cancelled, tool_use_id: meta.tool_use_id, client: meta.client, state: Some(state), ..self }
    }

    /// Whether the caller no longer wants the answer. An asynchronous handler is dropped then anyway; a
    /// handler that blocks its thread has to look.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    /// The token behind [`is_cancelled`](Self::is_cancelled), to be waited for or handed on.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// Whether anybody listens to [`progress`](Self::progress).
    #[must_use]
    pub fn wants_progress(&self) -> bool {
        self.reporter.is_some()
    }

    /// Reports progress. Never waits: when reports come faster than the caller reads, a newer one replaces
    /// an older one. A report that nobody asked for, or that is not a number, is dropped.
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

    /// Who calls, as far as it is known: one of the many clients that may share a session.
    #[must_use]
    pub fn client(&self) -> Option<&Client> {
        self.client.as_deref()
    }

    /// The state of type `T`: that of the request, where it brought one, else the toolset's.
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
