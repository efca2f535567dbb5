//! The project's paths, and how its commands are run.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// The profile of released and measured builds.
pub const DIST: &str = "dist";

/// The profile of tests. Everything is built with the same flags, so that nothing is compiled twice.
pub const DEV: &str = "dev";

/// The cargo arguments for everything that is built and checked for tests.
pub const ALL: &str = "--workspace --features toolbridge-cli/nats,toolbridge-cli/otel";

/// The workspace.
pub struct Project {
    /// Its root.
    pub root: PathBuf,
    /// Where cargo builds.
    pub target: PathBuf,
}

impl Project {
    /// The workspace that this program was built from.
    ///
    /// # Errors
    ///
    /// When cargo fails.
    pub fn find() -> Result<Self> {
        let metadata = metadata()?;
        let path =
            |key: &str| metadata[key].as_str().map(PathBuf::from).with_context(|| format!("no `{key}`"));
        Ok(Self { root: path("workspace_root")?, target: path("target_directory")? })
    }

    /// The directory of cargo's output for a profile.
    #[must_use]
    pub fn built(&self, profile: &str) -> PathBuf {
        self.target.join(if profile == DEV { "debug" } else { profile })
    }

    /// Builds these packages with a profile; for tests, together with everything else.
    ///
    /// # Errors
    ///
    /// When the build fails.
    pub fn build(&self, profile: &str, packages: &[&str]) -> Result<()> {
        if profile == DEV {
            return run(&mut self.tested(&format!("build {ALL} --all-targets --quiet")));
        }
        // Released executables have all features.
        let given = |name: &&str| match *name {
            "toolbridge-cli" => "--package toolbridge-cli --features toolbridge-cli/nats".into(),
            name => format!("--package {name}"),
        };
        let packages: Vec<String> = packages.iter().map(given).collect();
        run(&mut self.cargo(&format!("build --quiet --profile {profile} {}", packages.join(" "))))
    }

    /// The cargo that runs us, in the root, with arguments that contain no spaces.
    #[must_use]
    pub fn cargo(&self, arguments: &str) -> Command {
        let mut command = cargo();
        command.args(arguments.split(' ')).current_dir(&self.root);
        command
    }

    /// The same, for what is built for tests: clippy is the compiler of our crates, so that they are not compiled once
    /// more, with all that they depend on, to be checked.
    #[must_use]
    pub fn tested(&self, arguments: &str) -> Command {
        let mut command = self.cargo(arguments);
        with_clippy(&mut command);
        command
    }
}

pub(crate) fn with_clippy(command: &mut Command) {
    command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
}

fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build_alike(&mut command);
    command
}

/// Makes each cargo that we start compile the same. Removes the variables that cargo sets for a program that it runs:
/// some build scripts run again when these change. And compiles without files for the next compilation, which take
/// a quarter of the time that our crates take in a first build.
pub(crate) fn build_alike(command: &mut Command) {
    command.env("CARGO_INCREMENTAL", "0");
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
}

/// cargo's metadata of the workspace.
///
/// # Errors
///
/// When cargo fails.
pub fn metadata() -> Result<Value> {
    let mut command = cargo();
    command.args(["metadata", "--format-version", "1", "--no-deps"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    Ok(serde_json::from_str(&stdout_of(&mut command)?)?)
}

/// The names of the crates that are published.
///
/// # Errors
///
/// When cargo fails.
pub fn published() -> Result<Vec<String>> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let names =
        packages.filter(|package| package["publish"].is_null()).filter_map(|one| one["name"].as_str());
    Ok(names.map(str::to_owned).collect())
}

/// The exit code of a program; prints the error.
#[must_use]
pub fn end(done: Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// Runs a command that must succeed.
///
/// # Errors
///
/// When it cannot be run, or fails.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?} failed with {status}");
    Ok(())
}

/// The stdout of a command that must succeed, without the last newline.
///
/// # Errors
///
/// When it cannot be run, or fails.
pub fn stdout_of(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed with {}: {said}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The allowed dependencies between crates, as listed in ARCHITECTURE.md.
    const ALLOWED: [(&str, &[&str]); 16] = [
        ("toolbridge-core", &[]),
        ("toolbridge-claude", &["toolbridge-core"]),
        ("toolbridge-docs", &["toolbridge-core"]),
        ("toolbridge-macros", &[]),
        ("toolbridge-nats", &["toolbridge-core"]),
        ("toolbridge-testing", &["toolbridge-claude"]),
        ("toolbridge-scripted", &["toolbridge-testing"]),
        (
            "toolbridge",
            &[
                "toolbridge-claude",
                "toolbridge-core",
                "toolbridge-docs",
                "toolbridge-macros",
                "toolbridge-nats",
                "toolbridge-testing",
            ],
        ),
        ("toolbridge-bridge", &["toolbridge"]),
        ("toolbridge-cli", &["toolbridge"]),
        ("toolbridge-python", &["toolbridge"]),
        ("toolbridge-fuzz", &["toolbridge-core", "toolbridge-docs"]),
        ("xtask", &[]),
        ("toolbridge-bench", &["xtask"]),
        ("toolbridge-soak", &["xtask"]),
        ("bench-parent", &["toolbridge", "toolbridge-scripted"]),
    ];

    fn dependencies(package: &Value) -> BTreeSet<&str> {
        let all = package["dependencies"].as_array().into_iter().flatten();
        all.filter(|dependency| dependency["kind"].is_null()).filter_map(|one| one["name"].as_str()).collect()
    }

    #[test]
    fn crates_have_only_allowed_dependencies() {
        let metadata = metadata().unwrap();
        let packages = metadata["packages"].as_array().unwrap();
        let names: BTreeSet<_> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
        assert_eq!(names, ALLOWED.iter().map(|(name, _)| *name).collect());
        for package in packages {
            let name = package["name"].as_str().unwrap();
            let known: BTreeSet<_> = dependencies(package).intersection(&names).copied().collect();
            let allowed = ALLOWED.iter().find(|(allowed, _)| *allowed == name).unwrap().1;
            assert_eq!(known, allowed.iter().copied().collect(), "what {name} knows");
        }
    }

    /// Each package with its features, as cargo would compile it.
    fn compiled(arguments: &str) -> BTreeSet<String> {
        let arguments = format!("tree --format {{p}}_{{f}} --prefix none --no-dedupe {arguments}");
        let mut command = cargo();
        // In the root: without a package, the default members are meant.
        command.args(arguments.split(' ')).current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        stdout_of(&mut command).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_tests_compile_no_crate_of_this_program_again() {
        let ours = compiled("--edges normal,build --package xtask");
        let again: Vec<_> = ours.difference(&compiled(ALL)).cloned().collect();
        assert!(ours.len() > 10);
        assert_eq!(again, [""; 0], "add the missing features in xtask/Cargo.toml");
    }

    #[test]
    fn cargo_run_compiles_what_a_build_of_the_executable_compiles() {
        let alone = compiled("--edges no-dev --package toolbridge-cli");
        let again: Vec<_> = alone.difference(&compiled("--edges no-dev")).cloned().collect();
        assert!(alone.len() > 50);
        assert_eq!(again, [""; 0], "a default member enables features that the executable does not have");
    }

    #[test]
    fn only_one_crate_knows_rmcp() {
        let metadata = metadata().unwrap();
        let packages = metadata["packages"].as_array().unwrap().iter();
        let knowing: Vec<_> = packages
            .filter(|package| dependencies(package).contains("rmcp"))
            .filter_map(|package| package["name"].as_str())
            .collect();
        assert_eq!(knowing, ["toolbridge-core"]);
    }
}
