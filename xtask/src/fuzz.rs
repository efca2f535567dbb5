//! `cargo xtask fuzz`: libFuzzer looks for inputs with which a fuzz target fails.

use anyhow::Result;

use crate::project;
use crate::python::run as run_command;

const CARGO_FUZZ: &str = "0.13.2";

/// Runs the targets that are named, or all of them, until one fails.
pub(crate) fn run(seconds: u64, targets: &[String]) -> Result<()> {
    let (root, target) = project::folders()?;
    let (tools, fuzz) = (target.join("tools"), root.join("fuzz"));
    let cargo_fuzz = tools.join("bin/cargo-fuzz");
    if !cargo_fuzz.exists() {
        let mut install = project::cargo();
        install.args(["install", "cargo-fuzz", "--version", CARGO_FUZZ, "--locked", "--debug", "--root"]);
        run_command(install.arg(&tools))?;
    }
    let mut names = targets.to_vec();
    if names.is_empty() {
        let folders = std::fs::read_dir(fuzz.join("corpus"))?;
        names.extend(folders.filter_map(|folder| folder.ok()?.file_name().into_string().ok()));
        names.sort();
    }
    for name in names {
        // What reaches new code is kept for the next run, but not under version control.
        let found = target.join("fuzz").join(&name);
        std::fs::create_dir_all(&found)?;
        let mut command = std::process::Command::new(&cargo_fuzz);
        // Without a sanitizer, so that a stable compiler does.
        command.args(["run", "--sanitizer", "none", "--features", "libfuzzer", &name]).arg(&found);
        command.arg(fuzz.join("corpus").join(&name)).arg("--");
        command.arg(format!("-dict={}", fuzz.join("dictionaries").join(&name).display()));
        command.args([&format!("-max_total_time={seconds}"), "-max_len=4096", "-timeout=20"]);
        // Whole-program optimisation would take minutes for each target.
        command.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_STRIP", "none");
        run_command(command.current_dir(&root))?;
    }
    Ok(())
}
