//! The executables that are compared, built from source.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::contender::Contender;
use super::environment::{self, Runtime, version_of};
use crate::{bridge, project};

/// Where the executables are.
pub(crate) struct Programs {
    pub(crate) toolbridge: PathBuf,
    /// The bridge alone.
    pub(crate) bridge: PathBuf,
    pub(crate) floor: PathBuf,
    pub(crate) parent: PathBuf,
    /// The interpreters of the peers; of Node, the server itself.
    runtimes: Vec<(Runtime, PathBuf)>,
    root: PathBuf,
}

impl Programs {
    /// Builds what these contenders need.
    pub(crate) fn build(contenders: &[Contender]) -> Result<Self> {
        let (root, target) = project::folders()?;
        // The quick one first: what is missing shows before a long build.
        let floor = build_floor(&root, &target)?;
        let mut needed: Vec<Runtime> = contenders.iter().filter_map(|one| one.runtime()).collect();
        needed.sort_unstable();
        needed.dedup();
        let [toolbridge, parent] = build_release(&root)?;
        let bridge = bridge::release(&root, &target)?;
        let install = |runtime: Runtime| Ok((runtime, runtime.install(&root, &target)?));
        let runtimes = needed.into_iter().map(install).collect::<Result<_>>()?;
        Ok(Self { toolbridge, bridge, floor, parent, runtimes, root })
    }

    /// The interpreter of an environment; of Node, the server.
    pub(crate) fn runtime(&self, runtime: Runtime) -> Result<&Path> {
        let found = self.runtimes.iter().find(|(other, _)| *other == runtime);
        found.map(|(_, path)| path.as_path()).with_context(|| format!("{runtime:?} was not set up"))
    }

    /// A Python program of the peers, with the interpreter of an environment.
    pub(crate) fn python(&self, runtime: Runtime, source: &str) -> Result<Command> {
        let mut command = Command::new(self.runtime(runtime)?);
        command.arg(environment::source(&self.root, source));
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("FASTMCP_LOG_LEVEL", "ERROR");
        Ok(command)
    }

    /// The versions of everything that is compared.
    pub(crate) fn versions(&self) -> Result<Vec<String>> {
        let mut versions = vec![version_of(&self.toolbridge)?];
        for (runtime, path) in &self.runtimes {
            let interpreter = if *runtime == Runtime::Node { Path::new("node") } else { path };
            let interpreter = version_of(interpreter)?;
            let interpreter =
                if *runtime == Runtime::Node { format!("Node {interpreter}") } else { interpreter };
            versions.push(format!("{} ({interpreter})", runtime.versions(&self.root)?.join(", ")));
        }
        Ok(versions)
    }
}

/// Builds our two executables; cargo says itself where it has put them.
fn build_release(root: &Path) -> Result<[PathBuf; 2]> {
    eprintln!("building toolbridge (release)");
    let output = project::cargo()
        .args(["build", "--release", "--quiet", "--package", "toolbridge-cli", "--package", "bench-parent"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "toolbridge cannot be built: cargo failed with {}", output.status);
    let built: Vec<Value> = output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    let executable = |name: &str| {
        let mut found = built.iter().filter(|message| message["target"]["name"] == name);
        let path = found.find_map(|message| message["executable"].as_str()).map(PathBuf::from);
        path.with_context(|| format!("cargo built {name} and named no executable"))
    };
    Ok([executable("toolbridge")?, executable("bench-parent")?])
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
