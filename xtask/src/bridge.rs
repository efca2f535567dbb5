//! The bridge alone, as packages bring it along: small, and linked statically where that can be done.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::project::{Project, run, stdout_of};

/// The package, and its executable.
pub const NAME: &str = "toolbridge-bridge";

/// Builds the executable for users; returns its path.
///
/// A static one starts in half the time: nothing has to be found, mapped and relocated. It needs a static C
/// library, which some systems do not have; then it is an ordinary one.
///
/// # Errors
///
/// When it does not compile.
pub fn release(project: &Project) -> Result<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = stdout_of(Command::new(rustc).arg("-vV"))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc does not say what this machine is")?;
    // With `--target`, flags are not for build scripts and macros.
    let cargo = || project.cargo(&format!("build --quiet --release --package {NAME} --target {host}"));
    if !host.ends_with("-linux-gnu") {
        run(&mut cargo())?;
    } else if let Err(error) = run(cargo().env("RUSTFLAGS", "-C target-feature=+crt-static")) {
        eprintln!("note: the bridge could not be linked statically ({error}), so it is linked as usual");
        run(&mut cargo())?;
    }
    Ok(project.target.join(host).join("release").join(NAME))
}
