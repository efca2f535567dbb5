//! Searching all manuals.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use serde_json::json;
use toolbridge_core::tool::RawJson;

use crate::excerpt::shown_title;
use crate::index::{Index, Match, Matches};
use crate::manual::{Manuals, Reading};
use crate::reference::{RefItem, suffix};
use crate::refusal::Refusal;
use crate::section::{Outline, cut, shortened};
use crate::snapshot::ATTEMPTS;
use crate::snippet;
use crate::term::query_terms;
use crate::tools::manual_find::{Arguments, Found, Hit};

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
const SNIPPET_WITHIN_CHARS: usize = 64 * 1024;

/// How much text of files is kept besides the file found last.
const PAGES_BYTES: usize = 4 * 1024 * 1024;

/// How often a search that waits for the index checks whether its call was cancelled.
const PAUSE: Duration = Duration::from_millis(5);

/// The index of some files, and searching it.
#[derive(Debug, Default)]
pub(crate) struct Search {
    index: Mutex<Index>,
    /// The files found last, newest first: to read and outline a large file for each hit would take long.
    pages: Mutex<Vec<Arc<Page>>>,
}

/// A file as it was when it was indexed.
#[derive(Debug)]
struct Page {
    reading: Reading,
    outline: Outline,
}

impl Search {
    /// Reads all manuals now, so that the first search need not.
    pub(crate) fn prepare(&self, manuals: &Manuals, is_gone: &dyn Fn() -> bool) {
        if let Err(refusal) = self.lock(is_gone).and_then(|mut index| index.refresh(manuals, is_gone)) {
            tracing::debug!(reason = refusal.message, "the manuals are not read yet");
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
        let manual = request.manual_id.as_deref().map(|id| manuals.check_manual(id)).transpose()?;
        let limit = manuals.hard.found(request.limit);
        let full = request.full == Some(true);
        let mut attempts = 0;
        loop {
            let mut index = self.lock(is_gone)?;
            index.refresh(manuals, is_gone)?;
            let Matches { best, total, terms } = index.search(&terms, manual.as_ref(), limit);
            drop(index);
            let hit = |one| self.page(manuals, one).and_then(|page| hit(&page, one, full));
            let found: Vec<_> = best.iter().map(hit).collect();
            attempts += 1;
            // Files that change all the time are left out in the end.
            if attempts < ATTEMPTS && found.iter().any(Option::is_none) {
                continue;
            }
            return Ok(Found {
                items: with_snippets(found.into_iter().flatten().collect(), &terms, full),
                total,
            });
        }
    }

    /// The file of a match; `None` if it has changed since it was indexed.
    fn page(&self, manuals: &Manuals, found: &Match) -> Option<Arc<Page>> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it =
            |reading: &Reading| reading.snapshot.stamp.numbers() == found.mark && reading.path == found.path;
        let page = if let Some(place) = pages.iter().position(|page| is_it(&page.reading)) {
            pages.remove(place)
        } else {
            let reading = manuals.read(&found.path).ok().filter(is_it)?;
            let outline = reading.format.outline(&reading.snapshot.text);
            let is_settled = reading.snapshot.is_settled;
            let page = Arc::new(Page { reading, outline });
            // A later change could have the same mark.
            if !is_settled {
                return Some(page);
            }
            page
        };
        pages.insert(0, Arc::clone(&page));
        let mut bytes = 0;
        let kept = pages.iter().skip(1).take_while(|page| {
            bytes += page.reading.snapshot.text.len();
            bytes <= PAGES_BYTES
        });
        let kept = 1 + kept.count();
        pages.truncate(kept);
        Some(page)
    }

    /// Locks the index. The first search may have to wait long until all manuals are read.
    fn lock(&self, is_gone: &dyn Fn() -> bool) -> Result<MutexGuard<'_, Index>, Refusal> {
        loop {
            match self.index.try_lock() {
                Ok(index) => return Ok(index),
                // After a panic it may be incomplete, so it is built again.
                Err(TryLockError::Poisoned(half_done)) => {
                    self.index.clear_poison();
                    *half_done.into_inner() = Index::default();
                }
                Err(TryLockError::WouldBlock) if is_gone() => {
                    return Err(Refusal::conflict("the call was cancelled; search again"));
                }
                Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            }
        }
    }
}

/// A hit without its snippet, and the text to take one from.
fn hit(page: &Page, found: &Match, full: bool) -> Option<(Hit, String)> {
    let section = page.outline.get(found.section)?;
    let text = cut(&page.reading.snapshot.text[section.text()], SNIPPET_WITHIN_CHARS).0.to_owned();
    let spot = (!page.reading.format.is_json()).then_some((section.line, section.print));
    let (path, within) = (found.path.as_str(), within(&page.outline, found));
    let reference = if full {
        json!(RefItem::new(&found.path, spot))
    } else {
        json!(format!("{path}{}", spot.map(|(line, print)| suffix(line, print)).unwrap_or_default()))
    };
    let hit = Hit {
        reference,
        title: shown_title(found.path.name(), section),
        within: (!within.is_empty()).then_some(within),
        score: full.then_some((found.score * 1e4).round() / 1e4),
        snippet: None,
    };
    Some((hit, text))
}

