//! A running call, as its front sees it.

use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::call::trace::CallTrace;
use crate::tool::lock::lock;
use crate::{Asked, CallFuture, CancellationToken, Listener, Progress, RawJson, ToolError};

impl Listener {
    /// Runs `call`, which was given the context that this listens to.
    pub fn follow(self, call: CallFuture<'_>) -> RunningCall<'_> {
        RunningCall { call, listener: self, outcome: None, trace: None, permit: None, cancelled: None }
    }

    /// Waits for a report or a question. Cancel-safe.
    async fn next(&mut self) -> CallEvent {
        // A handler may report without a pause; timers and other tasks get their turn nevertheless.
        tokio::task::consume_budget().await;
        let Self { progress, questions } = self;
        let reported = async {
            let progress = progress.as_mut()?;
            progress.changed().await.ok()?;
            progress.borrow_and_update().clone()
        };
        let asked = async { questions.as_mut()?.recv().await };
        tokio::select! {
            biased;
            Some(report) = reported => CallEvent::Progress(report),
            Some(asked) = asked => CallEvent::Question(asked),
            else => std::future::pending().await,
        }
    }

    /// The last report, if it has not been taken.
    fn last_report(&mut self) -> Option<Progress> {
        let mut progress = self.progress.take()?;
        let last = progress.borrow_and_update();
        last.clone().filter(|_| last.has_changed())
    }
}

/// What a running call does next.
#[derive(Debug)]
pub enum CallEvent {
    /// It has reported progress; this is its newest report.
    Progress(Progress),
    /// It asks the user a question; it may wait for the answer or continue.
    Question(Asked),
    /// It has ended; nothing comes after this.
    Done(Result<RawJson, ToolError>),
}

/// A running call with its progress, its questions and its trace. Dropping it cancels the call; its trace then says
/// so, unless the answer has been [`written`](Self::written).
#[must_use]
pub struct RunningCall<'a> {
    call: CallFuture<'a>,
    listener: Listener,
    outcome: Option<Result<RawJson, ToolError>>,
    pub(crate) trace: Option<CallTrace>,
    pub(crate) permit: Option<Arc<Permit>>,
    /// For handlers that cannot be dropped.
    pub(crate) cancelled: Option<CancellationToken>,
}

impl<'a> RunningCall<'a> {
    /// Puts `then` between the call and its outcome: it is called as soon as the call ends, also while a report
    /// waits to be read.
    pub fn map(
        mut self,
        then: impl FnOnce(Result<RawJson, ToolError>) -> Result<RawJson, ToolError> + Send + 'a,
    ) -> Self {
        let call = std::mem::replace(&mut self.call, Box::pin(std::future::pending()));
        self.call = Box::pin(async { then(call.await) });
        self
    }

    /// Runs the call up to its next report, its next question or its end. The last report comes before the end.
    ///
    /// Cancel-safe.
    ///
    /// # Panics
    ///
    /// When called again after the end.
    pub async fn next(&mut self) -> CallEvent {
        if self.outcome.is_none() {
            tokio::select! {
                biased;
                // First, because it holds the call's timeout, and reports may come without a pause.
                outcome = &mut self.call => self.end(outcome),
                event = self.listener.next() => return event,
            }
        }
        match self.listener.last_report() {
            Some(report) => CallEvent::Progress(report),
            None => CallEvent::Done(self.outcome.take().expect("a call ends once")),
        }
    }

    /// Runs the call while `sending` waits for a caller that may not read. Of the reports that come meanwhile, the
    /// newest is the next event.
    pub async fn during<T>(&mut self, sending: impl Future<Output = T>) -> T {
        let mut sending = std::pin::pin!(sending);
        if self.outcome.is_none() {
            tokio::select! {
                biased;
                sent = &mut sending => return sent,
                outcome = &mut self.call => self.end(outcome),
            }
        }
        sending.await
    }

    fn end(&mut self, outcome: Result<RawJson, ToolError>) {
        if let Some(trace) = &mut self.trace {
            trace.ended(&outcome);
        }
        self.outcome = Some(outcome);
    }

    /// The next question, if one is pending.
    pub(crate) fn try_question(&mut self) -> Option<Asked> {
        self.listener.questions.as_mut()?.try_recv().ok()
    }

    /// Lets other calls run while this one waits for a person.
    pub(crate) fn pause(&mut self) {
        if let Some(permit) = &self.permit {
            permit.release();
        }
    }

    /// Waits until the call may run again; false if it is cancelled before.
    pub(crate) async fn resumed(&mut self, cancelled: &CancellationToken) -> bool {
        let Some(permit) = &self.permit else { return true };
        cancelled.run_until_cancelled(permit.acquire()).await.is_some()
    }

    /// Records for a trace which machine runs the call, where there are several.
    pub fn at_host(&self, host: &str) {
        if let Some(trace) = &self.trace {
            trace.marks.span.record("host", host);
        }
    }

    /// Records for a trace that the answer has been written.
    pub fn written(mut self) {
        if let Some(trace) = self.trace.take() {
            trace.written();
        }
    }
}

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        if let Some(cancelled) = &self.cancelled {
            cancelled.cancel();
        }
    }
}

impl std::fmt::Debug for RunningCall<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningCall").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

/// The right to run: a call gets it after its turn has come, and keeps it until its answer is written, so that
/// clients that do not read do not collect answers.
#[derive(Debug)]
pub(crate) struct Permit {
    running: Arc<Semaphore>,
    held: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Permit {
    pub(crate) fn new(running: Arc<Semaphore>) -> Self {
        Self { running, held: Mutex::default() }
    }

    pub(crate) async fn acquire(&self) {
        let permit = Arc::clone(&self.running).acquire_owned().await.ok();
        *lock(&self.held) = permit;
    }

    fn release(&self) {
        lock(&self.held).take();
    }
}
