//! Reads files into segments with several threads.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use super::Library;
use crate::cache::Cache;
use crate::index::{Blob, Doc, Draft, Live, Mark, NewDoc, NewFile, Segment};
use crate::manual::{Manuals, Reading};
use crate::path::RelPath;
use crate::refusal::Code;
use crate::section::{page_title, shortened};

/// Up to this many files are read by one thread.
const FILES_FOR_ONE: usize = 64;
const MOST_THREADS: usize = 4;
/// How many files a thread takes at a time.
const CHUNK: usize = 32;
/// How much all threads together collect in memory before they write segments.
const DRAFTS_BYTES: usize = 32 * 1024 * 1024;
/// A smaller draft becomes a segment in memory.
const LARGE_DRAFT_BYTES: usize = 2 * 1024 * 1024;

impl Library {
    /// Reads files into new segments; returns whether all of them were read.
    pub(super) fn read(&mut self, manuals: &Manuals, stale: &[RelPath], is_gone: &dyn Fn() -> bool) -> bool {
        // Cached, because determining it reads several system files.
        static THREADS: LazyLock<usize> =
            LazyLock::new(|| std::thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS));
        let threads = if stale.len() <= FILES_FOR_ONE { 1 } else { *THREADS };
        let work = Work {
            manuals,
            stale,
            draft_bytes: DRAFTS_BYTES / threads,
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
        // Only now, because their tables and the drafts would be in memory at the same time.
        let opened = made.into_iter().map(|blob| Segment::open(blob, "")).collect::<Result<Vec<_>, _>>();
        let Ok(opened) = opened else {
            tracing::warn!("a part of the index cannot be read; the index stays in memory");
            self.cache = None;
            return self.read(manuals, stale, is_gone);
        };
        let parts = Arc::make_mut(&mut self.parts);
        for segment in opened {
            let live = Live::all(&segment);
            parts.push((Arc::new(segment), live));
        }
        self.changes.files.extend(work.again.into_inner().unwrap_or_else(PoisonError::into_inner));
        !work.is_stopped.into_inner()
    }
}

/// Files read by several threads.
struct Work<'a> {
    manuals: &'a Manuals,
    /// Sorted, so that each thread's files are sorted too.
    stale: &'a [RelPath],
    /// How much a thread collects.
    draft_bytes: usize,
    chunk: usize,
    next: AtomicUsize,
    is_stopped: AtomicBool,
    cache: Option<&'a Cache>,
    made: Mutex<Vec<Blob>>,
    /// Files to try again at the next refresh.
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
                    return self.make(&draft);
                }
                self.read(path, &mut draft);
                if draft.bytes() > self.draft_bytes {
                    self.make(&draft);
                    draft = Draft::default();
                }
            }
        }
        self.make(&draft);
    }

    /// A file that is not text or too large is indexed as empty until it changes. Other errors are retried at
    /// the next refresh.
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
        if let Ok(Some(entry)) = self.manuals.root.entry(path) {
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

    fn make(&self, draft: &Draft) {
        if draft.is_empty() {
            return;
        }
        let is_large = |_: &&Cache| draft.bytes() > LARGE_DRAFT_BYTES;
        let on_disk = self.cache.filter(is_large).and_then(|cache| {
            let written = cache.scratch(|out, key| Ok(draft.write(out, key)?));
            written.inspect_err(|error| tracing::warn!(?error, "a part of the index stays in memory")).ok()
        });
        let blob = on_disk.unwrap_or_else(|| {
            let mut bytes = Vec::new();
            draft.write(&mut bytes, "").expect("memory can be written to");
            bytes.shrink_to_fit();
            Blob::Memory(bytes)
        });
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(blob);
    }
}

/// A file's sections, each with only its own text: a word counts for its own section, not for the enclosing
/// ones.
fn new_file(Reading { source, text, is_settled }: &Reading) -> NewFile {
    let path = source.path.as_str();
    let (title, docs) = if source.format.is_json() {
        let title = source.path.name().to_owned();
        let doc = Doc { section: None, title: shortened(&title), parent: None, body: 0..text.len() };
        (String::new(), vec![NewDoc { doc, title, context: String::new() }])
    } else {
        let outline = source.format.outline(text);
        let docs = outline.iter().map(|section| {
            let title = if section.level == 0 { source.path.name() } else { &section.title };
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
    };
    let mark = Mark::from(&source.stamp());
    NewFile { path: path.to_owned(), mark, is_settled: *is_settled, title, docs }
}
