//! Runs fuzz targets; `cargo xtask fuzz` builds it and calls it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command for people")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use toolbridge_fuzz::engine::{self, Plan};
use toolbridge_fuzz::{TARGETS, Target, corpus};

const USAGE: &str = "usage: cargo xtask fuzz [--seconds N] [--seed N] [--record FILE] [TARGET…]
       cargo xtask fuzz --replay FILE TARGET
       cargo xtask fuzz --list
  --seconds N    how long each target runs, 60 unless told
  --seed N       the inputs of an earlier run again
  --record FILE  writes each input there before it is run, for one that takes the process along
  --replay FILE  runs one input";

#[derive(Default)]
struct Args {
    seconds: Option<u64>,
    seed: Option<u64>,
    record: Option<PathBuf>,
    replay: Option<PathBuf>,
    list: bool,
    targets: Vec<&'static Target>,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let args = parse(std::env::args().skip(1))?;
    if args.list {
        for target in &TARGETS {
            println!("{:<10} {}", target.name, target.property);
        }
        return Ok(());
    }
    if let Some(path) = args.replay {
        let [target] = args.targets[..] else { bail!("`--replay` needs one target\n{USAGE}") };
        let input = std::fs::read(&path).with_context(|| format!("cannot read `{}`", path.display()))?;
        engine::try_input(target, &input).map_err(|message| anyhow::anyhow!("{}: {message}", target.name))?;
        println!("{}: {} bytes, nothing wrong", target.name, input.len());
        return Ok(());
    }
    let seed = args.seed.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(now.as_millis()).unwrap_or_default()
    });
    let targets = if args.targets.is_empty() { TARGETS.iter().collect() } else { args.targets };
    let plan = Plan { seed, time: Duration::from_secs(args.seconds.unwrap_or(60)), record: args.record };
    for target in targets {
        fuzz(target, &plan)?;
    }
    Ok(())
}

fn fuzz(target: &'static Target, plan: &Plan) -> Result<()> {
    println!("{}: {} s with seed {}", target.name, plan.time.as_secs(), plan.seed);
    let examples = corpus::read(target.name)?.into_iter().map(|(_, input)| input).collect();
    match engine::run(target, examples, plan) {
        Ok(done) => {
            let edges = done.edges.map_or(String::new(), |edges| format!(", {edges} edges of the code"));
            println!("{}: {} inputs, nothing wrong; {} seeds{edges}", target.name, done.runs, done.seeds);
            Ok(())
        }
        Err(failure) => {
            let folder = std::env::temp_dir();
            let path = folder.join(format!("toolbridge-fuzz-{}-{}", target.name, plan.seed));
            std::fs::write(&path, &failure.minimised)
                .with_context(|| format!("cannot write `{}`", path.display()))?;
            bail!(
                "{}: {failure}\nhint: repeat it with `cargo xtask fuzz --replay {} {}`; when it is mended, keep the \
                 input in `fuzz/corpus/{}/`",
                target.name,
                path.display(),
                target.name,
                target.name
            )
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Args> {
    let mut args = Args::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("`{word}` needs a value\n{USAGE}"));
        let number = |text: String| text.parse().with_context(|| format!("`{text}` is not a whole number"));
        match word.as_str() {
            "--seconds" => args.seconds = Some(number(value()?)?),
            "--seed" => args.seed = Some(number(value()?)?),
            "--record" => args.record = Some(value()?.into()),
            "--replay" => args.replay = Some(value()?.into()),
            "--list" => args.list = true,
            name => match TARGETS.iter().find(|target| target.name == name) {
                Some(target) => args.targets.push(target),
                None => bail!("there is no target `{name}`\n{USAGE}"),
            },
        }
    }
    Ok(args)
}
