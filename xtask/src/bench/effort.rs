//! How much is done for each figure.

use std::time::Duration;

/// How many calls a batch counts, how many batches each contender has, and how long all of them may take: who
/// is slow has fewer.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) batch: usize,
    pub(crate) rounds: usize,
    pub(crate) limit: Duration,
}

impl Plan {
    const fn new(batch: usize, rounds: usize, limit_ms: u64) -> Self {
        Self { batch, rounds, limit: Duration::from_millis(limit_ms) }
    }

    /// What a contender does whose runs take so long: the runs in its batch, and in which rounds it takes part,
    /// every so many.
    pub(crate) fn share(&self, one_run: Duration) -> (usize, usize) {
        let count = |value: u128| usize::try_from(value).unwrap_or(usize::MAX);
        let one_batch_each = one_run.as_nanos().max(1) * self.rounds as u128;
        // First smaller batches, so that it still takes its turn in every round.
        let batch = count(self.limit.as_nanos() / one_batch_each).clamp(1, self.batch);
        let rest = (one_batch_each * batch as u128).div_ceil(self.limit.as_nanos());
        (batch, count(rest).clamp(1, self.rounds))
    }
}

/// How much is done for each row.
pub(crate) struct Effort {
    pub(crate) starts: Plan,
    pub(crate) starts_with_many: Plan,
    pub(crate) small: Plan,
    pub(crate) medium: Plan,
    pub(crate) large: Plan,
    pub(crate) largest: Plan,
    /// Here a batch is timed as a whole.
    pub(crate) parallel: Plan,
    pub(crate) memory: usize,
    pub(crate) first_calls: usize,
    pub(crate) documents: usize,
    /// The last of the decades of calls.
    pub(crate) growth_calls: usize,
    pub(crate) growth_tools: &'static [usize],
    pub(crate) growth_sessions: &'static [usize],
    /// Batches for each point of a curve.
    pub(crate) growth_rounds: usize,
}

impl Effort {
    pub(crate) const FULL: Self = Self {
        starts: Plan::new(1, 300, 12_000),
        starts_with_many: Plan::new(1, 100, 15_000),
        small: Plan::new(50, 400, 3_000),
        medium: Plan::new(50, 200, 3_000),
        large: Plan::new(5, 80, 4_000),
        largest: Plan::new(3, 30, 5_000),
        parallel: Plan::new(640, 60, 6_000),
        memory: 3,
        first_calls: 100,
        documents: 20,
        growth_calls: 100_000,
        growth_tools: &[1, 10, 100, 1_000, 10_000],
        growth_sessions: &[1, 10, 50, 100, 200],
        growth_rounds: 100,
    };
    pub(crate) const QUICK: Self = Self {
        starts: Plan::new(1, 10, 1_000),
        starts_with_many: Plan::new(1, 3, 1_000),
        small: Plan::new(50, 10, 200),
        medium: Plan::new(50, 4, 200),
        large: Plan::new(3, 4, 200),
        largest: Plan::new(1, 3, 500),
        parallel: Plan::new(640, 3, 500),
        memory: 1,
        first_calls: 5,
        documents: 1,
        growth_calls: 1_000,
        growth_tools: &[1, 100],
        growth_sessions: &[1, 10],
        growth_rounds: 5,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_slow_has_fewer_runs_and_still_some() {
        let plan = Plan::new(50, 400, 4_000);
        assert_eq!(plan.share(Duration::from_micros(20)), (50, 1), "fast enough");
        assert_eq!(plan.share(Duration::from_millis(1)), (10, 1), "smaller batches");
        assert_eq!(plan.share(Duration::from_millis(100)), (1, 10), "and fewer rounds");
        assert_eq!(plan.share(Duration::from_secs(100)), (1, 400), "but never none");
    }
}
