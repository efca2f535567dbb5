//! `toolbridge generate`: the man page and completions, from the command line's own description.

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::{Args, Generated};
use crate::output::print;

pub(crate) fn run(what: Generated) -> Result<ExitCode> {
    let mut command = Args::command();
    let mut text = Vec::new();
    let shell = match what {
        Generated::Man => {
            clap_mangen::Man::new(command).render(&mut text)?;
            return print(&text);
        }
        Generated::Bash => Shell::Bash,
        Generated::Zsh => Shell::Zsh,
        Generated::Fish => Shell::Fish,
    };
    clap_complete::generate(shell, &mut command, "toolbridge", &mut text);
    print(&text)
}
