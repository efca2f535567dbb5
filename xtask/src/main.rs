//! Development tasks: `cargo xtask test`, `cargo xtask bench`, `cargo xtask fuzz`, `cargo xtask soak`,
//! `cargo xtask package`, `cargo xtask wheel`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command for people")]

#[cfg(test)]
mod architecture;
mod bench;
mod bridge;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod faults;
mod fuzz;
mod old_cli;
mod package;
mod project;
mod python;
mod soak;
mod strace;
mod test;
mod unchecked;
mod wheel;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Development tasks of toolbridge.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
enum Task {
    /// Runs everything that must hold before a change lands.
    Test,
    /// Compares with a relay that does nothing, and with others.
    #[command(disable_help_flag = true)]
    Bench {
        #[arg(allow_hyphen_values = true, hide = true)]
        args: Vec<String>,
    },
    /// Looks for inputs with which a fuzz target fails.
    Fuzz {
        /// How long each target runs.
        #[arg(long, value_name = "N", default_value_t = 60)]
        seconds: u64,
        /// All of them, unless some are named.
        targets: Vec<String>,
    },
    /// Lets calls, cancellations and kills meet at random, and checks every answer.
    Soak(soak::Options),
    /// Packages everything that is given away, and says how large it is.
    Package {
        /// Does not build each crate from its package.
        #[arg(long)]
        no_verify: bool,
    },
    /// Builds the Python package, with its executables in it.
    Wheel {
        /// A profile of cargo's.
        #[arg(long, default_value = "release")]
        profile: String,
        /// Where to put it, instead of `target/wheels`.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let done = match Task::parse() {
        Task::Test => test::run(),
        Task::Bench { args } => bench::run(&args),
        Task::Fuzz { seconds, targets } => fuzz::run(seconds, &targets),
        Task::Soak(options) => soak::run(&options),
        Task::Package { no_verify } => package::run(!no_verify),
        Task::Wheel { profile, out } => wheel::run(&profile, out),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
