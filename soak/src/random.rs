//! Random choices that depend only on the seed.

use std::ops::RangeInclusive;
use std::time::Duration;

use fastrand::Rng;

/// A separate generator for each `stream`.
pub(crate) fn seeded(seed: u64, stream: u64) -> Rng {
    Rng::with_seed(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95))
}

pub(crate) fn millis(random: &mut Rng, range: RangeInclusive<u64>) -> Duration {
    Duration::from_millis(random.u64(range))
}

/// One of `all`, which is not empty.
pub(crate) fn pick<'a, T>(random: &mut Rng, all: &'a [T]) -> &'a T {
    &all[random.usize(..all.len())]
}

/// One of `all`, chosen by weight.
pub(crate) fn weighed<T: Copy>(random: &mut Rng, all: &[(usize, T)]) -> T {
    let row = all.iter().flat_map(|(weight, one)| std::iter::repeat_n(*one, *weight));
    *pick(random, &row.collect::<Vec<_>>())
}
