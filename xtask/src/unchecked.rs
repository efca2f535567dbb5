//! What a run could not check: a test that cannot do its work on this machine passes, and says so here.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

/// Names the file to which a test adds a line when it checks nothing.
const VARIABLE: &str = "TOOLBRIDGE_UNCHECKED";

/// The file of one run.
pub(crate) struct Unchecked(PathBuf);

impl Unchecked {
    /// Begins a run, and forgets the last one.
    pub(crate) fn begin(target: &Path) -> Result<Self> {
        std::fs::create_dir_all(target).with_context(|| format!("cannot make `{}`", target.display()))?;
        let file = target.join("unchecked");
        std::fs::write(&file, "").with_context(|| format!("cannot write `{}`", file.display()))?;
        Ok(Self(file))
    }

    /// Tells the tests that `command` runs where to say it.
    pub(crate) fn tell<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env(VARIABLE, &self.0)
    }

    /// How the run went.
    pub(crate) fn verdict(&self) -> Result<String> {
        let said = std::fs::read_to_string(&self.0)
            .with_context(|| format!("cannot read `{}`", self.0.display()))?;
        let tests: Vec<_> = said.lines().map(|test| format!("  {test}\n")).collect();
        Ok(match tests.len() {
            0 => "everything passed".into(),
            1 => format!("one test checked nothing:\n{}everything else passed", tests.concat()),
            count => format!("{count} tests checked nothing:\n{}everything else passed", tests.concat()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_checked_is_said_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let unchecked = Unchecked::begin(dir.path()).unwrap();
        assert_eq!(unchecked.verdict().unwrap(), "everything passed");
        let mut test = Command::new("sh");
        test.args(["-c", &format!("echo 'power: only root can' >> \"${VARIABLE}\"")]);
        assert!(unchecked.tell(&mut test).status().unwrap().success());
        assert_eq!(
            unchecked.verdict().unwrap(),
            "one test checked nothing:\n  power: only root can\neverything else passed"
        );
        assert!(unchecked.tell(&mut test).status().unwrap().success());
        assert!(unchecked.verdict().unwrap().starts_with("2 tests checked nothing:\n  power: "));
        assert_eq!(Unchecked::begin(dir.path()).unwrap().verdict().unwrap(), "everything passed");
    }
}
