//! Figures from many runs.

use serde::Serialize;

/// The statistics of the measured values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    pub(crate) p99: f64,
    pub(crate) runs: usize,
}

impl Figure {
    /// `None` when nothing was measured.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_unstable_by(f64::total_cmp);
        let runs = values.len();
        let at = |hundredths: usize| values.get((runs * hundredths).div_ceil(100).saturating_sub(1)).copied();
        Some(Self { median: at(50)?, p99: at(99)?, runs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_runs_are_at_most_the_median_and_99_of_100_at_most_p99() {
        let figure = |median, p99, runs| Some(Figure { median, p99, runs });
        assert_eq!(Figure::of(vec![]), None);
        assert_eq!(Figure::of(vec![7.0]), figure(7.0, 7.0, 1));
        assert_eq!(Figure::of(vec![3.0, 1.0, 2.0]), figure(2.0, 3.0, 3));
        assert_eq!(Figure::of((1..=1000).rev().map(f64::from).collect()), figure(500.0, 990.0, 1000));
    }
}
