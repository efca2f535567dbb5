//! `cargo xtask test`: everything that must hold before a change lands.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::unchecked::Unchecked;
use crate::{old_cli, project, python, strace, wheel};

/// Runs every check, in the order of their cost. Each says how long it took.
pub(crate) fn run() -> Result<()> {
    let (root, target) = project::folders()?;
    let unchecked = Unchecked::begin(&target)?;
    let cargo = |args: &str| {
        let mut command = project::cargo();
        command.args(args.split(' ')).current_dir(&root);
        command
    };
    step("formatting", &mut cargo("fmt --all --check"))?;
    step("lints", &mut cargo("clippy --workspace --all-targets --quiet -- -D warnings"))?;
    step(
        "lints of the export to OpenTelemetry",
        &mut cargo("clippy --package toolbridge-cli --features otel --all-targets --quiet -- -D warnings"),
    )?;
    // The tests of the model need the real CLI, which comes with this.
    let python = timed("Python packages and the Claude Code CLI", || python::CLIENT.install(&root, &target))?;
    let path = timed("strace", || strace::path(&target))?;
    step("tests and doctests", unchecked.tell(cargo("test --workspace --quiet").env("PATH", &path)))?;
    for version in old_cli::VERSIONS {
        let cli = timed("an old Claude Code CLI", || old_cli::install(&target, &python, version))?;
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
    step("tests of other languages", unchecked.tell_pytest(&root, &mut pytest(&root, &python, &executable)))?;
    python_package(&root, &target, &python, &unchecked, &path)?;
    // With two of the peers, so that what compares with them does not rot; and without the optimisation that takes
    // minutes, because nobody looks at these figures. It fails when a promise is missed, though.
    let mut bench = cargo("xtask bench --quick --with python-mcp,python-bridge");
    bench.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    step("benchmark, shortly", &mut bench)?;
    if project::cargo().args(["deny", "--version"]).output().is_ok_and(|output| output.status.success()) {
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
    eprintln!("── {name}");
    let started = Instant::now();
    let status = command.status().with_context(|| format!("{name}: cannot run {command:?}"))?;
    ensure!(status.success(), "{name}: {command:?} failed with {status}");
    eprintln!("── {name}: ok, {:.0} s\n", started.elapsed().as_secs_f64());
    Ok(())
}

fn timed<T>(name: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    eprintln!("── {name}");
    let started = Instant::now();
    let done = work().context(name)?;
    eprintln!("── {name}: ok, {:.0} s\n", started.elapsed().as_secs_f64());
    Ok(done)
}

/// Builds the wheel, and tests it in clean environments, with the newest and the oldest pydantic-ai.
fn python_package(
    root: &Path,
    target: &Path,
    client: &Path,
    unchecked: &Unchecked,
    path: &OsStr,
) -> Result<()> {
    let newest = timed("Python packages for the wheel", || python::NEWEST.install(root, target))?;
    let wheel = timed("wheel", || wheel::build(root, target, "dev", &target.join("wheels-dev")))?;
    timed("wheel, installed", || wheel::install(&newest, &wheel))?;
    for mut check in wheel::checks(root, &newest) {
        step("style and types of the Python package", &mut check)?;
    }
    let mut scripted = project::cargo();
    scripted.args(["build", "--quiet", "--package", "toolbridge-scripted", "--bins"]).current_dir(root);
    step("scripted model", &mut scripted)?;
    let cli = wheel::bundled_cli(client)?;
    let mut tests = wheel::pytest(root, target, &newest, &cli);
    step("tests of the Python package", unchecked.tell_pytest(root, tests.env("PATH", path)))?;

    let oldest = timed("the oldest pydantic-ai", || python::OLDEST.install(root, target))?;
    timed("wheel, installed there", || wheel::install(&oldest, &wheel))?;
    step(
        "tests of the Python package with the oldest pydantic-ai",
        wheel::pytest(root, target, &oldest, &cli)
            .args(["-k", "agent or errors or tools or direct or session"]),
    )
}

fn pytest(root: &Path, python: &Path, executable: &Path) -> Command {
    let mut command = Command::new(python);
    command.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(root.join("tests/python"));
    command.env("TOOLBRIDGE_EXE", executable).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}
