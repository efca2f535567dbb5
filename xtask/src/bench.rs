//! `cargo xtask bench`: how far the bridge is from a relay that does nothing.
//!
//! Three contenders carry the same bytes between the same client and a parent process, and take turns in
//! small batches, so that whatever else the machine does hits all of them alike.

mod call;
mod client;
mod contender;
mod documents;
mod machine;
mod measure;
mod peer;
mod program;
mod report;
mod sample;

use anyhow::{Result, bail, ensure};

use self::machine::Machine;
use self::measure::Effort;
use self::program::Programs;
use self::report::Report;

const USAGE: &str = "usage: cargo xtask bench [--quick] [--json]
  --quick  a few seconds, to see that it works; its figures are rough
  --json   one JSON object on stdout instead of tables";

/// Builds what is compared, compares it, and prints the figures.
///
/// # Errors
///
/// When something cannot be built or started, or when a contender's answer is not the one it should be.
/// A goal that is not reached is no error.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let (mut quick, mut json) = (false, false);
    for arg in args {
        match arg.as_str() {
            "--quick" => quick = true,
            "--json" => json = true,
            "--help" | "-h" => {
                println!("{USAGE}");
                return Ok(());
            }
            other => bail!("unknown option `{other}`\n{USAGE}"),
        }
    }
    ensure!(cfg!(target_os = "linux"), "the benchmark reads /proc and uses epoll, so it needs Linux");
    let machine = Machine::read()?;
    let programs = Programs::build()?;
    let rows = measure::everything(&programs, &if quick { Effort::QUICK } else { Effort::FULL })?;
    let documents = documents::documents(&programs.toolbridge, if quick { 1 } else { 20 })?;
    let report = Report { machine, quick, rows, documents };
    if json {
        println!("{}", report.to_json());
    } else {
        print!("{}", report.to_text());
    }
    Ok(())
}
