//! Axes: map values to positions on a chart.

/// An axis from its first tick to its last.
#[derive(Debug, Clone)]
pub(crate) struct Axis {
    pub(crate) ticks: Vec<f64>,
    is_log: bool,
    /// Its length on the chart.
    length: f64,
}

impl Axis {
    /// A logarithmic axis over whole powers of ten that covers all these values, none of which is zero; it
    /// begins below the smallest.
    pub(crate) fn log(values: impl IntoIterator<Item = f64>, length: f64) -> Self {
        let powers: Vec<f64> = values.into_iter().map(f64::log10).collect();
        let lowest = powers.iter().copied().reduce(f64::min).unwrap_or(0.0).floor();
        let highest = powers.iter().copied().reduce(f64::max).unwrap_or(0.0).ceil().max(lowest + 1.0);
        let powers = (0..).map(|step| lowest + f64::from(step)).take_while(|power| *power <= highest);
        Self { ticks: powers.map(|power| 10_f64.powf(power)).collect(), is_log: true, length }
    }

    /// A linear axis from zero that covers all these values, with round ticks.
    pub(crate) fn linear(values: impl IntoIterator<Item = f64>, length: f64) -> Self {
        let high = values.into_iter().fold(f64::MIN_POSITIVE, f64::max);
        let base = 10_f64.powf(high.log10().floor());
        // At most five steps, each of 1, 2 or 5 times a power of ten.
        let step = [0.2, 0.5, 1.0, 2.0].map(|times| times * base).into_iter().find(|step| high / step <= 5.0);
        let step = step.unwrap_or(base * 2.0);
        let steps = (1..=5).find(|steps| f64::from(*steps) * step >= high * 0.999).unwrap_or(5);
        Self { ticks: (0..=steps).map(|number| f64::from(number) * step).collect(), is_log: false, length }
    }

    /// The distance of a value from the start of the axis.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let scaled = |value: f64| if self.is_log { value.log10() } else { value };
        let (first, last) = (scaled(self.ticks[0]), scaled(self.ticks[self.ticks.len() - 1]));
        (scaled(value) - first) / (last - first) * self.length
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
        let axis = Axis::log([20e-6, 0.9e-3], 200.0);
        let ticks: Vec<f64> = axis.ticks.clone();
        assert_eq!(ticks.len(), 3);
        near(ticks[0], 1e-5);
        near(axis.place(1e-5), 0.0);
        near(axis.place(1e-4), 100.0);
        near(axis.place(1e-3), 200.0);
    }

    #[test]
    fn an_axis_of_one_value_or_none_has_a_length_too() {
        near(Axis::log([1.0], 100.0).place(10.0), 100.0);
        near(Axis::log([], 100.0).place(1.0), 0.0);
        assert!(Axis::linear([0.0], 100.0).place(0.0).abs() < 1e-9);
    }

    #[test]
    fn a_linear_axis_has_few_round_ticks_and_room_for_all() {
        for (high, last) in [(38.0, 40.0), (41.0, 50.0), (9.0, 10.0), (1.0, 1.0), (203.0, 250.0)] {
            let axis = Axis::linear([1.0, high], 100.0);
            let ticks: Vec<f64> = axis.ticks.clone();
            assert!(ticks.len() <= 6, "{ticks:?}");
            near(ticks[0], 0.0);
            near(*ticks.last().unwrap(), last);
            near(axis.place(last), 100.0);
        }
    }
}
