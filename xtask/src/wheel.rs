//! `cargo xtask wheel`: builds the Python package, with its executables.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::project::{DEV, DIST, Project, build_alike, run, stdout_of, with_clippy};
use crate::{bridge, python};

const PACKAGE: &str = "crates/python";

/// Where the package has the executable `toolbridge`, which is installed as a command, and the bridge, which the package
/// starts itself; not under version control.
const COMMANDS: &str = "crates/python/data/scripts";
const EXECUTABLES: &str = "crates/python/python/toolbridge/_bin";

/// Builds the wheel with a cargo profile; returns its path.
///
/// # Errors
///
/// When the build fails, or maturin cannot be installed.
pub fn build(project: &Project, profile: &str, out: &Path) -> Result<PathBuf> {
    let Project { root, target } = project;
    // Together, so that their crates are compiled once; a static bridge is built by itself.
    let executables = ["toolbridge-cli", bridge::NAME];
    let executables = if profile == DIST { &executables[..1] } else { &executables[..] };
    // maturin comes with this environment.
    let python = std::thread::scope(|scope| {
        let installing = scope.spawn(|| python::NEWEST.install(project));
        project.build(profile, executables)?;
        installing.join().expect("it does not panic")
    })?;
    put(&project.built(profile).join("toolbridge"), &root.join(COMMANDS))?;
    put(&bridge::build(project, profile)?, &root.join(EXECUTABLES))?;
    _ = std::fs::remove_dir_all(out);
    let mut maturin = Command::new(&python);
    maturin.args(["-m", "maturin", "build", "--quiet", "--locked", "--profile", profile, "--out"]).arg(out);
    if profile == DEV {
        // It is installed once, on this machine: compressing its executables takes longer than anything else.
        maturin.args(["--compression-method", "stored"]);
        with_clippy(&mut maturin);
    }
    build_alike(&mut maturin);
    run(maturin.current_dir(root.join(PACKAGE)).env("CARGO_TARGET_DIR", target))?;
    find(out)
}

/// The wheel in a folder.
///
/// # Errors
///
/// When there is none.
pub fn find(folder: &Path) -> Result<PathBuf> {
    let mut files = std::fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "whl");
    files.find(is_wheel).with_context(|| format!("there is no wheel in `{}`", folder.display()))
}

/// Copies an executable into the package.
fn put(executable: &Path, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let place = folder.join(executable.file_name().context("no name")?);
    // The old file may be running, so it cannot be overwritten.
    _ = std::fs::remove_file(&place);
    let failed = || format!("cannot put `{}` into the package", executable.display());
    std::fs::copy(executable, &place).with_context(failed)?;
    Ok(())
}

/// Installs the wheel into an environment, replacing any version of it.
///
/// # Errors
///
/// When uv fails.
pub fn install(project: &Project, python: &Path, wheel: &Path) -> Result<()> {
    run(python::install(project, python)?.args(["--reinstall", "--no-deps"]).arg(wheel))
}

/// The real CLI, from a package in that environment.
///
/// # Errors
///
/// When it is not there.
pub fn bundled_cli(python: &Path) -> Result<PathBuf> {
    let find = "import claude_agent_sdk, os; print(os.path.dirname(claude_agent_sdk.__file__))";
    let cli = Path::new(&stdout_of(Command::new(python).args(["-c", find]))?).join("_bundled/claude");
    ensure!(cli.is_file(), "there is no CLI at `{}`", cli.display());
    Ok(cli)
}

/// Type and style checks of the package and its tests.
#[must_use]
pub fn checks(project: &Project, python: &Path) -> [Command; 4] {
    let tool = |args: &str| {
        let mut command = Command::new(python);
        command.arg("-m").args(args.split(' ')).current_dir(project.root.join(PACKAGE));
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("MYPY_CACHE_DIR", project.target.join("mypy"));
        command
    };
    [
        tool("ruff check --no-cache --quiet ."),
        tool("ruff format --no-cache --check --quiet ."),
        tool("mypy --no-error-summary python/toolbridge tests examples"),
        // The stub file of the native module, compared with the installed module.
        tool("mypy.stubtest --concise --mypy-config-file tests/stubtest.ini toolbridge._native"),
    ]
}

/// The package's tests, with the wheel that is installed there.
#[must_use]
pub fn pytest(project: &Project, python: &Path, cli: &Path) -> Command {
    let Project { root, target } = project;
    let tests = root.join(PACKAGE).join("tests");
    let mut command = Command::new(python);
    // Not from the source folder: the installed wheel is tested. Two at a time, because others run beside them.
    command.args(["-W", "error", "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", "-c"]);
    command.arg(root.join(PACKAGE).join("pyproject.toml")).arg(&tests).current_dir(&tests);
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("TOOLBRIDGE_TEST_CLAUDE", cli);
    command.env("TOOLBRIDGE_SCRIPTED_MODEL", target.join("debug/scripted-model"));
    command
}
