//! The faults of a host, and which errors they explain.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::host::lock;

/// A shorter stop loses nothing: bridges check twice, three quarters of a second apart.
const MOMENT: Duration = Duration::from_millis(700);

/// All faults of one host.
#[derive(Default)]
pub(crate) struct Troubles(Mutex<Vec<Trouble>>);

struct Trouble {
    from: Instant,
    /// `None` as long as it lasts.
    to: Option<Instant>,
    /// Whether the host has ended.
    is_end: bool,
}

impl Troubles {
    /// Called before the host is stopped, or ended.
    pub(crate) fn begin(&self, is_end: bool) {
        lock(&self.0).push(Trouble { from: Instant::now(), to: None, is_end });
    }

    /// Called when it continues.
    pub(crate) fn end(&self) {
        if let Some(trouble) = lock(&self.0).last_mut() {
            trouble.to = Some(Instant::now());
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        lock(&self.0).iter().any(|trouble| trouble.is_end)
    }

    /// Whether they explain a call without an answer. While the host is stopped, this waits.
    pub(crate) fn explain(&self, sent: Instant, answered: Instant) -> bool {
        loop {
            let mut is_open = false;
            for trouble in lock(&self.0).iter() {
                if trouble.from <= answered && trouble.to.is_none_or(|to| to >= sent) {
                    let lasted = trouble.to.unwrap_or_else(Instant::now) - trouble.from;
                    if trouble.is_end || lasted >= MOMENT {
                        return true;
                    }
                    is_open |= trouble.to.is_none();
                }
            }
            if !is_open {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_happened_meanwhile_explains_an_error() {
        let troubles = Troubles::default();
        let early = Instant::now();
        assert!(!troubles.explain(early, Instant::now()), "there was no fault");
        troubles.begin(true);
        let late = Instant::now();
        assert!(troubles.explain(early, late) && troubles.explain(late, late), "an end is permanent");
        assert!(!troubles.explain(early, early), "it was answered before");
        assert!(troubles.has_ended());
    }

    #[test]
    fn a_stop_explains_an_error_only_if_it_lasted() {
        let now = Instant::now();
        let stopped = |lasted| {
            let trouble = Trouble { from: now, to: Some(now + lasted), is_end: false };
            Troubles(Mutex::new(vec![trouble]))
        };
        let (moment, seconds) = (stopped(MOMENT / 2), stopped(MOMENT * 4));
        assert!(!moment.explain(now, now + MOMENT) && seconds.explain(now, now + MOMENT));
        assert!(!seconds.explain(now + MOMENT * 5, now + MOMENT * 6), "the stop was over before the call");
        assert!(!seconds.has_ended());
    }
}
