//! Development tasks: `cargo xtask test`, `cargo xtask bench`, `cargo xtask fuzz`, `cargo xtask soak`,
//! `cargo xtask package`, `cargo xtask release-check`, `cargo xtask wheel`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command for people")]

mod conformance;
mod debian;
mod fuzz;
mod node;
mod old_cli;
mod package;
mod release_check;
mod rustdoc;
mod servers;
mod skipped;
mod test;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use xtask::project::{Project, end};
use xtask::wheel;

/// Development tasks of toolbridge.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
enum Task {
    /// Runs everything that must hold before a change lands.
    Test(test::Options),
    /// Compares with a relay that does nothing, and with others.
    #[command(disable_help_flag = true)]
    Bench(Arguments),
    /// Searches for inputs that make a fuzz target fail.
    Fuzz {
        /// Seconds for each target.
        #[arg(long, value_name = "N", default_value_t = 60)]
        seconds: u64,
        /// The targets; all by default.
        targets: Vec<String>,
    },
    /// Runs calls, cancellations and kills at random, and checks every answer.
    #[command(disable_help_flag = true)]
    Soak(Arguments),
    /// Packages everything that is released, and prints the sizes.
    Package {
        /// Skips the build of each crate from its package.
        #[arg(long)]
        no_verify: bool,
    },
    /// Runs the additional checks for a release.
    ReleaseCheck(test::Options),
    /// Builds the Python package, with its executables.
    Wheel {
        /// A cargo profile: `dist` for a release, which takes twice as long.
        #[arg(long, default_value = "release")]
        profile: String,
        /// The output directory, instead of `target/wheels`.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

/// The arguments of a separate program, which the other tasks need not build.
#[derive(clap::Args)]
struct Arguments {
    #[arg(allow_hyphen_values = true, hide = true)]
    arguments: Vec<String>,
}

fn main() -> ExitCode {
    end(rustdoc::run_if_asked().unwrap_or_else(|| start(Task::parse())))
}

fn start(task: Task) -> Result<ExitCode> {
    let project = Project::find()?;
    match task {
        Task::Test(options) => return Ok(exit_code(test::run(&project, &options)?)),
        Task::ReleaseCheck(options) => return Ok(exit_code(release_check::run(&project, &options)?)),
        // Its client is in every figure.
        Task::Bench(arguments) => return program(&project, "toolbridge-bench --release", &arguments),
        Task::Fuzz { seconds, targets } => fuzz::run(&project, seconds, targets)?,
        Task::Soak(arguments) => return program(&project, "toolbridge-soak", &arguments),
        Task::Package { no_verify } => package::run(&project, !no_verify)?,
        Task::Wheel { profile, out } => {
            let out = out.map_or_else(|| Ok(project.target.join("wheels")), std::path::absolute)?;
            println!("{}", wheel::build(&project, &profile, &out)?.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a program of the workspace, a package and options for cargo, in the current directory; it reports its errors itself.
fn program(project: &Project, package: &str, Arguments { arguments }: &Arguments) -> Result<ExitCode> {
    let mut command = project.cargo(&format!("run --quiet --package {package} --"));
    let status = command.args(arguments).current_dir(std::env::current_dir()?).status()?;
    Ok(exit_code(status.success()))
}

fn exit_code(is_good: bool) -> ExitCode {
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
