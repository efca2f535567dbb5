//! `cargo xtask test`: everything that must hold before a change lands, in named parts.
//!
//! Two parts run at a time. Parts that compile run one at a time, because cargo locks each profile; their
//! results are run beside the next one. Downloads start at the beginning.

pub(crate) mod part;
pub(crate) mod report;
mod setup;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Result, anyhow};
use xtask::project::{Project, metadata};

use self::part::{Kind, PARTS, Part, Stage};
use self::report::{Outcome, Report};
use self::setup::Setup;
use crate::skipped::Skipped;

/// How many parts run at the same time.
const WORKERS: usize = 2;

/// The selected parts of a list.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Lists the parts without running any.
    #[arg(long)]
    list: bool,
    /// Parts, or crates whose tests are run; all parts by default.
    #[arg(value_name = "PART or CRATE")]
    names: Vec<String>,
}

/// Runs all parts; returns whether they passed.
pub(crate) fn run(project: &Project, options: &Options) -> Result<bool> {
    run_parts(project, PARTS, options)
}

/// Runs the selected parts of a list; returns whether all of them passed.
pub(crate) fn run_parts(project: &Project, all: &'static [Part], options: &Options) -> Result<bool> {
    if options.list {
        for part in all {
            println!("{:<14} {}", part.name, part.what);
        }
        return Ok(true);
    }
    let (parts, crates) = chosen(all, &options.names)?;
    let report = Report::begin(project, parts.len() + crates.len())?;
    let stage = Stage { project, setup: Setup::default(), skipped: Skipped::begin(&project.target)? };
    let queue = Queue::new(&parts);
    std::thread::scope(|scope| {
        for need in parts.iter().flat_map(|part| part.needs).collect::<BTreeSet<_>>() {
            // A part that needs it reports the error.
            let stage = &stage;
            scope.spawn(move || _ = need.install(stage));
        }
        for _ in 0..WORKERS {
            scope.spawn(|| queue.work(&stage, &report));
        }
    });
    for name in crates {
        let started = Instant::now();
        let done = part::tests_of(&stage, &report.output(&name)?, &name);
        report.ended(&name, started.elapsed(), Outcome::of(done));
    }
    Ok(report.finish(&stage.skipped.list()?))
}

/// The named parts with their prerequisites, in order; and the named crates.
fn chosen(all: &'static [Part], names: &[String]) -> Result<(Vec<&'static Part>, Vec<String>)> {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let packages: Vec<_> = packages.filter_map(|package| package["name"].as_str()).collect();
    let (mut parts, mut crates) = (BTreeSet::new(), Vec::new());
    for name in names {
        // A part takes precedence over a crate; `docs` is `toolbridge-docs`.
        let long = format!("toolbridge-{name}");
        if all.iter().any(|part| part.name == name) {
            parts.insert(name.as_str());
        } else if let Some(package) = packages.iter().find(|package| **package == *name || **package == long)
        {
            crates.push((*package).to_owned());
        } else {
            return Err(anyhow!("`{name}` is neither a part nor a crate; `--list` shows the parts"));
        }
    }
    // Each part comes after its prerequisites, so one pass through the reversed list finds all.
    for part in all.iter().rev().filter(|_| !names.is_empty()) {
        if parts.contains(part.name) {
            parts.extend(part.after);
        }
    }
    let is_chosen = |part: &&Part| names.is_empty() || parts.contains(part.name);
    Ok((all.iter().filter(is_chosen).collect(), crates))
}

/// The remaining parts, and the outcome of the others.
struct Queue(Mutex<State>, Condvar);

#[derive(Default)]
struct State {
    waiting: Vec<&'static Part>,
    running: Vec<&'static Part>,
    failed: BTreeSet<&'static str>,
}

impl State {
    /// The first part that can start now.
    fn next(&self) -> Option<usize> {
        let is_busy = |kind| self.running.iter().any(|part| part.kind == kind);
        let is_open = |name: &&str| self.waiting.iter().chain(&self.running).any(|part| part.name == *name);
        self.waiting.iter().position(|part| {
            let has_room = match part.kind {
                Kind::Build => !is_busy(Kind::Build),
                Kind::Run => true,
            };
            has_room && !part.after.iter().any(is_open)
        })
    }
}

