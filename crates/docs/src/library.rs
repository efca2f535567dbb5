//! The index of all manuals, and keeping it up to date.

mod reading;
#[cfg(test)]
mod tests;
mod tidy;

use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;

pub(crate) use self::tidy::{lock, tidy};
use crate::cache::Cache;
use crate::index::{FileId, Live, Mark, Segment, compare_paths};
use crate::manual::Manuals;
use crate::path::RelPath;
use crate::refusal::Refusal;
use crate::root::{Entry, Visitor};
use crate::watch::{Changes, Watch};

/// With fewer files, each search checks all of them: that is fast enough, and also detects changes that a
/// watch does not report, such as those made through another hard link.
const WATCHED_FILES: u32 = 1000;

/// Segments, each with its live files.
pub(crate) type Parts = Vec<(Arc<Segment>, Live)>;

/// The index of all manuals. Nothing is read before the first [`refresh`](Self::refresh).
#[derive(Debug)]
pub(crate) struct Library {
    parts: Arc<Parts>,
    cache: Option<Arc<Cache>>,
    /// Whether loading the stored index was attempted.
    is_loaded: bool,
    /// Whether the first part is the stored index.
    is_kept: bool,
    watching: Watching,
    changes: Changes,
    is_merging: bool,
    /// Files are watched if there are at least this many.
    watched_from: u32,
}

#[derive(Debug, Default)]
enum Watching {
    /// Not yet watched.
    #[default]
    No,
    Yes(Watch),
    /// The system does not support it.
    Never,
}

impl Library {
    pub(crate) fn new(cache: Option<Cache>) -> Self {
        Self {
            parts: Arc::default(),
            cache: cache.map(Arc::new),
            is_loaded: false,
            is_kept: false,
            watching: Watching::default(),
            changes: Changes::default(),
            is_merging: false,
            watched_from: WATCHED_FILES,
        }
    }

    /// The current index.
    pub(crate) fn parts(&self) -> Arc<Parts> {
        Arc::clone(&self.parts)
    }

    /// Drops the index in memory and on disk because it cannot be read.
    pub(crate) fn discard(&mut self) {
        tracing::warn!("the index can no longer be read; it is built again");
        self.parts = Arc::default();
        (self.is_loaded, self.is_kept) = (true, false);
        self.changes.everything = true;
    }

    /// Indexes new and changed files and drops removed ones. What was read so far is kept if the call is
    /// cancelled.
    pub(crate) fn refresh(&mut self, manuals: &Manuals, is_gone: &dyn Fn() -> bool) -> Result<(), Refusal> {
        if !std::mem::replace(&mut self.is_loaded, true)
            && let Some(segment) = self.cache.as_ref().and_then(|cache| cache.load())
        {
            let live = Live::all(&segment);
            Arc::make_mut(&mut self.parts).push((Arc::new(segment), live));
            self.is_kept = true;
        }
        match &mut self.watching {
            Watching::Yes(watch) => watch.drain(&mut self.changes),
            Watching::No | Watching::Never => self.changes.everything = true,
        }
        let changes = std::mem::take(&mut self.changes);
        self.apply(manuals, &changes, is_gone)?;
        // The number of files is known only after the first pass.
        if matches!(self.watching, Watching::No) && self.live_files() >= self.watched_from {
            self.apply(manuals, &Changes { everything: true, ..Changes::default() }, is_gone)?;
        }
        Ok(())
    }

    fn apply(
        &mut self,
        manuals: &Manuals,
        changes: &Changes,
        is_gone: &dyn Fn() -> bool,
    ) -> Result<(), Refusal> {
        // If this fails, check everything again next time, so that no change is lost.
        let stale = self.look(manuals, changes).inspect_err(|_| self.changes.everything = true)?;
        if self.read(manuals, &stale, is_gone) {
            return Ok(());
        }
        self.changes.everything = true;
        Err(Refusal::conflict("the call was cancelled; search again"))
    }

    fn live_files(&self) -> u32 {
        self.parts.iter().map(|(_, live)| live.file_count).sum()
    }

