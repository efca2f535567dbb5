//! Runs in place of rustdoc for `cargo test --doc`: writes the documentation of a crate, which must give no warning, before
//! its examples are tested. `cargo doc` would check all dependencies once more. Like it, this writes nothing if nothing
//! has changed.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
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
    Some(run(Path::new(&folder), std::env::args_os().skip(1).collect()))
}

fn run(folder: &Path, arguments: Vec<OsString>) -> Result<ExitCode> {
    let stamp = Stamp::new(folder, &arguments);
    if arguments.iter().any(|argument| argument == "--test") && !stamp.is_new() {
        let mut write = Command::new("rustdoc");
        write.args(without_tests(&arguments)).args(["-D", "warnings", "--out-dir"]).arg(folder);
        if !write.status()?.success() {
            return Ok(ExitCode::FAILURE);
        }
        fs::write(&stamp.path, &stamp.arguments)?;
    }
    let is_good = Command::new("rustdoc").args(arguments).status()?.success();
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Written with the documentation of a crate.
struct Stamp {
    path: PathBuf,
    arguments: Vec<u8>,
    /// The compiled crate and its dependencies.
    libraries: Vec<PathBuf>,
}

impl Stamp {
    fn new(folder: &Path, arguments: &[OsString]) -> Self {
        let named = arguments.iter().skip_while(|argument| *argument != "--crate-name").nth(1);
        let mut name = named.cloned().unwrap_or_default();
        name.push(".stamp");
        let library = |argument: &OsString| Some(PathBuf::from(argument.to_str()?.split_once('=')?.1));
        let libraries = arguments.iter().filter_map(library).filter(|path| path.is_file()).collect();
        let arguments = arguments.join("\n".as_ref()).into_encoded_bytes();
        Self { path: folder.join(name), arguments, libraries }
    }

    /// Whether it was written with these arguments, after all libraries.
    fn is_new(&self) -> bool {
        let written = |path: &PathBuf| fs::metadata(path).and_then(|file| file.modified()).ok();
        let stamp = written(&self.path);
        !self.libraries.is_empty()
            && self.libraries.iter().all(|library| written(library).is_some_and(|time| Some(time) < stamp))
            && fs::read(&self.path).is_ok_and(|known| known == self.arguments)
    }
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

    #[test]
    fn documentation_is_new_until_a_library_or_an_argument_changes() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("liba.rlib");
        fs::write(&library, "").unwrap();
        let stamp = |more: &str| {
            let library = format!("a={}", library.display());
            Stamp::new(folder.path(), &["--crate-name", "a", "--extern", &library, more].map(OsString::from))
        };
        let old = std::time::SystemTime::now() - std::time::Duration::from_secs(10);
        assert!(!stamp("").is_new(), "there is none");
        fs::File::open(&library).unwrap().set_modified(old).unwrap();
        fs::write(&stamp("").path, &stamp("").arguments).unwrap();
        assert_eq!(stamp("").path, folder.path().join("a.stamp"));
        assert!(stamp("").is_new());
        assert!(!stamp("--cfg=b").is_new(), "another argument");
        fs::File::open(&library).unwrap().set_modified(old + std::time::Duration::from_secs(20)).unwrap();
        assert!(!stamp("").is_new(), "a newer library");
    }
}
