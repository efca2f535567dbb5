//! Searching all manuals.

use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use serde_json::json;
use toolbridge_core::tool::RawJson;

use crate::cache::Cache;
use crate::index::{Broken, Doc, Mark, Match, Query};
use crate::library::{self, Library, Parts};
use crate::manual::Manuals;
use crate::path::RelPath;
use crate::reference::{RefItem, suffix};
use crate::refusal::{Code, Refusal};
use crate::snippet;
use crate::term::query_terms;
use crate::tools::manual_find::{Arguments, Found, Hit, HitRef};

/// Every word of a query costs time. The description of `query` states this limit too.
const MAX_QUERY_CHARS: usize = 1000;

/// The average size of a hit in an answer, in bytes: a model pays for each.
const HIT_BYTES: usize = 115;
/// The bytes a snippet takes besides its text, and its maximum and minimum length.
const SNIPPET_FRAME_BYTES: usize = 13;
const SHORT_SNIPPET_CHARS: usize = 40;
const LEAST_SNIPPET_CHARS: usize = 16;

/// The maximum length of the titles shown above a section.
const WITHIN_CHARS: usize = 30;

/// How far into a section to look for a snippet.
const SNIPPET_WITHIN_BYTES: usize = 64 * 1024;

/// How often a search that waits for the index checks whether its call was cancelled.
const PAUSE: Duration = Duration::from_millis(5);

/// The manuals' index, and searching it.
#[derive(Debug)]
pub(crate) struct Search(pub(crate) Arc<Mutex<Library>>);

/// Without a stored index.
impl Default for Search {
    fn default() -> Self {
        Self::new(None)
    }
}

/// A section that matches.
#[derive(Debug, Clone)]
struct Place {
    path: RelPath,
    /// The file's mark when it was read.
    mark: Mark,
    doc: Doc,
    within: String,
    score: f64,
}

impl Search {
    pub(crate) fn new(cache: Option<Cache>) -> Self {
        Self(Arc::new(Mutex::new(Library::new(cache))))
    }

    /// Reads all manuals now, so that the first search need not.
    pub(crate) fn prepare(&self, manuals: &Manuals, is_gone: &dyn Fn() -> bool) {
        match self.refreshed(manuals, is_gone) {
            Ok(_) => library::tidy(&self.0),
            Err(refusal) => tracing::debug!(reason = refusal.message, "the manuals are not read yet"),
        }
    }

    /// Waits until all manuals are read. Stops when `is_gone` reports that the call was cancelled.
    pub(crate) fn find(
        &self,
        manuals: &Manuals,
        request: &Arguments,
        is_gone: &dyn Fn() -> bool,
    ) -> Result<Found, Refusal> {
        let length = request.query.chars().count();
        if length > MAX_QUERY_CHARS {
            return Err(Refusal::parameter(format!(
                "`query` has {length} characters, the limit is {MAX_QUERY_CHARS}; give only the words that matter"
            ))
            .with(json!({ "size_chars": length, "limit_chars": MAX_QUERY_CHARS })));
        }
        let terms = query_terms(&request.query);
        if terms.is_empty() {
            return Err(Refusal::parameter("`query` has no word to look for; give at least one"));
        }
        let manual = request.manual_id.as_deref();
        if let Some(id) = manual {
            // Tell a missing manual from one without matches.
            manuals.check_manual(id)?;
        }
        let limit = manuals.hard.found(request.limit);
        let parts = self.refreshed(manuals, is_gone)?;
        let looked = look(&parts, &terms, manual, limit).or_else(|Broken| {
            // The stored index is corrupt: build it again from the texts.
            library::lock(&self.0).discard();
            let parts = self.refreshed(manuals, is_gone)?;
            look(&parts, &terms, manual, limit)
                .map_err(|Broken| Refusal::new(Code::IoError, "the index cannot be read; search again"))
        })?;
        let Looked { found, total, terms } = looked;
        if found.is_empty() {
            drop(parts);
            library::tidy(&self.0);
            return Ok(Found { items: Vec::new(), total: 0 });
        }
        drop(parts);
        library::tidy(&self.0);
        let full = request.full == Some(true);
        // The space left after each hit's location; the best hits use it first.
        let mut room = HIT_BYTES * found.len();
        let mut items = Vec::with_capacity(found.len());
        let hits: Vec<_> = found.into_iter().map(|place| (place.hit(full), place)).collect();
        for (hit, _) in &hits {
            room = room.saturating_sub(hit.size());
        }
        for (mut hit, place) in hits {
            let most = if full {
                snippet::MAX_CHARS
            } else {
                room.saturating_sub(SNIPPET_FRAME_BYTES).min(SHORT_SNIPPET_CHARS)
            };
            if most >= LEAST_SNIPPET_CHARS {
                let text = place.snippet(manuals, &terms, most);
                room = room.saturating_sub(text.len() + SNIPPET_FRAME_BYTES);
                hit.snippet = Some(text).filter(|text| full || !text.is_empty());
            }
            items.push(hit);
        }
        Ok(Found { items, total })
    }

