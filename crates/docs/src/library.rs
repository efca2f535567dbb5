//! The index of all manuals, and keeping it up to date.

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use rustix::io::Errno;

use crate::answer::FileType;
use crate::cache::Cache;
use crate::index::{
    Blob, Broken, Doc, Draft, FileId, Live, Mark, NewDoc, NewFile, Segment, Unmerged, compare_paths, merge,
};
use crate::manual::{Manuals, Reading, file_name};
use crate::path::RelPath;
use crate::refusal::{Code, Refusal};
use crate::root::{Entry, Visitor};
use crate::section::{Outline, page_title, shortened};
use crate::watch::{Changes, Watch};

/// Fewer files are looked at quickly enough at every search: that sees changes which no watch tells of, such as those
/// through another name of a file.
const WATCHED_FILES: u32 = 1000;

/// So many files are read by one thread.
const FILES_FOR_ONE: usize = 64;
const MOST_THREADS: usize = 4;
/// How many files a thread takes at a time.
const CHUNK: usize = 32;
/// What a thread gathers before it is written as a segment.
const DRAFT_BYTES: usize = 20 * 1024 * 1024;

/// Parts that are together larger than this are merged into the one before, however large that is: they lie in memory, and
/// are read again at the next start.
const MOST_LOOSE_BYTES: u64 = 4 * 1024 * 1024;
/// Larger segments are merged in the background.
const MERGED_AT_ONCE_BYTES: u64 = 512 * 1024;

/// Segments, and what of each still holds.
pub(crate) type Parts = Vec<(Arc<Segment>, Live)>;

/// The index of all manuals. Nothing is read before the first [`refresh`](Self::refresh).
#[derive(Debug)]
pub(crate) struct Library {
    parts: Arc<Parts>,
    cache: Option<Arc<Cache>>,
    /// Whether the cache was looked at.
    is_loaded: bool,
    /// Whether the first part is what the cache has.
    is_kept: bool,
    watching: Watching,
    changes: Changes,
    is_merging: bool,
    /// From so many files on they are watched.
    watched_from: u32,
}

#[derive(Debug, Default)]
enum Watching {
    /// Not yet.
    #[default]
    No,
    Yes(Watch),
    /// The system cannot.
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

    /// The index as it is now.
    pub(crate) fn parts(&self) -> Arc<Parts> {
        Arc::clone(&self.parts)
    }

    /// Forgets everything, also what is kept: it cannot be read.
    pub(crate) fn discard(&mut self) {
        tracing::warn!("the index cannot be read any more; it is made anew");
        self.parts = Arc::default();
        (self.is_loaded, self.is_kept) = (true, false);
        self.changes.everything = true;
    }

    /// Reads what is new or changed, and forgets what is gone. What was read stays when it is given up.
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
        // Only now it is known how many there are.
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
        // Whatever comes between is not lost.
        let stale = self.look(manuals, changes).inspect_err(|_| self.changes.everything = true)?;
        if self.read(manuals, &stale, is_gone) {
            return Ok(());
        }
        self.changes.everything = true;
        Err(Refusal::conflict("the call was cancelled; search again"))
    }

    fn live_files(&self) -> u32 {
        self.parts.iter().map(|(_, live)| live.live_files).sum()
    }

    /// Looks at what has changed: what is gone is buried, what is new or changed must be read.
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
                self.bury_below(manuals, folder);
                let is_gone =
                    matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP));
                if !is_gone {
                    self.changes.folders.insert(folder.clone());
                }
            }
        }
        for path in &changes.files {
            self.bury(manuals, path);
            match manuals.root().entry(path) {
                Ok(Some(entry)) if !entry.is_dir && Manuals::is_readable(&entry) => stale.push(entry.path),
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

    /// Looks at all files below a folder, and has all folders watched from now on.
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
        manuals.root().visit(folder, &mut walk)?;
        walk.pass(None);
        Ok(())
    }

    /// A file is not what it was.
    fn bury(&mut self, manuals: &Manuals, path: &RelPath) {
        for (segment, live) in Arc::make_mut(&mut self.parts) {
            if let Ok(file) = segment.find_file(path.as_str()) {
                live.bury(segment, file);
            }
        }
        manuals.forget(path);
    }

    fn bury_below(&mut self, manuals: &Manuals, folder: &RelPath) {
        for (segment, live) in Arc::make_mut(&mut self.parts) {
            for file in segment.files_below(Some(folder.as_str())) {
                bury(manuals, segment, live, file);
            }
        }
    }

    /// Reads files into new segments; whether all of them.
    fn read(&mut self, manuals: &Manuals, stale: &[RelPath], is_gone: &dyn Fn() -> bool) -> bool {
        // To ask is to read several files of the system.
        static THREADS: LazyLock<usize> = LazyLock::new(|| {
            std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(MOST_THREADS)
        });
        let threads = if stale.len() <= FILES_FOR_ONE { 1 } else { *THREADS };
        let work = Work {
            manuals,
            stale,
            chunk: if threads == 1 { 1 } else { CHUNK },
            next: AtomicUsize::new(0),
            is_stopped: AtomicBool::new(false),
            cache: self.cache.as_deref(),
            made: Mutex::default(),
            again: Mutex::default(),
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(|| work.run(&|| false));
            }
            work.run(is_gone);
        });
        let made = work.made.into_inner().unwrap_or_else(PoisonError::into_inner);
        let parts = Arc::make_mut(&mut self.parts);
        for segment in made {
            let live = Live::all(&segment);
            parts.push((Arc::new(segment), live));
        }
        self.changes.files.extend(work.again.into_inner().unwrap_or_else(PoisonError::into_inner));
        !work.is_stopped.into_inner()
    }
}

