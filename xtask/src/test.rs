//! `cargo xtask test`: everything that must hold before a change lands.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};
use xtask::project::{Project, run as run_command};
use xtask::{python, wheel};

use crate::unchecked::Unchecked;
use crate::{old_cli, strace};

/// Runs every check, in the order of their cost. Each says how long it took.
pub(crate) fn run(project: &Project) -> Result<()> {
    let Project { root, target } = project;
    let unchecked = Unchecked::begin(target)?;
    let cargo = |args: &str| project.cargo(args);
    step("formatting", &mut cargo("fmt --all --check"))?;
    step("lints", &mut cargo("clippy --workspace --all-targets --quiet -- -D warnings"))?;
    step(
        "lints of the export to OpenTelemetry",
        &mut cargo("clippy --package toolbridge-cli --features otel --all-targets --quiet -- -D warnings"),
    )?;
    // The tests of the model need the real CLI, which comes with this.
    let python = timed("Python packages and the Claude Code CLI", || python::CLIENT.install(project))?;
    let path = timed("strace", || strace::path(target))?;
    step("tests and doctests", unchecked.tell(cargo("test --workspace --quiet").env("PATH", &path)))?;
    for version in old_cli::VERSIONS {
        let cli = timed("an old Claude Code CLI", || old_cli::install(project, &python, version))?;
        let mut tests = cargo("test --workspace --test it --quiet -- model::versions");
        unchecked.tell(tests.env(old_cli::VARIABLE, cli));
        step(&format!("tests of the model with Claude Code {version}"), &mut tests)?;
    }
    step(
        "export to OpenTelemetry",
        &mut cargo("test --package toolbridge-cli --features otel --bins --test otel --quiet"),
    )?;
    step("documentation", cargo("doc --workspace --no-deps --quiet").env("RUSTDOCFLAGS", "-D warnings"))?;
    step(
        "build without default features",
        &mut cargo("check --package toolbridge --no-default-features --quiet"),
    )?;
    step("executable", &mut cargo("build --package toolbridge-cli --quiet"))?;
    let executable = target.join("debug/toolbridge");
    step("demo", Command::new(&executable).arg("demo"))?;
    // Long enough to meet most of what it does; `cargo xtask soak` takes its time.
    step("soak, shortly", &mut cargo("xtask soak --minutes 0.2"))?;
    step("tests of other languages", unchecked.tell_pytest(root, &mut pytest(root, &python, &executable)))?;
    python_package(project, &python, &unchecked, &path)?;
    // With two of the peers, so that what compares with them does not rot; and without the optimisation that takes
    // minutes, because nobody looks at these figures. It fails when a promise is missed, though.
    let mut bench = cargo("xtask bench --quick --with python-mcp,python-bridge");
    bench.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    step("benchmark, shortly", &mut bench)?;
    if cargo("deny --version").output().is_ok_and(|output| output.status.success()) {
        step("licences and sources", &mut cargo("deny check licenses bans sources"))?;
    } else {
        eprintln!(
            "note: cargo-deny is not installed, licences were not checked (`cargo install cargo-deny`)"
        );
    }
    eprintln!("{}", unchecked.verdict()?);
    Ok(())
}

fn step(name: &str, command: &mut Command) -> Result<()> {
    timed(name, || run_command(command))
}

fn timed<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    eprintln!("── {name}");
    let started = Instant::now();
    let done = work().with_context(|| name.to_owned())?;
    eprintln!("── {name}: ok, {:.0} s\n", started.elapsed().as_secs_f64());
    Ok(done)
}

/// Builds the wheel, and tests it in clean environments, with the newest and the oldest pydantic-ai.
fn python_package(project: &Project, client: &Path, unchecked: &Unchecked, path: &OsStr) -> Result<()> {
    let newest = timed("Python packages for the wheel", || python::NEWEST.install(project))?;
    let wheel = timed("wheel", || wheel::build(project, "dev", &project.target.join("wheels-dev")))?;
    timed("wheel, installed", || wheel::install(&newest, &wheel))?;
    for mut check in wheel::checks(&project.root, &newest) {
        step("style and types of the Python package", &mut check)?;
    }
    step("scripted model", &mut project.cargo("build --quiet --package toolbridge-scripted --bins"))?;
    let cli = wheel::bundled_cli(client)?;
    let mut tests = wheel::pytest(project, &newest, &cli);
    step("tests of the Python package", unchecked.tell_pytest(&project.root, tests.env("PATH", path)))?;

    let oldest = timed("the oldest pydantic-ai", || python::OLDEST.install(project))?;
    timed("wheel, installed there", || wheel::install(&oldest, &wheel))?;
    let some = ["-k", "agent or errors or tools or direct or session"];
    step(
        "tests of the Python package with the oldest pydantic-ai",
        wheel::pytest(project, &oldest, &cli).args(some),
    )
}

fn pytest(root: &Path, python: &Path, executable: &Path) -> Command {
    let mut command = Command::new(python);
    command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(root.join("tests/python"));
    command.env("TOOLBRIDGE_EXE", executable).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}
