//! What a run could not check: a test that cannot do its work on this machine passes, and reports it here.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

/// The file to which a test appends a line when it checks nothing.
const VARIABLE: &str = "TOOLBRIDGE_UNCHECKED";

/// The file of one run.
pub(crate) struct Unchecked(PathBuf);

impl Unchecked {
    /// Starts a run, and removes the file of the last one.
    pub(crate) fn begin(target: &Path) -> Result<Self> {
        std::fs::create_dir_all(target).with_context(|| format!("cannot make `{}`", target.display()))?;
        let file = target.join("unchecked");
        std::fs::write(&file, "").with_context(|| format!("cannot write `{}`", file.display()))?;
        Ok(Self(file))
    }

    /// Passes the file to the tests that `command` runs.
    pub(crate) fn tell<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env(VARIABLE, &self.0)
    }

    /// The same for pytest: its skipped tests have checked nothing.
    pub(crate) fn tell_pytest<'a>(&self, root: &Path, command: &'a mut Command) -> &'a mut Command {
        self.tell(command).args(["-p", "unchecked"]).env("PYTHONPATH", root.join("xtask/pytest"))
    }

    /// The tests that checked nothing; empty if all did.
    pub(crate) fn list(&self) -> Result<String> {
        let said = std::fs::read_to_string(&self.0)
            .with_context(|| format!("cannot read `{}`", self.0.display()))?;
        let tests: Vec<_> = said.lines().map(|test| format!("\n  {test}")).collect();
        Ok(match tests.len() {
            0 => String::new(),
            1 => format!("one test checked nothing:{}", tests.concat()),
            count => format!("{count} tests checked nothing:{}", tests.concat()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_pytest_skips_are_unchecked() {
        let xtask::project::Project { root, target } = xtask::project::Project::find().unwrap();
        let python = target.join(xtask::python::CLIENT.folder).join("bin/python");
        assert!(python.exists(), "`cargo xtask test` installs `{}`", python.display());
        let dir = tempfile::tempdir().unwrap();
        let unchecked = Unchecked::begin(dir.path()).unwrap();
        let tests = "import pytest\n\ndef test_a(): pytest.skip('no root')\n\ndef test_b(): pass\n";
        std::fs::write(dir.path().join("test_some.py"), tests).unwrap();
        let mut pytest = Command::new(python);
        pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).current_dir(dir.path());
        let output = unchecked.tell_pytest(&root, &mut pytest).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let want = "one test checked nothing:\n  test_some.py::test_a: no root";
        assert_eq!(unchecked.list().unwrap(), want);
    }

    #[test]
    fn unchecked_tests_are_listed_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let unchecked = Unchecked::begin(dir.path()).unwrap();
        assert_eq!(unchecked.list().unwrap(), "");
        let mut test = Command::new("sh");
        test.args(["-c", &format!("echo 'power: only root can' >> \"${VARIABLE}\"")]);
        assert!(unchecked.tell(&mut test).status().unwrap().success());
        assert_eq!(unchecked.list().unwrap(), "one test checked nothing:\n  power: only root can");
        assert!(unchecked.tell(&mut test).status().unwrap().success());
        assert!(unchecked.list().unwrap().starts_with("2 tests checked nothing:\n  power: "));
        assert_eq!(Unchecked::begin(dir.path()).unwrap().list().unwrap(), "");
    }
}