impl Queue {
    fn new(parts: &[&'static Part]) -> Self {
        Self(Mutex::new(State { waiting: parts.to_vec(), ..State::default() }), Condvar::new())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one part after the other until none is left.
    fn work(&self, stage: &Stage<'_>, report: &Report) {
        let mut queue = self.lock();
        while !queue.waiting.is_empty() {
            let Some(place) = queue.next() else {
                queue = self.1.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let part = queue.waiting.remove(place);
            let missing = part.after.iter().find(|name| queue.failed.contains(**name)).copied();
            queue.running.push(part);
            drop(queue);
            let started = Instant::now();
            let outcome = match missing {
                Some(name) => Outcome::Failed(anyhow!("not run: it needs `{name}`, which failed")),
                None => Outcome::of(perform(part, stage, report)),
            };
            let failed = matches!(outcome, Outcome::Failed(_));
            report.ended(part.name, started.elapsed(), outcome);
            queue = self.lock();
            queue.running.retain(|running| running.name != part.name);
            if failed {
                queue.failed.insert(part.name);
            }
            self.1.notify_all();
        }
    }
}

/// Runs a part. A panic counts as a failure, so that other parts do not wait for it.
fn perform(part: &Part, stage: &Stage<'_>, report: &Report) -> Result<()> {
    let output = report.begin_part(part.name, part.what)?;
    let done = catch_unwind(AssertUnwindSafe(|| (part.run)(stage, &output)));
    done.unwrap_or_else(|_| Err(anyhow!("it panicked")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &[&str]) -> Vec<&'static str> {
        let of: Vec<_> = of.iter().map(|&name| name.to_owned()).collect();
        chosen(PARTS, &of).unwrap().0.iter().map(|part| part.name).collect()
    }

    #[test]
    fn a_part_brings_those_that_it_builds_on() {
        for (place, part) in PARTS.iter().enumerate() {
            let before: Vec<_> = PARTS[..place].iter().map(|part| part.name).collect();
            assert!(part.after.iter().all(|name| before.contains(name)), "`{}` comes too early", part.name);
        }
        assert_eq!(names(&["demo"]), ["build", "demo"]);
        assert_eq!(names(&["python-oldest"]), ["build", "wheel", "python-oldest"]);
        assert_eq!(names(&[]).len(), PARTS.len());
        assert_eq!(
            chosen(PARTS, &["nats".into(), "toolbridge".into()]).unwrap().1,
            ["toolbridge-nats", "toolbridge"]
        );
        assert!(names(&["nats"]).is_empty());
        let error = chosen(PARTS, &["everything".into()]).err().unwrap().to_string();
        assert!(error.starts_with("`everything` is neither a part nor a crate"), "{error}");
    }

    #[test]
    fn parts_that_compile_take_turns() {
        let mut state = State { waiting: PARTS.iter().collect(), ..State::default() };
        let mut at_once = 0;
        while !state.waiting.is_empty() {
            while let Some(place) = state.next().filter(|_| state.running.len() < WORKERS) {
                let next = state.waiting.remove(place);
                state.running.push(next);
            }
            at_once = at_once.max(state.running.len());
            assert!(state.running.iter().filter(|part| part.kind == Kind::Build).count() < 2);
            assert!(!state.running.is_empty(), "nothing can begin of {:?}", state.waiting);
            // The part that started last ends first.
            state.running.pop();
        }
        assert_eq!(at_once, WORKERS);
    }

    #[test]
    fn a_failing_part_does_not_hide_the_others() {
        const PARTS: [Part; 4] = [
            Part {
                name: "first",
                what: "",
                kind: Kind::Build,
                needs: &[],
                after: &[],
                run: |_, _| Err(anyhow!("no")),
            },
            Part {
                name: "on it",
                what: "",
                kind: Kind::Run,
                needs: &[],
                after: &["first"],
                run: |_, _| Ok(()),
            },
            Part {
                name: "panics",
                what: "",
                kind: Kind::Run,
                needs: &[],
                after: &[],
                run: |_, _| panic!("oh"),
            },
            Part { name: "last", what: "", kind: Kind::Run, needs: &[], after: &[], run: |_, _| Ok(()) },
        ];
        let dir = tempfile::tempdir().unwrap();
        let project = Project { root: dir.path().to_owned(), target: dir.path().join("target") };
        let stage = Stage {
            project: &project,
            setup: Setup::default(),
            skipped: Skipped::begin(&project.target).unwrap(),
        };
        let report = Report::begin(&project, PARTS.len()).unwrap();
        let queue = Queue::new(&PARTS.iter().collect::<Vec<_>>());
        std::thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| queue.work(&stage, &report));
            }
        });
        let summary = report.summary(&[]);
        for said in ["first: no", "on it: not run: it needs `first`, which failed", "panics: it panicked"] {
            assert!(summary.contains(said), "{summary}");
        }
        assert!(summary.ends_with("parts: 1 passed, 3 failed; 0 tests skipped"), "{summary}");
        let summary = report.summary(&["cli::wire::a_test: only root can".to_owned()]);
        let last =
            "skipped tests:\n  cli::wire::a_test: only root can\nparts: 1 passed, 3 failed; 1 test skipped";
        assert!(summary.ends_with(last), "{summary}");
    }
}
