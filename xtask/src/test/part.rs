//! The parts of `cargo xtask test`.

use std::process::Command;

use anyhow::{Result, ensure};
use xtask::project::{ALL, DEV, Project};
use xtask::wheel;

use super::report::Output;
use super::setup::{Need, Setup};
use crate::conformance::Server;
use crate::skipped::Skipped;
use crate::{old_cli, rustdoc};

/// A part, named on the command line.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) kind: Kind,
    /// Its downloads.
    pub(crate) needs: &'static [Need],
    /// Its prerequisites; they come before it in the list.
    pub(crate) after: &'static [&'static str],
    pub(crate) run: fn(&Stage<'_>, &Output) -> Result<()>,
}

/// What may run beside a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It compiles: one at a time.
    Build,
    /// It runs built programs.
    Run,
}

/// State shared by all parts.
pub(crate) struct Stage<'a> {
    pub(crate) project: &'a Project,
    pub(crate) setup: Setup,
    pub(crate) skipped: Skipped,
}

/// All parts, in the order in which they start if they can.
pub(crate) const PARTS: &[Part] = &[
    Part {
        name: "format",
        what: "formatting",
        kind: Kind::Run,
        needs: &[],
        after: &[],
        run: |stage, output| output.run(&mut stage.cargo("fmt --all --check")),
    },
    Part {
        name: "build",
        what: "executables, tests and examples",
        kind: Kind::Build,
        needs: &[],
        after: &[],
        run: |stage, output| {
            let has_clippy = stage.cargo("clippy --version").output().is_ok_and(|said| said.status.success());
            ensure!(has_clippy, "clippy compiles the tests: `rustup component add clippy`");
            output.run(&mut stage.build())
        },
    },
    Part {
        name: "rust",
        what: "tests in Rust, with the real Claude Code CLI",
        kind: Kind::Run,
        needs: &[Need::Client, Need::Servers, Need::Strace],
        after: &["build"],
        run: |stage, output| output.run(&mut rust(stage)?),
    },
    Part {
        name: "wheel",
        what: "the Python package",
        kind: Kind::Build,
        needs: &[Need::Newest],
        after: &["build"],
        run: |stage, _| {
            wheel::install(
                stage.project,
                &stage.newest()?,
                &wheel::build(stage.project, DEV, &stage.wheels())?,
            )
        },
    },
    Part {
        name: "python",
        what: "tests of the Python package with the newest pydantic-ai",
        kind: Kind::Run,
        needs: &[Need::Newest, Need::Client, Need::Servers, Need::Strace],
        after: &["build", "wheel"],
        run: python,
    },
    Part {
        name: "docs",
        what: "documentation, and its examples",
        kind: Kind::Build,
        needs: &[],
        after: &["build"],
        run: |stage, output| {
            let mut tests = stage.project.tested(&format!("test {ALL} --doc --quiet"));
            output.run(rustdoc::instead(&mut tests, stage.project))
        },
    },
    // Early, because its first run checks the types of all that it imports, on one processor.
    Part {
        name: "python-style",
        what: "style and types of the Python package",
        kind: Kind::Run,
        needs: &[Need::Newest],
        after: &["wheel"],
        run: |stage, output| {
            let python = stage.newest()?;
            wheel::checks(stage.project, &python).iter_mut().try_for_each(|check| output.run(check))
        },
    },
    // `release-check` runs all of it, with peers. The figures are not used, but it fails when a limit is exceeded; other
    // parts beside it do not matter, because the limits are far.
    Part {
        name: "bench",
        what: "the benchmark of calls, shortly",
        kind: Kind::Build,
        needs: &[],
        after: &["build"],
        run: |stage, output| {
            output.run(stage.bench().args(["--floor-only", "--only", "calls,start,first,http,proxy,nats"]))
        },
    },
    Part {
        name: "lints",
        what: "no warning of the compiler and of clippy",
        kind: Kind::Build,
        needs: &[],
        after: &["build"],
        // Everything is compiled; cargo repeats the warnings.
        run: |stage, output| output.run_without_warning(&mut stage.build()),
    },
    Part {
        name: "python-oldest",
        what: "tests of the Python package with the oldest pydantic-ai",
        kind: Kind::Run,
        needs: &[Need::Oldest, Need::Client],
        after: &["build", "wheel"],
        run: python_oldest,
    },
    Part {
        name: "python-client",
        what: "the official Python client",
        kind: Kind::Run,
        needs: &[Need::Client],
        after: &["build"],
        run: python_client,
    },
    Part {
        name: "conformance",
        what: "MCP's conformance suite and a client in TypeScript, over HTTP",
        kind: Kind::Run,
        needs: &[Need::Client, Need::Conformance],
        after: &["build"],
        run: |stage, output| {
            let server = Server::start(&stage.built("examples/conformance"))?;
            let mut commands = stage.conformance()?.commands(&stage.project.root, &server.url);
            commands.iter_mut().try_for_each(|command| output.run(command))
        },
    },
    Part {
        name: "old-cli",
        what: "tests of the model with the oldest CLI",
        kind: Kind::Run,
        needs: &[Need::Client, Need::OldCli],
        after: &["build"],
        run: |stage, output| old_cli(stage, output, old_cli::OLDEST),
    },
    Part {
        name: "demo",
        what: "the demo",
        kind: Kind::Run,
        needs: &[],
        after: &["build"],
        run: |stage, output| output.run(Command::new(stage.built("toolbridge")).arg("demo")),
    },
    // Long enough to cover most cases; `cargo xtask soak` runs longer.
    Part {
        name: "soak",
        what: "calls, cancellations and kills at random, shortly",
        kind: Kind::Run,
        needs: &[],
        after: &["build"],
        run: |stage, output| {
            let mut soak = Command::new(stage.built("toolbridge-soak"));
            output.run(soak.args(["--minutes", "0.1", "--built"]).arg(stage.project.built(DEV)))
        },
    },
];

