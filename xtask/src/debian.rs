//! Programs that tests need: those on the PATH, or Debian's, under `target/`. With strace, tests make system calls fail; the CLI's sandbox
//! needs bubblewrap and socat.

use std::env;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use xtask::project::run;

/// The programs, and the argument with which each prints its version.
const PROGRAMS: [(&str, &str); 3] = [("strace", "-V"), ("bwrap", "--version"), ("socat", "-V")];

/// Debian's packages: the programs, and libraries that may be missing.
const PACKAGES: [&str; 5] = ["strace", "libunwind8", "bubblewrap", "socat", "libwrap0"];

/// A PATH with the programs. If one cannot be installed, the tests that need it fail, or report that they are skipped.
pub(crate) fn path(target: &Path) -> Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    let missing: Vec<_> =
        PROGRAMS.into_iter().filter(|(name, version)| !works(name.as_ref(), version)).collect();
    if missing.is_empty() {
        return Ok(path);
    }
    let folder = target.join("debian");
    let is_there = |(name, version): &(&str, &str)| works(&folder.join(name), version);
    if !missing.iter().all(is_there)
        && let Err(error) = install(&folder)
    {
        let names: Vec<_> = missing.iter().map(|(name, _)| *name).collect();
        eprintln!(
            "note: there is no {}, and it cannot be installed from Debian: {error:#}",
            names.join(", ")
        );
        return Ok(path);
    }
    let folders = std::iter::once(folder).chain(env::split_paths(&path));
    env::join_paths(folders).context("a folder has a colon in its name")
}

fn works(program: &Path, version: &str) -> bool {
    let mut command = Command::new(program);
    command.arg(version).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn install(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    run(Command::new("apt-get").args(["download", "--quiet"]).args(PACKAGES).current_dir(folder))?;
    for entry in std::fs::read_dir(folder)? {
        let package = entry?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg-deb").arg("-x").arg(package).arg(folder))?;
        }
    }
    for (name, version) in PROGRAMS {
        // With its libraries, in a folder named after the architecture.
        let script = format!(
            "#!/bin/sh\nhere=$(dirname \"$(realpath \"$0\")\")\n\
             LD_LIBRARY_PATH=$(echo \"$here\"/usr/lib/*-linux-gnu) exec \"$here/usr/bin/{name}\" \"$@\"\n"
        );
        let program = folder.join(name);
        std::fs::write(&program, script)?;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
        ensure!(works(&program, version), "`{}` does not work", program.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_works_or_it_is_said_why_not() {
        let folder = tempfile::tempdir().unwrap();
        let installed = install(folder.path());
        let works = PROGRAMS.iter().all(|(name, version)| works(&folder.path().join(name), version));
        assert_eq!(installed.is_ok(), works, "{installed:?}");
    }
}
