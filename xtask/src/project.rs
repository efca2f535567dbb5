//! Where things are in this project.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// The cargo that runs us.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// What cargo knows of the workspace.
pub(crate) fn metadata() -> Result<Value> {
    let output = cargo()
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The workspace's root and its target directory.
pub(crate) fn folders() -> Result<(PathBuf, PathBuf)> {
    let metadata = metadata()?;
    let path = |key: &str| metadata[key].as_str().map(PathBuf::from).with_context(|| format!("no `{key}`"));
    Ok((path("workspace_root")?, path("target_directory")?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Who may know whom; what ARCHITECTURE.md draws.
    const ALLOWED: [(&str, &[&str]); 15] = [
        ("toolbridge-core", &[]),
        ("toolbridge-socket", &[]),
        ("toolbridge-ipc", &["toolbridge-core", "toolbridge-socket"]),
        ("toolbridge-mcp", &["toolbridge-core", "toolbridge-socket"]),
        ("toolbridge-claude", &["toolbridge-core", "toolbridge-ipc", "toolbridge-mcp"]),
        ("toolbridge-docs", &["toolbridge-core"]),
        ("toolbridge-macros", &[]),
        ("toolbridge-scripted", &[]),
        (
            "toolbridge",
            &[
                "toolbridge-claude",
                "toolbridge-core",
                "toolbridge-docs",
                "toolbridge-ipc",
                "toolbridge-macros",
                "toolbridge-mcp",
            ],
        ),
        ("toolbridge-bridge", &["toolbridge"]),
        ("toolbridge-cli", &["toolbridge"]),
        ("toolbridge-python", &["toolbridge"]),
        ("toolbridge-fuzz", &["toolbridge-core", "toolbridge-docs", "toolbridge-ipc", "toolbridge-mcp"]),
        ("xtask", &[]),
        ("bench-parent", &["toolbridge"]),
    ];

    fn dependencies(package: &Value) -> BTreeSet<&str> {
        let all = package["dependencies"].as_array().into_iter().flatten();
        all.filter(|dependency| dependency["kind"].is_null()).filter_map(|one| one["name"].as_str()).collect()
    }

    #[test]
    fn crates_know_only_whom_they_may() {
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

    #[test]
    fn only_one_crate_knows_rmcp() {
        let metadata = metadata().unwrap();
        let packages = metadata["packages"].as_array().unwrap().iter();
        let knowing: Vec<_> = packages
            .filter(|package| dependencies(package).contains("rmcp"))
            .filter_map(|package| package["name"].as_str())
            .collect();
        assert_eq!(knowing, ["toolbridge-mcp"]);
    }
}
