//! The results of earlier runs, for comparison.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::goal::Verdict;

/// The goals of an earlier run.
pub(crate) struct Earlier(Vec<Value>);

impl Earlier {
    /// Reads the output of `--json`.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let text = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
        let run: Value = serde_json::from_slice(&text).with_context(|| format!("{name} is not JSON"))?;
        let goals = run["goals"].as_array().with_context(|| format!("{name} is not what `--json` prints"))?;
        Ok(Self(goals.clone()))
    }

    /// The earlier value for a goal, if it was measured.
    pub(crate) fn measured(&self, goal: &Verdict) -> Option<f64> {
        let is_it = |then: &&Value| {
            then["row"] == goal.what && then["contender"] == goal.who && then["against"] == goal.against
        };
        self.0.iter().find(is_it)?["measured"].as_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_run_is_found_by_what_it_measured() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.json");
        let goal = Verdict { what: "100 B text", who: "bridge", against: "floor", ..Verdict::default() };
        let text = r#"{"goals":[{"row":"100 B text","contender":"bridge+parent","against":"floor","measured":1.5},
            {"row":"100 B text","contender":"bridge","against":"floor","measured":1.25}]}"#;
        std::fs::write(&path, text).unwrap();
        assert_eq!(Earlier::read(&path).unwrap().measured(&goal), Some(1.25));
        std::fs::write(&path, "{}").unwrap();
        assert!(Earlier::read(&path).is_err_and(|error| error.to_string().contains("--json")));
    }
}
