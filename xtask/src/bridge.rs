//! Builds the bridge executable: small, and in packages statically linked where possible.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::project::{DIST, Project, run, stdout_of};

/// The package and its executable.
pub const NAME: &str = "toolbridge-bridge";

/// Builds the executable with a cargo profile; returns its path.
///
/// A static one starts in half the time: there are no libraries to load and relocate. It needs a static C
/// library, which some systems do not have; then it is linked dynamically. Only released ones are static: their crates are compiled
/// with the features of the bridge alone, and so once more.
///
/// # Errors
///
/// When it does not compile.
pub fn build(project: &Project, profile: &str) -> Result<PathBuf> {
    if profile != DIST {
        project.build(profile, &["toolbridge-cli", NAME])?;
        return Ok(project.built(profile).join(NAME));
    }
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = stdout_of(Command::new(rustc).arg("-vV"))?;
    let cargo = || project.cargo(&format!("rustc --quiet --profile {profile} --package {NAME} --bin {NAME}"));
    // Flags for this executable alone: its crates are shared with the other executables.
    let is_gnu = said.lines().any(|line| line.starts_with("host: ") && line.ends_with("-linux-gnu"));
    if !is_gnu {
        run(&mut cargo())?;
    } else if let Err(error) = run(cargo().args(["--", "-C", "target-feature=+crt-static"])) {
        eprintln!("note: the bridge could not be linked statically ({error}), so it is linked as usual");
        run(&mut cargo())?;
    }
    Ok(project.built(profile).join(NAME))
}
