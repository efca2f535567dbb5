//! `cargo xtask fuzz`: the fuzz targets, in a build that counts which code they reach.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::project;

/// LLVM's counters for each edge of the code, without a sanitizer, so that a stable compiler does.
const COUNTED: &str = "--cfg toolbridge_coverage -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 \
                       -Cllvm-args=-sanitizer-coverage-inline-8bit-counters";

/// Builds the targets and runs them with `args`, which are theirs.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let (root, target) = project::folders()?;
    let host = host()?;
    let mut build = project::cargo();
    // For a named system, so that build scripts are not counted along.
    build.args(["build", "--quiet", "--package", "toolbridge-fuzz", "--profile", "fuzz", "--target", &host]);
    let status = build.current_dir(&root).env("RUSTFLAGS", COUNTED).status().context("cannot run cargo")?;
    ensure!(status.success(), "the fuzz targets do not build");

    let program = target.join(host).join("fuzz/toolbridge-fuzz");
    let status = Command::new(&program)
        .args(args)
        .status()
        .with_context(|| format!("cannot run `{}`", program.display()))?;
    ensure!(
        status.code().is_some(),
        "the fuzz targets ended by a signal ({status})\nhint: run it again with the same `--seed`, and `--record FILE`: \
         FILE will hold the input"
    );
    ensure!(status.success(), "fuzzing failed");
    Ok(())
}

/// The system that this is, in the compiler's words.
fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().context("cannot run rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host =
        text.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc does not say its host")?;
    Ok(host.to_owned())
}
