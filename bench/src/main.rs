//! `cargo xtask bench`: compares toolbridge with a relay that does nothing, and with other projects.
//!
//! All contenders carry the same bytes between the same client and a tool, and take turns in small batches,
//! so that other load on the machine affects all of them alike.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command for people")]

mod axis;
mod call;
mod chart;
mod client;
mod contender;
mod corpus;
mod documents;
mod earlier;
mod effort;
mod environment;
mod first_call;
mod goal;
mod growth;
mod http;
mod http_connection;
mod machine;
mod memory;
mod nats;
mod options;
mod parent;
mod process;
mod program;
mod proxy;
mod python_cost;
mod quality;
mod report;
mod round_trip;
mod row;
mod sample;
mod search;
mod section;
mod stage;
mod start;
mod svg;
mod table;
mod talk;
mod template;
mod wire;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::Parser as _;
use xtask::project::end;

use crate::contender::Contender;
use crate::earlier::Earlier;
use crate::effort::Effort;
use crate::machine::Machine;
use crate::options::{Options, Part};
use crate::program::Programs;
use crate::report::Report;
use crate::stage::Stage;

fn main() -> ExitCode {
    end(run(&Options::parse()).map(|()| ExitCode::SUCCESS))
}

/// Builds the contenders, compares them, and prints the figures. It is an error if a limit of the
/// specification is exceeded, but not if another goal is missed.
fn run(options: &Options) -> Result<()> {
    ensure!(cfg!(target_os = "linux"), "the benchmark reads /proc and uses epoll, so it needs Linux");
    // Fail now, and not after minutes, if a file cannot be read.
    let document = options.write.as_deref().map(read).transpose()?;
    let earlier = options.beside.iter().map(|path| Earlier::read(path)).collect::<Result<_>>()?;
    // Before the benchmark itself loads the machine.
    let machine = Machine::read()?;
    let contenders = options.contenders();
    let programs = Programs::build(&contenders, &options.profile, options.before.as_deref())?;
    let report = measure(machine, &programs, contenders, options, earlier)?;
    if let Some(folder) = &options.svg {
        chart::draw(&report, folder)?;
    }
    if let (Some(path), Some(document)) = (&options.write, document) {
        std::fs::write(path, section::replaced(&document, &report.to_markdown())?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if options.json {
        println!("{}", report.to_json());
    } else {
        print!("{}", report.to_text());
    }
    // At the end, so that all figures are shown even if a goal is missed.
    goal::check_measured(&report.rows, |part| options.wants(part), &report.contenders)?;
    goal::check_promises(&report.goals())
}

/// Reads a document with markers for the figures.
fn read(path: &Path) -> Result<String> {
    let document =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    section::replaced(&document, "").with_context(|| path.display().to_string())?;
    Ok(document)
}

/// Measures all selected parts.
fn measure(
    machine: Machine,
    programs: &Programs,
    contenders: Vec<Contender>,
    options: &Options,
    earlier: Vec<Earlier>,
) -> Result<Report> {
    let effort = Effort::new(options.quick);
    let wants = |part| options.wants(part);
    let mut report = Report {
        machine,
        versions: programs.versions()?,
        notes: options.notes(),
        earlier,
        ..Report::default()
    };
    // Only in the HTTP and proxy parts: elsewhere it would repeat ours, and a quick run has no time for it.
    let others: Vec<_> = contenders.iter().copied().filter(|one| *one != Contender::Server).collect();
    if wants(Part::Calls) {
        report.rows.extend(round_trip::measure(programs, &others, &effort)?);
    }
    let mut stage = Stage::set(programs, &others)?;
    if wants(Part::Start) {
        report.rows.extend(start::measure(&stage, &effort)?);
    }
    if wants(Part::Memory) {
        report.rows.extend(memory::measure(&mut stage, effort.memory)?);
    }
    if wants(Part::First) {
        report.first_call = first_call::measure(&mut stage, effort.first_calls)?;
    }
    drop(stage);
    if wants(Part::Python) && contenders.contains(&Contender::BridgeAndPython) {
        report.python = python_cost::measure(programs, &others, &effort)?;
    }
    if wants(Part::Growth) {
        report.growth = growth::measure(programs, &effort)?;
    }
    if wants(Part::Documents) {
        report.documents = documents::measure(&programs.toolbridge, effort.documents)?;
    }
    if wants(Part::Search) && contenders.iter().any(|one| one.runtime.is_some()) {
        let files = options.search_files.unwrap_or(effort.search_files);
        report.search = search::measure(&programs.toolbridge, files, effort.has_manuals, &options.profile)?;
    }
    if wants(Part::Http) {
        report.http = http::measure(programs, &contenders, &effort)?;
    }
    if wants(Part::Proxy) {
        report.proxy = proxy::measure(programs, &contenders, &effort)?;
    }
    if wants(Part::Nats) {
        report.nats = nats::measure(programs, &effort)?;
    }
    if wants(Part::Talk) && effort.talks > 0 {
        report.talk = talk::measure(programs, effort.talks, &options.profile)?;
    }
    report.contenders = contenders;
    Ok(report)
}
