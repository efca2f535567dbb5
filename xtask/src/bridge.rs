//! The bridge alone, as packages bring it along: small, and linked statically where that can be done.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::{project, python};

/// The package, and its executable.
pub(crate) const NAME: &str = "toolbridge-bridge";

/// Builds the executable for users; returns its path.
///
/// A static one starts in half the time: nothing has to be found, mapped and relocated. It needs a static C
/// library, which some systems do not have; then it is an ordinary one.
///
/// # Errors
///
/// When it does not compile.
pub(crate) fn release(root: &Path, target: &Path) -> Result<PathBuf> {
    let host = host()?;
    let cargo = || {
        let mut cargo = project::cargo();
        // With `--target`, flags are not for build scripts and macros.
        cargo.args(["build", "--quiet", "--release", "--package", NAME, "--target", &host]).current_dir(root);
        cargo
    };
    let linked = if host.ends_with("-linux-gnu") {
        python::run(cargo().env("RUSTFLAGS", "-C target-feature=+crt-static"))
    } else {
        python::run(&mut cargo())
    };
    if let Err(error) = linked {
        eprintln!("note: the bridge could not be linked statically ({error}), so it is linked as usual");
        python::run(&mut cargo())?;
    }
    Ok(target.join(&host).join("release").join(NAME))
}

/// What this machine is called by rustc.
fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().context("cannot run rustc")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not say what this machine is")?.to_owned())
}
