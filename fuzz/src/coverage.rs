//! Which code an input reached, in a build that counts it.
//!
//! `cargo xtask fuzz` has LLVM put a counter at every edge of the code. The counters of the whole executable
//! lie in one array, whose bounds the executable is told before `main`.

/// What all inputs so far have reached.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    #[cfg(toolbridge_coverage)]
    seen: Vec<u8>,
    /// What the last one has.
    #[cfg(toolbridge_coverage)]
    last: Vec<u8>,
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
        counters::clear();
    }

    /// Whether the last input reached code that none before it had, or reached it an order of magnitude more
    /// often.
    pub(crate) fn has_grown(&mut self) -> bool {
        counters::copy(&mut self.last);
        self.seen.resize(self.last.len(), 0);
        let mut has_grown = false;
        // Most of the code is not reached, so eight counters at a time.
        for (counts, seen) in self.last.chunks(8).zip(self.seen.chunks_mut(8)) {
            if counts == &[0; 8][..counts.len()] {
                continue;
            }
            for (count, seen) in counts.iter().zip(seen) {
                let bucket = u8::try_from(u8::BITS - count.leading_zeros()).unwrap_or(0);
                if bucket > *seen {
                    *seen = bucket;
                    has_grown = true;
                }
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    static START: AtomicUsize = AtomicUsize::new(0);
    static END: AtomicUsize = AtomicUsize::new(0);

    /// Called by each part of the executable before `main`, always with the same bounds.
    #[expect(unsafe_code, reason = "LLVM's counters call it by this name")]
    #[unsafe(no_mangle)]
    extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, end: *mut u8) {
        START.store(start.expose_provenance(), Ordering::Relaxed);
        END.store(end.addr(), Ordering::Relaxed);
    }

    /// The first counter, and how many there are.
    fn all() -> (*mut u8, usize) {
        let start = START.load(Ordering::Relaxed);
        (std::ptr::with_exposed_provenance_mut(start), END.load(Ordering::Relaxed) - start)
    }

    #[expect(unsafe_code, reason = "the counters are known by their bounds alone")]
    pub(super) fn clear() {
        let (start, count) = all();
        // SAFETY: the bounds are those of a static array of bytes, which lives as long as the process. The code that
        // counts does so without synchronisation; a count that is lost is of no consequence.
        unsafe { start.write_bytes(0, count) }
    }

    #[expect(unsafe_code, reason = "the counters are known by their bounds alone")]
    pub(super) fn copy(to: &mut Vec<u8>) {
        let (start, count) = all();
        to.resize(count, 0);
        // SAFETY: as above; `to` has room for all of them.
        unsafe { start.copy_to_nonoverlapping(to.as_mut_ptr(), count) }
    }
}
