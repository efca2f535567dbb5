//! Progress reports.

use serde::{Deserialize, Serialize, Serializer};
use tokio::sync::{mpsc, watch};

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

/// Receives the newest progress and the questions of a call; made by
/// [`CallContext::listen`](crate::CallContext::listen).
#[derive(Debug, Default)]
pub struct Listener {
    pub(crate) progress: Option<watch::Receiver<Option<Progress>>>,
    pub(crate) questions: Option<mpsc::UnboundedReceiver<Asked>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_written_without_a_point() {
        let written =
            |progress| serde_json::to_string(&Progress { progress, total: None, message: None }).unwrap();
        assert_eq!(written(3.0), r#"{"progress":3}"#);
        assert_eq!(written(2.5), r#"{"progress":2.5}"#);
        assert_eq!(written(1e300), r#"{"progress":1e+300}"#);
    }
}
