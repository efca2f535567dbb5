//! Progress reports and questions on their way from a handler to its caller.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use serde::{Deserialize, Serialize, Serializer};
use tokio::sync::Notify;

use crate::Asked;

/// How far a call has come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// How much is done; increases from report to report.
    #[serde(serialize_with = "whole_if_possible")]
    pub progress: f64,
    /// How much there is in all, if known.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "whole_if_possible_opt")]
    pub total: Option<f64>,
    /// A message for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// `3`, not `3.0`: most reports are counts.
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

/// Unread progress reports and questions of a handler. One structure holds both, so that a call without
/// questions has no extra cost.
#[derive(Debug, Default)]
struct Backlog {
    said: Mutex<Said>,
    added: Notify,
}

#[derive(Debug, Default)]
struct Said {
    /// When full, the newest report replaces the one before it: only the current progress matters.
    reports: VecDeque<Progress>,
    questions: VecDeque<Asked>,
    /// The receiver is gone.
    is_over: bool,
}

impl Backlog {
    const MOST: usize = 16;

    fn lock(&self) -> std::sync::MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The handler's end.
#[derive(Debug, Clone)]
pub(crate) struct Speaker(Arc<Backlog>);

/// The caller's end: receives progress reports and questions.
#[derive(Debug)]
pub struct CallReceiver(Arc<Backlog>);

pub(crate) fn channel() -> (Speaker, CallReceiver) {
    let backlog = Arc::default();
    (Speaker(Arc::clone(&backlog)), CallReceiver(backlog))
}

impl Speaker {
    /// Never waits.
    pub(crate) fn report(&self, report: Progress) {
        let reports = &mut self.0.lock().reports;
        if reports.len() == Backlog::MOST {
            reports.pop_back();
        }
        reports.push_back(report);
        self.0.added.notify_one();
    }

    /// Never waits. A question after the end of the call is dropped and therefore fails.
    pub(crate) fn ask(&self, question: Asked) {
        let mut said = self.0.lock();
        if !said.is_over {
            said.questions.push_back(question);
            self.0.added.notify_one();
        }
    }
}

impl CallReceiver {
    async fn next<T>(&self) -> Step<T> {
        loop {
            // A handler may report without a pause; timers and other tasks get their turn nevertheless.
            tokio::task::consume_budget().await;
            let next = {
                let mut said = self.0.lock();
                let report = said.reports.pop_front().map(Step::Progress);
                report.or_else(|| said.questions.pop_front().map(Step::Question))
            };
            match next {
                Some(next) => return next,
                None => self.0.added.notified().await,
            }
        }
    }

    fn try_report(&self) -> Option<Progress> {
        self.0.lock().reports.pop_front()
    }

    /// The next question, if one is pending.
    #[must_use]
    pub fn try_question(&self) -> Option<Asked> {
        self.0.lock().questions.pop_front()
    }
}

impl Drop for CallReceiver {
    fn drop(&mut self) {
        let mut said = self.0.lock();
        said.is_over = true;
        said.questions.clear();
    }
}

/// A running call together with its progress and questions.
#[derive(Debug)]
pub struct Underway<F: Future> {
    call: Pin<Box<F>>,
    said: Option<CallReceiver>,
    result: Option<F::Output>,
}

/// The next event of a call.
#[derive(Debug)]
pub enum Step<T> {
    /// Progress was reported.
    Progress(Progress),
    /// It asks the user a question; it may wait for the answer or continue.
    Question(Asked),
    /// It has ended; nothing comes after this.
    Done(T),
}

async fn next_of<T>(said: Option<&CallReceiver>) -> Step<T> {
    match said {
        Some(said) => said.next().await,
        None => std::future::pending().await,
    }
}

impl<F: Future> Underway<F> {
    /// Creates it from a call and, if the caller wants them, its progress and questions.
    pub fn new(call: F, said: Option<CallReceiver>) -> Self {
        Self { call: Box::pin(call), said, result: None }
    }

    /// The same call, which has not begun yet, with another output: `then` is called as soon as the call ends, also
    /// while its reports wait for their caller.
    #[must_use]
    pub fn then<T>(self, then: impl FnOnce(F::Output) -> T) -> Underway<impl Future<Output = T>> {
        Underway::new(self.call.map(then), self.said)
    }

    /// The next question, if one is pending.
    pub fn try_question(&self) -> Option<Asked> {
        self.said.as_ref()?.try_question()
    }

    /// Runs the call up to its next report, its next question or its end. All reports come before the end.
    ///
    /// Cancel-safe.
    ///
    /// # Panics
    ///
    /// When called again after the end.
    pub async fn next(&mut self) -> Step<F::Output> {
        if self.result.is_none() {
            tokio::select! {
                biased;
                // First, because it holds the call's timeout, and reports may come without a pause.
                result = self.call.as_mut() => self.result = Some(result),
                step = next_of(self.said.as_ref()) => return step,
            }
        }
        match self.said.as_ref().and_then(CallReceiver::try_report) {
            Some(report) => Step::Progress(report),
            None => Step::Done(self.result.take().expect("a call ends once")),
        }
    }

    /// Runs the call while `sending` waits for a caller that may not read. What the call says meanwhile comes with
    /// the next steps.
    pub async fn during<T>(&mut self, sending: impl Future<Output = T>) -> T {
        let mut sending = std::pin::pin!(sending);
        if self.result.is_none() {
            tokio::select! {
                biased;
                sent = &mut sending => return sent,
                result = self.call.as_mut() => self.result = Some(result),
            }
        }
        sending.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(progress: f64) -> Progress {
        Progress { progress, total: None, message: None }
    }

    #[tokio::test]
    async fn the_newest_report_is_never_lost() {
        let (reporter, receiver) = channel();
        for step in 1..=100 {
            reporter.report(report(f64::from(step)));
        }
        let mut seen = Vec::new();
        while let Some(report) = receiver.try_report() {
            seen.push(report.progress);
        }
        assert_eq!((seen.len(), seen[0], *seen.last().unwrap()), (Backlog::MOST, 1.0, 100.0));
    }

    #[test]
    fn whole_numbers_are_written_without_a_point() {
        let written = |number| serde_json::to_string(&report(number)).unwrap();
        assert_eq!(written(3.0), r#"{"progress":3}"#);
        assert_eq!(written(2.5), r#"{"progress":2.5}"#);
        assert_eq!(written(1e300), r#"{"progress":1e+300}"#);
    }
}
