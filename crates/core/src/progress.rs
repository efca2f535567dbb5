//! Progress reports from a handler to its caller.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize, Serializer};
use tokio::sync::Notify;

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

/// Reports that the caller has not read yet. When there are too many, a new one replaces the last: only the current
/// state matters.
#[derive(Debug, Default)]
struct Backlog {
    reports: Mutex<VecDeque<Progress>>,
    added: Notify,
}

impl Backlog {
    const MOST: usize = 16;

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Progress>> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reporting end.
#[derive(Debug, Clone)]
pub(crate) struct Reporter(Arc<Backlog>);

/// The receiving end of a call's progress reports.
#[derive(Debug)]
pub struct ProgressReceiver(Arc<Backlog>);

pub(crate) fn channel() -> (Reporter, ProgressReceiver) {
    let backlog = Arc::default();
    (Reporter(Arc::clone(&backlog)), ProgressReceiver(backlog))
}

impl Reporter {
    /// Never blocks.
    pub(crate) fn report(&self, report: Progress) {
        let mut reports = self.0.lock();
        if reports.len() == Backlog::MOST {
            reports.pop_back();
        }
        reports.push_back(report);
        self.0.added.notify_one();
    }
}

impl ProgressReceiver {
    async fn next(&self) -> Progress {
        loop {
            if let Some(report) = self.try_next() {
                return report;
            }
            self.0.added.notified().await;
        }
    }

    fn try_next(&self) -> Option<Progress> {
        self.0.lock().pop_front()
    }
}

/// A running call together with its progress reports.
#[derive(Debug)]
pub struct Underway<F: Future> {
    call: Pin<Box<F>>,
    reports: Option<ProgressReceiver>,
    result: Option<F::Output>,
}

/// The next event of a call.
#[derive(Debug)]
pub enum Step<T> {
    /// Progress was reported.
    Progress(Progress),
    /// The call has ended; nothing follows.
    Done(T),
}

impl<F: Future> Underway<F> {
    /// A call, with its reports if the caller asked for them.
    pub fn new(call: F, reports: Option<ProgressReceiver>) -> Self {
        Self { call: Box::pin(call), reports, result: None }
    }

    /// Runs the call up to its next report or its end. All reports are returned before the end.
    ///
    /// Cancel-safe.
    ///
    /// # Panics
    ///
    /// When called again after the end.
    pub async fn next(&mut self) -> Step<F::Output> {
        let Some(reports) = &self.reports else { return Step::Done(self.call.as_mut().await) };
        if self.result.is_none() {
            tokio::select! {
                biased;
                report = reports.next() => return Step::Progress(report),
                result = self.call.as_mut() => self.result = Some(result),
            }
        }
        match reports.try_next() {
            Some(report) => Step::Progress(report),
            None => Step::Done(self.result.take().expect("a call ends once")),
        }
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
        while let Some(report) = receiver.try_next() {
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
