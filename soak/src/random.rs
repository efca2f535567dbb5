//! Choices that are the same for the same seed.

use std::ops::RangeInclusive;
use std::time::Duration;

use fastrand::Rng;

/// A row of choices.
pub(crate) struct Random(Rng);

impl Random {
    /// Another row for each `who`.
    pub(crate) fn new(seed: u64, who: u64) -> Self {
        Self(Rng::with_seed(seed ^ who.wrapping_mul(0xd134_2543_de82_ef95)))
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0.u64(..)
    }

    pub(crate) fn within(&mut self, range: RangeInclusive<usize>) -> usize {
        self.0.usize(range)
    }

    pub(crate) fn millis(&mut self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.0.u64(range))
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.0.usize(..times) == 0
    }

    /// One of `all`, which is not empty.
    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.0.usize(..all.len())]
    }

    /// One of `all`, as often as its weight says.
    pub(crate) fn weighed<T: Copy>(&mut self, all: &[(usize, T)]) -> T {
        let row = all.iter().flat_map(|(weight, one)| std::iter::repeat_n(*one, *weight));
        *self.pick(&row.collect::<Vec<_>>())
    }
}
