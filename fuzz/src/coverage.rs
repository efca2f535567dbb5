//! Which code an input reached, in a build that counts it.
//!
//! `cargo xtask fuzz` has LLVM put a counter at every edge of the code. The counters of the whole executable
//! lie in one array, whose bounds the executable is told before `main`.

/// What all inputs so far have reached.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    #[cfg(toolbridge_coverage)]
    seen: Vec<u8>,
}

#[cfg(not(toolbridge_coverage))]
impl Coverage {
    pub(crate) const IS_COUNTED: bool = false;

    pub(crate) fn clear() {}

    /// Whether the last input reached code that none before it had.
    #[expect(clippy::unused_self, reason = "the build that counts has something to remember")]
    pub(crate) fn has_grown(&mut self) -> bool {
        false
    }

    #[expect(clippy::unused_self, reason = "the build that counts has something to remember")]
    pub(crate) fn edges(&self) -> usize {
        0
    }
}

#[cfg(toolbridge_coverage)]
impl Coverage {
    pub(crate) const IS_COUNTED: bool = true;

    pub(crate) fn clear() {
        for counter in counters::all() {
            counter.store(0, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Whether the last input reached code that none before it had, or reached it an order of magnitude more
    /// often.
    pub(crate) fn has_grown(&mut self) -> bool {
        let counters = counters::all();
        self.seen.resize(counters.len(), 0);
        let mut has_grown = false;
        for (counter, seen) in counters.iter().zip(&mut self.seen) {
            let count = counter.load(std::sync::atomic::Ordering::Relaxed);
            let bucket = u8::try_from(u8::BITS - count.leading_zeros()).unwrap_or(0);
            if bucket > *seen {
                *seen = bucket;
                has_grown = true;
            }
        }
        has_grown
    }

    pub(crate) fn edges(&self) -> usize {
        self.seen.iter().filter(|count| **count > 0).count()
    }
}

#[cfg(toolbridge_coverage)]
mod counters {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

    static START: AtomicUsize = AtomicUsize::new(0);
    static END: AtomicUsize = AtomicUsize::new(0);

    /// Called by each part of the executable before `main`, always with the same bounds.
    #[expect(unsafe_code, reason = "LLVM's counters call it by this name")]
    #[unsafe(no_mangle)]
    extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, end: *mut u8) {
        START.store(start.addr(), Ordering::Relaxed);
        END.store(end.addr(), Ordering::Relaxed);
    }

    #[expect(unsafe_code, reason = "the counters are known by their bounds alone")]
    pub(super) fn all() -> &'static [AtomicU8] {
        static ALL: OnceLock<&'static [AtomicU8]> = OnceLock::new();
        ALL.get_or_init(|| {
            let (start, end) = (START.load(Ordering::Relaxed), END.load(Ordering::Relaxed));
            if start == 0 {
                return &[];
            }
            // SAFETY: the bounds are those of a static array of bytes, which lives as long as the process. The
            // code that counts does so without synchronisation; a count that is lost is of no consequence.
            unsafe { std::slice::from_raw_parts(start as *const AtomicU8, end - start) }
        })
    }
}
