//! One row of the report: a figure for each contender.

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::contender::{Class, Contender};
use crate::sample::Figure;

/// The unit of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Unit {
    /// Seconds for one run.
    #[serde(rename = "seconds")]
    Time,
    /// Seconds per call; shown as calls per second.
    #[serde(rename = "seconds per call")]
    Rate,
    #[serde(rename = "bytes")]
    Memory,
}

impl Unit {
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::Time if value < 1e-3 => format!("{:.1} µs", value * 1e6),
            Self::Time if value < 1.0 => format!("{:.2} ms", value * 1e3),
            Self::Time => format!("{value:.2} s"),
            Self::Rate => format!("{:.1} k/s", 1e-3 / value),
            Self::Memory => format!("{:.2} MB", value / 1e6),
        }
    }
}

pub(crate) struct Row {
    pub(crate) key: &'static str,
    pub(crate) label: &'static str,
    pub(crate) unit: Unit,
    /// Only the contenders that have been measured.
    pub(crate) figures: Vec<(Contender, Figure)>,
}

impl Row {
    pub(crate) fn new(
        key: &'static str,
        label: &'static str,
        unit: Unit,
        samples: impl IntoIterator<Item = (Contender, Vec<f64>)>,
    ) -> Self {
        let figures =
            samples.into_iter().filter_map(|(one, samples)| Some((one, Figure::of(samples)?))).collect();
        Self { key, label, unit, figures }
    }

    /// A row of values that were measured one by one, with the contenders in order of their first values.
    pub(crate) fn of_single(
        key: &'static str,
        label: &'static str,
        unit: Unit,
        values: impl IntoIterator<Item = (Contender, f64)>,
    ) -> Self {
        let mut samples: Vec<(Contender, Vec<f64>)> = Vec::new();
        for (contender, value) in values {
            match samples.iter_mut().find(|(one, _)| *one == contender) {
                Some((_, values)) => values.push(value),
                None => samples.push((contender, vec![value])),
            }
        }
        Self::new(key, label, unit, samples)
    }

    pub(crate) fn figure(&self, contender: Contender) -> Option<Figure> {
        self.figures.iter().find(|(other, _)| *other == contender).map(|(_, figure)| *figure)
    }

    /// A contender's median as a multiple of the floor's.
    pub(crate) fn to_floor(&self, contender: Contender) -> Option<f64> {
        Some(self.figure(contender)?.median / self.figure(Contender::Floor)?.median)
    }

    /// The median of one of ours as a multiple of the best peer's.
    pub(crate) fn to_best_peer(&self, contender: Contender) -> Option<f64> {
        let peers = self.figures.iter().filter(|(other, _)| other.class == Class::Peer);
        let best = peers.map(|(_, figure)| figure.median).min_by(f64::total_cmp)?;
        (contender.class == Class::Ours).then_some(self.figure(contender)?.median / best)
    }
}

/// A row with our figure, and the figure without us, if there is one.
pub(crate) struct Beside {
    pub(crate) key: &'static str,
    pub(crate) label: &'static str,
    pub(crate) ours: Figure,
    pub(crate) other: Option<Figure>,
}

impl Beside {
    /// One row for each key and label, from our values and the others.
    pub(crate) fn lines(
        names: impl IntoIterator<Item = (&'static str, &'static str)>,
        samples: impl IntoIterator<Item = (Vec<f64>, Vec<f64>)>,
    ) -> Result<Vec<Self>> {
        let line = |((key, label), (ours, other))| {
            let ours = Figure::of(ours).with_context(|| format!("{key}: nothing was measured"))?;
            Ok(Self { key, label, ours, other: Figure::of(other) })
        };
        names.into_iter().zip(samples).map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_to_the_floor_and_to_the_best_of_the_peers() {
        let figures = [
            (Contender::Floor, vec![10.0]),
            (Contender::Bridge, vec![12.0]),
            (Contender::NodeSdk, vec![120.0]),
            (Contender::FastMcp, vec![600.0]),
            (Contender::Sdk, vec![]),
        ];
        let row = Row::new("key", "label", Unit::Time, figures);
        assert_eq!(row.to_floor(Contender::Bridge), Some(1.2));
        assert_eq!(row.to_best_peer(Contender::Bridge), Some(0.1));
        assert_eq!(row.to_best_peer(Contender::Floor), None);
        assert_eq!(row.to_best_peer(Contender::FastMcp), None);
        assert_eq!(row.figure(Contender::Sdk), None, "nothing was measured");
    }

    #[test]
    fn a_value_is_shown_in_a_unit_that_suits_it() {
        assert_eq!(Unit::Time.show(17.25e-6), "17.2 µs");
        assert_eq!(Unit::Time.show(0.0125), "12.50 ms");
        assert_eq!(Unit::Time.show(2.5), "2.50 s");
        assert_eq!(Unit::Rate.show(20e-6), "50.0 k/s");
        assert_eq!(Unit::Memory.show(3_500_000.0), "3.50 MB");
    }
}
