//! `cargo xtask release-check`: additional checks before a release. They need more tools, and more time.

use std::process::Command;

use anyhow::{Result, ensure};
use xtask::project::{DEV, Project, published, stdout_of};
use xtask::wheel;

use crate::test::part::{self, Kind, Part, Stage};
use crate::test::report::Output;
use crate::test::{Options, run_parts};
use crate::{old_cli, package};

const MACOS: &str = "aarch64-apple-darwin";

/// The crates whose tests need nothing that `cargo xtask test` installs.
const MACOS_TESTED: [&str; 2] = ["core --all-features", "docs"];

const PARTS: &[Part] = &[
    check("deny", "licences, sources, versions and advisories", deny),
    check("semver", "the public API, compared with the last tag", semver),
    check("msrv", "the oldest compiler that is supported", msrv),
    check("features", "without default features", features),
    check("macos", "macOS, without a warning", macos),
    check("rust", "tests in Rust, thoroughly", rust),
    check("old-cli", "tests of the model with old versions of the CLI", |stage, output| {
        old_cli::VERSIONS.iter().try_for_each(|version| part::old_cli(stage, output, version))
    }),
    check("python", "the wheel as it is published, with its thorough tests", python),
    check("bench", "the whole benchmark, shortly", |stage, output| {
        stage.project.build(DEV, &[])?;
        output.run(stage.bench().args(["--with", "python-mcp,python-bridge"]))
    }),
    check("package", "everything that is released, each crate built from its package", |stage, _| {
        package::run(stage.project, true)
    }),
];

const fn check(name: &'static str, what: &'static str, run: fn(&Stage<'_>, &Output) -> Result<()>) -> Part {
    Part { name, what, kind: Kind::Build, needs: &[], after: &[], run }
}

/// Runs the parts; returns whether all of them passed.
pub(crate) fn run(project: &Project, options: &Options) -> Result<bool> {
    run_parts(project, PARTS, options)
}

/// Fails with the command that installs a tool, if the tool does not run.
fn installed(tool: &mut Command, install: &str) -> Result<()> {
    let answers = tool.output().is_ok_and(|output| output.status.success());
    ensure!(answers, "a tool is missing; this installs it: {install}");
    Ok(())
}

fn deny(stage: &Stage<'_>, output: &Output) -> Result<()> {
    installed(&mut stage.cargo("deny --version"), "cargo install --locked cargo-deny")?;
    output.run(&mut stage.cargo("deny --all-features check"))
}

fn semver(stage: &Stage<'_>, output: &Output) -> Result<()> {
    installed(&mut stage.cargo("semver-checks --version"), "cargo install --locked cargo-semver-checks")?;
    let mut git = Command::new("git");
    let tags = stdout_of(
        git.args(["tag", "--merged", "--sort=-v:refname", "--list", "v*"]).current_dir(&stage.project.root),
    )?;
    let Some(tag) = tags.lines().next() else {
        eprintln!("note: there is no tag `v…` yet, so there is no API to compare with");
        return Ok(());
    };
    output.run(stage.cargo("semver-checks --workspace --baseline-rev").arg(tag))
}

fn msrv(stage: &Stage<'_>, output: &Output) -> Result<()> {
    let version = env!("CARGO_PKG_RUST_VERSION");
    let rustup = |arguments: &[&str]| {
        let mut command = Command::new("rustup");
        // Not with the compiler that runs us.
        command.args(["run", version]).args(arguments).env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN");
        command.current_dir(&stage.project.root);
        command
    };
    let install = format!("rustup toolchain install {version} --profile minimal");
    installed(&mut rustup(&["rustc", "--version"]), &install)?;
    // A separate folder: two compilers would invalidate each other's output.
    let target = stage.project.target.join("msrv");
    let check = ["cargo", "check", "--workspace", "--quiet", "--target-dir"];
    output.run(rustup(&check).arg(target))
}

fn features(stage: &Stage<'_>, output: &Output) -> Result<()> {
    // Always with the crate of the macros, so that both checks share their dependencies.
    let both = "check --package toolbridge --package toolbridge-macros --no-default-features --quiet";
    [both, &format!("{both} --features macros")]
        .iter()
        .try_for_each(|check| output.run(&mut stage.cargo(check)))
}

fn rust(stage: &Stage<'_>, output: &Output) -> Result<()> {
    output.run(part::rust(stage)?.env("TOOLBRIDGE_TEST_THOROUGH", "1"))
}

fn python(stage: &Stage<'_>, output: &Output) -> Result<()> {
    // Programs that the tests run beside the wheel.
    stage.project.build(DEV, &[])?;
    let python = stage.newest()?;
    let wheels = stage.project.target.join("wheels-release");
    wheel::install(stage.project, &python, &wheel::build(stage.project, "dist", &wheels)?)?;
    let mut tests = wheel::pytest(stage.project, &python, &wheel::bundled_cli(&stage.client()?)?);
    tests.arg("--thorough").env("PATH", stage.path()?);
    output.run(stage.skipped.tell_pytest(&stage.project.root, &mut tests))
}

fn macos(stage: &Stage<'_>, output: &Output) -> Result<()> {
    let targets = stdout_of(Command::new("rustup").args(["target", "list", "--installed"]))?;
    ensure!(
        targets.lines().any(|target| target == MACOS),
        "the compiler lacks a target; this installs it: rustup target add {MACOS}"
    );
    let check = |arguments: &str| {
        let mut check = stage.cargo(&format!("check --quiet --target {MACOS} {arguments}"));
        // Nothing is linked, so what a dependency has in C is not needed, nor a compiler for it.
        check.envs([("CC_aarch64_apple_darwin", "true"), ("AR_aarch64_apple_darwin", "true")]);
        check.env("RUSTFLAGS", "-D warnings");
        check
    };
    // The tests that the workflow runs there.
    let tested = MACOS_TESTED.map(|name| format!("--package toolbridge-{name}")).join(" ");
    output.run(&mut check(&format!("--tests {tested}")))?;
    let mut check = check("--features toolbridge-cli/nats,toolbridge-cli/otel");
    for name in published()? {
        check.args(["--package", &name]);
    }
    output.run(&mut check)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_for_macos_are_those_of_the_workflow() {
        let workflow = include_str!("../../.github/workflows/ci.yml");
        let run = workflow.lines().find(|line| line.contains("run: cargo test --package")).unwrap();
        let named: Vec<_> = run.split("--package toolbridge-").skip(1).map(str::trim).collect();
        assert_eq!(named, MACOS_TESTED);
    }
}
