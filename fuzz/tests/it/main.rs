//! The engine finds what is wrong; the targets hold on their corpus, and for a second on more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use toolbridge_fuzz::engine::{self, Plan};
use toolbridge_fuzz::{TARGETS, Target, corpus};

/// The same inputs in every run of the tests.
const SEED: u64 = 7;

fn plan(milliseconds: u64) -> Plan {
    Plan { seed: SEED, time: Duration::from_millis(milliseconds), record: None }
}

#[test]
fn every_target_holds_on_its_corpus_and_on_what_comes_of_it() {
    for target in &TARGETS {
        let inputs = corpus::read(target.name).unwrap();
        for (path, input) in &inputs {
            if let Err(message) = engine::try_input(target, input) {
                panic!("{}: {message}", path.display());
            }
        }
        let inputs: Vec<_> = inputs.into_iter().map(|(_, input)| input).collect();
        let count = inputs.len();
        let done = engine::run(target, inputs, &plan(1000)).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(done.runs > 2 * count as u64, "{}: only {} inputs in a second", target.name, done.runs);
    }
}

#[test]
fn every_folder_of_the_corpus_is_a_targets() {
    let folders = std::fs::read_dir(corpus::folder("")).unwrap();
    let mut names: Vec<_> = folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let mut targets: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
    targets.sort_unstable();
    assert_eq!(names, targets);
}

static PLANTED: Target = Target {
    name: "planted",
    property: "no input holds `needle` before a `7`",
    words: &[b"needle", b"7"],
    run: |input| {
        let text = String::from_utf8_lossy(input);
        let place = text.find("needle");
        assert!(!place.is_some_and(|place| text[place..].contains('7')), "found the needle");
        u64::from(place.is_some())
    },
};

#[test]
fn a_planted_fault_is_found_made_small_and_found_again_by_its_seed() {
    let find = || engine::run(&PLANTED, vec![b"hay hay hay".to_vec()], &plan(60_000)).unwrap_err();
    let (first, second) = (find(), find());
    assert_eq!(first.minimised, b"needle7");
    assert!(first.message.contains("found the needle"), "{}", first.message);
    assert_eq!((first.run, &first.input), (second.run, &second.input));
    assert!(engine::try_input(&PLANTED, &first.minimised).is_err());
}

static RUNS: AtomicU64 = AtomicU64::new(0);

static COUNTED: Target = Target {
    name: "counted",
    property: "none",
    words: &[],
    run: |_| RUNS.fetch_add(1, Ordering::Relaxed) % 3,
};

#[test]
fn a_run_ends_in_time_and_goes_on_from_new_outcomes() {
    let done = engine::run(&COUNTED, vec![vec![1]], &plan(50)).unwrap();
    assert_eq!(done.runs, RUNS.load(Ordering::Relaxed));
    assert_eq!(done.seeds, 3);
    assert!(done.edges.is_none());
}
