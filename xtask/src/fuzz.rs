//! `cargo xtask fuzz`: runs libFuzzer on the fuzz targets.

use std::process::Command;

use anyhow::Result;
use xtask::project::{Project, run as run_command};

const CARGO_FUZZ: &str = "0.13.2";

/// Runs the named targets, or all of them, until one fails.
pub(crate) fn run(project: &Project, seconds: u64, mut names: Vec<String>) -> Result<()> {
    let (tools, fuzz) = (project.target.join("tools"), project.root.join("fuzz"));
    let cargo_fuzz = tools.join("bin/cargo-fuzz");
    if !cargo_fuzz.exists() {
        let install = format!("install cargo-fuzz --version {CARGO_FUZZ} --locked --debug --root");
        run_command(project.cargo(&install).arg(&tools))?;
    }
    if names.is_empty() {
        let folders = std::fs::read_dir(fuzz.join("corpus"))?;
        names.extend(folders.filter_map(|folder| folder.ok()?.file_name().into_string().ok()));
        names.sort();
    }
    for name in names {
        // Inputs that reach new code are kept for the next run, but not under version control.
        let found = project.target.join("fuzz").join(&name);
        std::fs::create_dir_all(&found)?;
        let mut command = Command::new(&cargo_fuzz);
        // Without a sanitizer, which would need a nightly compiler.
        command.args(["run", "--sanitizer", "none", "--features", "libfuzzer", &name]).arg(&found);
        command.arg(fuzz.join("corpus").join(&name)).arg("--");
        command.arg(format!("-dict={}", fuzz.join("dictionaries").join(&name).display()));
        command.args([&format!("-max_total_time={seconds}"), "-max_len=4096", "-timeout=20"]);
        // Keep function names, for backtraces.
        command.env("CARGO_PROFILE_RELEASE_STRIP", "none");
        run_command(command.current_dir(&project.root))?;
    }
    Ok(())
}
