//! What a handler knows about the call it answers.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How far a call has come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// How much is done; grows from report to report.
    #[serde(serialize_with = "whole_if_possible")]
    pub progress: f64,
    /// How much there is in all, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "whole_if_possible_opt")]
    pub total: Option<f64>,
    /// A line for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// `3`, not `3.0`: counts are what is reported most.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn whole_if_possible<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() < EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53, checked above")]
        serializer.serialize_i64(*number as i64)
    } else {
        serializer.serialize_f64(*number)
    }
}

#[expect(clippy::ref_option, reason = "serde's signature")]
fn whole_if_possible_opt<S: Serializer>(number: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) => whole_if_possible(number, serializer),
        None => serializer.serialize_none(),
    }
}

/// The receiving end of a call's progress reports.
pub type ProgressReceiver = mpsc::Receiver<Progress>;

/// Values shared by all calls of a toolset, one for each type.
#[derive(Clone, Default)]
pub(crate) struct State(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl State {
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Arc::new(value));
    }

    fn get<T: 'static>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref()
    }
}

/// What a handler knows about the call it answers: whether it is still wanted, whom to tell about
/// progress, and the state shared by the toolset.
#[derive(Clone, Default)]
pub struct CallContext {
    cancelled: CancellationToken,
    progress: Option<mpsc::Sender<Progress>>,
    tool_use_id: Option<String>,
    state: Arc<State>,
}

impl CallContext {
    /// Reports a caller that has not read yet may hold; more are dropped, not queued without end.
    const PROGRESS_BACKLOG: usize = 16;

    /// A context for a call that `cancelled` ends.
    #[must_use]
    pub fn new(cancelled: CancellationToken) -> Self {
        Self { cancelled, ..Self::default() }
    }

    /// Makes the context report progress to the receiver returned.
    pub fn report_progress(&mut self) -> ProgressReceiver {
        let (sender, receiver) = mpsc::channel(Self::PROGRESS_BACKLOG);
        self.progress = Some(sender);
        receiver
    }

    /// The same for one call of a toolset.
    pub(crate) fn with(
        self,
        tool_use_id: Option<String>,
        state: Arc<State>,
        cancelled: CancellationToken,
    ) -> Self {
        Self { cancelled, progress: self.progress, tool_use_id, state }
    }

    /// Cancelled when the caller no longer wants the answer. An asynchronous handler is dropped then
    /// anyway; a handler that blocks its thread has to look.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// Whether anybody listens to [`progress`](Self::progress).
    #[must_use]
    pub fn wants_progress(&self) -> bool {
        self.progress.as_ref().is_some_and(|sender| !sender.is_closed())
    }

    /// Reports progress. Never waits: a report that nobody asked for, or that comes faster than the
    /// caller reads, is dropped.
    pub fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        if let Some(sender) = &self.progress {
            let report = Progress { progress, total, message: message.map(Into::into) };
            if sender.try_send(report).is_err() {
                tracing::debug!(progress, "progress report dropped");
            }
        }
    }

    /// The model's id for this use of the tool, where the caller gave one.
    #[must_use]
    pub fn tool_use_id(&self) -> Option<&str> {
        self.tool_use_id.as_deref()
    }

    /// The toolset's state of type `T`.
    ///
    /// # Panics
    ///
    /// When the toolset was built without such state; the call is then answered with a `ToolPanicError`.
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(&self) -> &T {
        self.try_state().unwrap_or_else(|| {
            panic!(
                "the toolset has no state of type `{0}`: add it with `ToolsetBuilder::state`",
                std::any::type_name::<T>()
            )
        })
    }

    /// The toolset's state of type `T`, if it has one.
    #[must_use]
    pub fn try_state<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.state.get()
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

/// A call under way together with its progress reports.
#[derive(Debug)]
pub struct Underway<F: Future> {
    call: Pin<Box<F>>,
    reports: Option<ProgressReceiver>,
    result: Option<F::Output>,
}

/// What happens next in a call.
#[derive(Debug)]
pub enum Step<T> {
    /// It has come this far.
    Progress(Progress),
    /// It is over; nothing comes after this.
    Done(T),
}

impl<F: Future> Underway<F> {
    /// A call, and its reports if anybody wants them.
    pub fn new(call: F, reports: Option<ProgressReceiver>) -> Self {
        Self { call: Box::pin(call), reports, result: None }
    }

    /// Runs the call up to its next report or its end. All reports come before the end.
    ///
    /// Cancel-safe.
    ///
    /// # Panics
    ///
    /// When asked for more after the end.
    pub async fn next(&mut self) -> Step<F::Output> {
        let Some(reports) = &mut self.reports else { return Step::Done(self.call.as_mut().await) };
        if self.result.is_none() {
            tokio::select! {
                biased;
                Some(report) = reports.recv() => return Step::Progress(report),
                result = self.call.as_mut() => self.result = Some(result),
            }
        }
        match reports.try_recv() {
            Ok(report) => Step::Progress(report),
            Err(_) => Step::Done(self.result.take().expect("a call ends once")),
        }
    }
}