/// The titles above a section, outermost first.
fn within(outline: &Outline, found: &Match) -> String {
    let above = std::iter::successors(outline[found.section].parent, |place| outline[*place].parent);
    let mut titles: Vec<_> = above.map(|place| shortened(&outline[place].title)).collect();
    // Skip a page title that repeats the first heading.
    let first = titles.last().cloned().unwrap_or_else(|| shortened(&outline[found.section].title));
    if !found.page.is_empty() && *found.page != *first {
        titles.push(found.page.to_string());
    }
    titles.reverse();
    let within = titles.join(" › ");
    // If cut, keep the end: the innermost title is the most specific.
    match within.char_indices().rev().nth(WITHIN_CHARS) {
        Some((start, char)) => format!("…{}", &within[start + char.len_utf8()..]),
        None => within,
    }
}

/// The hits with snippets. The best hits use the space first that is left after each hit's location.
fn with_snippets(found: Vec<(Hit, String)>, terms: &[String], full: bool) -> Vec<Hit> {
    let mut room = HIT_BYTES * found.len();
    for (hit, _) in &found {
        room = room.saturating_sub(hit.size());
    }
    let snippet = |(mut hit, text): (Hit, String)| {
        let short = room.saturating_sub(SNIPPET_FRAME_BYTES).min(SHORT_SNIPPET_CHARS);
        let most = if full { snippet::MAX_CHARS } else { short };
        if most >= LEAST_SNIPPET_CHARS {
            let text = snippet::snippet(&text, terms, most);
            room = room.saturating_sub(text.len() + SNIPPET_FRAME_BYTES);
            hit.snippet = Some(text).filter(|text| full || !text.is_empty());
        }
        hit
    };
    found.into_iter().map(snippet).collect()
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

        fn try_find(&self, query: &str, is_gone: &dyn Fn() -> bool) -> Result<Found, Refusal> {
            let request = serde_json::from_value(json!({ "query": query })).unwrap();
            self.search.find(&self.manuals, &request, is_gone)
        }

        fn find(&self, query: &str) -> Found {
            self.try_find(query, &|| false).unwrap()
        }

        /// How many files are indexed, and how many sections were read, dead or alive.
        fn known(&self) -> (usize, usize) {
            self.search.index.lock().unwrap().counts()
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
            let left = std::cell::Cell::<usize>::new(patience);
            let is_gone = || left.replace(left.get().saturating_sub(1)) == 0;
            let outcome = shelf.try_find("key", &is_gone);
            assert_eq!(outcome.is_ok(), want == 4, "{outcome:?}");
            assert_eq!(shelf.known().0, want);
        }
        assert_eq!(shelf.find("key").total, 4);
    }

    #[test]
    fn a_search_that_waits_for_another_can_be_cancelled() {
        let shelf = Shelf::with(b"# key\n");
        let others = shelf.search.index.lock().unwrap();
        let refusal = shelf.try_find("key", &|| true).unwrap_err();
        assert_eq!(refusal.message, "the call was cancelled; search again");
        drop(others);
        assert_eq!(shelf.find("key").total, 1);
    }

    #[test]
    fn an_index_is_built_again_after_a_panic() {
        let shelf = Shelf::with(b"# key\n");
        assert_eq!(shelf.find("key").total, 1);
        shelf.write(b"# the other key\n");
        let broken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            _ = shelf.try_find("other", &|| panic!("in the middle of it"));
        }));
        assert_eq!((broken.is_err(), shelf.search.index.is_poisoned()), (true, true));
        assert_eq!((shelf.find("key").total, shelf.search.index.is_poisoned()), (1, false));
    }

    #[test]
    fn what_is_no_text_is_not_read_again_until_it_changes() {
        let shelf = Shelf::with(b"# key\xff\n");
        settle(&shelf.manuals);
        assert_eq!((shelf.find("key").total, shelf.known()), (0, (1, 0)));
        // Only the file's stamp is looked at: it is known as what it was.
        without_files(Errno::NOENT, || assert_eq!((shelf.find("key").total, shelf.known()), (0, (1, 0))));
        shelf.write(b"# key\n");
        assert_eq!(shelf.find("key").total, 1);
    }

    #[test]
    fn a_hit_is_never_of_a_file_that_has_changed_since_or_is_gone() {
        let shelf = Shelf::with(b"# key\n\nTurn it to the left.\n");
        settle(&shelf.manuals);
        assert_eq!(shelf.find("key").items[0].snippet.as_deref(), Some("Turn it to…"));
        let found = shelf.search.index.lock().unwrap().search(&query_terms("key"), None, 1).best.remove(0);
        let page = |search: &Search| search.page(&shelf.manuals, &found);
        let known = page(&shelf.search).unwrap();
        assert!(page(&Search::default()).is_some());
        // As the index knows it, until that is refreshed.
        shelf.write(b"# key\n\nsomething else that is much longer\n");
        assert!(Arc::ptr_eq(&page(&shelf.search).unwrap(), &known));
        assert!(page(&Search::default()).is_none());
        assert_eq!(shelf.find("key").items[0].snippet.as_deref(), Some("something else th…"));
        fs::remove_file(shelf.dir.path().join("m/a.md")).unwrap();
        assert!(page(&Search::default()).is_none());
        assert_eq!(shelf.find("key").total, 0);
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
