//! The environments of the peers, each with its own packages, under `target/bench/`.
//!
//! Their packages are pinned in `bench/peers`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;
use xtask::project::{Project, run, stdout_of};
use xtask::python::{self, Environment};
use xtask::wheel;

/// The folder of the sources and the requirements.
const SOURCES: &str = "bench/peers";

/// The runtime of a peer's servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Runtime {
    /// Python with `mcp`.
    Mcp,
    /// Python with `fastmcp`.
    FastMcp,
    /// Python with our own wheel.
    Toolbridge,
    /// Node with its SDK.
    Node,
    /// Python with the vendor's SDK, and the CLI that comes with it.
    Sdk,
    /// Python with engines that search.
    Search,
}

impl Runtime {
    /// Its folder under `target/`, and the file that pins its versions.
    fn places(self) -> (&'static str, &'static str) {
        match self {
            Self::Mcp => ("bench/mcp", "bench/peers/mcp.txt"),
            Self::FastMcp => ("bench/fastmcp", "bench/peers/fastmcp.txt"),
            Self::Toolbridge => ("bench/toolbridge", "bench/peers/toolbridge.txt"),
            Self::Node => ("bench/node", "bench/peers/package.json"),
            Self::Sdk => ("bench/sdk", "bench/peers/sdk.txt"),
            Self::Search => ("bench/search", "bench/peers/search.txt"),
        }
    }

    /// Creates the environment if it is missing; returns its interpreter, or for Node the server.
    pub(crate) fn install(self, project: &Project, profile: &str) -> Result<PathBuf> {
        let installed = if self == Self::Node {
            self.install_node(project)
        } else {
            self.install_python(project, profile)
        };
        let action = "leave the peers out with `--floor-only`";
        installed.with_context(|| format!("the environment of {self:?} cannot be set up; {action}"))
    }

    fn install_python(self, project: &Project, profile: &str) -> Result<PathBuf> {
        let (folder, requirements) = self.places();
        let interpreters = python::INTERPRETERS;
        let python = Environment { folder, requirements, interpreters }.install(project)?;
        if self == Self::Toolbridge {
            eprintln!("building the wheel ({profile})");
            let wheel = wheel::build(project, profile, &project.target.join("bench/wheel"))?;
            wheel::install(project, &python, &wheel)?;
        }
        Ok(python)
    }

    fn install_node(self, project: &Project) -> Result<PathBuf> {
        stdout_of(Command::new("node").arg("--version")).context("there is no `node`")?;
        let (folder, requirements) = self.places();
        let folder = project.target.join(folder);
        std::fs::create_dir_all(&folder)?;
        let wanted = std::fs::read_to_string(project.root.join(requirements))?;
        // Written last, so it tells what is installed.
        let stamp = folder.join("installed.json");
        if !std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
            std::fs::write(folder.join("package.json"), &wanted)?;
            let mut npm = Command::new("npm");
            run(npm.args(["install", "--silent", "--no-audit", "--no-fund"]).current_dir(&folder))?;
            std::fs::write(stamp, wanted)?;
        }
        // Beside the packages, where Node searches for them.
        let server = folder.join("node_server.mjs");
        std::fs::copy(source(&project.root, "node_server.mjs"), &server)?;
        Ok(server)
    }

    /// Its packages, with their versions.
    pub(crate) fn versions(self, root: &Path) -> Result<Vec<String>> {
        let file = root.join(self.places().1);
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        if self == Self::Node {
            let package: Value = serde_json::from_str(&text)?;
            let all = package["dependencies"].as_object().into_iter().flatten();
            let show = |(name, version): (&String, &Value)| Some(format!("{name} {}", version.as_str()?));
            return Ok(all.filter_map(show).collect());
        }
        let pinned = text.lines().filter_map(|line| line.split_once("=="));
        Ok(pinned.map(|(name, version)| format!("{name} {version}")).collect())
    }
}

/// A source of a peer.
pub(crate) fn source(root: &Path, name: &str) -> PathBuf {
    root.join(SOURCES).join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_environment_pins_its_versions() {
        let root = Project::find().unwrap().root;
        let python = [Runtime::Mcp, Runtime::FastMcp, Runtime::Toolbridge, Runtime::Sdk, Runtime::Search];
        for runtime in python.into_iter().chain([Runtime::Node]) {
            let versions = runtime.versions(&root).unwrap();
            assert!(!versions.is_empty(), "{runtime:?}");
            for version in versions {
                let number = version.split(' ').nth(1).unwrap();
                assert!(number.split('.').all(|part| part.parse::<u32>().is_ok()), "{version}");
            }
        }
    }
}