impl Stage<'_> {
    pub(crate) fn cargo(&self, arguments: &str) -> Command {
        self.project.cargo(arguments)
    }

    /// Builds everything that is tested.
    fn build(&self) -> Command {
        self.project.tested(&format!("build {ALL} --all-targets --quiet"))
    }

    /// Runs tests with nextest if it is installed, each in a separate process.
    fn tests(&self, arguments: &str) -> Command {
        let has_nextest =
            self.cargo("nextest --version").output().is_ok_and(|output| output.status.success());
        let mut command = if has_nextest {
            self.project.tested(&format!("nextest run --no-fail-fast --cargo-quiet {arguments}"))
        } else {
            self.project.tested(&format!("test --no-fail-fast --quiet {arguments}"))
        };
        self.skipped.tell(&mut command);
        command
    }

    /// A short benchmark of what the part `build` has built.
    pub(crate) fn bench(&self) -> Command {
        let mut bench = Command::new(self.built("toolbridge-bench"));
        bench.args(["--quick", "--profile", DEV]).current_dir(&self.project.root);
        bench
    }

    /// An executable built by the part `build`.
    fn built(&self, name: &str) -> std::path::PathBuf {
        self.project.built(DEV).join(name)
    }

    /// The wheel built by the part `wheel`.
    fn wheels(&self) -> std::path::PathBuf {
        self.project.target.join("wheels-test")
    }
}

/// All tests in Rust.
pub(crate) fn rust(stage: &Stage<'_>) -> Result<Command> {
    // The tests of the model need the real CLI, which comes with this environment.
    stage.client()?;
    stage.servers()?;
    let mut tests = stage.tests(&format!("{ALL} --all-targets"));
    tests.env("PATH", stage.path()?);
    Ok(tests)
}

/// The tests of the model that run with every version of the CLI.
pub(crate) fn old_cli(stage: &Stage<'_>, output: &Output, version: &str) -> Result<()> {
    let mut tests = stage.tests(&format!("{ALL} --all-targets model::versions"));
    output.run(tests.env(old_cli::VARIABLE, stage.old_cli(version)?))
}

/// The tests of one crate, and the examples in its documentation.
pub(crate) fn tests_of(stage: &Stage<'_>, output: &Output, package: &str) -> Result<()> {
    stage.client()?;
    stage.servers()?;
    output.run(stage.tests(&format!("--package {package}")).env("PATH", stage.path()?))?;
    // A crate without a library has no doctests.
    let source = |package: &str| stage.project.root.join(package).join("src/lib.rs");
    let folder = format!("crates/{}", package.strip_prefix("toolbridge-").unwrap_or(package));
    if package != "toolbridge-python" && source(&folder).is_file() {
        output.run(&mut stage.project.tested(&format!("test --package {package} --doc --quiet")))?;
    }
    Ok(())
}

fn python(stage: &Stage<'_>, output: &Output) -> Result<()> {
    stage.servers()?;
    let mut tests = wheel::pytest(stage.project, &stage.newest()?, &wheel::bundled_cli(&stage.client()?)?);
    tests.env("PATH", stage.path()?).arg("--durations=10");
    output.run(stage.skipped.tell_pytest(&stage.project.root, &mut tests))
}

fn python_oldest(stage: &Stage<'_>, output: &Output) -> Result<()> {
    let python = stage.oldest()?;
    wheel::install(stage.project, &python, &wheel::find(&stage.wheels())?)?;
    let mut tests = wheel::pytest(stage.project, &python, &wheel::bundled_cli(&stage.client()?)?);
    // The tests that show that the package works with what it imports from there.
    output.run(stage.skipped.tell_pytest(&stage.project.root, tests.args(["-m", "oldest"])))
}

fn python_client(stage: &Stage<'_>, output: &Output) -> Result<()> {
    let root = &stage.project.root;
    let mut tests = Command::new(stage.client()?);
    tests.args(["-m", "pytest", "-q", "-p", "no:cacheprovider"]).arg(root.join("tests/python"));
    tests.env("TOOLBRIDGE_EXE", stage.built("toolbridge")).env("PYTHONDONTWRITEBYTECODE", "1");
    tests.env("TOOLBRIDGE_HTTP_SERVER", stage.built("examples/conformance"));
    output.run(stage.skipped.tell_pytest(root, &mut tests))
}
