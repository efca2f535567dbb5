//! Runs a target on many inputs, and makes the one that fails small.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use crate::coverage::Coverage;
use crate::mutate::mutated;
use crate::random::Random;
use crate::target::Target;

/// A target that takes longer for one input hangs.
const HANG: Duration = Duration::from_secs(20);

/// How long making a failing input smaller may take.
const MINIMISE: Duration = Duration::from_secs(10);

/// The slow ways to do things are recursive.
const STACK_BYTES: usize = 64 * 1024 * 1024;

/// How a run is to go.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The same seed makes the same inputs.
    pub seed: u64,
    /// How long it goes on after the inputs of the corpus.
    pub time: Duration,
    /// Where each input is written before it is run, for one that takes the process along.
    pub record: Option<PathBuf>,
}

/// What a run without a failure did.
#[derive(Debug)]
pub struct Done {
    /// Inputs run.
    pub runs: u64,
    /// Inputs it went on from, those of the corpus included.
    pub seeds: usize,
    /// Edges of the code that were reached; `None` in a build that does not count them.
    pub edges: Option<usize>,
}

/// An input that a target fails with.
#[derive(Debug)]
pub struct Failure {
    /// What the target said.
    pub message: String,
    /// How many inputs came before it.
    pub run: u64,
    /// The input as it was found.
    pub input: Vec<u8>,
    /// As little of it as still fails.
    pub minimised: Vec<u8>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "after {} inputs: {}", self.run, self.message)?;
        writeln!(f, "found with {} bytes: {}", self.input.len(), self.input.escape_ascii())?;
        write!(f, "as small as it gets, {} bytes: {}", self.minimised.len(), self.minimised.escape_ascii())
    }
}

/// Runs a target on the corpus and then on what can be made of it.
///
/// # Errors
///
/// The first input that fails.
pub fn run(target: &'static Target, corpus: Vec<Vec<u8>>, plan: &Plan) -> Result<Done, Box<Failure>> {
    let current = Arc::new(Mutex::new((0, Vec::new())));
    let (sender, receiver) = channel();
    let worker = Worker { target, plan: plan.clone(), current: Arc::clone(&current) };
    std::thread::Builder::new()
        .name(target.name.into())
        .stack_size(STACK_BYTES)
        .spawn(move || _ = sender.send(worker.run(corpus)))
        .expect("a thread can be started");
    let mut last = 0;
    loop {
        match receiver.recv_timeout(HANG) {
            Ok(done) => return done,
            Err(RecvTimeoutError::Disconnected) => panic!("the thread of `{}` is gone", target.name),
            Err(RecvTimeoutError::Timeout) => {
                let (run, input) = current.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if run == last {
                    let message = format!("it takes over {} s", HANG.as_secs());
                    return Err(Box::new(Failure { message, run, minimised: input.clone(), input }));
                }
                last = run;
            }
        }
    }
}

/// Runs a target on one input.
///
/// # Errors
///
/// What it said when it failed.
pub fn try_input(target: &Target, input: &[u8]) -> Result<u64, String> {
    thread_local! {
        static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
        static IS_TRYING: RefCell<bool> = const { RefCell::new(false) };
    }
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if IS_TRYING.with_borrow(|is_trying| *is_trying) {
                SAID.set(Some(panic.to_string()));
            } else {
                others(panic);
            }
        }));
    });
    IS_TRYING.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    IS_TRYING.set(false);
    outcome.map_err(|_| SAID.take().unwrap_or_else(|| "it panicked".into()))
}

struct Worker {
    target: &'static Target,
    plan: Plan,
    current: Arc<Mutex<(u64, Vec<u8>)>>,
}

impl Worker {
    fn run(self, corpus: Vec<Vec<u8>>) -> Result<Done, Box<Failure>> {
        let mut random = Random::new(self.plan.seed);
        let mut coverage = Coverage::default();
        let mut outcomes = HashSet::new();
        let mut seeds = Vec::new();
        let mut runs = 0;
        let mut examples = corpus.into_iter();
        let mut end = None;
        loop {
            let input = if let Some(example) = examples.next() {
                example
            } else {
                let end = *end.get_or_insert_with(|| Instant::now() + self.plan.time);
                if Instant::now() >= end {
                    break;
                }
                mutated(&seeds, self.target.words, &mut random)
            };
            self.announce(runs, &input);
            Coverage::clear();
            let outcome = match try_input(self.target, &input) {
                Ok(outcome) => outcome,
                Err(message) => {
                    let minimised = self.minimise(&input);
                    return Err(Box::new(Failure { message, run: runs, input, minimised }));
                }
            };
            runs += 1;
            // Both, so that neither is skipped.
            if coverage.has_grown() | outcomes.insert(outcome) || end.is_none() {
                seeds.push(input);
            }
        }
        let edges = Coverage::IS_COUNTED.then(|| coverage.edges());
        Ok(Done { runs, seeds: seeds.len(), edges })
    }

    fn announce(&self, run: u64, input: &[u8]) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.0 = run;
        current.1.clear();
        current.1.extend_from_slice(input);
        if let Some(path) = &self.plan.record {
            std::fs::write(path, input).expect("the input can be recorded");
        }
    }

    /// Leaves out what can be left out, in ever smaller pieces; then makes what is left plain.
    fn minimise(&self, input: &[u8]) -> Vec<u8> {
        let end = Instant::now() + MINIMISE;
        let fails = |input: &[u8]| Instant::now() < end && try_input(self.target, input).is_err();
        let mut least = input.to_vec();
        let mut size = least.len() / 2;
        while size > 0 {
            let mut at = 0;
            let before = least.len();
            while at < least.len() {
                let mut less = least.clone();
                less.drain(at..(at + size).min(least.len()));
                if fails(&less) { least = less } else { at += size }
            }
            if least.len() == before || size > 1 {
                size /= 2;
            }
        }
        for at in 0..least.len() {
            let mut plain = least.clone();
            plain[at] = b'a';
            if fails(&plain) {
                least = plain;
            }
        }
        least
    }
}
