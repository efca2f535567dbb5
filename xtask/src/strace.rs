//! strace, with which tests make system calls fail: the one on the PATH, or Debian's, under `target/`.

use std::env;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use xtask::project::run;

/// Debian's packages: strace, and a library that may be missing.
const PACKAGES: [&str; 2] = ["strace", "libunwind8"];

/// A PATH with strace. If it cannot be installed, the tests that need it fail with a message.
pub(crate) fn path(target: &Path) -> Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    if works("strace".as_ref()) {
        return Ok(path);
    }
    let folder = target.join("strace");
    let program = folder.join("strace");
    if !works(&program)
        && let Err(error) = install(&folder, &program)
    {
        eprintln!("note: there is no strace, and it cannot be installed from Debian: {error:#}");
        return Ok(path);
    }
    let folders = std::iter::once(folder).chain(env::split_paths(&path));
    env::join_paths(folders).context("a folder has a colon in its name")
}

fn works(strace: &Path) -> bool {
    let mut command = Command::new(strace);
    command.arg("-V").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn install(folder: &Path, program: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    run(Command::new("apt-get").args(["download", "--quiet"]).args(PACKAGES).current_dir(folder))?;
    for entry in std::fs::read_dir(folder)? {
        let package = entry?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            run(Command::new("dpkg-deb").arg("-x").arg(package).arg(folder))?;
        }
    }
    // With its libraries, in a folder named after the architecture.
    let script = "#!/bin/sh\nhere=$(dirname \"$(realpath \"$0\")\")\n\
                  LD_LIBRARY_PATH=$(echo \"$here\"/usr/lib/*-linux-gnu) exec \"$here/usr/bin/strace\" \"$@\"\n";
    std::fs::write(program, script)?;
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755))?;
    ensure!(works(program), "`{}` does not work", program.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_strace_works_or_the_reason_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("strace");
        let installed = install(folder.path(), &program);
        assert_eq!(installed.is_ok(), works(&program), "{installed:?}");
    }
}