    /// The index with all changes applied.
    fn refreshed(&self, manuals: &Manuals, is_gone: &dyn Fn() -> bool) -> Result<Arc<Parts>, Refusal> {
        let mut library = self.lock(is_gone)?;
        library.refresh(manuals, is_gone)?;
        Ok(library.parts())
    }

    /// Locks the index. The first search may have to wait long until all manuals are read.
    fn lock(&self, is_gone: &dyn Fn() -> bool) -> Result<MutexGuard<'_, Library>, Refusal> {
        loop {
            match self.0.try_lock() {
                Ok(library) => return Ok(library),
                Err(TryLockError::Poisoned(_)) => return Ok(library::lock(&self.0)),
                Err(TryLockError::WouldBlock) if is_gone() => {
                    return Err(Refusal::conflict("the call was cancelled; search again"));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            }
        }
    }
}

/// The result of searching an index.
struct Looked {
    found: Vec<Place>,
    total: usize,
    /// The terms that were searched; snippets show the text around them.
    terms: Vec<String>,
}

fn look(parts: &Parts, terms: &[String], manual: Option<&str>, limit: usize) -> Result<Looked, Broken> {
    let query = Query::new(parts, terms)?;
    let matches = query.search(manual, limit);
    let found = matches.best.iter().map(|one| Place::of(parts, one)).collect::<Result<_, _>>()?;
    let total = usize::try_from(matches.total).unwrap_or(usize::MAX);
    Ok(Looked { found, total, terms: query.terms() })
}

/// The titles above a section, outermost first.
fn within(docs: &[Doc], place: usize, page: &str) -> Result<String, Broken> {
    let doc = docs.get(place).ok_or(Broken)?;
    let above =
        std::iter::successors(doc.parent, |place| docs.get(*place)?.parent.filter(|parent| parent < place));
    let mut titles: Vec<_> = above.filter_map(|place| Some(docs.get(place)?.title.as_str())).collect();
    // Skip a page title that repeats the first heading.
    if !page.is_empty() && page != titles.last().copied().unwrap_or(&doc.title) {
        titles.push(page);
    }
    titles.reverse();
    let within = titles.join(" › ");
    // If cut, keep the end: the innermost title is the most specific.
    Ok(match within.char_indices().rev().nth(WITHIN_CHARS) {
        Some((start, char)) => format!("…{}", &within[start + char.len_utf8()..]),
        None => within,
    })
}

impl Place {
    fn of(parts: &Parts, one: &Match) -> Result<Self, Broken> {
        let segment = &parts[one.part].0;
        let file = segment.file_of(one.doc);
        let entry = segment.file(file);
        let mut docs = segment.docs_of(file)?;
        let place = (one.doc - segment.docs_in(file).start) as usize;
        let within = within(&docs, place, entry.title)?;
        let path = RelPath::known(entry.path);
        Ok(Self { path, mark: entry.mark, doc: docs.swap_remove(place), within, score: one.score })
    }

    /// The hit without its snippet.
    fn hit(&self, full: bool) -> Hit {
        let Self { path, doc, within, score, .. } = self;
        let reference = if full {
            HitRef::Full(Box::new(RefItem::new(path.first(), path.below_first(), doc.section)))
        } else {
            let place = doc.section.map(|(line, print)| suffix(line, print)).unwrap_or_default();
            HitRef::Short(format!("{}{place}", path.as_str()))
        };
        Hit {
            reference,
            title: doc.title.clone(),
            within: (!within.is_empty()).then(|| within.clone()),
            score: full.then_some((score * 1e4).round() / 1e4),
            snippet: None,
        }
    }

    fn snippet(&self, manuals: &Manuals, terms: &[String], most: usize) -> String {
        let body = &self.doc.body;
        let end = body.end.min(body.start + SNIPPET_WITHIN_BYTES);
        // If the file has changed, these positions no longer belong to the section.
        let source =
            manuals.reopen(&self.path).ok().filter(|source| Mark::from(&source.stamp()) == self.mark);
        let text = source.and_then(|source| source.text_at(body.start..end));
        snippet::snippet(&text.unwrap_or_default(), terms, most)
    }
}