fn bury(manuals: &Manuals, segment: &Segment, live: &mut Live, file: FileId) {
    if live.has_file(file) {
        if let Ok(path) = RelPath::parse(segment.file(file).path) {
            manuals.forget(&path);
        }
        live.bury(segment, file);
    }
}

/// Compares what is on the disk with what is known of it; both are sorted.
struct Walk<'a> {
    manuals: &'a Manuals,
    parts: &'a mut Parts,
    /// Of each part, the files that were not come to.
    left: Vec<Range<FileId>>,
    stale: &'a mut Vec<RelPath>,
    watching: &'a mut Watching,
    changes: &'a mut Changes,
}

impl Walk<'_> {
    /// Buries what comes before a file, or all that is left, and what that file was if it is not the same any more. Whether
    /// it is.
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
                    bury(self.manuals, segment, live, file);
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
        if Manuals::is_readable(&entry) && !self.pass(Some(&entry)) {
            self.stale.push(entry.path);
        }
    }

    fn miss(&mut self, folder: RelPath) {
        self.changes.folders.insert(folder);
    }
}

/// Files that several threads read.
struct Work<'a> {
    manuals: &'a Manuals,
    /// Sorted, so that each thread's are.
    stale: &'a [RelPath],
    chunk: usize,
    next: AtomicUsize,
    is_stopped: AtomicBool,
    cache: Option<&'a Cache>,
    made: Mutex<Vec<Segment>>,
    /// What may work the next time.
    again: Mutex<Vec<RelPath>>,
}

impl Work<'_> {
    fn run(&self, is_gone: &dyn Fn() -> bool) {
        let mut draft = Draft::default();
        loop {
            let start = self.next.fetch_add(self.chunk, Ordering::Relaxed);
            let chunk = self.stale.iter().skip(start).take(self.chunk);
            if chunk.len() == 0 {
                break;
            }
            for path in chunk {
                if self.is_stopped.load(Ordering::Relaxed) || is_gone() {
                    self.is_stopped.store(true, Ordering::Relaxed);
                    return self.make(&draft, false);
                }
                self.read(path, &mut draft);
                if draft.bytes() > DRAFT_BYTES {
                    self.make(&draft, true);
                    draft = Draft::default();
                }
            }
        }
        self.make(&draft, false);
    }

    /// What is no text or too large has nothing to be found, until it changes. What fails otherwise may work the next time.
    fn read(&self, path: &RelPath, draft: &mut Draft) {
        let refusal = match self.manuals.reopen(path).and_then(|source| self.manuals.text(source)) {
            Ok(reading) => return draft.add(new_file(&reading), &reading.text),
            Err(refusal) => refusal,
        };
        tracing::debug!(path = path.as_str(), reason = refusal.message, "file left out");
        if refusal.code == Code::NotFound {
            return;
        }
        if !refusal.is_lasting {
            self.again.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
        }
        if let Ok(Some(entry)) = self.manuals.root().entry(path) {
            let file = NewFile {
                path: path.as_str().to_owned(),
                mark: Mark::from(&entry.stamp),
                is_settled: refusal.is_lasting && entry.stamp.is_settled(),
                title: String::new(),
                docs: Vec::new(),
            };
            draft.add(file, "");
        }
    }

    fn make(&self, draft: &Draft, is_large: bool) {
        if draft.is_empty() {
            return;
        }
        let on_disk = self.cache.filter(|_| is_large).and_then(|cache| {
            let written = cache.scratch(|out, key| Ok(draft.write(out, key)?));
            written.inspect_err(|error| tracing::warn!(?error, "a part of the index stays in memory")).ok()
        });
        let segment = on_disk.unwrap_or_else(|| {
            let mut bytes = Vec::new();
            draft.write(&mut bytes, "").expect("memory can be written to");
            bytes.shrink_to_fit();
            Segment::open(Blob::Memory(bytes), "").expect("it was just written")
        });
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(segment);
    }
}

