//! Choices that are the same for the same seed.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// `SplitMix64`.
pub(crate) struct Random(u64);

impl Random {
    /// Another row of numbers for each `who`.
    pub(crate) fn new(seed: u64, who: u64) -> Self {
        Self(seed ^ who.wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// A seed that nobody has chosen.
    pub(crate) fn seed() -> u64 {
        RandomState::new().hash_one(0) >> 32
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number from `least` to `most`, both included.
    pub(crate) fn within(&mut self, least: usize, most: usize) -> usize {
        least + usize::try_from(self.next() >> 32).unwrap_or(0) % (most - least + 1)
    }

    pub(crate) fn millis(&mut self, least: usize, most: usize) -> Duration {
        Duration::from_millis(self.within(least, most) as u64)
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.within(1, times) == 1
    }

    /// One of `all`, which is not empty.
    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.within(0, all.len() - 1)]
    }

    /// One of `all`, as often as its weight says.
    pub(crate) fn weighed<T: Copy>(&mut self, all: &[(usize, T)]) -> T {
        let mut place = self.within(1, all.iter().map(|(weight, _)| weight).sum());
        for (weight, one) in all {
            if place <= *weight {
                return *one;
            }
            place -= weight;
        }
        unreachable!("the weights add up")
    }
}
