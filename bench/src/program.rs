//! The executables that are compared, built from source.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use xtask::bridge;
use xtask::project::{Project, run, stdout_of};

use crate::contender::Contender;
use crate::environment::{Runtime, source};

/// The paths of the executables.
pub(crate) struct Programs {
    pub(crate) toolbridge: PathBuf,
    /// The bridge-only executable.
    pub(crate) bridge: PathBuf,
    pub(crate) floor: PathBuf,
    pub(crate) parent: PathBuf,
    /// The executables of an earlier build: the bridge, and the program with tools.
    pub(crate) before: Option<[PathBuf; 2]>,
    /// The interpreters of the peers; for Node, the server itself.
    runtimes: BTreeMap<Runtime, PathBuf>,
    root: PathBuf,
}

impl Programs {
    /// Builds what these contenders need.
    pub(crate) fn build(contenders: &[Contender], profile: &str, before: Option<&Path>) -> Result<Self> {
        let project = Project::find()?;
        let before = before.map(earlier).transpose()?;
        // The quick build first, so that a missing compiler is reported before the long one.
        let floor = build_floor(&project)?;
        let [toolbridge, parent] = build_ours(&project, profile)?;
        let bridge = bridge::build(&project, profile)?;
        let runtimes: BTreeSet<_> = contenders.iter().filter_map(|one| one.runtime).collect();
        let install = |runtime: Runtime| Ok((runtime, runtime.install(&project, profile)?));
        let runtimes = runtimes.into_iter().map(install).collect::<Result<_>>()?;
        Ok(Self { toolbridge, bridge, floor, parent, before, runtimes, root: project.root })
    }

    /// The interpreter of an environment; for Node, the server.
    fn runtime(&self, runtime: Runtime) -> Result<&Path> {
        let found = self.runtimes.get(&runtime).map(PathBuf::as_path);
        found.with_context(|| format!("{runtime:?} was not set up"))
    }

    /// A Python program of the peers, with the interpreter of an environment.
    pub(crate) fn python(&self, runtime: Runtime, name: &str) -> Result<Command> {
        let mut command = Command::new(self.runtime(runtime)?);
        command.arg(source(&self.root, name));
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("FASTMCP_LOG_LEVEL", "ERROR");
        Ok(command)
    }

    /// A server on its stdin and stdout, with that many tools; with one more argument, `http`, it serves
    /// HTTP.
    pub(crate) fn server(&self, contender: Contender, tools: usize) -> Result<Command> {
        let mut command = match contender {
            Contender::Server => Command::new(&self.parent),
            Contender::PythonMcp => self.python(Runtime::Mcp, "mcp_server.py")?,
            Contender::FastMcp => self.python(Runtime::FastMcp, "fastmcp_server.py")?,
            Contender::NodeSdk => {
                let mut node = Command::new("node");
                node.arg(self.runtime(Runtime::Node)?);
                node
            }
            other => bail!("{}: it is not a server", other.name),
        };
        command.arg(tools.to_string());
        Ok(command)
    }

    /// The versions of everything that is compared.
    pub(crate) fn versions(&self) -> Result<Vec<String>> {
        let version_of = |program: &Path| stdout_of(Command::new(program).arg("--version"));
        let mut versions = vec![version_of(&self.toolbridge)?];
        for (runtime, path) in &self.runtimes {
            let interpreter = match runtime {
                Runtime::Node => format!("Node {}", version_of("node".as_ref())?),
                _ => version_of(path)?,
            };
            versions.push(format!("{} ({interpreter})", runtime.versions(&self.root)?.join(", ")));
        }
        Ok(versions)
    }
}

/// Builds our two executables.
fn build_ours(project: &Project, profile: &str) -> Result<[PathBuf; 2]> {
    eprintln!("building toolbridge ({profile})");
    project.build(profile, &["toolbridge-cli", "bench-parent"])?;
    Ok(["toolbridge", "bench-parent"].map(|name| project.built(profile).join(name)))
}

/// The executables of an earlier build.
fn earlier(folder: &Path) -> Result<[PathBuf; 2]> {
    let find = |name: &str| {
        let path = folder.join(name);
        path.canonicalize().with_context(|| format!("--before: there is no `{}`", path.display()))
    };
    Ok([find(bridge::NAME)?, find("bench-parent")?])
}

/// Compiles the floor. Statically, for the shortest possible start.
fn build_floor(project: &Project) -> Result<PathBuf> {
    let folder = project.target.join("bench");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let floor = folder.join("floor");
    let mut command = Command::new("cc");
    command.args(["-O2", "-static", "-o"]).arg(&floor).arg(project.root.join("bench/floor.c"));
    run(&mut command).context(
        "the floor needs a C compiler and the static C library (Debian: gcc libc6-dev, Fedora: gcc glibc-static)",
    )?;
    Ok(floor)
}
