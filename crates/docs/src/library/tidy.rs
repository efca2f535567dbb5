//! Merges the parts of an index, to keep their number small.

use std::sync::{Arc, Mutex, MutexGuard, Weak};

use super::{Library, Parts};
use crate::cache::Cache;
use crate::index::{Blob, Broken, Live, Segment, Unmerged, merge};

/// Parts that are together larger than this are merged into the previous one, whatever its size: they are
/// only in memory and would be read again at the next start.
const MOST_LOOSE_BYTES: u64 = 4 * 1024 * 1024;
/// Larger segments are merged in the background.
const MERGED_AT_ONCE_BYTES: u64 = 512 * 1024;

/// A planned merge.
#[derive(Debug)]
pub(super) struct Plan {
    /// The first part to merge.
    from: usize,
    parts: Parts,
    /// Where the result is stored, if on disk.
    cache: Option<Arc<Cache>>,
}

/// Merges small parts: small amounts immediately, larger ones in the background.
pub(crate) fn tidy(library: &Arc<Mutex<Library>>) {
    let mut locked = lock(library);
    let Some(plan) = locked.plan() else { return };
    let bytes: u64 = plan.parts.iter().map(|(segment, _)| segment.size).sum();
    if plan.cache.is_none() && bytes <= MERGED_AT_ONCE_BYTES {
        let merged = plan.run(&|| false);
        return locked.take(&plan, merged);
    }
    locked.is_merging = true;
    drop(locked);
    let weak = Arc::downgrade(library);
    let run = move || merge_for(&weak, &plan);
    if let Err(error) = std::thread::Builder::new().name("toolbridge-docs".into()).spawn(run) {
        tracing::warn!(%error, "the parts of the index are not merged now");
        lock(library).is_merging = false;
    }
}

fn merge_for(library: &Weak<Mutex<Library>>, plan: &Plan) {
    let merged = plan.run(&|| library.strong_count() == 0);
    if let Some(library) = library.upgrade() {
        let mut locked = lock(&library);
        locked.is_merging = false;
        locked.take(plan, merged);
    }
}

/// Locks the index. After a panic it may be incomplete, so it is built again.
pub(crate) fn lock(library: &Mutex<Library>) -> MutexGuard<'_, Library> {
    library.lock().unwrap_or_else(|half_done| {
        library.clear_poison();
        let mut locked = half_done.into_inner();
        locked.discard();
        locked.is_merging = false;
        locked
    })
}

impl Library {
    /// Plans a merge if the later parts together are at least half as large as the one before, or if half of
    /// a part is dead.
    pub(super) fn plan(&mut self) -> Option<Plan> {
        if self.is_merging {
            return None;
        }
        let is_dead = |(_, live): &(_, Live)| live.file_count == 0;
        if self.parts.iter().any(is_dead) {
            self.is_kept &= !self.parts.first().is_some_and(is_dead);
            Arc::make_mut(&mut self.parts).retain(|part| !is_dead(part));
        }
        let parts = &self.parts;
        let size = |from: usize| parts[from..].iter().map(|(segment, _)| segment.size).sum::<u64>();
        let is_worth = |from: usize| {
            let (segment, live) = &parts[from];
            size(from + 1) >= MOST_LOOSE_BYTES.min(segment.size / 2)
                || live.file_count < segment.file_count() / 2
        };
        let is_unkept = |cache: &Arc<Cache>| !self.is_kept && !parts.is_empty() && cache.wants(size(0));
        let unkept = self.cache.as_ref().is_some_and(is_unkept).then_some(0);
        let from = unkept.or_else(|| (0..parts.len()).find(|from| is_worth(*from)))?;
        let has_dead = parts[from].1.file_count < parts[from].0.file_count();
        if unkept.is_none() && from + 1 == parts.len() && !has_dead {
            return None;
        }
        let cache = self.cache.as_ref().filter(|cache| from == 0 && cache.wants(size(0))).map(Arc::clone);
        Some(Plan { from, parts: parts[from..].to_vec(), cache })
    }

    /// Replaces the merged parts by the result. Files that died in the meantime are marked dead in it.
    pub(super) fn take(&mut self, plan: &Plan, merged: Result<Segment, Unmerged>) {
        let segment = match merged {
            Ok(segment) => segment,
            Err(Unmerged::Cancelled) => return,
            Err(Unmerged::Read) => return self.discard(),
            Err(Unmerged::Write(error)) => {
                tracing::warn!(%error, "the index is not kept");
                self.cache = None;
                return;
            }
        };
        let range = plan.from..plan.from + plan.parts.len();
        let is_same = |now: &[(Arc<Segment>, Live)]| {
            now.iter().zip(&plan.parts).all(|(one, other)| Arc::ptr_eq(&one.0, &other.0))
        };
        let parts = Arc::make_mut(&mut self.parts);
        if !parts.get(range.clone()).is_some_and(is_same) {
            return;
        }
        let mut live = Live::all(&segment);
        for ((old, now), (_, before)) in parts[range.clone()].iter().zip(&plan.parts) {
            let died = (0..old.file_count()).filter(|file| before.has_file(*file) && !now.has_file(*file));
            for file in died.filter_map(|file| segment.find_file(old.file(file).path).ok()) {
                live.bury(&segment, file);
            }
        }
        parts.splice(range, [(Arc::new(segment), live)]);
        self.is_kept = self.is_kept && plan.from > 0 || plan.cache.is_some();
    }
}

impl Plan {
    pub(super) fn run(&self, is_gone: &dyn Fn() -> bool) -> Result<Segment, Unmerged> {
        if let Some(cache) = &self.cache {
            return cache.keep(|out, key| merge(&self.parts, out, key, is_gone));
        }
        let mut bytes = Vec::new();
        merge(&self.parts, &mut bytes, "", is_gone)?;
        bytes.shrink_to_fit();
        Segment::open(Blob::Memory(bytes), "").map_err(|Broken| Unmerged::Read)
    }
}
