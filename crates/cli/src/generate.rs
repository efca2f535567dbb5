//! `toolbridge generate`: the man page and completions, from the command line's own description.

use std::io;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::{Args, Generated};
use crate::output::print;

pub(crate) fn run(what: Generated) -> Result<ExitCode> {
    let mut command = Args::command();
    let mut text = Vec::new();
    let shell = match what {
        Generated::Man => return print(&man_page(command)?),
        Generated::Bash => Shell::Bash,
        Generated::Zsh => Shell::Zsh,
        Generated::Fish => Shell::Fish,
    };
    clap_complete::generate(shell, &mut command, "toolbridge", &mut text);
    print(&text)
}

/// One page for the whole program: an overview, then a section for each command.
fn man_page(mut command: Command) -> io::Result<Vec<u8>> {
    command.build();
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    for one in command.get_subcommands().filter(|one| !one.is_hide_set() && one.get_name() != "help") {
        let man = Man::new(one.clone());
        let mut section = Vec::new();
        man.render_synopsis_section(&mut section)?;
        man.render_description_section(&mut section)?;
        man.render_options_section(&mut section)?;
        let section = String::from_utf8_lossy(&section).replace("\n.SH ", "\n.SS ");
        let section = section.strip_prefix(".SH ").map_or(section.clone(), |rest| format!(".SS {rest}"));
        page.extend(format!(".SH \"{}\"\n{section}", one.get_name().to_uppercase()).into_bytes());
    }
    Ok(page)
}