/// A file's sections, each by its own text: a word counts for the section it stands in, not for all those around.
fn new_file(Reading { source, text, is_settled }: &Reading) -> NewFile {
    let path = source.path.as_str();
    let (title, docs) = match source.file_type {
        FileType::Json => {
            let title = file_name(path).to_owned();
            let doc = Doc { section: None, title: title.clone(), parent: None, body: 0..text.len() };
            (String::new(), vec![NewDoc { doc, title, context: String::new() }])
        }
        FileType::Md => {
            let outline = Outline::of(text);
            let docs = outline.iter().map(|section| {
                let title = if section.level == 0 { file_name(path) } else { &section.title };
                let parents = std::iter::successors(section.parent, |place| outline[*place].parent);
                let context: Vec<_> = parents.map(|place| outline[place].title.as_str()).collect();
                let doc = Doc {
                    section: Some((section.line, section.print)),
                    title: shortened(title),
                    parent: section.parent,
                    body: section.text(),
                };
                NewDoc { doc, title: title.to_owned(), context: context.join(" ") }
            });
            (shortened(page_title(text).unwrap_or_default()), docs.collect())
        }
    };
    let mark = Mark::from(&source.stamp());
    NewFile { path: path.to_owned(), mark, is_settled: *is_settled, title, docs }
}

/// What is to be merged.
#[derive(Debug)]
struct Plan {
    /// From this part on.
    from: usize,
    parts: Parts,
    /// Where it goes, if that is the disk.
    cache: Option<Arc<Cache>>,
}

/// Merges what has become many small parts: a little at once, more in the background.
pub(crate) fn tidy(library: &Arc<Mutex<Library>>) {
    let mut locked = lock(library);
    let Some(plan) = locked.plan() else { return };
    let bytes: u64 = plan.parts.iter().map(|(segment, _)| segment.size).sum();
    if plan.cache.is_none() && bytes <= MERGED_AT_ONCE_BYTES {
        let merged = plan.run(&|| false);
        return locked.take(plan, merged);
    }
    locked.is_merging = true;
    drop(locked);
    let weak = Arc::downgrade(library);
    let run = move || merge_for(&weak, plan);
    if let Err(error) = std::thread::Builder::new().name("toolbridge-docs".into()).spawn(run) {
        tracing::warn!(%error, "the parts of the index are not merged now");
        lock(library).is_merging = false;
    }
}

fn merge_for(library: &Weak<Mutex<Library>>, plan: Plan) {
    let merged = plan.run(&|| library.strong_count() == 0);
    if let Some(library) = library.upgrade() {
        let mut locked = lock(&library);
        locked.is_merging = false;
        locked.take(plan, merged);
    }
}

/// A panic has left it half done: then it begins anew.
pub(crate) fn lock(library: &Mutex<Library>) -> std::sync::MutexGuard<'_, Library> {
    library.lock().unwrap_or_else(|half_done| {
        library.clear_poison();
        let mut locked = half_done.into_inner();
        locked.discard();
        locked.is_merging = false;
        locked
    })
}

impl Library {
    /// What is worth to be merged: parts that are together as large as half of the one before, or of which half is dead.
    fn plan(&mut self) -> Option<Plan> {
        if self.is_merging {
            return None;
        }
        let is_dead = |(_, live): &(_, Live)| live.live_files == 0;
        if self.parts.iter().any(is_dead) {
            self.is_kept &= !self.parts.first().is_some_and(is_dead);
            Arc::make_mut(&mut self.parts).retain(|part| !is_dead(part));
        }
        let parts = &self.parts;
        let size = |from: usize| parts[from..].iter().map(|(segment, _)| segment.size).sum::<u64>();
        let is_worth = |from: usize| {
            let (segment, live) = &parts[from];
            size(from + 1) >= MOST_LOOSE_BYTES.min(segment.size / 2)
                || live.live_files < segment.file_count() / 2
        };
        let is_unkept = |cache: &Arc<Cache>| !self.is_kept && !parts.is_empty() && cache.wants(size(0));
        let unkept = self.cache.as_ref().is_some_and(is_unkept).then_some(0);
        let from = unkept.or_else(|| (0..parts.len()).find(|from| is_worth(*from)))?;
        let has_dead = parts[from].1.live_files < parts[from].0.file_count();
        if unkept.is_none() && from + 1 == parts.len() && !has_dead {
            return None;
        }
        let cache = self.cache.as_ref().filter(|cache| from == 0 && cache.wants(size(0))).map(Arc::clone);
        Some(Plan { from, parts: parts[from..].to_vec(), cache })
    }

    /// Takes what was merged in the place of its parts. What has died meanwhile is dead in it.
    fn take(&mut self, plan: Plan, merged: Result<Segment, Unmerged>) {
        let segment = match merged {
            Ok(segment) => segment,
            Err(Unmerged::GivenUp) => return,
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
    fn run(&self, is_gone: &dyn Fn() -> bool) -> Result<Segment, Unmerged> {
        if let Some(cache) = &self.cache {
            return cache.keep(|out, key| merge(&self.parts, out, key, is_gone));
        }
        let mut bytes = Vec::new();
        merge(&self.parts, &mut bytes, "", is_gone)?;
        bytes.shrink_to_fit();
        Ok(Segment::open(Blob::Memory(bytes), "").map_err(|Broken| Unmerged::Read)?)
    }
}
