//! `cargo xtask bench`: how far we are from a relay that does nothing, and how far others are.
//!
//! All contenders carry the same bytes between the same client and a tool, and take turns in small batches,
//! so that whatever else the machine does hits all of them alike.

mod call;
mod chart;
mod charts;
mod client;
mod connection;
mod contender;
mod documents;
mod earlier;
mod effort;
mod environment;
mod first_call;
mod goal;
mod growth;
mod machine;
mod markdown;
mod memory;
mod options;
mod parent;
mod process;
mod program;
mod python_cost;
mod report;
mod round_trip;
mod row;
mod sample;
mod scale;
mod section;
mod stage;
mod start;
mod svg;
mod table;
mod tables;
mod template;

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use self::contender::Contender;
use self::earlier::Earlier;
use self::effort::Effort;
use self::machine::Machine;
use self::options::{Options, USAGE};
use self::program::Programs;
use self::report::Report;
use self::stage::Stage;

/// Builds what is compared, compares it, and prints the figures.
///
/// # Errors
///
/// When something cannot be built or started, when a contender's answer is not the one it should be, or when what
/// the specification promises does not hold. Any other goal that is not reached is no error.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let Some(options) = Options::parse(args)? else {
        println!("{USAGE}");
        return Ok(());
    };
    ensure!(cfg!(target_os = "linux"), "the benchmark reads /proc and uses epoll, so it needs Linux");
    // What cannot be written shows now, and not after minutes.
    let document = options.write.as_ref().map(read).transpose()?;
    let earlier = options.beside.iter().map(|path| Earlier::read(path)).collect::<Result<_>>()?;
    // Before we load it ourselves.
    let machine = Machine::read()?;
    let programs = Programs::build(&options.contenders)?;
    let mut report = measure(machine, &programs, &options)?;
    report.earlier = earlier;
    if let Some(folder) = &options.svg {
        report.draw(folder)?;
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
    // At the end: who misses something wants to see all figures.
    goal::check_measured(&report.rows, &options.parts, &options.contenders)?;
    goal::check_promises(&report.goals())
}

/// Reads a document that has a place for the figures.
fn read(path: &PathBuf) -> Result<String> {
    let document =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    section::replaced(&document, "").with_context(|| path.display().to_string())?;
    Ok(document)
}

/// Measures all parts that are wanted.
fn measure(machine: Machine, programs: &Programs, options: &Options) -> Result<Report> {
    let effort = if options.quick { Effort::QUICK } else { Effort::FULL };
    let mut report = Report {
        machine,
        versions: programs.versions()?,
        notes: options.notes(),
        contenders: options.contenders.clone(),
        rows: Vec::new(),
        first_call: Vec::new(),
        growth: Vec::new(),
        python: Vec::new(),
        documents: Vec::new(),
        earlier: Vec::new(),
    };
    if options.wants("calls") {
        report.rows.extend(round_trip::measure(programs, &options.contenders, &effort)?);
    }
    let mut stage = Stage::set(programs, &options.contenders)?;
    if options.wants("start") {
        report.rows.extend(start::measure(&stage, &effort)?);
    }
    if options.wants("memory") {
        report.rows.extend(memory::measure(&mut stage, effort.memory)?);
    }
    if options.wants("first") {
        report.first_call = first_call::measure(&mut stage, effort.first_calls)?;
    }
    drop(stage);
    if options.wants("python") && options.contenders.contains(&Contender::BridgeAndPython) {
        report.python = python_cost::measure(programs, &options.contenders, &effort)?;
    }
    if options.wants("growth") {
        report.growth = growth::measure(programs, &effort)?;
    }
    if options.wants("documents") {
        report.documents = documents::documents(&programs.toolbridge, effort.documents)?;
    }
    Ok(report)
}
