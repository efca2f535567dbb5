//! From values to places on a chart.

/// A logarithmic axis over whole powers of ten.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Log {
    /// The powers at its two ends.
    powers: (i32, i32),
    /// Its length on the chart.
    length: f64,
}

impl Log {
    /// An axis that has room for all these values, none of which is zero; it begins below the smallest.
    pub(crate) fn new(values: impl IntoIterator<Item = f64>, length: f64) -> Self {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            (low, high) = (1.0, 1.0);
        }
        let (first, last) = (power(low.log10().floor()), power(high.log10().ceil()));
        Self { powers: (first, last.max(first + 1)), length }
    }

    /// How far from its beginning a value is.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let (first, last) = self.powers;
        (value.log10() - f64::from(first)) / f64::from(last - first) * self.length
    }

    /// The powers of ten on it.
    pub(crate) fn ticks(&self) -> impl Iterator<Item = f64> {
        (self.powers.0..=self.powers.1).map(|power| 10_f64.powi(power))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a logarithm of something measured is small")]
fn power(value: f64) -> i32 {
    value as i32
}

/// A linear axis that begins at zero.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Linear {
    step: f64,
    steps: u32,
    length: f64,
}

impl Linear {
    /// An axis that has room for all these values, with round ticks.
    pub(crate) fn new(values: impl IntoIterator<Item = f64>, length: f64) -> Self {
        let high = values.into_iter().fold(f64::MIN_POSITIVE, f64::max);
        let base = 10_f64.powf(high.log10().floor());
        // At most five steps, each of 1, 2 or 5 times a power of ten.
        let step = [0.2, 0.5, 1.0, 2.0].map(|times| times * base).into_iter().find(|step| high / step <= 5.0);
        let step = step.unwrap_or(base * 2.0);
        let steps = (1..=5).find(|steps| f64::from(*steps) * step >= high * 0.999).unwrap_or(5);
        Self { step, steps, length }
    }

    pub(crate) fn place(&self, value: f64) -> f64 {
        value / (self.step * f64::from(self.steps)) * self.length
    }

    pub(crate) fn ticks(&self) -> impl Iterator<Item = f64> {
        let step = self.step;
        (0..=self.steps).map(move |number| f64::from(number) * step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn near(found: f64, want: f64) {
        assert!((found - want).abs() < 1e-9 * want.abs().max(1.0), "{found} is not {want}");
    }

    #[test]
    fn each_power_of_ten_has_the_same_length() {
        let axis = Log::new([20e-6, 0.9e-3], 200.0);
        let ticks: Vec<f64> = axis.ticks().collect();
        assert_eq!(ticks.len(), 3);
        near(ticks[0], 1e-5);
        near(axis.place(1e-5), 0.0);
        near(axis.place(1e-4), 100.0);
        near(axis.place(1e-3), 200.0);
    }

    #[test]
    fn an_axis_of_one_value_or_none_has_a_length_too() {
        near(Log::new([1.0], 100.0).place(10.0), 100.0);
        near(Log::new([], 100.0).place(1.0), 0.0);
        assert!(Linear::new([0.0], 100.0).place(0.0).abs() < 1e-9);
    }

    #[test]
    fn a_linear_axis_has_few_round_ticks_and_room_for_all() {
        for (high, last) in [(38.0, 40.0), (41.0, 50.0), (9.0, 10.0), (1.0, 1.0), (203.0, 250.0)] {
            let axis = Linear::new([1.0, high], 100.0);
            let ticks: Vec<f64> = axis.ticks().collect();
            assert!(ticks.len() <= 6, "{ticks:?}");
            near(ticks[0], 0.0);
            near(*ticks.last().unwrap(), last);
            near(axis.place(last), 100.0);
        }
    }
}