    /// Marks removed and changed files as dead; returns the new and changed ones, which must be read.
    fn look(&mut self, manuals: &Manuals, changes: &Changes) -> Result<Vec<RelPath>, Refusal> {
        let mut stale = Vec::new();
        if changes.everything {
            if matches!(self.watching, Watching::No) && self.live_files() >= self.watched_from {
                self.watching = Watch::new().map_or(Watching::Never, Watching::Yes);
            }
            self.walk(manuals, None, &mut stale).map_err(|error| Refusal::system("manuals", &error))?;
            return Ok(stale);
        }
        let mut last: Option<&RelPath> = None;
        for folder in &changes.folders {
            if last.is_some_and(|last| folder.is_at_or_below(last)) {
                continue;
            }
            last = Some(folder);
            if let Watching::Yes(watch) = &mut self.watching {
                watch.forget(folder);
            }
            if let Err(error) = self.walk(manuals, Some(folder), &mut stale) {
                self.bury_below(folder);
                let is_gone =
                    matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP));
                if !is_gone {
                    self.changes.folders.insert(folder.clone());
                }
            }
        }
        for path in &changes.files {
            self.bury(path);
            match manuals.root.entry(path) {
                Ok(Some(entry)) if !entry.is_dir && manuals.is_readable(&entry) => stale.push(entry.path),
                Ok(_) => {}
                Err(error)
                    if matches!(
                        Errno::from_io_error(&error),
                        Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
                    ) => {}
                Err(_) => _ = self.changes.files.insert(path.clone()),
            }
        }
        stale.sort_unstable();
        stale.dedup();
        Ok(stale)
    }

    /// Checks all files below a folder, and starts watching all folders.
    fn walk(
        &mut self,
        manuals: &Manuals,
        folder: Option<&RelPath>,
        stale: &mut Vec<RelPath>,
    ) -> std::io::Result<()> {
        let parts = Arc::make_mut(&mut self.parts);
        let left =
            parts.iter().map(|(segment, _)| segment.files_below(folder.map(RelPath::as_str))).collect();
        let mut walk =
            Walk { manuals, parts, left, stale, watching: &mut self.watching, changes: &mut self.changes };
        if manuals.has_top {
            // The files at the top come first, which the order of a walk is not.
            *walk.watching = Watching::Never;
            for entry in manuals.walk(folder).map_err(|refusal| std::io::Error::other(refusal.message))? {
                walk.file(entry);
            }
        } else {
            manuals.root.visit(folder, &mut walk)?;
        }
        walk.pass(None);
        Ok(())
    }

    /// Marks a changed or removed file as dead.
    fn bury(&mut self, path: &RelPath) {
        for (segment, live) in Arc::make_mut(&mut self.parts) {
            if let Ok(file) = segment.find_file(path.as_str()) {
                live.bury(segment, file);
            }
        }
    }

    fn bury_below(&mut self, folder: &RelPath) {
        for (segment, live) in Arc::make_mut(&mut self.parts) {
            for file in segment.files_below(Some(folder.as_str())) {
                bury(segment, live, file);
            }
        }
    }
}

fn bury(segment: &Segment, live: &mut Live, file: FileId) {
    if live.has_file(file) {
        live.bury(segment, file);
    }
}

/// Compares the files on disk with the indexed ones; both are sorted.
struct Walk<'a> {
    manuals: &'a Manuals,
    parts: &'a mut Parts,
    /// For each part, the files not yet visited.
    left: Vec<Range<FileId>>,
    stale: &'a mut Vec<RelPath>,
    watching: &'a mut Watching,
    changes: &'a mut Changes,
}

impl Walk<'_> {
    /// Marks as dead all indexed files that sort before `entry` (or all that are left), and `entry` itself if
    /// it has changed. Returns whether `entry` is unchanged.
    fn pass(&mut self, entry: Option<&Entry>) -> bool {
        let mut is_same = false;
        for ((segment, live), left) in self.parts.iter_mut().zip(&mut self.left) {
            while let Some(file) = left.clone().next() {
                let known = segment.file(file);
                let order = entry.map(|entry| compare_paths(known.path, entry.path.as_str()));
                if order.is_some_and(std::cmp::Ordering::is_gt) {
                    break;
                }
                left.next();
                if !live.has_file(file) {
                    continue;
                }
                let is_it = entry.filter(|_| order.is_some_and(std::cmp::Ordering::is_eq));
                if is_it.is_some_and(|entry| known.is_settled && known.mark == Mark::from(&entry.stamp)) {
                    is_same = true;
                } else {
                    bury(segment, live, file);
                }
            }
        }
        is_same
    }
}

impl Visitor for Walk<'_> {
    fn enter(&mut self, folder: std::os::fd::BorrowedFd<'_>, path: Option<&RelPath>) {
        if let Watching::Yes(watch) = self.watching
            && let Err(error) = watch.add(folder, path)
        {
            tracing::info!(%error, "the manuals are not watched; each search looks at all files");
            *self.watching = Watching::Never;
        }
    }

    fn file(&mut self, entry: Entry) {
        if self.manuals.is_readable(&entry) && !self.pass(Some(&entry)) {
            self.stale.push(entry.path);
        }
    }

    fn miss(&mut self, folder: RelPath) {
        self.changes.folders.insert(folder);
    }
}
