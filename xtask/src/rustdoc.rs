//! Runs in place of rustdoc for `cargo test --doc`: writes the documentation of a crate, which must give no warning, before
//! its examples are tested. `cargo doc` would check all dependencies once more.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use anyhow::Result;
use xtask::project::{DEV, Project};

/// Where the documentation is written; set if this program is to be rustdoc.
const VARIABLE: &str = "TOOLBRIDGE_DOC_DIR";

/// Makes `cargo test --doc` use this program, as it was built with the tests: the running file may have been replaced.
pub(crate) fn instead<'a>(tests: &'a mut Command, project: &Project) -> &'a mut Command {
    tests.env("RUSTDOC", project.built(DEV).join("xtask")).env(VARIABLE, project.target.join("doc"))
}

/// Does rustdoc's work if cargo has started this program for it.
pub(crate) fn run_if_asked() -> Option<Result<ExitCode>> {
    let folder = std::env::var_os(VARIABLE)?;
    Some(run(folder, std::env::args_os().skip(1).collect()))
}

fn run(folder: OsString, arguments: Vec<OsString>) -> Result<ExitCode> {
    if arguments.iter().any(|argument| argument == "--test") {
        let mut write = Command::new("rustdoc");
        write.args(without_tests(&arguments)).args(["-D", "warnings", "--out-dir"]).arg(folder);
        if !write.status()?.success() {
            return Ok(ExitCode::FAILURE);
        }
    }
    let is_good = Command::new("rustdoc").args(arguments).status()?.success();
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The arguments that are not only for tests.
fn without_tests(arguments: &[OsString]) -> Vec<&OsString> {
    let mut kept = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--test") => {}
            Some("--test-args" | "--test-run-directory" | "--test-runtool" | "--test-runtool-arg") => {
                _ = arguments.next();
            }
            _ => kept.push(argument),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_for_tests_are_left_out() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let given =
            words("--crate-name a --test src/lib.rs --test-run-directory . --extern b --test-args --quiet");
        assert_eq!(
            without_tests(&given),
            words("--crate-name a src/lib.rs --extern b").iter().collect::<Vec<_>>()
        );
    }
}
