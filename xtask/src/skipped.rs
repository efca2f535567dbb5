//! The skipped tests of a run: those that cannot do their work on this machine report it here, with the reason.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

/// The file to which a test appends a line when it is skipped.
const VARIABLE: &str = "TOOLBRIDGE_SKIPPED";

/// The file of one run.
pub(crate) struct Skipped(PathBuf);

impl Skipped {
    /// Starts a run, and removes the file of the last one.
    pub(crate) fn begin(target: &Path) -> Result<Self> {
        std::fs::create_dir_all(target).with_context(|| format!("cannot create `{}`", target.display()))?;
        let file = target.join("skipped");
        std::fs::write(&file, "").with_context(|| format!("cannot write `{}`", file.display()))?;
        Ok(Self(file))
    }

    /// Passes the file to the tests that `command` runs.
    pub(crate) fn tell<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env(VARIABLE, &self.0)
    }

    /// The same for pytest.
    pub(crate) fn tell_pytest<'a>(&self, root: &Path, command: &'a mut Command) -> &'a mut Command {
        self.tell(command).args(["-p", "skipped"]).env("PYTHONPATH", root.join("xtask/pytest"))
    }

    /// Each skipped test once, with the reason.
    pub(crate) fn list(&self) -> Result<Vec<String>> {
        let file = std::fs::read_to_string(&self.0)
            .with_context(|| format!("cannot read `{}`", self.0.display()))?;
        let mut tests: Vec<_> = file.lines().map(ToOwned::to_owned).collect();
        tests.sort();
        tests.dedup();
        Ok(tests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_pytest_skips_are_listed() {
        let xtask::project::Project { root, target } = xtask::project::Project::find().unwrap();
        let python = target.join(xtask::python::CLIENT.folder).join("bin/python");
        assert!(python.exists(), "`cargo xtask test` installs `{}`", python.display());
        let dir = tempfile::tempdir().unwrap();
        let skipped = Skipped::begin(dir.path()).unwrap();
        let tests = "import pytest\n\ndef test_a(): pytest.skip('no root')\n\ndef test_b(): pass\n";
        std::fs::write(dir.path().join("test_some.py"), tests).unwrap();
        let mut pytest = Command::new(python);
        pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).current_dir(dir.path());
        let output = skipped.tell_pytest(&root, &mut pytest).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert_eq!(skipped.list().unwrap(), ["test_some.py::test_a: no root"]);
    }

    #[test]
    fn a_test_is_skipped_once_however_often_it_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let skipped = Skipped::begin(dir.path()).unwrap();
        assert!(skipped.list().unwrap().is_empty());
        for line in ["power: only root can", "power: only root can", "acl: the disk has none"] {
            let mut test = Command::new("sh");
            test.args(["-c", &format!("echo '{line}' >> \"${VARIABLE}\"")]);
            assert!(skipped.tell(&mut test).status().unwrap().success());
        }
        assert_eq!(skipped.list().unwrap(), ["acl: the disk has none", "power: only root can"]);
        assert!(Skipped::begin(dir.path()).unwrap().list().unwrap().is_empty());
    }
}
