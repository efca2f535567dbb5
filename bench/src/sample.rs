//! Figures of many runs.

use serde::Serialize;

/// Measured values, in the order they came.
#[derive(Default)]
pub(crate) struct Samples(Vec<f64>);

/// What is left of them to print.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    pub(crate) p99: f64,
    pub(crate) runs: usize,
}

impl Samples {
    pub(crate) fn add(&mut self, value: f64) {
        self.0.push(value);
    }

    /// `None` when nothing was measured.
    pub(crate) fn figure(mut self) -> Option<Figure> {
        self.0.sort_unstable_by(f64::total_cmp);
        let runs = self.0.len();
        let at = |hundredths: usize| self.0.get((runs * hundredths).div_ceil(100).saturating_sub(1)).copied();
        Some(Figure { median: at(50)?, p99: at(99)?, runs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(values: impl IntoIterator<Item = u32>) -> Option<Figure> {
        let mut samples = Samples::default();
        values.into_iter().for_each(|value| samples.add(value.into()));
        samples.figure()
    }

    #[test]
    fn half_of_the_runs_are_at_most_the_median_and_99_of_100_at_most_p99() {
        assert_eq!(figure([]), None);
        assert_eq!(figure([7]), Some(Figure { median: 7.0, p99: 7.0, runs: 1 }));
        assert_eq!(figure([3, 1, 2]), Some(Figure { median: 2.0, p99: 3.0, runs: 3 }));
        assert_eq!(figure((1..=1000).rev()), Some(Figure { median: 500.0, p99: 990.0, runs: 1000 }));
    }
}
