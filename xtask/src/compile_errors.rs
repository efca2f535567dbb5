//! Wrong uses of the macros do not compile, and the error says what to write instead.
//!
//! Not with trybuild, which compiles all dependencies once more: these cases use the library of the other tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::project::{ALL, DEV, Project, stdout_of};

const CASES: &str = "tests/compile-errors";

/// The library as the part `build` builds it.
fn library(project: &Project) -> PathBuf {
    let arguments = format!("build {ALL} --all-targets --quiet --message-format json");
    let messages = stdout_of(&mut project.tested(&arguments)).unwrap();
    let messages = messages.lines().map(|line| serde_json::from_str(line).unwrap());
    let mut files = messages.filter_map(|line: Value| {
        let target = &line["target"];
        let is_it = target["name"] == "toolbridge" && target["kind"][0] == "lib";
        let file = line["filenames"][0].as_str().filter(|_| is_it && line["profile"]["test"] == false);
        file.map(PathBuf::from)
    });
    files.next().expect("the library")
}

/// What the compiler says about a program.
fn said(project: &Project, library: &Path, case: &str) -> String {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let out = tempfile::tempdir().unwrap();
    rustc.args(["--edition", "2024", "--emit", "metadata", "--out-dir"]).arg(out.path());
    rustc.arg("-L").arg(project.built(DEV).join("deps"));
    rustc.arg("--extern").arg(format!("toolbridge={}", library.display()));
    // In the root, where the library was compiled: so its lines are found and shown.
    let output = rustc.arg(format!("{CASES}/{case}")).current_dir(&project.root).output().unwrap();
    assert!(!output.status.success(), "{case} compiles");
    tidy(&String::from_utf8(output.stderr).unwrap())
}

/// The errors, without the numbers of lines that are not in a case, and without other counts and paths that
/// change.
fn tidy(said: &str) -> String {
    let (said, _) = said.split_once("\nerror: aborting due to").expect("the end of the errors");
    let mut is_case = true;
    let is_stable = |line: &&str| !line.contains("full name for the type") && !line.contains("`--verbose`");
    let lines = said.lines().filter(is_stable).map(|line| {
        let rest = line.trim_start();
        if let Some((arrow, place)) = rest.split_once(' ').filter(|(word, _)| ["-->", ":::"].contains(word)) {
            is_case = place.starts_with(CASES);
            let (file, _) = place.split_once(':').unwrap_or((place, ""));
            let (_, file) = file.rsplit_once("/library/").unwrap_or(("", file));
            return format!("   {arrow} {}\n", if is_case { place } else { file });
        }
        is_case |= line.starts_with(char::is_alphabetic);
        let code = rest.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let number = &rest[..rest.len() - code.len()];
        match code.trim_start() {
            // The margin is as wide as the largest number.
            code if !number.is_empty() || code.starts_with('|') => {
                format!("{:>3} {code}\n", if is_case { number } else { "" })
            }
            more if more.starts_with("and ") && more.ends_with(" others") => "      and others\n".into(),
            note if note.starts_with("= ") => format!("    {note}\n"),
            _ => format!("{line}\n"),
        }
    });
    lines.collect()
}

/// `TOOLBRIDGE_BLESS=1` records the current messages; other compilers may word their own part differently.
#[test]
fn wrong_uses_are_errors_that_say_what_would_be_right() {
    let project = Project::find().unwrap();
    let library = library(&project);
    let cases = std::fs::read_dir(project.root.join(CASES)).unwrap().map(|entry| entry.unwrap().path());
    let cases: Vec<_> = cases.filter(|path| path.extension().is_some_and(|kind| kind == "rs")).collect();
    assert!(cases.len() >= 9, "{cases:?}");
    let mut wrong = String::new();
    for case in cases {
        let name = case.file_name().unwrap().to_str().unwrap();
        let (said, expected) = (said(&project, &library, name), case.with_extension("stderr"));
        if std::env::var_os("TOOLBRIDGE_BLESS").is_some() {
            std::fs::write(&expected, &said).unwrap();
        }
        if std::fs::read_to_string(&expected).unwrap() != said {
            wrong.push_str(&format!("{name}:\n{said}\n"));
        }
    }
    assert!(wrong.is_empty(), "other errors than recorded:\n{wrong}");
}
