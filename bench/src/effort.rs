//! How much is measured for each figure.

use std::time::Duration;

use crate::call::Call;

/// 100 bytes are a typical call; 9 MB is nearly the limit of the protocol.
pub(crate) const SMALL_BYTES: usize = 100;
const MEDIUM_BYTES: usize = 10_000;
pub(crate) const LARGE_BYTES: usize = 1_000_000;
pub(crate) const LARGEST_BYTES: usize = 9_000_000;

/// The calls in a batch, the batches of each contender, and the time limit for all of them: slow contenders
/// have fewer.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) batch: usize,
    pub(crate) rounds: usize,
    pub(crate) limit: Duration,
}

impl Plan {
    /// The number of runs in a batch for a contender whose runs take that long: at least one, and few enough
    /// to take part in every round.
    pub(crate) fn batch_of(&self, one_run: Duration) -> usize {
        let one_in_each_round = one_run.as_nanos().max(1) * self.rounds as u128;
        let runs = self.limit.as_nanos() / one_in_each_round;
        usize::try_from(runs).unwrap_or(usize::MAX).clamp(1, self.batch)
    }

    /// Whether a contender that has used that much time takes part in this round: not if it is ahead of its
    /// share of the time.
    pub(crate) fn has_turn(&self, round: usize, spent: Duration) -> bool {
        spent.as_nanos() * self.rounds as u128 <= self.limit.as_nanos() * round as u128
    }
}

/// A row of sequential calls.
pub(crate) struct CallRow {
    pub(crate) key: &'static str,
    pub(crate) label: &'static str,
    pub(crate) call: Call,
    pub(crate) plan: Plan,
}

/// How much is measured for each row.
pub(crate) struct Effort {
    pub(crate) starts: Plan,
    pub(crate) starts_with_many: Plan,
    pub(crate) small: Plan,
    pub(crate) medium: Plan,
    pub(crate) large: Plan,
    pub(crate) largest: Plan,
    /// The sizes of the calls after which small calls are measured; a quick run has no time for the largest.
    pub(crate) large_before_small: &'static [usize],
    /// A batch is timed as a whole here.
    pub(crate) parallel: Plan,
    pub(crate) memory: usize,
    pub(crate) first_calls: usize,
    /// Runs with the real CLI; none in a quick run, because they need another environment.
    pub(crate) talks: usize,
    pub(crate) documents: usize,
    /// How many files are searched.
    pub(crate) search_files: usize,
    /// Whether public manuals are searched too; not in a quick run, because they are fetched.
    pub(crate) has_manuals: bool,
    /// The last power of ten of the number of calls.
    pub(crate) growth_calls: usize,
    pub(crate) growth_tools: &'static [usize],
    pub(crate) growth_sessions: &'static [usize],
    /// Batches for each point of a curve.
    pub(crate) growth_rounds: usize,
}

impl Effort {
    pub(crate) fn new(is_quick: bool) -> Self {
        /// Chooses between a full and a quick run.
        fn either<T>(is_quick: bool, [full, quick]: [T; 2]) -> T {
            if is_quick { quick } else { full }
        }
        let plan = |both: [(usize, usize, u64); 2]| {
            let (batch, rounds, limit_ms) = either(is_quick, both);
            Plan { batch, rounds, limit: Duration::from_millis(limit_ms) }
        };
        let count = |both: [usize; 2]| either(is_quick, both);
        Self {
            starts: plan([(1, 300, 12_000), (1, 3, 500)]),
            starts_with_many: plan([(1, 100, 15_000), (1, 1, 500)]),
            small: plan([(50, 400, 3_000), (20, 3, 100)]),
            medium: plan([(50, 200, 3_000), (20, 2, 100)]),
            large: plan([(5, 80, 4_000), (1, 2, 100)]),
            largest: plan([(3, 30, 5_000), (1, 1, 100)]),
            large_before_small: either(is_quick, [&[LARGEST_BYTES, LARGE_BYTES], &[LARGE_BYTES]]),
            parallel: plan([(640, 60, 6_000), (640, 1, 100)]),
            memory: count([3, 1]),
            first_calls: count([100, 5]),
            talks: count([20, 0]),
            documents: count([20, 1]),
            search_files: count([100_000, 1_000]),
            has_manuals: !is_quick,
            growth_calls: count([100_000, 1_000]),
            growth_tools: either(is_quick, [&[1, 10, 100, 1_000, 10_000], &[1, 100]]),
            growth_sessions: either(is_quick, [&[1, 10, 50, 100, 200], &[1, 10]]),
            growth_rounds: count([100, 5]),
        }
    }

    /// The row of calls with that key.
    pub(crate) fn kind(&self, key: &'static str) -> CallRow {
        let (label, call, plan) = match key {
            "text_100_b" => ("100 B text", Call::text(SMALL_BYTES), self.small),
            "text_10_kb" => ("10 KB text", Call::text(MEDIUM_BYTES), self.medium),
            "text_100_b_after_large" => ("100 B after 9 and 1 MB", Call::text(SMALL_BYTES), self.small),
            "text_100_b_any_cpu" => ("100 B on any CPU", Call::text(SMALL_BYTES), self.small),
            "text_10_kb_any_cpu" => ("10 KB on any CPU", Call::text(MEDIUM_BYTES), self.medium),
            "http_100_b" => ("100 B over HTTP", Call::text(SMALL_BYTES), self.small),
            "http_10_kb" => ("10 KB over HTTP", Call::text(MEDIUM_BYTES), self.medium),
            "http_100_b_any_cpu" => ("100 B over HTTP, any CPU", Call::text(SMALL_BYTES), self.small),
            "proxy_100_b" => ("100 B through `serve`", Call::text(SMALL_BYTES), self.small),
            "proxy_100_b_any_cpu" => ("100 B through `serve`, any CPU", Call::text(SMALL_BYTES), self.small),
            "text_1_mb" => ("1 MB text", Call::text(LARGE_BYTES), self.large),
            "text_9_mb" => ("9 MB text", Call::text(LARGEST_BYTES), self.largest),
            "structured_1_mb" => {
                ("1 MB structured, both ways", Call::items_both_ways(LARGE_BYTES), self.large)
            }
            "structured_1_mb_one_way" => {
                ("1 MB structured, one way", Call::items_one_way(LARGE_BYTES), self.large)
            }
            _ => unreachable!("there is no row `{key}`"),
        };
        CallRow { key, label, call, plan }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_contenders_have_fewer_runs_but_at_least_one() {
        let plan = Plan { batch: 50, rounds: 400, limit: Duration::from_secs(4) };
        assert_eq!(plan.batch_of(Duration::from_micros(20)), 50, "fast enough");
        assert_eq!(plan.batch_of(Duration::from_millis(1)), 10, "smaller batches");
        assert_eq!(plan.batch_of(Duration::from_secs(100)), 1, "but never none");
    }

    #[test]
    fn no_contender_takes_much_longer_than_the_limit_and_all_start() {
        let plan = Plan { batch: 1, rounds: 100, limit: Duration::from_secs(1) };
        for run in [1, 10, 50, 5_000].map(Duration::from_millis) {
            let mut spent = Duration::ZERO;
            let mut runs = 0;
            for round in 0..plan.rounds {
                if plan.has_turn(round, spent) {
                    spent += run;
                    runs += 1;
                }
            }
            assert!(runs >= 1 && spent <= plan.limit + run, "{run:?}: {runs} runs in {spent:?}");
        }
    }
}
