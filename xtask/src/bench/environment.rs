//! The environments of the peers, each with its own packages, under `target/bench/`.
//!
//! What is in them, with versions, stands in `xtask/bench/peers`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::python::{self, Environment};
use crate::wheel;

const MCP: Environment = peer("bench/mcp", "xtask/bench/peers/mcp.txt");
const FASTMCP: Environment = peer("bench/fastmcp", "xtask/bench/peers/fastmcp.txt");
const TOOLBRIDGE: Environment = peer("bench/toolbridge", "xtask/bench/peers/toolbridge.txt");

const fn peer(folder: &'static str, requirements: &'static str) -> Environment {
    Environment { folder, requirements, interpreters: python::INTERPRETERS }
}

/// Where the sources and the requirements are.
const SOURCES: &str = "xtask/bench/peers";

/// What a peer's servers are run with.
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
}

impl Runtime {
    /// Makes the environment, if it is not there; returns its interpreter.
    ///
    /// # Errors
    ///
    /// When something cannot be installed.
    pub(crate) fn install(self, root: &Path, target: &Path) -> Result<PathBuf> {
        let installed = match self {
            Self::Mcp => MCP.install(root, target),
            Self::FastMcp => FASTMCP.install(root, target),
            Self::Toolbridge => install_wheel(root, target),
            Self::Node => install_node(root, target),
        };
        let action = "leave the peers out with `--floor-only`";
        installed.with_context(|| format!("the environment of {self:?} cannot be set up; {action}"))
    }

    /// The file that pins its versions.
    fn requirements(self) -> &'static str {
        match self {
            Self::Mcp => "mcp.txt",
            Self::FastMcp => "fastmcp.txt",
            Self::Toolbridge => "toolbridge.txt",
            Self::Node => "package.json",
        }
    }

    /// The packages that it has, with their versions.
    pub(crate) fn versions(self, root: &Path) -> Result<Vec<String>> {
        let file = root.join(SOURCES).join(self.requirements());
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(if self == Self::Node {
            let package: serde_json::Value = serde_json::from_str(&text)?;
            let all = package["dependencies"].as_object().into_iter().flatten();
            all.map(|(name, version)| format!("{name} {}", version.as_str().unwrap_or_default())).collect()
        } else {
            pinned(&text)
        })
    }
}

/// What a file of requirements pins.
fn pinned(requirements: &str) -> Vec<String> {
    requirements
        .lines()
        .filter_map(|line| line.split_once("=="))
        .map(|(name, v)| format!("{name} {v}"))
        .collect()
}

/// A source of a peer.
pub(crate) fn source(root: &Path, name: &str) -> PathBuf {
    root.join(SOURCES).join(name)
}

/// Builds the wheel of this project, and puts it into an environment of its own.
fn install_wheel(root: &Path, target: &Path) -> Result<PathBuf> {
    let python = TOOLBRIDGE.install(root, target)?;
    eprintln!("building the wheel (release)");
    let wheel = wheel::build(root, target, "release", &target.join("bench/wheel"))?;
    wheel::install(&python, &wheel)?;
    Ok(python)
}

/// Puts the SDK, and the server that uses it, into a folder; returns the server.
fn install_node(root: &Path, target: &Path) -> Result<PathBuf> {
    let version = Command::new("node").arg("--version").output().context("there is no `node`")?;
    ensure!(version.status.success(), "`node --version` fails");
    let folder = target.join("bench/node");
    std::fs::create_dir_all(&folder)?;
    let wanted = std::fs::read_to_string(source(root, "package.json"))?;
    // Written last, so it says what is installed.
    let stamp = folder.join("installed.json");
    if !std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        std::fs::write(folder.join("package.json"), &wanted)?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund"]).current_dir(&folder);
        python::run(&mut npm)?;
        std::fs::write(stamp, wanted)?;
    }
    // Beside the packages, where Node looks for them.
    let server = folder.join("node_server.mjs");
    std::fs::copy(source(root, "node_server.mjs"), &server)?;
    Ok(server)
}

/// The version of a program, as it says itself.
pub(crate) fn version_of(program: &Path) -> Result<String> {
    let output = Command::new(program)
        .arg("--version")
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_environment_pins_its_versions() {
        let (root, _) = crate::project::folders().unwrap();
        for runtime in [Runtime::Mcp, Runtime::FastMcp, Runtime::Toolbridge, Runtime::Node] {
            let versions = runtime.versions(&root).unwrap();
            assert!(!versions.is_empty(), "{runtime:?}");
            for version in versions {
                let number = version.split(' ').nth(1).unwrap();
                assert!(number.split('.').all(|part| part.parse::<u32>().is_ok()), "{version}");
            }
        }
    }
}
