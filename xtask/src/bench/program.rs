//! The executables that are compared, built from source.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::project;

/// Where the two executables are.
pub(crate) struct Programs {
    pub(crate) toolbridge: PathBuf,
    pub(crate) floor: PathBuf,
}

impl Programs {
    pub(crate) fn build() -> Result<Self> {
        let (root, target) = project::folders()?;
        // The quick one first: what is missing shows before a long build.
        let floor = build_floor(&root, &target)?;
        Ok(Self { toolbridge: build_toolbridge(&root)?, floor })
    }
}

/// Builds the release executable; cargo says itself where it has put it.
fn build_toolbridge(root: &Path) -> Result<PathBuf> {
    eprintln!("building toolbridge (release)");
    let output = project::cargo()
        .args(["build", "--release", "--quiet", "--package", "toolbridge-cli"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "toolbridge cannot be built: cargo failed with {}", output.status);
    let executable = output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == "toolbridge")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from));
    executable.context("cargo built toolbridge and named no executable")
}

/// Compiles the floor. Static, because then its start is as short as a start can be.
fn build_floor(root: &Path, target: &Path) -> Result<PathBuf> {
    let folder = target.join("bench");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let floor = folder.join("floor");
    let mut command = Command::new("cc");
    command.args(["-O2", "-static", "-o"]).arg(&floor).arg(root.join("xtask/bench/floor.c"));
    match command.status() {
        Ok(status) if status.success() => Ok(floor),
        Ok(status) => bail!(
            "{command:?} failed with {status}; a static executable needs the static C library \
             (Debian: libc6-dev, Fedora: glibc-static)"
        ),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!(
                "there is no C compiler `cc`: install gcc or clang (Debian: gcc libc6-dev, Fedora: gcc glibc-static)"
            )
        }
        Err(error) => Err(error).context("cannot run cc"),
    }
}
