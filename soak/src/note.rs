//! The notes of a host: exclusive calls, numbered by the host.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::host::lock;

/// A note that was written.
#[derive(Clone, Copy)]
pub(crate) struct Note {
    pub(crate) sent: Instant,
    pub(crate) answered: Instant,
    /// The least time that writing it takes.
    pub(crate) ms: u64,
}

/// All notes of one host, by number.
#[derive(Default)]
pub(crate) struct Notes(Mutex<BTreeMap<u64, Note>>);

impl Notes {
    /// The highest number so far.
    pub(crate) fn highest(&self) -> u64 {
        lock(&self.0).last_key_value().map_or(0, |(number, _)| *number)
    }

    /// Records a note: its number must be unique and higher than all that were `seen` before the request, and
    /// it must not overlap with another one.
    pub(crate) fn add(&self, number: u64, seen: u64, note: Note) -> Result<()> {
        let mut notes = lock(&self.0);
        ensure!(number > seen, "note {number} was written before it was asked for, after {seen}");
        ensure!(notes.insert(number, note).is_none(), "two notes have the number {number}");
        for (first, second) in [(number - 1, number), (number, number + 1)] {
            if let (Some(first), Some(second)) = (notes.get(&first), notes.get(&second)) {
                let took = second.answered.saturating_duration_since(first.sent);
                let least = Duration::from_millis(first.ms + second.ms);
                ensure!(took >= least, "two exclusive calls overlap at note {number}");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_have_numbers_of_their_own_and_take_turns() {
        let now = Instant::now();
        let note = |from: u64, to: u64, ms| Note {
            sent: now + Duration::from_millis(from),
            answered: now + Duration::from_millis(to),
            ms,
        };
        let notes = Notes::default();
        notes.add(2, 0, note(0, 50, 20)).unwrap();
        notes.add(1, 0, note(0, 25, 20)).unwrap();
        assert_eq!(notes.highest(), 2);
        assert!(notes.add(2, 0, note(60, 70, 0)).is_err(), "a duplicate number");
        assert!(notes.add(3, 3, note(60, 70, 0)).is_err(), "requested after the third note");
        assert!(notes.add(3, 2, note(0, 30, 20)).is_err(), "both took 20 ms, within 30 ms");
    }
}
