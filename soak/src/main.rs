//! `cargo xtask soak`: random calls, cancellations and kills for any length of time, with every answer
//! checked.
//!
//! Real hosts (`house`, `host`) and real bridges (`client`), each with a client that acts at random (`seat`)
//! and knows the expected answers (`call`, `note`), and which errors are explained by faults (`trouble`). The
//! choices depend only on the seed; the timing does not.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command for people")]

mod account;
mod call;
mod client;
mod host;
mod house;
mod note;
mod random;
mod seat;
mod trouble;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use clap::Parser;
use xtask::bridge;
use xtask::project::{Project, end, run as run_command};

use crate::account::{Account, Count};
use crate::host::Place;
use crate::house::House;
use crate::random::seeded;
use crate::seat::Seat;

/// Runs random calls, cancellations and kills, and checks every answer.
#[derive(Parser)]
#[command(bin_name = "cargo xtask soak")]
struct Options {
    /// The duration in minutes; 0.2 is enough to see that it works.
    #[arg(long = "minutes", value_name = "N", default_value = "15", value_parser = minutes)]
    time: Duration,
    /// The number of parallel bridges.
    #[arg(long, value_name = "N", default_value_t = 50)]
    bridges: usize,
    /// Build nothing, and use the executables in DIR.
    #[arg(long, value_name = "DIR")]
    built: Option<PathBuf>,
    /// Instead: send this many prompts in one conversation with the CLI, and check that memory and descriptors do not grow.
    #[arg(long, value_name = "N", conflicts_with_all = ["time", "bridges", "built", "seed"])]
    prompts: Option<usize>,
    /// The seed of an earlier run, for the same choices.
    #[arg(long, value_name = "N", default_value_t = fastrand::u64(..) >> 32, hide_default_value = true)]
    seed: u64,
}

fn main() -> ExitCode {
    end(run(&Options::parse()).map(|()| ExitCode::SUCCESS))
}

fn minutes(text: &str) -> Result<Duration> {
    let minutes: f64 = text.parse()?;
    ensure!(minutes > 0.0, "it must be above 0");
    Ok(Duration::try_from_secs_f64(minutes * 60.0)?)
}

/// Builds what is needed, and runs it.
fn run(options: &Options) -> Result<()> {
    let project = Project::find()?;
    if let Some(prompts) = options.prompts {
        let talk = format!("run --quiet --package toolbridge --example long_talk -- {prompts}");
        return run_command(&mut project.cargo(&talk));
    }
    if options.built.is_none() {
        let packages = format!("--package toolbridge-cli --package {} --package bench-parent", bridge::NAME);
        run_command(&mut project.cargo(&format!("build --quiet {packages}")))?;
    }
    let built = options.built.clone().unwrap_or_else(|| project.built("dev"));
    // Copies, so that cargo can be used while this runs.
    let programs = tempfile::tempdir_in(&project.target)?;
    let program = |name: &str| {
        let path = programs.path().join(name);
        std::fs::hard_link(built.join(name), &path).map(|()| path)
    };
    let dir = tempfile::tempdir()?;
    let place = Place {
        toolbridge: program("toolbridge")?,
        bridge: program(bridge::NAME)?,
        parent: program("bench-parent")?,
        dir: dir.path().to_owned(),
    };
    soak(&place, options)
}

fn soak(place: &Place, options: &Options) -> Result<()> {
    let account = Account::new(options.seed);
    let house = House::open(place, &account)?;
    // One round per minute, but at least three, to detect growth from one to the next.
    let rounds = u32::try_from(options.time.as_secs().div_ceil(60))?.max(3);
    let length = options.time / rounds;
    println!(
        "{} bridges, {rounds} rounds of {} s, seed {}",
        options.bridges,
        length.as_secs_f64().round(),
        options.seed
    );
    for number in 0..rounds {
        round(number, length, &house, options)?;
        let long_lived = house.look()?;
        println!(
            "round {:>3}: {:>9} calls, {} right, {} bad; long-lived hosts: {long_lived}",
            number + 1,
            account.get(Count::Calls),
            account.get(Count::Right),
            account.bad(),
        );
    }
    house.close()?;
    print!("\n{}", account.table());
    ensure!(
        account.bad() == 0,
        "not everything is as expected\nhint: `--seed {}` makes the same choices",
        options.seed
    );
    ensure!(account.uncounted() == 0, "{} calls were not accounted for", account.uncounted());
    Ok(())
}

/// Runs all clients and all faults in parallel, until the time is over.
fn round(number: u32, length: Duration, house: &House<'_>, options: &Options) -> Result<()> {
    let until = Instant::now() + length;
    let random = |stream: usize| seeded(options.seed, u64::from(number) << 32 | stream as u64);
    std::thread::scope(|scope| {
        for seat in 0..options.bridges {
            let mut seat = Seat { number: seat, house, random: random(1000 + seat) };
            scope.spawn(move || seat.run(number, until));
        }
        let troubles = house.slots().map(|slot| {
            let mut random = random(slot);
            scope.spawn(move || house.trouble(slot, &mut random, until))
        });
        let troubles: Vec<_> = troubles.collect();
        troubles.into_iter().try_for_each(|one| one.join().map_err(|_| anyhow!("a thread panicked"))?)
    })
}
