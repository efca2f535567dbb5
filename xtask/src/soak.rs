//! `cargo xtask soak`: calls, cancellations and kills at random, for as long as one likes, and every answer checked.
//!
//! Real hosts (`house`, `host`) and real bridges (`client`), each with a client that does what comes to its mind
//! (`seat`) and knows what must come back (`call`, `note`), and which errors are explained (`trouble`). The choices depend
//! on the seed alone; when things happen does not.

mod account;
mod call;
mod client;
mod host;
mod house;
mod note;
mod random;
mod seat;
mod trouble;

use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use self::account::{Account, Count};
use self::host::Place;
use self::house::House;
use self::random::Random;
use self::seat::Seat;
use crate::{bridge, project};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long; 0.2 is enough to see that it works.
    #[arg(long = "minutes", value_name = "N", default_value = "15", value_parser = minutes)]
    time: Duration,
    /// How many bridges there are at a time.
    #[arg(long, value_name = "N", default_value_t = 50)]
    bridges: usize,
    /// The choices of an earlier run.
    #[arg(long, value_name = "N", default_value_t = Random::seed(), hide_default_value = true)]
    seed: u64,
}

fn minutes(text: &str) -> Result<Duration> {
    let minutes: f64 = text.parse()?;
    ensure!(minutes > 0.0, "it is no time");
    Ok(Duration::try_from_secs_f64(minutes * 60.0)?)
}

/// Builds what is needed, and lets it run.
pub(crate) fn run(options: &Options) -> Result<()> {
    let (root, target) = project::folders()?;
    let packages = ["toolbridge-cli", bridge::NAME, "bench-parent"];
    let mut build = project::cargo();
    build
        .args(["build", "--quiet"])
        .args(packages.iter().flat_map(|name| ["--package", name]))
        .current_dir(root);
    ensure!(build.status().context("cannot run cargo")?.success(), "the executables do not build");
    // Under names of their own, so that nobody has to leave cargo alone while this runs.
    let programs = tempfile::tempdir_in(&target)?;
    let program = |name: &str| {
        let path = programs.path().join(name);
        std::fs::hard_link(target.join("debug").join(name), &path).map(|()| path)
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
    let house = House::open(place)?;
    // A round a minute; and some, for what grows from one to the next.
    let rounds = u32::try_from(options.time.as_secs().div_ceil(60))?.max(3);
    let length = options.time / rounds;
    println!(
        "{} bridges, {rounds} rounds of {} s, seed {}",
        options.bridges,
        length.as_secs_f64().round(),
        options.seed
    );
    for number in 0..rounds {
        round(number, length, place, &house, &account, options)?;
        let long_lived = house.look(&account)?;
        println!(
            "round {:>3}: {:>9} calls, {} right, {} bad; long-lived hosts: {long_lived}",
            number + 1,
            account.get(Count::Calls),
            account.get(Count::Right),
            account.bad(),
        );
    }
    house.close(place, &account)?;
    print!("\n{}", account.table());
    ensure!(
        account.bad() == 0,
        "not all is as it should be\nhint: `--seed {}` makes the same choices",
        options.seed
    );
    ensure!(account.uncounted() == 0, "{} calls were not accounted for", account.uncounted());
    Ok(())
}

/// All clients and all troubles at once, until the time is over.
fn round(
    number: u32,
    length: Duration,
    place: &Place,
    house: &House,
    account: &Account,
    options: &Options,
) -> Result<()> {
    let until = Instant::now() + length;
    let random = |who: usize| Random::new(options.seed, u64::from(number) << 32 | who as u64);
    std::thread::scope(|scope| {
        let seats = (0..options.bridges).map(|seat| {
            let mut seat = Seat { number: seat, place, house, account, random: random(1000 + seat) };
            scope.spawn(move || seat.run(number, until))
        });
        let troubles = house.slots().map(|slot| {
            let mut random = random(slot);
            scope.spawn(move || house.trouble(slot, place, account, &mut random, until))
        });
        let all: Vec<ScopedJoinHandle<'_, Result<()>>> = seats.chain(troubles).collect();
        all.into_iter().try_for_each(|one| one.join().unwrap_or_else(|_| bail!("a thread panicked")))
    })
}
