//! `cargo xtask package`: builds everything that is released, and prints the sizes.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use xtask::project::{DIST, Project, published, run as run_command, stdout_of};
use xtask::wheel;

/// The target with a statically linked C library, so that one file runs on any Linux.
const STATIC: &str = "x86_64-unknown-linux-musl";

/// Packages each crate, builds the wheel and the static executable, and prints their paths.
pub(crate) fn run(project: &Project, verify: bool) -> Result<()> {
    let target = &project.target;
    for krate in crates(project, verify)? {
        show(&krate)?;
    }
    show(&wheel::build(project, DIST, &target.join("wheels"))?)?;
    show(&project.built(DIST).join("toolbridge"))?;
    let installed = stdout_of(Command::new("rustup").args(["target", "list", "--installed"]));
    if installed.is_ok_and(|systems| systems.lines().any(|system| system == STATIC)) {
        let build = format!(
            "build --quiet --profile {DIST} --package toolbridge-cli --features nats --target {STATIC}"
        );
        run_command(&mut project.cargo(&build))?;
        show(&target.join(STATIC).join(DIST).join("toolbridge"))?;
    } else {
        eprintln!("note: no static executable was built; `rustup target add {STATIC}` makes that possible");
    }
    Ok(())
}

/// Packages the published crates; cargo's warnings are errors.
fn crates(project: &Project, verify: bool) -> Result<Vec<PathBuf>> {
    let mut cargo = project.cargo("package --locked --allow-dirty");
    cargo.args((!verify).then_some("--no-verify"));
    let mut files = Vec::new();
    for name in published()? {
        cargo.args(["--package", &name]);
        // All crates have the version of the workspace.
        files.push(project.target.join(format!("package/{name}-{}.crate", env!("CARGO_PKG_VERSION"))));
    }
    let output = cargo.output().context("cannot run cargo")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo package failed:\n{said}");
    ensure!(!said.contains("warning:"), "cargo package warns:\n{said}");
    Ok(files)
}

fn show(path: &Path) -> Result<()> {
    let size = std::fs::metadata(path).with_context(|| format!("`{}` is not there", path.display()))?.len();
    println!("{size:>10} bytes  {}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use xtask::project::metadata;

    use super::*;

    #[test]
    fn every_version_is_the_workspaces() {
        let root = Project::find().unwrap().root;
        let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        assert!(manifest.contains(&format!("[workspace.package]\nversion = \"{version}\"")));
        let metadata = metadata().unwrap();
        for package in metadata["packages"].as_array().unwrap() {
            let name = &package["name"];
            assert_eq!(package["version"], version, "{name}");
            // A published crate can depend on an unpublished one only in tests.
            let own =
                package["dependencies"].as_array().unwrap().iter().filter(|one| one["path"].is_string());
            for dependency in own.filter(|one| one["name"] != "toolbridge-scripted") {
                assert_eq!(dependency["req"], format!("^{version}"), "{name} needs {}", dependency["name"]);
            }
        }
        // The wheel's version comes from Cargo.
        let python = std::fs::read_to_string(root.join("crates/python/pyproject.toml")).unwrap();
        assert!(python.contains("dynamic = [\"version\"]"));
    }

    #[test]
    fn published_crates_have_complete_metadata() {
        let metadata = metadata().unwrap();
        let packages = metadata["packages"].as_array().unwrap();
        let published: Vec<_> = packages.iter().filter(|package| package["publish"].is_null()).collect();
        let names: Vec<_> = published.iter().filter_map(|package| package["name"].as_str()).collect();
        assert_eq!(names.len(), 9, "{names:?}");
        for package in published {
            let name = &package["name"];
            for key in ["description", "license", "documentation", "readme", "rust_version"] {
                assert!(package[key].as_str().is_some_and(|value| !value.is_empty()), "{name} has no {key}");
            }
            for key in ["keywords", "categories"] {
                assert!(package[key].as_array().is_some_and(|all| !all.is_empty()), "{name} has no {key}");
            }
            // The crates do not compile for other systems.
            let targets = package["metadata"]["docs"]["rs"]["targets"].as_array();
            let is_unix = |target: &Value| {
                target.as_str().is_some_and(|it| it.contains("linux") || it.contains("apple"))
            };
            assert!(
                targets.is_some_and(|all| all.iter().all(is_unix)),
                "{name} is documented for other systems"
            );
            let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
            for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
                assert!(folder.join(file).is_file(), "{name} has no {file}");
            }
        }
    }
}
