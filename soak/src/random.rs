//! Choices that are the same for the same seed.

use std::ops::RangeInclusive;
use std::time::Duration;

use fastrand::Rng;

/// Another row of choices for each `who`.
pub(crate) fn seeded(seed: u64, who: u64) -> Rng {
    Rng::with_seed(seed ^ who.wrapping_mul(0xd134_2543_de82_ef95))
}

pub(crate) fn millis(random: &mut Rng, range: RangeInclusive<u64>) -> Duration {
    Duration::from_millis(random.u64(range))
}

/// One of `all`, which is not empty.
pub(crate) fn pick<'a, T>(random: &mut Rng, all: &'a [T]) -> &'a T {
    &all[random.usize(..all.len())]
}

/// One of `all`, as often as its weight says.
pub(crate) fn weighed<T: Copy>(random: &mut Rng, all: &[(usize, T)]) -> T {
    let row = all.iter().flat_map(|(weight, one)| std::iter::repeat_n(*one, *weight));
    *pick(random, &row.collect::<Vec<_>>())
}
