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

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.first().map(String::as_str) {
        Some("test") => test::run(),
        Some("bench") => bench::run(&args[1..]),
        Some("fuzz") => fuzz::run(&args[1..]),
        Some("soak") => soak::run(&args[1..]),
        Some("package") => package::run(&args[1..]),
        Some("wheel") => wheel::run(&args[1..]),
        _ => {
            eprintln!(
                "usage: cargo xtask test | cargo xtask bench [--help] | cargo xtask fuzz [--seconds N] [TARGET…] | \
                 cargo xtask soak [--help] | cargo xtask package [--no-verify] | cargo xtask wheel [--profile PROFILE] [--out DIR]"
            );
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
