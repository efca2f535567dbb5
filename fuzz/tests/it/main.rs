//! The targets hold on their corpus, and on inputs derived from it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::thread;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::TestRunner;
use toolbridge_fuzz::TARGETS;

/// The reference implementations are recursive.
const STACK_BYTES: usize = 64 * 1024 * 1024;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// The inputs of a target: examples, and all that ever failed.
fn inputs(target: &str) -> Vec<Vec<u8>> {
    let files = std::fs::read_dir(corpus().join(target)).unwrap();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Pieces of inputs and random bytes, concatenated.
fn mixed(inputs: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let piece = (select(inputs), any::<Index>(), any::<Index>()).prop_map(|(input, one, other)| {
        let (one, other) = (one.index(input.len() + 1), other.index(input.len() + 1));
        input[one.min(other)..one.max(other)].to_vec()
    });
    let bytes = proptest::collection::vec(any::<u8>(), 0..4);
    proptest::collection::vec(prop_oneof![piece, bytes], 1..6).prop_map(|pieces| pieces.concat())
}

#[test]
fn every_target_holds_on_its_corpus_and_on_derived_inputs() {
    for (name, run) in TARGETS {
        let check = move || {
            let inputs = inputs(name);
            for input in &inputs {
                run(input);
            }
            let check = |input: Vec<u8>| {
                run(&input);
                Ok(())
            };
            if let Err(failure) = TestRunner::deterministic().run(&mixed(inputs), check) {
                panic!("{name}: {failure}");
            }
        };
        let thread = thread::Builder::new().name(name.into()).stack_size(STACK_BYTES).spawn(check);
        thread.unwrap().join().expect(name);
    }
}

#[test]
fn every_folder_of_the_corpus_belongs_to_a_target() {
    let folders = std::fs::read_dir(corpus()).unwrap();
    let mut names: Vec<_> = folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, TARGETS.map(|(name, _)| name));
}