impl Hit {
    /// The hit's size in an answer, in bytes.
    fn size(&self) -> usize {
        RawJson::of(self).map_or(0, |text| text.as_bytes().len() + 1)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::io::Errno;
    use tempfile::TempDir;

    use super::*;
    use crate::manual::tests::{manual, settle, without_files};

    /// One manual with one file.
    struct Shelf {
        dir: TempDir,
        manuals: Manuals,
        search: Search,
    }

    impl Shelf {
        fn with(bytes: &[u8]) -> Self {
            let (dir, manuals) = manual(bytes);
            Self { dir, manuals, search: Search::default() }
        }

        fn write(&self, bytes: &[u8]) {
            fs::write(self.dir.path().join("m/a.md"), bytes).unwrap();
        }

        fn find(&self, query: &str) -> Found {
            let request = serde_json::from_value(json!({ "query": query })).unwrap();
            self.search.find(&self.manuals, &request, &|| false).unwrap()
        }

        /// How many files are indexed, and how many sections are stored for them, dead or alive.
        fn known(&self) -> (u32, usize) {
            let parts = self.search.0.lock().unwrap().parts();
            let files = parts.iter().map(|(_, live)| live.file_count).sum();
            let docs = parts
                .iter()
                .flat_map(|(segment, _)| (0..segment.file_count()).map(|file| segment.docs_in(file).len()));
            (files, docs.sum())
        }
    }

    #[test]
    fn a_file_that_could_not_be_opened_once_is_tried_again() {
        for errno in [Errno::MFILE, Errno::IO, Errno::ACCESS, Errno::NOENT] {
            let shelf = Shelf::with(b"# key\n");
            settle(&shelf.manuals);
            assert_eq!(without_files(errno, || shelf.find("key").total), 0);
            assert_eq!(shelf.find("key").total, 1, "{errno:?}");
        }
    }

    #[test]
    fn a_cancelled_search_ends_between_two_files_and_loses_nothing() {
        let shelf = Shelf::with(b"# key\n");
        for name in ["b", "c", "d"] {
            fs::write(shelf.dir.path().join(format!("m/{name}.md")), "# key\n").unwrap();
        }
        // Written last, so that all files are settled when this one is.
        shelf.write(b"# key\n");
        settle(&shelf.manuals);
        for (patience, want) in [(2, 2), (0, 2), (1, 3), (1, 4)] {
            let request = serde_json::from_value(json!({ "query": "key" })).unwrap();
            let left = std::cell::Cell::<usize>::new(patience);
            let is_gone = || left.replace(left.get().saturating_sub(1)) == 0;
            let outcome = shelf.search.find(&shelf.manuals, &request, &is_gone);
            assert_eq!(outcome.is_ok(), want == 4, "{outcome:?}");
            assert_eq!(shelf.known().0, want);
        }
        assert_eq!(shelf.find("key").total, 4);
    }

    #[test]
    fn what_is_no_text_is_not_read_again_until_it_changes() {
        let shelf = Shelf::with(b"# key\xff\n");
        settle(&shelf.manuals);
        let read = || {
            shelf.search.0.lock().unwrap().parts().iter().map(|(one, _)| Arc::as_ptr(one)).collect::<Vec<_>>()
        };
        assert_eq!((shelf.find("key").total, shelf.known()), (0, (1, 0)));
        let before = read();
        assert_eq!((shelf.find("key").total, read()), (0, before));
        shelf.write(b"# key\n");
        assert_eq!(shelf.find("key").total, 1);
    }

    #[test]
    fn a_snippet_is_never_of_a_file_that_has_changed_since_or_is_gone() {
        let shelf = Shelf::with(b"# key\n\nTurn it to the left.\n");
        assert_eq!(shelf.find("key").items[0].snippet.as_deref(), Some("Turn it to…"));
        let parts = shelf.search.0.lock().unwrap().parts();
        let place = look(&parts, &query_terms("key"), None, 1).unwrap().found.remove(0);
        assert_eq!(place.snippet(&shelf.manuals, &query_terms("key"), 100), "Turn it to…");
        shelf.write(b"# a\n\n# b\n\nsomething else that is much longer\n");
        assert_eq!(place.snippet(&shelf.manuals, &query_terms("key"), 100), "");
        fs::remove_file(shelf.dir.path().join("m/a.md")).unwrap();
        assert_eq!(place.snippet(&shelf.manuals, &query_terms("key"), 100), "");
    }

    #[test]
    fn outdated_sections_do_not_accumulate() {
        let shelf = Shelf::with(b"");
        let mut most = 0;
        for round in 0..1500 {
            shelf.write(format!("# round{round}\n").as_bytes());
            assert_eq!(shelf.find(&format!("round{round}")).total, 1);
            most = most.max(shelf.known().1);
        }
        assert!(most <= 2, "{most} sections are kept for one");
    }
}
