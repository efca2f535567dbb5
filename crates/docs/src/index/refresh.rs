//! Keeps an index up to date with the files on disk.

use std::num::NonZero;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::{Draft, File, Index};
use crate::manual::Manuals;
use crate::refusal::Refusal;
use crate::root::Entry;

/// Up to this many files are read by one thread.
const FILES_FOR_ONE: usize = 64;
const MOST_THREADS: usize = 4;
/// How many files a thread takes at a time.
const CHUNK: usize = 32;
/// How much text a thread reads before it adds that to the index.
const DRAFT_BYTES: usize = 8 * 1024 * 1024;
/// The size of the files from which on somebody may wonder about the time and the memory that they take.
const LARGE_BYTES: u64 = 100 * 1000 * 1000;

impl Index {
    /// Looks at all files, reads those that are new or have changed, and forgets those that are gone. What was read so far
    /// is kept if the call is cancelled.
    pub(crate) fn refresh(&mut self, manuals: &Manuals, is_gone: &dyn Fn() -> bool) -> Result<(), Refusal> {
        let (stale, gone) = self.look(manuals)?;
        if stale.is_empty() && gone.is_empty() {
            return Ok(());
        }
        self.bury(gone);
        // What is dead takes memory and time.
        if self.docs.len() > 2 * self.live_docs || self.files.len() > 2 * self.order.len() {
            *self = Self::default();
            return self.refresh(manuals, is_gone);
        }
        let known = self.files.len();
        let is_whole = self.read(manuals, stale, is_gone);
        self.arrange(known);
        if is_whole { Ok(()) } else { Err(Refusal::conflict("the call was cancelled; search again")) }
    }

    /// The files on disk that must be read, and the indexed ones that have changed or are gone.
    fn look(&self, manuals: &Manuals) -> Result<(Vec<Entry>, Vec<u32>), Refusal> {
        let (mut stale, mut gone) = (Vec::new(), Vec::new());
        // Both are sorted by path.
        let mut known = self.order.iter().copied().peekable();
        let path = |file: u32| &self.files[file as usize].path;
        for (entry, _) in manuals.files(None)? {
            while let Some(file) = known.next_if(|file| path(*file) < &entry.path) {
                gone.push(file);
            }
            if let Some(file) = known.next_if(|file| path(*file) == &entry.path) {
                let File { is_settled, mark, .. } = self.files[file as usize];
                if is_settled && mark == entry.stamp.numbers() {
                    continue;
                }
                gone.push(file);
            }
            stale.push(entry);
        }
        gone.extend(known);
        Ok((stale, gone))
    }

    /// Reads files with several threads; returns whether all of them were read.
    fn read(&mut self, manuals: &Manuals, stale: Vec<Entry>, is_gone: &dyn Fn() -> bool) -> bool {
        // Cached, because determining it reads several system files.
        static THREADS: LazyLock<usize> =
            LazyLock::new(|| std::thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS));

        let bytes: u64 = stale.iter().map(|entry| entry.stamp.size).sum();
        if bytes >= LARGE_BYTES {
            tracing::warn!(
                files = stale.len(),
                megabytes = bytes / 1_000_000,
                "many files are read, and searches wait for that; about a quarter of their size is kept in memory"
            );
        }
        let threads = if stale.len() <= FILES_FOR_ONE { 1 } else { *THREADS };
        let is_stopped = AtomicBool::new(false);
        let next = Mutex::new(stale.into_iter());
        let take = || -> Vec<Entry> { locked(&next).by_ref().take(CHUNK).collect() };
        let whole = Mutex::new(&mut *self);
        let add = |draft: Draft| locked(&whole).add(draft);
        let work = |is_gone: &dyn Fn() -> bool| {
            let mut draft = Draft::default();
            let mut chunk = take();
            while !chunk.is_empty() {
                for entry in chunk {
                    if is_stopped.load(Relaxed) || is_gone() {
                        is_stopped.store(true, Relaxed);
                        return add(draft);
                    }
                    draft.read(manuals, entry);
                    if draft.bytes > DRAFT_BYTES {
                        add(std::mem::take(&mut draft));
                    }
                }
                chunk = take();
            }
            add(draft);
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(|| work(&|| false));
            }
            work(is_gone);
        });
        if threads > 1 {
            self.shrink();
        }
        !is_stopped.into_inner()
    }
}

impl Draft {
    /// A file that is not text has no sections until it changes. One that cannot be read now is tried again at the next
    /// search.
    fn read(&mut self, manuals: &Manuals, entry: Entry) {
        // Before it is read: a change from then on must be noticed.
        let is_settled = entry.stamp.is_settled();
        match manuals.read(&entry.path) {
            Ok(reading) => self.add(entry.path, &reading),
            Err(refusal) => {
                tracing::debug!(path = entry.path.as_str(), reason = refusal.message, "file left out");
                if refusal.is_lasting {
                    self.end_file(entry.path, entry.stamp.numbers(), is_settled, "");
                }
            }
        }
    }
}

/// A panic of another thread is reported when all have ended.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
